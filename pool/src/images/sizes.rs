//! How large images are, told without a look at the disk.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of images by the names of their files, as they were noted last: when one was found,
/// written, read or removed.
#[derive(Debug, Default)]
pub(super) struct Sizes(Mutex<HashMap<String, u64>>);

impl Sizes {
    /// There is a file of this name, and so large.
    pub fn note(&self, name: &str, bytes: u64) {
        let mut sizes = self.lock();
        match sizes.get_mut(name) {
            Some(known) => *known = bytes,
            None => drop(sizes.insert(name.to_owned(), bytes)),
        }
    }

    /// There is none.
    pub fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Bytes of the file of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.lock().get(name).copied()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        // It changes by single calls: a panic leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

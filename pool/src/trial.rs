//! For tests only: replacing the spawner's program, and holding pagers.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static SPAWNER: Mutex<Option<(PathBuf, String)>> = Mutex::new(None);

static ARE_PAGERS_HELD: AtomicBool = AtomicBool::new(false);

/// Holds all pagers while it exists: they only read pages that guests wait for. So the pages that a
/// guest has to wait for do not depend on timing.
#[derive(Debug)]
pub struct PagerHold(());

impl PagerHold {
    /// Holds all pagers from now on.
    #[must_use]
    pub fn new() -> Self {
        ARE_PAGERS_HELD.store(true, Ordering::Relaxed);
        Self(())
    }
}

impl Default for PagerHold {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for PagerHold {
    fn drop(&mut self) {
        ARE_PAGERS_HELD.store(false, Ordering::Relaxed);
    }
}

/// Returns whether pagers are held.
pub(crate) fn are_pagers_held() -> bool {
    ARE_PAGERS_HELD.load(Ordering::Relaxed)
}

/// Makes every spawner from now on run this program, with this argument.
pub fn use_spawner(program: PathBuf, argument: String) {
    *SPAWNER.lock().unwrap_or_else(PoisonError::into_inner) = Some((program, argument));
}

/// Returns the replacement program, if there is one, and its argument.
///
/// # Errors
/// Returns an error if the program cannot be opened.
pub fn spawner() -> io::Result<Option<(OwnedFd, String)>> {
    let spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    match &*spawner {
        Some((path, argument)) => Ok(Some((File::open(path)?.into(), argument.clone()))),
        None => Ok(None),
    }
}

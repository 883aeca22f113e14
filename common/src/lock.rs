//! A mutex without poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex for state that is valid between any two statements: if a holder panics, the others go
/// on.
#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    /// Puts `value` behind a lock.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

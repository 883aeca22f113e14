//! How far the reading of code is that was told before it was whole.

use std::pin::pin;
use std::sync::OnceLock;

use tokio::sync::Notify;

/// Whether code is whole, once that is known.
#[derive(Debug, Default)]
pub struct Progress {
    is_whole: OnceLock<bool>,
    told: Notify,
}

impl Progress {
    /// It is whole, or will never be. Only the first word counts.
    pub fn end(&self, is_whole: bool) {
        if self.is_whole.set(is_whole).is_ok() {
            self.told.notify_waiters();
        }
    }

    /// Whether it is whole; nothing as long as it is read.
    pub fn outcome(&self) -> Option<bool> {
        self.is_whole.get().copied()
    }

    /// Waits until it is whole, or never will be.
    pub async fn ended(&self) -> bool {
        loop {
            let mut told = pin!(self.told.notified());
            // From now on nothing is missed.
            told.as_mut().enable();
            if let Some(is_whole) = self.outcome() {
                return is_whole;
            }
            told.await;
        }
    }
}

//! The progress of reading code that was returned before it was complete.

use std::pin::pin;
use std::sync::OnceLock;

use tokio::sync::Notify;

/// Whether code is complete, once that is known.
#[derive(Debug, Default)]
pub struct Progress {
    is_whole: OnceLock<bool>,
    told: Notify,
}

impl Progress {
    /// Records that the code is complete, or will never be. Only the first call has an effect.
    pub fn end(&self, is_whole: bool) {
        if self.is_whole.set(is_whole).is_ok() {
            self.told.notify_waiters();
        }
    }

    /// Returns whether the code is complete; `None` as long as it is being read.
    pub fn outcome(&self) -> Option<bool> {
        self.is_whole.get().copied()
    }

    /// Waits until the code is complete, or never will be.
    pub async fn ended(&self) -> bool {
        loop {
            let mut told = pin!(self.told.notified());
            // From here on no notification is missed.
            told.as_mut().enable();
            if let Some(is_whole) = self.outcome() {
                return is_whole;
            }
            told.await;
        }
    }
}

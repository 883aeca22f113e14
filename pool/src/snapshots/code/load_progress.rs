//! The progress of reading code that was returned before it was complete.

use std::pin::pin;
use std::sync::OnceLock;

use tokio::sync::Notify;

/// Whether code is complete, once that is known.
#[derive(Debug, Default)]
pub struct LoadProgress {
    is_complete: OnceLock<bool>,
    notify: Notify,
}

impl LoadProgress {
    /// Records that the code is complete, or will never be. Only the first call has an effect.
    pub fn end(&self, is_complete: bool) {
        if self.is_complete.set(is_complete).is_ok() {
            self.notify.notify_waiters();
        }
    }

    /// Returns whether the code is complete; `None` as long as it is being read.
    pub fn outcome(&self) -> Option<bool> {
        self.is_complete.get().copied()
    }

    /// Waits until the code is complete, or never will be.
    pub async fn ended(&self) -> bool {
        loop {
            let mut notified = pin!(self.notify.notified());
            // From here on no notification is missed.
            notified.as_mut().enable();
            if let Some(is_complete) = self.outcome() {
                return is_complete;
            }
            notified.await;
        }
    }
}

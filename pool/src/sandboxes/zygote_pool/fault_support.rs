//! Whether page faults of guests can be answered on this host.

use tokio::sync::watch;

/// The capabilities that the first sandbox has reported.
#[derive(Debug)]
pub struct FaultSupport {
    /// Whether page faults can be answered; `None` before the sandbox was made.
    faults: watch::Sender<Option<bool>>,
}

impl FaultSupport {
    pub fn unknown() -> Self {
        Self {
            faults: watch::Sender::new(None),
        }
    }

    /// Returns whether page faults can be answered, as far as known.
    pub fn has_faults(&self) -> bool {
        self.faults.borrow().unwrap_or(false)
    }

    /// Waits until it is known whether page faults can be answered, and returns that.
    pub async fn wait(&self) -> bool {
        let mut faults = self.faults.subscribe();
        // The sender belongs to `self`, so it cannot be dropped meanwhile.
        let known = faults.wait_for(Option::is_some).await;
        known.is_ok_and(|known| known.unwrap_or(false))
    }

    /// Records whether page faults can be answered.
    pub fn record(&self, has_faults: bool) {
        self.faults.send_replace(Some(has_faults));
    }

    /// Records that page faults cannot be answered, unless something was recorded before.
    pub fn give_up(&self) {
        self.faults
            .send_if_modified(|faults| faults.replace(faults.unwrap_or(false)).is_none());
    }
}

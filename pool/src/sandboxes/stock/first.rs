//! The first sandbox, which shows whether this host can run any.
//!
//! The first sandbox is being made from the start of the spawner on. That takes about as long as
//! much of the node's other start-up. Callers that need its report, or a sandbox for themselves,
//! wait for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Stock, lock};
use crate::error::PlatformError;
use crate::snapshots::has_small_pages;

/// The first sandbox while it is being made. Dropping this abandons it.
#[derive(Debug)]
pub struct First(JoinHandle<Result<(), PlatformError>>);

impl First {
    /// Waits until it was made.
    ///
    /// # Errors
    /// Returns an error if it cannot be made: then no other can, either. Returns
    /// [`PlatformError::RuntimeEnds`] if the runtime ends before.
    pub async fn made(mut self) -> Result<(), PlatformError> {
        let made = (&mut self.0).await;
        // The runtime ends, or the task panicked.
        made.unwrap_or(Err(PlatformError::RuntimeEnds))
    }
}

impl Drop for First {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The capabilities that the first sandbox has reported.
#[derive(Debug)]
pub struct Told {
    /// Whether page faults can be answered; `None` before the sandbox was made.
    faults: watch::Sender<Option<bool>>,
}

impl Told {
    pub fn nothing() -> Self {
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
        let told = faults.wait_for(Option::is_some).await;
        told.is_ok_and(|told| told.unwrap_or(false))
    }
}

/// Releases the waiters on drop, whatever happened to the sandbox, even if its task never ran.
struct Telling(Arc<Stock>);

impl Drop for Telling {
    fn drop(&mut self) {
        let told = &self.0.told;
        told.faults
            .send_if_modified(|faults| faults.replace(faults.unwrap_or(false)).is_none());
    }
}

impl Stock {
    /// Makes the first sandbox. Must be called inside a Tokio runtime.
    pub(super) fn make_first(stock: &Arc<Self>, is_kept: bool) -> First {
        let telling = Telling(stock.clone());
        First(tokio::spawn(async move {
            let stock = telling.0.clone();
            let has_small_pages = has_small_pages();
            let first = stock.make_bare().await?;
            let tells = first.sandbox.tells_faults() && has_small_pages;
            let surplus = {
                let mut kept = lock(&stock.kept);
                // [`Stock::stop`] sets `stopped` before it empties the stock.
                if is_kept && !stock.stopped.load(Ordering::Acquire) {
                    kept.put(first);
                    None
                } else {
                    Some(first)
                }
            };
            stock.told.faults.send_replace(Some(tells));
            drop(telling);
            if let Some(surplus) = surplus {
                surplus.sandbox.destroy().await;
            }
            Ok(())
        }))
    }
}

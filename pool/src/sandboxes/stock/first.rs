//! The first sandbox: whether this host can have any.
//!
//! It is on its way from when the spawner starts, which takes as long as a node takes for much of
//! what else it begins with. Who needs to know what it tells, or a sandbox for itself, waits for
//! it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Stock, lock};
use crate::error::PlatformError;
use crate::snapshots::has_small_pages;

/// The first sandbox, on its way. Dropping this gives it up.
#[derive(Debug)]
pub struct First(JoinHandle<Result<(), PlatformError>>);

impl First {
    /// Waits until it was made.
    ///
    /// # Errors
    /// When it cannot be made: then no other can.
    pub async fn made(mut self) -> Result<(), PlatformError> {
        let made = (&mut self.0).await;
        // The runtime ends, or it panicked.
        made.unwrap_or(Err(PlatformError::RuntimeEnds))
    }
}

impl Drop for First {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the first sandbox has told.
#[derive(Debug)]
pub struct Told {
    /// Whether page faults can be answered; nothing before it was made.
    faults: watch::Sender<Option<bool>>,
}

impl Told {
    pub fn nothing() -> Self {
        Self {
            faults: watch::Sender::new(None),
        }
    }

    /// Whether page faults can be answered, as far as that is known.
    pub fn has_faults(&self) -> bool {
        self.faults.borrow().unwrap_or(false)
    }

    /// The same, once it is known.
    pub async fn wait(&self) -> bool {
        let mut faults = self.faults.subscribe();
        // The sender is this one's own.
        let told = faults.wait_for(Option::is_some).await;
        told.is_ok_and(|told| told.unwrap_or(false))
    }
}

/// Says that nothing more is to be waited for, whatever became of the sandbox, though nobody may
/// have begun with it.
struct Telling(Arc<Stock>);

impl Drop for Telling {
    fn drop(&mut self) {
        let told = &self.0.told;
        told.faults
            .send_if_modified(|faults| faults.replace(faults.unwrap_or(false)).is_none());
    }
}

impl Stock {
    /// Makes the first sandbox. Must be called inside a tokio runtime.
    pub(super) fn make_first(stock: &Arc<Self>, is_kept: bool) -> First {
        let telling = Telling(stock.clone());
        First(tokio::spawn(async move {
            let stock = telling.0.clone();
            let has_small_pages = has_small_pages();
            let first = stock.make_bare().await?;
            let tells = first.sandbox.tells_faults() && has_small_pages;
            let surplus = {
                let mut kept = lock(&stock.kept);
                // Whoever stops empties the stock after saying so.
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

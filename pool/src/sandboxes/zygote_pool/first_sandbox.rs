//! The first sandbox, which shows whether this host can run any.
//!
//! The first sandbox is being made from the start of the spawner on. That takes about as long as
//! much of the node's other start-up. Callers that need its report, or a sandbox for themselves,
//! wait for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ZygotePool;
use crate::error::PlatformError;
use crate::snapshots::has_small_pages;

/// The first sandbox while it is being made. Dropping this abandons it.
#[derive(Debug)]
pub struct FirstSandbox(JoinHandle<Result<(), PlatformError>>);

impl FirstSandbox {
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

impl Drop for FirstSandbox {
    fn drop(&mut self) {
        self.0.abort();
    }
}

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
        let told = faults.wait_for(Option::is_some).await;
        told.is_ok_and(|told| told.unwrap_or(false))
    }
}

/// Releases the waiters on drop, whatever happened to the sandbox, even if its task never ran.
struct FaultSupportGuard(Arc<ZygotePool>);

impl Drop for FaultSupportGuard {
    fn drop(&mut self) {
        let told = &self.0.fault_support;
        told.faults
            .send_if_modified(|faults| faults.replace(faults.unwrap_or(false)).is_none());
    }
}

impl ZygotePool {
    /// Makes the first sandbox. Must be called inside a Tokio runtime.
    pub(super) fn make_first(zygote_pool: &Arc<Self>, is_kept: bool) -> FirstSandbox {
        let guard = FaultSupportGuard(zygote_pool.clone());
        FirstSandbox(tokio::spawn(async move {
            let zygote_pool = guard.0.clone();
            let has_small_pages = has_small_pages();
            let first = zygote_pool.make_generic().await?;
            let tells = first.sandbox.reports_faults() && has_small_pages;
            let surplus = {
                let mut ready_zygotes = zygote_pool.ready.lock();
                // [`ZygotePool::stop`] sets `stopped` before it empties the pool.
                if is_kept && !zygote_pool.stopped.load(Ordering::Acquire) {
                    ready_zygotes.put(first);
                    None
                } else {
                    Some(first)
                }
            };
            zygote_pool.fault_support.faults.send_replace(Some(tells));
            drop(guard);
            if let Some(surplus) = surplus {
                surplus.sandbox.destroy().await;
            }
            Ok(())
        }))
    }
}

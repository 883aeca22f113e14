//! The first sandbox, which shows whether this host can run any.
//!
//! The first sandbox is being made from the start of the spawner on. That takes about as long as
//! much of the node's other start-up. Callers that need its report, or a sandbox for themselves,
//! wait for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// Releases the waiters on drop, whatever happened to the sandbox, even if its task never ran.
struct FaultSupportGuard(Arc<ZygotePool>);

impl Drop for FaultSupportGuard {
    fn drop(&mut self) {
        self.0.fault_support.give_up();
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
            let has_faults = first.sandbox.reports_faults() && has_small_pages;
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
            zygote_pool.fault_support.record(has_faults);
            drop(guard);
            if let Some(surplus) = surplus {
                surplus.sandbox.destroy().await;
            }
            Ok(())
        }))
    }
}

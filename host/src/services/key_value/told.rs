//! What the node's log has of a store that cannot be used: functions may ask without end, so now
//! and then.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use faasw_common::text::Line;

use super::StoreError;

/// How often a failure is told.
const EACH: Duration = Duration::from_secs(10);

/// What was told last.
#[derive(Debug, Default)]
pub(super) struct Told {
    failure: Mutex<Option<Instant>>,
    /// A failure was told, and nothing has worked since.
    is_failing: AtomicBool,
}

impl Told {
    /// A store failed.
    pub(super) fn failed(&self, error: &StoreError) {
        let mut told = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= EACH) {
            *told = Some(Instant::now());
            self.is_failing.store(true, Ordering::Relaxed);
            tracing::error!(error = %Line(error), "the key-value stores of functions cannot be \
                 used");
        }
    }

    /// A store did what it was asked.
    pub(super) fn worked(&self) {
        if self.is_failing.load(Ordering::Relaxed) && self.is_failing.swap(false, Ordering::Relaxed)
        {
            tracing::info!("the key-value stores of functions can be used again");
        }
    }
}

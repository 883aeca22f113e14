//! Limits the log lines about a store that cannot be used, because functions may repeat their
//! requests without end.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use faasw_common::text::Line;

use super::StoreError;

/// The shortest time between two lines about failures.
const EACH: Duration = Duration::from_secs(10);

/// When a failure was last logged.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    failure: Mutex<Option<Instant>>,
    /// A failure was logged, and no command has succeeded since.
    is_failing: AtomicBool,
}

impl FailureLog {
    /// Logs a failure, unless one was logged recently.
    pub(super) fn log_failure(&self, error: &StoreError) {
        let mut last = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= EACH) {
            *last = Some(Instant::now());
            self.is_failing.store(true, Ordering::Relaxed);
            tracing::error!(error = %Line(error), "the key-value server is unavailable to \
                 functions");
        }
    }

    /// Logs a success after a failure that was logged.
    pub(super) fn log_recovery(&self) {
        if self.is_failing.load(Ordering::Relaxed) && self.is_failing.swap(false, Ordering::Relaxed)
        {
            tracing::info!("the key-value server is available to functions again");
        }
    }
}

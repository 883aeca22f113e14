//! How many resets succeeded and failed, and the warning about those that failed.
//!
//! A node whose instances cannot be reset still answers every request, with a fork for each. That
//! is correct, but many times slower, so the operator must be warned.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::stats::ResetStats;

/// The shortest time between two warnings: often enough to show that the failures continue, and no
/// flood if every request's reset fails.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The resets of all instances of a pool.
#[derive(Debug, Default)]
pub struct ResetRecord {
    done: AtomicU64,
    failed: AtomicU64,
    last_warning: Mutex<Option<Warning>>,
}

/// A warning that was logged.
#[derive(Clone, Copy, Debug)]
struct Warning {
    at: Instant,
    /// How many resets had failed by then.
    failed: u64,
}

impl ResetRecord {
    /// Counts a reset that gave an instance the state of its seed again.
    pub fn note_done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an instance that ended because of `why` instead of being reset, and logs a warning
    /// about it unless there was one within the last minute.
    pub fn note_failed(&self, why: &dyn Display) {
        let failed = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(count) = self.count_to_warn_of(failed, Instant::now()) {
            tracing::warn!(
                why = %faasw_common::text::Line(why),
                count,
                "instances ended instead of being reset; requests that find none fork another, \
                 which takes many times longer"
            );
        }
    }

    /// Returns how many failed resets to warn of now, of `failed` so far. Returns `None` if it is
    /// too soon.
    fn count_to_warn_of(&self, failed: u64, now: Instant) -> Option<u64> {
        let last = self.last_warning.lock();
        let mut last = last.unwrap_or_else(PoisonError::into_inner);
        let is_recent = |last: Warning| now.saturating_duration_since(last.at) < WARNING_INTERVAL;
        if last.is_some_and(is_recent) {
            return None;
        }
        let before = last.map_or(0, |last| last.failed);
        *last = Some(Warning {
            at: now,
            failed: failed.max(before),
        });
        Some(failed.saturating_sub(before).max(1))
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> ResetStats {
        ResetStats {
            done: self.done.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_cause_one_warning_a_minute_with_their_count() {
        let record = ResetRecord::default();
        let begun = Instant::now();
        assert_eq!(record.count_to_warn_of(1, begun), Some(1));
        for failed in 2..500 {
            let soon = begun + Duration::from_millis(failed * 100);
            assert_eq!(record.count_to_warn_of(failed, soon), None);
        }
        let later = begun + WARNING_INTERVAL;
        assert_eq!(record.count_to_warn_of(500, later), Some(499));
        assert_eq!(record.count_to_warn_of(501, later), None);
    }

    #[test]
    fn resets_are_counted() {
        let record = ResetRecord::default();
        record.note_done();
        record.note_failed(&"it was broken");
        record.note_failed(&"it was broken");
        assert_eq!(record.stats(), ResetStats { done: 1, failed: 2 });
    }
}

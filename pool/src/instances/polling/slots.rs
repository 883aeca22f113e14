//! The processors that may poll, and what polling has cost and gained in a pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::arrivals::{Arrivals, nanoseconds};
use crate::stats::PollingStats;

/// The limits of polling in a pool, and what it has cost and gained.
#[derive(Debug)]
pub struct Polling {
    /// How long an instance polls at most if its function has no setting for that; zero if it does
    /// not poll.
    most: Duration,
    processors: usize,
    /// The number of instances that poll.
    slots_taken: AtomicUsize,
    /// The number of requests under way.
    under_way: AtomicUsize,
    /// CPU time that polling has taken, in nanoseconds.
    polled: AtomicU64,
    found: AtomicU64,
    strayed: AtomicU64,
}

/// An instance that polls for its next request, or is to poll.
#[derive(Debug)]
pub struct PollingSlot(Arc<Polling>);

impl Drop for PollingSlot {
    fn drop(&mut self) {
        self.0.slots_taken.fetch_sub(1, Ordering::Release);
    }
}

/// A request under way.
#[derive(Debug)]
pub struct ActiveRequest(Arc<Polling>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ActiveRequest {
    /// Returns whether it is the only one.
    pub fn is_alone(&self) -> bool {
        self.0.under_way.load(Ordering::Relaxed) == 1
    }
}

impl Polling {
    /// Returns limits for a machine with so many processors, one of which is for the node. An
    /// instance whose function has no setting polls for at most `most`.
    pub fn new(most: Duration, processors: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            processors,
            slots_taken: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            polled: AtomicU64::new(0),
            found: AtomicU64::new(0),
            strayed: AtomicU64::new(0),
        })
    }

    /// Returns how long an instance polls at most if its function has no setting for that.
    pub fn most(&self) -> Duration {
        self.most
    }

    /// Counts a request as under way for as long as the returned value is held.
    pub fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        ActiveRequest(self.clone())
    }

    /// Returns how long an instance of the function should poll, if it should be hot and has a
    /// slot.
    pub fn bound(&self, arrivals: &Arrivals) -> Option<Duration> {
        self.bound_at(arrivals, Instant::now())
    }

    pub(super) fn bound_at(&self, arrivals: &Arrivals, now: Instant) -> Option<Duration> {
        let bound = arrivals.bound();
        if bound.is_zero() || arrivals.is_slow() {
            return None;
        }
        let is_held_off = arrivals.held_off().is_on_at(now);
        (!is_held_off && arrivals.has_budget(now)).then_some(bound)
    }

    /// Takes a slot for an instance that is to be hot, if one is free. There are no more slots than
    /// processors that nothing else is known to want.
    pub fn try_slot(self: &Arc<Self>) -> Option<PollingSlot> {
        let wanted = 1 + self.under_way.load(Ordering::Relaxed);
        let slots = self.processors.saturating_sub(wanted);
        let more = |taken: usize| (taken < slots).then_some(taken + 1);
        let counted = self
            .slots_taken
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, more);
        counted.is_ok().then(|| PollingSlot(self.clone()))
    }

    /// Charges the time for which an instance of a function has polled, and notes whether it found
    /// a request.
    pub fn charge(&self, arrivals: &Arrivals, cpu: Duration, has_found: bool) {
        arrivals.charge(cpu);
        self.polled.fetch_add(nanoseconds(cpu), Ordering::Relaxed);
        self.found
            .fetch_add(u64::from(has_found), Ordering::Relaxed);
    }

    /// Notes that a guest of a function was to poll for a request and did something else. No
    /// instance of that function is hot for a while.
    pub fn note_stray(&self, arrivals: &Arrivals) {
        arrivals.note_stray();
        self.strayed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters of polling.
    pub fn stats(&self) -> PollingStats {
        PollingStats {
            found: self.found.load(Ordering::Relaxed),
            strayed: self.strayed.load(Ordering::Relaxed),
            cpu: Duration::from_nanos(self.polled.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_polling_slots_than_idle_processors() {
        let polling = Polling::new(Duration::ZERO, 3);
        let first = polling.begin();
        assert!(first.is_alone());
        let second = polling.begin();
        assert!(!first.is_alone());
        assert!(polling.try_slot().is_none(), "two requests, and the node");
        drop(second);
        let slot = polling.try_slot().unwrap();
        assert!(polling.try_slot().is_none());
        drop(first);
        let other = polling.try_slot().unwrap();
        assert!(polling.try_slot().is_none());
        drop((slot, other));
        assert!(polling.try_slot().is_some());
        assert!(Polling::new(Duration::ZERO, 1).try_slot().is_none());
    }
}

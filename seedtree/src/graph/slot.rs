//! Where a node's snapshot is, while it is in memory.
//!
//! Requests come here and nowhere else: a slot has a lock of its own, which is held for
//! the time of a clone or of a comparison. A lease on a snapshot is its `Arc`; clones of
//! it begin under this lock and with an existing one alone, so what has none when it is
//! looked at under the lock gets none before it is evicted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long ago a use counts half.
pub const HALF_LIFE: Duration = Duration::from_secs(60);

/// How often something is used, older uses counting less.
#[derive(Clone, Copy, Debug)]
struct UseRate {
    value: f64,
    at: Instant,
}

impl UseRate {
    fn at(self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.at);
        self.value * 0.5_f64.powf(age.as_secs_f64() / HALF_LIFE.as_secs_f64())
    }

    fn add(&mut self, now: Instant) {
        self.value = self.at(now) + 1.0;
        // Two that looked at the clock may come here in the other order.
        self.at = self.at.max(now);
    }
}

/// A node's snapshot, or the place for it. Clones are the same slot.
///
/// One whose node has left the graph stays empty, also when the same is defined again.
#[derive(Debug)]
pub struct Slot<T>(Arc<Mutex<Contents<T>>>);

#[derive(Debug)]
struct Contents<T> {
    snapshot: Option<Arc<T>>,
    uses: UseRate,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Slot<T> {
    /// An empty one, which counts as used once.
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(Contents {
            snapshot: None,
            uses: UseRate {
                value: 1.0,
                at: now,
            },
        })))
    }

    /// Its snapshot, which is not evicted for as long as this is held.
    #[must_use]
    pub fn get(&self) -> Option<Arc<T>> {
        self.lock().snapshot.clone()
    }

    /// Somebody used its snapshot, or would have if it had been there.
    pub fn note_use(&self, now: Instant) {
        self.lock().uses.add(now);
    }

    /// Uses in a unit of time, older ones counting less.
    pub(super) fn frequency(&self, now: Instant) -> f64 {
        self.lock().uses.at(now)
    }

    /// What `look` says of its snapshot, of which it must make no clone.
    pub(super) fn look<V>(&self, look: impl FnOnce(&Arc<T>) -> V) -> Option<V> {
        self.lock().snapshot.as_ref().map(look)
    }

    pub(super) fn fill(&self, snapshot: Arc<T>) {
        self.lock().snapshot = Some(snapshot);
    }

    pub(super) fn empty(&self) -> Option<Arc<T>> {
        self.lock().snapshot.take()
    }

    /// Takes its snapshot away if nobody has it beside the slot and `others(it)` more.
    pub(super) fn evict(&self, others: impl FnOnce(&Arc<T>) -> usize) -> Option<Arc<T>> {
        self.lock()
            .snapshot
            .take_if(|snapshot| Arc::strong_count(snapshot) == 1 + others(snapshot))
    }

    fn lock(&self) -> MutexGuard<'_, Contents<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_uses_count_less() {
        let start = Instant::now();
        let slot = Slot::<()>::new(start);
        let later = start + HALF_LIFE;
        slot.note_use(later);
        assert!((slot.frequency(later) - 1.5).abs() < 1e-9);
        assert!((slot.frequency(later + HALF_LIFE) - 0.75).abs() < 1e-9);
        // A clock that was looked at before takes nothing back.
        slot.note_use(start);
        assert!((slot.frequency(later + HALF_LIFE) - 1.25).abs() < 1e-9);
    }
}

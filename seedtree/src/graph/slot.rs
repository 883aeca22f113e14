//! Where a node's snapshot is, while it is in memory.
//!
//! Requests come here and nowhere else: a slot has a lock of its own, which is held for
//! the time of a clone or of a comparison. A lease on a snapshot is its `Arc`; clones of
//! it begin under this lock and with an existing one alone, so what has none when it is
//! looked at under the lock gets none before it is evicted. Who has a `Weak` of it may be
//! quicker, and keeps it a moment longer than the graph.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::use_rate::UseRate;

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
            uses: UseRate::once(now),
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

    /// What `look` says of its snapshot, if that is there. This is no use of it: nobody finds it in
    /// use for that. What `look` does is to be short, and to have nothing to do with the graph.
    pub fn look<V>(&self, look: impl FnOnce(&T) -> V) -> Option<V> {
        self.lock().snapshot.as_deref().map(look)
    }

    /// How many have its snapshot, the slot with them; none where it is not there.
    pub(super) fn holders(&self) -> usize {
        self.lock().snapshot.as_ref().map_or(0, Arc::strong_count)
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

    /// Takes this snapshot away, if it is the one.
    pub(super) fn discard(&self, snapshot: &Arc<T>) -> Option<Arc<T>> {
        self.lock()
            .snapshot
            .take_if(|own| Arc::ptr_eq(own, snapshot))
    }

    fn lock(&self) -> MutexGuard<'_, Contents<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

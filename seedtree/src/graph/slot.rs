//! The slot of a node's snapshot, while that is in memory.
//!
//! Requests use slots only: a slot has a lock of its own, which is held for the time of a clone or
//! of a comparison. A lease on a snapshot is its `Arc`. The first lease is cloned under this lock,
//! and further ones from an existing lease. So a snapshot without leases, when it is checked under
//! the lock, receives none before it is evicted. The holder of a `Weak` of it may be quicker, and
//! then keeps the snapshot a moment longer than the graph.

use std::sync::Arc;
use std::time::Instant;

use faasw_common::Lock;

use crate::use_rate::UseRate;

/// A slot for a node's snapshot. Clones are the same slot.
///
/// A slot whose node has left the graph stays empty, even if an equal node is defined again.
#[derive(Debug)]
pub struct Slot<T>(Arc<Lock<Contents<T>>>);

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
    /// Returns an empty slot, which counts as used once.
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Lock::new(Contents {
            snapshot: None,
            uses: UseRate::once(now),
        })))
    }

    /// Returns the snapshot, which is not evicted while the result is held.
    #[must_use]
    pub fn get(&self) -> Option<Arc<T>> {
        self.0.lock().snapshot.clone()
    }

    /// Records a use of the snapshot, or of the slot while it is empty.
    pub fn note_use(&self, now: Instant) {
        self.0.lock().uses.add(now);
    }

    /// Returns the uses per unit of time, of which older ones count less.
    pub(super) fn frequency(&self, now: Instant) -> f64 {
        self.0.lock().uses.at(now)
    }

    /// Returns the result of `look` for the snapshot, if it is in memory. The call is no use: it
    /// does not make the snapshot count as in use. `look` runs under the lock, so it must be short,
    /// and must not access the graph.
    pub fn look<V>(&self, look: impl FnOnce(&T) -> V) -> Option<V> {
        self.0.lock().snapshot.as_deref().map(look)
    }

    /// Returns the number of holders of the snapshot, including the slot; 0 if it is not in memory.
    pub(super) fn holders(&self) -> usize {
        self.0.lock().snapshot.as_ref().map_or(0, Arc::strong_count)
    }

    pub(super) fn fill(&self, snapshot: Arc<T>) {
        self.0.lock().snapshot = Some(snapshot);
    }

    pub(super) fn empty(&self) -> Option<Arc<T>> {
        self.0.lock().snapshot.take()
    }

    /// Removes the snapshot if it has no holders but the slot and `others(it)` more.
    pub(super) fn evict(&self, others: impl FnOnce(&Arc<T>) -> usize) -> Option<Arc<T>> {
        self.0
            .lock()
            .snapshot
            .take_if(|snapshot| Arc::strong_count(snapshot) == 1 + others(snapshot))
    }

    /// Removes this snapshot, if the slot still holds it.
    pub(super) fn discard(&self, snapshot: &Arc<T>) -> Option<Arc<T>> {
        self.0
            .lock()
            .snapshot
            .take_if(|own| Arc::ptr_eq(own, snapshot))
    }
}

//! Slots of a function's concurrent requests.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// Counts the requests of one function that are under way.
#[derive(Debug, Default)]
pub(crate) struct RequestCounter {
    counts: Mutex<RequestCounts>,
    slot_freed: Notify,
}

#[derive(Debug, Default)]
struct RequestCounts {
    under_way: usize,
    /// Requests that wait for a slot of a request that was cut. Such slots go to no other
    /// request.
    reserved: usize,
}

impl RequestCounter {
    pub(crate) fn count(&self) -> usize {
        self.lock().under_way
    }

    fn lock(&self) -> MutexGuard<'_, RequestCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot if one is free that is not reserved.
    pub(super) fn try_enter(counter: &Arc<Self>, limit: usize) -> Option<RequestSlot> {
        let mut counts = counter.lock();
        if counts.under_way.saturating_add(counts.reserved) >= limit {
            return None;
        }
        counts.under_way += 1;
        Some(RequestSlot(counter.clone()))
    }

    /// Reserves the next slot that becomes free, ahead of later requests.
    pub(super) fn reserve(counter: &Arc<Self>) -> SlotReservation {
        counter.lock().reserved += 1;
        SlotReservation(counter.clone())
    }
}

/// A request's right to the next slot. Dropping it gives up the right.
#[derive(Debug)]
pub(super) struct SlotReservation(Arc<RequestCounter>);

impl SlotReservation {
    /// Returns a slot, if one is free.
    fn try_enter(&self, limit: usize) -> Option<RequestSlot> {
        let mut counts = self.0.lock();
        if counts.under_way >= limit {
            return None;
        }
        counts.under_way += 1;
        Some(RequestSlot(self.0.clone()))
    }

    /// Waits for a slot. See [`SlotReservation::try_enter`].
    pub(super) async fn wait_for_slot(self, limit: usize) -> RequestSlot {
        loop {
            let mut left = pin!(self.0.slot_freed.notified());
            left.as_mut().enable();
            if let Some(slot) = self.try_enter(limit) {
                return slot;
            }
            left.await;
        }
    }
}

impl Drop for SlotReservation {
    fn drop(&mut self) {
        self.0.lock().reserved -= 1;
    }
}

/// A slot among a function's concurrent requests.
#[derive(Debug)]
#[must_use = "dropping it gives it back"]
pub(crate) struct RequestSlot(Arc<RequestCounter>);

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
        self.0.slot_freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_slots_are_limited_and_returned() {
        let counter = Arc::new(RequestCounter::default());
        let first = RequestCounter::try_enter(&counter, 2).unwrap();
        let second = RequestCounter::try_enter(&counter, 2).unwrap();
        assert!(RequestCounter::try_enter(&counter, 2).is_none());
        assert_eq!(counter.count(), 2);
        drop(first);
        let third = RequestCounter::try_enter(&counter, 2).unwrap();
        drop((second, third));
        assert_eq!(counter.count(), 0);
    }

    #[tokio::test]
    async fn a_slot_freed_by_eviction_goes_to_its_reservation() {
        let counter = Arc::new(RequestCounter::default());
        let cut = RequestCounter::try_enter(&counter, 1).unwrap();
        let reserved = RequestCounter::reserve(&counter);
        assert!(reserved.try_enter(1).is_none());
        drop(cut);
        assert!(RequestCounter::try_enter(&counter, 1).is_none());
        let slot = reserved.wait_for_slot(1).await;
        assert_eq!(counter.count(), 1);
        // An abandoned reservation blocks no other request.
        drop(RequestCounter::reserve(&counter));
        drop(slot);
        assert!(RequestCounter::try_enter(&counter, 1).is_some());
    }
}

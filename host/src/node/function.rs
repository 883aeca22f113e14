//! A function in the node's table: the version that serves, and the state that all its versions
//! share.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use faasw_client::FunctionName;
use faasw_pool::{FunctionBacklog, StoreService};
use tokio::{
    sync::{Notify, OnceCell},
    time::timeout,
};

use super::{outbound::OutboundGrants, secrets::VersionSecrets};
use crate::{
    backend::ServableVersion, failure::Failure, log::FunctionLog, registry::VersionRecord,
};

/// How long a request that was cut may take to end.
const EVICTING: Duration = Duration::from_millis(200);

/// A function's current version.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: FunctionName,
    pub(super) version: u64,
    pub(super) record: VersionRecord,
    /// The service for the guests' store records, if the version imports a store interface.
    pub(super) stores: Option<Arc<dyn StoreService>>,
    /// Its secrets, if it reads any.
    pub(super) secrets: Option<VersionSecrets>,
    /// The destinations of its outbound calls, if it was granted any.
    pub(super) outbound_grants: Option<OutboundGrants>,
    /// Shared by all versions.
    pub(super) log: Arc<FunctionLog>,
    /// Shared by all versions, so that a limit holds across a change of version.
    pub(super) under_way: Arc<RequestCounter>,
    /// Response bytes that clients have not read yet. Shared by all versions.
    pub(super) backlog: Arc<FunctionBacklog>,
    /// Empty after a restart, until the version is needed. Requests that arrive meanwhile wait for
    /// the attempt that is under way.
    pub(super) version_cell: VersionCell,
}

/// Holds the [`ServableVersion`] that makes instances of a version, once there is one.
#[derive(Debug, Default)]
pub(super) struct VersionCell(RwLock<Arc<OnceCell<Arc<dyn ServableVersion>>>>);

impl VersionCell {
    /// Creates one that is not empty.
    pub(super) fn filled(made: Arc<dyn ServableVersion>) -> Self {
        Self(RwLock::new(Arc::new(OnceCell::new_with(Some(made)))))
    }

    pub(super) fn get(&self) -> Option<Arc<dyn ServableVersion>> {
        self.cell().get().cloned()
    }

    /// Returns the version, or the result of `wake`. Only one caller at a time runs its `wake`, and
    /// the others wait for the result. If it fails, the next of them runs its own.
    pub(super) async fn get_or_wake<E>(
        &self,
        wake: impl Future<Output = Result<Arc<dyn ServableVersion>, E>>,
    ) -> Result<Arc<dyn ServableVersion>, E> {
        let cell = self.cell().clone();
        cell.get_or_try_init(|| wake).await.cloned()
    }

    /// Empties this if the version in it is not in memory. Callers that hold the version keep it,
    /// and the next request wakes it again, as after a restart.
    pub(super) fn release_if_evicted(&self) {
        let mut cell = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_in_memory = cell.get().is_some_and(|made| made.is_in_memory());
        let rested = (!is_in_memory).then(|| std::mem::take(&mut *cell));
        drop(cell);
        // Dropping the version may free much, so it happens outside the lock.
        drop(rested);
    }

    fn cell(&self) -> RwLockReadGuard<'_, Arc<OnceCell<Arc<dyn ServableVersion>>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Function {
    /// Whether the function was removed, which deletes its log, too. A later function of the same
    /// name is another one.
    pub(super) fn is_removed(&self) -> bool {
        self.log.is_deleted()
    }

    /// Takes one of the function's concurrency slots. Dropping the slot gives it back; that
    /// happens when the request's instance has ended.
    ///
    /// If no slot is free, the request that has waited longest for its client is cut, and this
    /// request gets the slot as soon as the other has ended.
    ///
    /// # Errors
    /// Returns [`Failure::FunctionBusy`] if no request can be cut, or if the request that was cut
    /// takes longer than [`EVICTING`] to end.
    pub(super) async fn acquire_slot(&self) -> Result<RequestSlot, Failure> {
        let busy = match self.try_acquire_slot() {
            Ok(slot) => return Ok(slot),
            Err(busy) => busy,
        };
        let most = self.max_concurrency();
        // Reserved before the other request is cut, so that no third request takes the slot.
        let reserved = RequestCounter::reserve(&self.under_way);
        let is_evicted = self.version_cell.get().is_some_and(|made| made.evict());
        if !is_evicted {
            return Err(busy);
        }
        let entering = reserved.wait_for_slot(most);
        timeout(EVICTING, entering).await.map_err(|_| busy)
    }

    /// Takes one of these slots if one is free, without waiting.
    pub(super) fn try_acquire_slot(&self) -> Result<RequestSlot, Failure> {
        let most = self.max_concurrency();
        RequestCounter::try_enter(&self.under_way, most).ok_or(Failure::FunctionBusy(most))
    }

    fn max_concurrency(&self) -> usize {
        self.record.options.own_concurrency().unwrap_or(usize::MAX)
    }
}

/// Counts the requests of one function that are under way.
#[derive(Debug, Default)]
pub(super) struct RequestCounter {
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
    pub(super) fn count(&self) -> usize {
        self.lock().under_way
    }

    fn lock(&self) -> MutexGuard<'_, RequestCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot if one is free that is not reserved.
    fn try_enter(counter: &Arc<Self>, limit: usize) -> Option<RequestSlot> {
        let mut counts = counter.lock();
        if counts.under_way.saturating_add(counts.reserved) >= limit {
            return None;
        }
        counts.under_way += 1;
        Some(RequestSlot(counter.clone()))
    }

    /// Reserves the next slot that becomes free, ahead of later requests.
    fn reserve(counter: &Arc<Self>) -> SlotReservation {
        counter.lock().reserved += 1;
        SlotReservation(counter.clone())
    }
}

/// A request's right to the next slot. Dropping it gives up the right.
#[derive(Debug)]
struct SlotReservation(Arc<RequestCounter>);

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
    async fn wait_for_slot(self, limit: usize) -> RequestSlot {
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
pub(super) struct RequestSlot(Arc<RequestCounter>);

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
        // A reservation that is given up blocks no other request.
        drop(RequestCounter::reserve(&counter));
        drop(slot);
        assert!(RequestCounter::try_enter(&counter, 1).is_some());
    }
}

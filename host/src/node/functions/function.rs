//! A function in the node's table: the version that serves, and the state that all its versions
//! share.

use std::{
    future::ready,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use faasw_abi::store::Answer;
use faasw_client::FunctionName;
use faasw_pool::{FunctionBacklog, ImageId, StoreAnswerFuture, StoreService};
use tokio::{sync::OnceCell, time::timeout};

use super::{
    OutboundGrants, VersionSecrets,
    slots::{RequestCounter, RequestSlot},
};
use crate::{
    backend::ServableVersion, failure::Failure, log::FunctionLog, registry::VersionRecord,
};

/// How long a request that was cut may take to end.
const EVICTING: Duration = Duration::from_millis(200);

/// A function's current version.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: FunctionName,
    pub(crate) version: u64,
    pub(crate) record: VersionRecord,
    /// The service for the guests' store records, if the version imports a store interface.
    /// [`Function::store`] returns it as requests use it.
    pub(crate) stores: Option<Arc<dyn StoreService>>,
    /// The function's secrets, if it reads any.
    pub(crate) secrets: Option<VersionSecrets>,
    /// The destinations of its outbound calls, if it was granted any.
    pub(crate) outbound_grants: Option<OutboundGrants>,
    /// Shared by all versions.
    pub(crate) log: Arc<FunctionLog>,
    /// Shared by all versions, so that a limit holds across a change of version.
    pub(crate) under_way: Arc<RequestCounter>,
    /// Response bytes that clients have not read yet. Shared by all versions.
    pub(crate) backlog: Arc<FunctionBacklog>,
    /// Empty after a restart, until the version is needed. Requests that arrive meanwhile wait for
    /// the attempt that is under way.
    pub(crate) version_cell: VersionCell,
}

/// Holds the [`ServableVersion`] that makes instances of a version, once there is one.
#[derive(Debug, Default)]
pub(crate) struct VersionCell(RwLock<Arc<OnceCell<Arc<dyn ServableVersion>>>>);

impl VersionCell {
    /// Creates one that is not empty.
    pub(crate) fn filled(version: Arc<dyn ServableVersion>) -> Self {
        Self(RwLock::new(Arc::new(OnceCell::new_with(Some(version)))))
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn ServableVersion>> {
        self.cell().get().cloned()
    }

    /// Returns the version, or the result of `wake`. Only one caller at a time runs its `wake`, and
    /// the others wait for the result. If it fails, the next of them runs its own.
    pub(crate) async fn get_or_wake<E>(
        &self,
        wake: impl Future<Output = Result<Arc<dyn ServableVersion>, E>>,
    ) -> Result<Arc<dyn ServableVersion>, E> {
        let cell = self.cell().clone();
        cell.get_or_try_init(|| wake).await.cloned()
    }

    /// Empties this if the version in it is not in memory. Callers that hold the version keep it,
    /// and the next request wakes it again, as after a restart.
    pub(crate) fn release_if_evicted(&self) {
        let mut cell = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_in_memory = cell.get().is_some_and(|version| version.is_in_memory());
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
    /// Returns the identifier of the version's func-image.
    pub(crate) fn image(&self) -> ImageId {
        self.record.image(&self.name)
    }

    /// Whether the function was removed, which deletes its log, too. A later function of the same
    /// name is another one.
    pub(crate) fn is_removed(&self) -> bool {
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
    pub(crate) async fn acquire_slot(&self) -> Result<RequestSlot, Failure> {
        let busy = match self.try_acquire_slot() {
            Ok(slot) => return Ok(slot),
            Err(busy) => busy,
        };
        let most = self.max_concurrency();
        // Reserved before the other request is cut, so that no third request takes the slot.
        let reserved = RequestCounter::reserve(&self.under_way);
        let is_evicted = self
            .version_cell
            .get()
            .is_some_and(|version| version.evict());
        if !is_evicted {
            return Err(busy);
        }
        let entering = reserved.wait_for_slot(most);
        timeout(EVICTING, entering).await.map_err(|_| busy)
    }

    /// Takes one of these slots if one is free, without waiting.
    pub(crate) fn try_acquire_slot(&self) -> Result<RequestSlot, Failure> {
        let most = self.max_concurrency();
        RequestCounter::try_enter(&self.under_way, most).ok_or(Failure::FunctionBusy(most))
    }

    fn max_concurrency(&self) -> usize {
        self.record.options.own_concurrency().unwrap_or(usize::MAX)
    }

    /// Returns the service for the guests' store records, if the version imports a store interface.
    pub(crate) fn store(self: &Arc<Self>) -> Option<Arc<dyn StoreService>> {
        let stores = self.stores.clone()?;
        let function = self.clone();
        Some(Arc::new(RemovableStores { function, stores }))
    }
}

/// The stores of a function that may be removed while its requests continue. After a removal it
/// denies every request, because a later function may have the name.
#[derive(Debug)]
struct RemovableStores {
    function: Arc<Function>,
    stores: Arc<dyn StoreService>,
}

impl StoreService for RemovableStores {
    fn answer(&self, record: Vec<u8>) -> StoreAnswerFuture {
        if self.function.is_removed() {
            Box::pin(ready(Answer::Denied.encode()))
        } else {
            self.stores.answer(record)
        }
    }
}

//! A function as the node has it: the version that serves, and what all its
//! versions share.

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

use super::{outbound::Reaches, secrets::Given};
use crate::{
    backend::FunctionVersion, failure::Failure, log::FunctionLog, registry::VersionRecord,
};

/// How long a request that was cut may take to end.
const EVICTING: Duration = Duration::from_millis(200);

/// A function's current version.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: FunctionName,
    pub(super) version: u64,
    pub(super) record: VersionRecord,
    /// What answers its guests' records, where it imports an interface of a store.
    pub(super) stores: Option<Arc<dyn StoreService>>,
    /// Its secrets, where it has some to read.
    pub(super) secrets: Option<Given>,
    /// What its guests' requests reach, where it was granted any.
    pub(super) reaches: Option<Reaches>,
    /// Outlives versions.
    pub(super) log: Arc<FunctionLog>,
    /// Outlives versions: a limit holds across a change of them.
    pub(super) under_way: Arc<UnderWay>,
    /// Outlives versions: what clients have not taken yet of its responses.
    pub(super) backlog: Arc<FunctionBacklog>,
    /// Empty after a restart, until somebody asks for it; whoever comes meanwhile waits for that.
    pub(super) made: VersionJail,
}

/// The place for what makes instances of a version.
#[derive(Debug, Default)]
pub(super) struct VersionJail(RwLock<Arc<OnceCell<Arc<dyn FunctionVersion>>>>);

impl VersionJail {
    /// One that is not empty.
    pub(super) fn with(made: Arc<dyn FunctionVersion>) -> Self {
        Self(RwLock::new(Arc::new(OnceCell::new_with(Some(made)))))
    }

    pub(super) fn get(&self) -> Option<Arc<dyn FunctionVersion>> {
        self.jail().get().cloned()
    }

    /// What is there, or comes of `wake`, which is done once, however many want it.
    pub(super) async fn get_or_wake<E>(
        &self,
        wake: impl Future<Output = Result<Arc<dyn FunctionVersion>, E>>,
    ) -> Result<Arc<dyn FunctionVersion>, E> {
        let jail = self.jail().clone();
        jail.get_or_try_init(|| wake).await.cloned()
    }

    /// Empties it where what is there is not in memory: whoever has that keeps it, and the next
    /// has it made again, as after a restart.
    pub(super) fn rest(&self) {
        let mut jail = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_in_memory = jail.get().is_some_and(|made| made.is_in_memory());
        let rested = (!is_in_memory).then(|| std::mem::take(&mut *jail));
        drop(jail);
        // All that it has goes with it, for which nobody is to wait.
        drop(rested);
    }

    fn jail(&self) -> RwLockReadGuard<'_, Arc<OnceCell<Arc<dyn FunctionVersion>>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Function {
    /// Whether it was removed, by which its log goes, too: another one of its name is not this one.
    pub(super) fn is_removed(&self) -> bool {
        self.log.is_deleted()
    }

    /// Takes one of the places that the function's concurrency has; it is
    /// given back when dropped, which is when the request's instance has ended.
    ///
    /// Where there is none, the request that has waited longest for its client is cut, and
    /// this one has its place as soon as that has ended.
    pub(super) async fn place(&self) -> Result<Place, Failure> {
        let busy = match self.free_place() {
            Ok(place) => return Ok(place),
            Err(busy) => busy,
        };
        let most = self.most_at_once();
        // Before it is cut: nobody else is to have its place.
        let reserved = UnderWay::reserve(&self.under_way);
        let is_evicted = self.made.get().is_some_and(|made| made.evict());
        if !is_evicted {
            return Err(busy);
        }
        let entering = reserved.enter_soon(most);
        timeout(EVICTING, entering).await.map_err(|_| busy)
    }

    /// One of these places, if it need not be waited for.
    pub(super) fn free_place(&self) -> Result<Place, Failure> {
        let most = self.most_at_once();
        UnderWay::enter(&self.under_way, most).ok_or(Failure::FunctionBusy(most))
    }

    fn most_at_once(&self) -> usize {
        self.record.options.own_concurrency().unwrap_or(usize::MAX)
    }
}

/// Counts the requests of one function that are under way.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    counts: Mutex<Counts>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    under_way: usize,
    /// Requests for which others are cut: their places are nobody else's.
    reserved: usize,
}

impl UnderWay {
    pub(super) fn count(&self) -> usize {
        self.lock().under_way
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, if there is one more than are reserved.
    fn enter(counter: &Arc<Self>, limit: usize) -> Option<Place> {
        let mut counts = counter.lock();
        if counts.under_way.saturating_add(counts.reserved) >= limit {
            return None;
        }
        counts.under_way += 1;
        Some(Place(counter.clone()))
    }

    /// The next place that is given back, before those that come later.
    fn reserve(counter: &Arc<Self>) -> Reserved {
        counter.lock().reserved += 1;
        Reserved(counter.clone())
    }
}

/// A request's right to the next place. Dropping it gives the right up.
#[derive(Debug)]
struct Reserved(Arc<UnderWay>);

impl Reserved {
    /// A place, if one has been given back.
    fn enter(&self, limit: usize) -> Option<Place> {
        let mut counts = self.0.lock();
        if counts.under_way >= limit {
            return None;
        }
        counts.under_way += 1;
        Some(Place(self.0.clone()))
    }

    /// As [`Reserved::enter`], as soon as there is a place.
    async fn enter_soon(self, limit: usize) -> Place {
        loop {
            let mut left = pin!(self.0.left.notified());
            left.as_mut().enable();
            if let Some(place) = self.enter(limit) {
                return place;
            }
            left.await;
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.lock().reserved -= 1;
    }
}

/// A place among a function's requests.
#[derive(Debug)]
#[must_use = "dropping it gives it back"]
pub(super) struct Place(Arc<UnderWay>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
        self.0.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_and_come_back() {
        let counter = Arc::new(UnderWay::default());
        let first = UnderWay::enter(&counter, 2).unwrap();
        let second = UnderWay::enter(&counter, 2).unwrap();
        assert!(UnderWay::enter(&counter, 2).is_none());
        assert_eq!(counter.count(), 2);
        drop(first);
        let third = UnderWay::enter(&counter, 2).unwrap();
        drop((second, third));
        assert_eq!(counter.count(), 0);
    }

    #[tokio::test]
    async fn a_place_that_others_were_cut_for_is_theirs() {
        let counter = Arc::new(UnderWay::default());
        let cut = UnderWay::enter(&counter, 1).unwrap();
        let reserved = UnderWay::reserve(&counter);
        assert!(reserved.enter(1).is_none());
        drop(cut);
        assert!(UnderWay::enter(&counter, 1).is_none());
        let place = reserved.enter_soon(1).await;
        assert_eq!(counter.count(), 1);
        // Whoever gives up keeps it from nobody.
        drop(UnderWay::reserve(&counter));
        drop(place);
        assert!(UnderWay::enter(&counter, 1).is_some());
    }
}

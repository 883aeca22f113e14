//! A function as the node has it: the version that serves, and what all its
//! versions share.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::OnceCell;

use crate::{
    engine::Seed, failure::Failure, log::FunctionLog, name::FunctionName, registry::VersionRecord,
};

/// A function's current version.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: FunctionName,
    pub(super) version: u64,
    pub(super) record: VersionRecord,
    /// Outlives versions.
    pub(super) log: Arc<FunctionLog>,
    /// Outlives versions: a limit holds across a change of them.
    pub(super) under_way: Arc<UnderWay>,
    /// Empty after a restart, until somebody makes it; others wait.
    pub(super) seed: OnceCell<Arc<dyn Seed>>,
}

impl Function {
    /// Takes one of the places that the function's concurrency has; it is
    /// given back when dropped, which is when the request's instance has ended.
    pub(super) fn place(&self) -> Result<Place, Failure> {
        let limit = self.record.options.own_concurrency();
        UnderWay::enter(&self.under_way, limit.unwrap_or(usize::MAX))
            .ok_or(Failure::FunctionBusy(limit.unwrap_or(usize::MAX)))
    }
}

/// Counts the requests of one function that are under way.
#[derive(Debug, Default)]
pub(super) struct UnderWay(AtomicUsize);

impl UnderWay {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn enter(counter: &Arc<Self>, limit: usize) -> Option<Place> {
        counter
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count < limit).then_some(count + 1)
            })
            .ok()
            .map(|_| Place(counter.clone()))
    }
}

/// A place among a function's requests.
#[derive(Debug)]
#[must_use = "dropping it gives it back"]
pub(super) struct Place(Arc<UnderWay>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
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
}

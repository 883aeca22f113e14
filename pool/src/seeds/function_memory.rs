//! The memory that one function holds between requests, and what is evicted if it exceeds the
//! function's budget.
//!
//! This is an account, not a measurement. It counts the pages of the function's seeds and of their
//! code; their number grows as instances read holes of them. For each warm instance it counts
//! the private pages that its sandbox reported after the reset, or the pages expected for an
//! instance that was made ahead. All versions that still exist count together: the current one, and
//! those whose requests are not done. The kernel's memory for each VM and process is not included,
//! nor is the memory of instances at work.

use std::sync::{Arc, Weak};

use faasw_common::Lock;
use faasw_fri::messages::FunctionNumber;
use faasw_seedtree::graph::Resting;
use faasw_seedtree::{Key, Owner};

use super::graph::{OwnerAccount, Seeds};
use crate::instances::{WarmInfo, WarmInstances};

/// The account of a function, for all its versions.
#[derive(Debug)]
pub struct FunctionMemory {
    number: FunctionNumber,
    budget: u64,
    seeds: Arc<Seeds>,
    versions: Lock<Vec<(Key, Weak<WarmInstances>)>>,
}

impl FunctionMemory {
    /// Creates an empty account of the function `number` that may grow to `budget` bytes.
    pub fn new(number: FunctionNumber, budget: u64, seeds: Arc<Seeds>) -> Arc<Self> {
        let function_memory = Arc::new(Self {
            number,
            budget,
            seeds,
            versions: Lock::default(),
        });
        let account: Weak<Self> = Arc::downgrade(&function_memory);
        function_memory
            .seeds
            .register_account(function_memory.owner(), account);
        function_memory
    }

    /// Returns the function's number in the pool.
    pub fn number(&self) -> FunctionNumber {
        self.number
    }

    /// Returns the owner of its seeds.
    pub fn owner(&self) -> Owner {
        Owner::Function(self.number)
    }

    /// Adds a version, whose instances are forked from the seed with this key.
    pub fn add(&self, seed: Key, warm_instances: &Arc<WarmInstances>) {
        let mut versions = self.versions.lock();
        versions.retain(|(_, warm_instances)| warm_instances.strong_count() > 0);
        versions.push((seed, Arc::downgrade(warm_instances)));
    }

    /// Returns the unused bytes of the function's budget.
    pub fn free_budget(&self) -> u64 {
        let versions = existing(&self.versions.lock());
        self.budget.saturating_sub(self.bytes(&versions))
    }

    /// Ends warm instances, longest idle first, and then evicts unused seeds, until the rest
    /// fits; then makes all seeds fit their budget.
    pub fn fit(&self) {
        self.fit_own();
        self.seeds.fit_after(self.owner());
    }

    fn fit_own(&self) {
        // Other callers wait here, and then find that the account fits.
        let listed = self.versions.lock();
        let versions = existing(&listed);
        // Called after each request, when there is nearly always nothing to do.
        if self.bytes(&versions) <= self.budget {
            return;
        }
        let mut warm: Vec<(WarmInfo, usize, Key)> = Vec::new();
        for (index, (key, warm_instances)) in versions.iter().enumerate() {
            let rests = warm_instances.infos().into_iter();
            warm.extend(rests.map(|rest| (rest, index, *key)));
        }
        warm.sort_by_key(|(rest, ..)| rest.since);
        let resting: Vec<Resting> = warm
            .iter()
            .map(|(rest, _, key)| Resting {
                key: *key,
                bytes: rest.bytes,
            })
            .collect();
        let evictions = self.seeds.fit_owner(self.owner(), self.budget, &resting);
        for (index, (_, warm_instances)) in versions.iter().enumerate() {
            let ended = warm.iter().take(evictions.instances);
            warm_instances.end_oldest(ended.filter(|(_, of, _)| *of == index).count());
        }
        self.seeds.evict(&evictions.seeds);
    }

    fn bytes(&self, versions: &[(Key, Arc<WarmInstances>)]) -> u64 {
        let warm = versions
            .iter()
            .map(|(_, warm_instances)| warm_instances.bytes());
        let keys = versions.iter().map(|(key, _)| *key);
        let seeds = self.seeds.recount_bytes(self.owner(), keys);
        warm.fold(seeds, u64::saturating_add)
    }
}

impl OwnerAccount for FunctionMemory {
    fn fit(&self) {
        FunctionMemory::fit(self);
    }
}

impl Drop for FunctionMemory {
    fn drop(&mut self) {
        self.seeds.unregister_account(self.owner());
    }
}

fn existing(versions: &[(Key, Weak<WarmInstances>)]) -> Vec<(Key, Arc<WarmInstances>)> {
    let existing = versions.iter();
    let existing =
        existing.filter_map(|(key, warm_instances)| Some((*key, warm_instances.upgrade()?)));
    existing.collect()
}

//! What one function holds in memory between requests, and what of it goes when that
//! is more than a function may hold.
//!
//! It is an account, not a measurement: the pages that the layers of the function's seeds and their
//! code have, which become more where instances read their holes, and of each parked instance the
//! private pages that its sandbox said it had when it was reset, or that it was to have when it was
//! made ahead. All versions that are still there count together, the current one and those whose
//! requests are not done. What the kernel has for each VM and process is not in it, nor what
//! instances at work have.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use faasw_seedtree::graph::Resting;
use faasw_seedtree::{Key, Owner};

use super::graph::{Account, Seeds};
use crate::instances::{Parking, Rest};

/// A function among those of a pool: the same number for all its versions.
pub type FunctionNumber = u64;

/// The account of a function, whatever its version.
#[derive(Debug)]
pub struct Holding {
    number: FunctionNumber,
    budget: u64,
    seeds: Arc<Seeds>,
    versions: Mutex<Vec<(Key, Weak<Parking>)>>,
}

impl Holding {
    /// An account of nothing of the function `number`, that may grow to `budget` bytes.
    pub fn new(number: FunctionNumber, budget: u64, seeds: Arc<Seeds>) -> Arc<Self> {
        let holding = Arc::new(Self {
            number,
            budget,
            seeds,
            versions: Mutex::default(),
        });
        let account: Weak<Self> = Arc::downgrade(&holding);
        holding.seeds.open(holding.owner(), account);
        holding
    }

    /// The function's number among those of the pool.
    pub fn number(&self) -> FunctionNumber {
        self.number
    }

    /// Whose its seeds are.
    pub fn owner(&self) -> Owner {
        Owner::Function(self.number)
    }

    /// Takes a version up, whose instances are forked from the seed of this name.
    pub fn add(&self, seed: Key, parking: &Arc<Parking>) {
        let mut versions = self.lock();
        versions.retain(|(_, parking)| parking.strong_count() > 0);
        versions.push((seed, Arc::downgrade(parking)));
    }

    /// Bytes that the function may hold beyond what it holds.
    pub fn room(&self) -> u64 {
        let versions = there(&self.lock());
        self.budget.saturating_sub(self.bytes(&versions))
    }

    /// Ends parked instances, those first that nobody took for longest, and then evicts
    /// seeds that nobody uses, until the rest fits; then has all seeds fit.
    pub fn fit(&self) {
        self.fit_own();
        self.seeds.fit_after(self.owner());
    }

    fn fit_own(&self) {
        // Whoever comes meanwhile finds that it fits.
        let listed = self.lock();
        let versions = there(&listed);
        // After each request: nearly always there is nothing to do.
        if self.bytes(&versions) <= self.budget {
            return;
        }
        let mut parked: Vec<(Rest, usize, Key)> = Vec::new();
        for (place, (key, parking)) in versions.iter().enumerate() {
            let rests = parking.rests().into_iter();
            parked.extend(rests.map(|rest| (rest, place, *key)));
        }
        parked.sort_by_key(|(rest, ..)| rest.since);
        let resting: Vec<Resting> = parked
            .iter()
            .map(|(rest, _, key)| Resting {
                key: *key,
                bytes: rest.bytes,
            })
            .collect();
        let evictions = self.seeds.fit_owner(self.owner(), self.budget, &resting);
        for (place, (_, parking)) in versions.iter().enumerate() {
            let ended = parked.iter().take(evictions.instances);
            parking.end_oldest(ended.filter(|(_, of, _)| *of == place).count());
        }
        self.seeds.evict(&evictions.seeds);
    }

    fn bytes(&self, versions: &[(Key, Arc<Parking>)]) -> u64 {
        let parked = versions.iter().map(|(_, parking)| parking.bytes());
        let keys = versions.iter().map(|(key, _)| *key);
        let seeds = self.seeds.recounted(self.owner(), keys);
        parked.fold(seeds, u64::saturating_add)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Key, Weak<Parking>)>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account for Holding {
    fn fit(&self) {
        Holding::fit(self);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.seeds.close(self.owner());
    }
}

fn there(versions: &[(Key, Weak<Parking>)]) -> Vec<(Key, Arc<Parking>)> {
    let there = versions.iter();
    let there = there.filter_map(|(key, parking)| Some((*key, parking.upgrade()?)));
    there.collect()
}

//! What one function holds in memory between requests, and what of it yields when that
//! is more than a function may hold.
//!
//! It is an account, not a measurement: the layers of the function's seeds, and of each
//! parked instance the private pages that its shell said it had when it was reset, or that
//! it was to have when it was made ahead. All versions that are still there count together, the current one and those
//! whose requests are not done. What the kernel has for each VM and process is not in
//! it, nor what instances at work have.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use faasw_seedtree::{Candidate, Yielding, yielding};

use crate::parking::Rest;
use crate::places::FunctionNumber;
use crate::seed::Function;

/// The account of a function, whatever its version.
#[derive(Debug)]
pub struct Holding {
    number: FunctionNumber,
    budget: u64,
    versions: Mutex<Vec<Weak<Function>>>,
}

impl Holding {
    /// An account of nothing of the function `number`, that may grow to `budget` bytes.
    pub fn new(number: FunctionNumber, budget: u64) -> Self {
        Self {
            number,
            budget,
            versions: Mutex::default(),
        }
    }

    /// The function's number among those of the pool.
    pub fn number(&self) -> FunctionNumber {
        self.number
    }

    /// Takes a version up.
    pub fn add(&self, version: &Arc<Function>) {
        let mut versions = self.lock();
        versions.retain(|version| version.strong_count() > 0);
        versions.push(Arc::downgrade(version));
    }

    /// Bytes that the function may hold beyond what it holds.
    pub fn room(&self) -> u64 {
        self.budget.saturating_sub(bytes(&self.versions()))
    }

    /// Ends parked instances, those first that nobody took for longest, and then lets
    /// seeds go that nobody uses, until the rest fits.
    pub fn fit(&self) {
        // Whoever comes meanwhile finds that it fits.
        let listed = self.lock();
        let versions: Vec<_> = listed.iter().filter_map(Weak::upgrade).collect();
        // After each request: nearly always there is nothing to do.
        if bytes(&versions) <= self.budget {
            return;
        }
        let mut parked: Vec<(Rest, usize)> = Vec::new();
        let mut seeds: Vec<(Candidate, usize)> = Vec::new();
        for (place, version) in versions.iter().enumerate() {
            let rests = version.parking().rests();
            seeds.extend(version.candidate(rests.len()).map(|seed| (seed, place)));
            parked.extend(rests.into_iter().map(|rest| (rest, place)));
        }
        parked.sort_by_key(|(rest, _)| rest.since);
        let of_parked: Vec<u64> = parked.iter().map(|(rest, _)| rest.bytes).collect();
        let of_seeds: Vec<Candidate> = seeds.iter().map(|(seed, _)| *seed).collect();
        let Yielding {
            instances,
            seeds: gone,
        } = yielding(&of_parked, &of_seeds, self.budget);
        for (place, version) in versions.iter().enumerate() {
            let ended = parked.iter().take(instances);
            let count = ended.filter(|(_, of)| *of == place).count();
            version.parking().end_oldest(count);
        }
        for seed in gone {
            if let Some((Candidate { bytes, .. }, place)) = seeds.get(seed)
                && let Some(version) = versions.get(*place)
                && version.let_go()
            {
                let function = version.name();
                tracing::debug!(
                    function,
                    bytes,
                    "a seed gave way: its function held too much"
                );
            }
        }
    }

    fn versions(&self) -> Vec<Arc<Function>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Function>>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes(versions: &[Arc<Function>]) -> u64 {
    let each = versions.iter().map(|version| {
        version
            .seed_bytes()
            .saturating_add(version.parking().bytes())
    });
    each.fold(0, u64::saturating_add)
}

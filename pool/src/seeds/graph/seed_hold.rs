//! Holding a seed without an instance of it.
//!
//! A seed in use is not evicted, and a failed eviction is not retried. So every holder of a seed
//! checks the budget again after dropping it: the retirement of an instance does so, and
//! [`SeedHold`] does it for all other holders.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use faasw_seedtree::Owner;

use super::Seeds;
use crate::snapshots::SeedSnapshot;

/// A seed that is not evicted while this exists. Dropping it evicts what should have left memory
/// meanwhile. It must not be dropped under the lock of the graph or of an account.
#[derive(Debug)]
pub struct SeedHold {
    frozen: Arc<SeedSnapshot>,
    /// Declared after `frozen`: when this is dropped, the seed has been dropped already.
    end: HoldEnd,
}

impl SeedHold {
    /// Holds one of these seeds.
    pub fn new(seeds: &Arc<Seeds>, frozen: Arc<SeedSnapshot>) -> Self {
        let end = HoldEnd {
            seeds: Arc::downgrade(seeds),
            owner: frozen.owner(),
        };
        Self { frozen, end }
    }

    /// Hands the seed over to an instance, whose retirement checks the budget. Without this the
    /// check would be made twice.
    pub fn leave_to_instance(mut self) {
        self.end.seeds = Weak::new();
    }
}

impl Deref for SeedHold {
    type Target = Arc<SeedSnapshot>;

    fn deref(&self) -> &Self::Target {
        &self.frozen
    }
}

#[derive(Debug)]
struct HoldEnd {
    seeds: Weak<Seeds>,
    owner: Owner,
}

impl Drop for HoldEnd {
    fn drop(&mut self) {
        if let Some(seeds) = self.seeds.upgrade() {
            seeds.holder_dropped(self.owner);
        }
    }
}

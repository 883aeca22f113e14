//! The identity of seeds that zygotes are specialised for.

use std::sync::{Arc, Weak};

use faasw_seedtree::Owner;

use super::seed_snapshot::SeedSnapshot;

/// A weak reference to a seed that others are forked from: keeping zygotes for a seed must not keep
/// the seed in memory.
#[derive(Clone, Debug)]
pub struct ParentRef {
    frozen: Weak<SeedSnapshot>,
    is_shared: bool,
}

impl ParentRef {
    /// Returns the identity of a seed.
    pub fn of(frozen: &Arc<SeedSnapshot>) -> Self {
        Self {
            frozen: Arc::downgrade(frozen),
            is_shared: frozen.owner() == Owner::Shared,
        }
    }

    /// Returns the seed, if it still exists.
    pub fn get(&self) -> Option<Arc<SeedSnapshot>> {
        self.frozen.upgrade()
    }

    /// Returns whether the seed no longer exists.
    pub fn is_gone(&self) -> bool {
        self.frozen.strong_count() == 0
    }

    /// Returns whether it has run no function's code.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns how many steps `seed` is below it: 0 for the same seed, `None` if `seed` does not
    /// descend from it. Only the same function's seeds descend from a function's seed.
    pub fn steps_to(&self, seed: &SeedSnapshot) -> Option<usize> {
        // The weak reference keeps the address from being used again.
        seed.steps_below(self.frozen.as_ptr())
    }
}

impl PartialEq for ParentRef {
    fn eq(&self, other: &Self) -> bool {
        self.frozen.ptr_eq(&other.frozen)
    }
}

//! Seeds that sandboxes are preset for, by name.

use std::sync::{Arc, Weak};

use faasw_seedtree::Owner;

use super::frozen::Frozen;

/// A seed that others are forked from, named without being kept in memory: whoever keeps
/// sandboxes for it is not to be the reason that it stays.
#[derive(Clone, Debug)]
pub struct Parent {
    frozen: Weak<Frozen>,
    is_shared: bool,
}

impl Parent {
    /// The name of a seed.
    pub fn of(frozen: &Arc<Frozen>) -> Self {
        Self {
            frozen: Arc::downgrade(frozen),
            is_shared: frozen.owner() == Owner::Shared,
        }
    }

    /// The seed, if somebody still has it.
    pub fn get(&self) -> Option<Arc<Frozen>> {
        self.frozen.upgrade()
    }

    /// Whether nobody has the seed any more.
    pub fn is_gone(&self) -> bool {
        self.frozen.strong_count() == 0
    }

    /// Whether it has run no function's code.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// How many steps `seed` is below it; 0 where it is the same, nothing where it does not
    /// descend from it. What is one function's has that function's descendants alone.
    pub fn steps_to(&self, seed: &Frozen) -> Option<usize> {
        // An address is not used again for as long as it is named here.
        seed.steps_below(self.frozen.as_ptr())
    }
}

impl PartialEq for Parent {
    fn eq(&self, other: &Self) -> bool {
        self.frozen.ptr_eq(&other.frozen)
    }
}

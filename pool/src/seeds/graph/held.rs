//! Who has a seed without having an instance of it.
//!
//! What is in use is not evicted, and whoever wanted it to leave memory does not ask again. So all
//! who have a seed for a while look again when they let it go: instances by their retirement, all
//! others by this.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use faasw_seedtree::Owner;

use super::Seeds;
use crate::snapshots::Frozen;

/// A seed that is not evicted as long as somebody has this. When it is dropped, what should have
/// left memory meanwhile leaves it: never under the graph's lock, nor an account's.
#[derive(Debug)]
pub struct Held {
    frozen: Arc<Frozen>,
    /// Behind it: when this goes, that has gone.
    end: End,
}

impl Held {
    /// A seed of these.
    pub fn new(seeds: &Arc<Seeds>, frozen: Arc<Frozen>) -> Self {
        let end = End {
            seeds: Arc::downgrade(seeds),
            owner: frozen.owner(),
        };
        Self { frozen, end }
    }

    /// Whoever has this has an instance now, whose retirement looks: that is not done twice.
    pub fn leave_to_instance(mut self) {
        self.end.seeds = Weak::new();
    }
}

impl Deref for Held {
    type Target = Arc<Frozen>;

    fn deref(&self) -> &Self::Target {
        &self.frozen
    }
}

#[derive(Debug)]
struct End {
    seeds: Weak<Seeds>,
    owner: Owner,
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(seeds) = self.seeds.upgrade() {
            seeds.was_let_go(self.owner);
        }
    }
}

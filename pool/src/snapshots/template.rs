//! What shells are preset with: the seed that functions descend from, and the pages
//! that every function's requests use, as far as that can be told from the seed alone.
//! What one function's instances use says nothing to another's.

use std::sync::Arc;

use faasw_abi::memory_map::{PAGE, RODATA, TEXT, ram_bytes};
use faasw_abi::pages::PageRange;
use faasw_seedtree::PageSets;
use rustix::io::Errno;

use super::frozen::Frozen;

/// Memory limit that functions have unless they are told otherwise; the memory of
/// others is made larger or smaller when they are forked.
const USUAL_MEMORY: u64 = 128 << 20;

/// What shells are preset with.
#[derive(Clone, Debug)]
pub struct Template {
    /// The seed.
    pub frozen: Arc<Frozen>,
    /// What is written and read.
    pub sets: Arc<PageSets>,
    /// RAM of the guest, in bytes.
    pub ram_bytes: u64,
}

impl Template {
    /// To preset shells with `frozen`, which has no tenant's code.
    ///
    /// # Errors
    /// The system's.
    pub fn new(frozen: Arc<Frozen>) -> Result<Self, Errno> {
        let sets = Arc::new(PageSets {
            written: frozen.prepared()?.clone(),
            // One page of each large one.
            read: [TEXT, RODATA]
                .map(|start| PageRange::of_bytes(start, start + PAGE))
                .into_iter()
                .collect(),
            generation: 0,
        });
        Ok(Self {
            frozen,
            sets,
            ram_bytes: ram_bytes(USUAL_MEMORY).unwrap_or(0),
        })
    }

    /// Whether a shell that is preset so can be forked to `frozen`.
    pub fn suits(&self, frozen: &Frozen) -> bool {
        let parent = frozen.parent();
        self.is_of(frozen) || parent.is_some_and(|parent| Arc::ptr_eq(parent, &self.frozen))
    }

    /// Whether a shell that is preset so is an image of `frozen`.
    pub fn is_of(&self, frozen: &Frozen) -> bool {
        std::ptr::eq(&*self.frozen, frozen)
    }
}

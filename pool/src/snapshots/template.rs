//! What sandboxes are preset with: a seed that others descend from, and the pages that their
//! requests use, as far as that can be told from the seed alone. What the instances of one
//! function use says nothing to another's: no working set is asked.

use std::sync::Arc;

use faasw_abi::memory_map::{PAGE, RODATA, TEXT, ram_bytes};
use faasw_abi::pages::{PageRange, PageSet};
use faasw_seedtree::PageSets;
use rustix::io::Errno;

use super::frozen::Frozen;
use super::parent::Parent;

/// Memory limit that functions have unless they are told otherwise; the memory of
/// others is made larger or smaller when they are forked.
const USUAL_MEMORY: u64 = 128 << 20;

/// What sandboxes are preset with. The seed is in use as long as somebody has this.
#[derive(Debug)]
pub struct Template {
    /// The seed.
    pub frozen: Arc<Frozen>,
    /// What is written and read.
    pub sets: PageSets,
    /// RAM of the guest, in bytes.
    pub ram_bytes: u64,
}

impl Template {
    /// To specialised zygotes with `frozen`.
    ///
    /// # Errors
    /// The system's.
    pub fn new(frozen: Arc<Frozen>) -> Result<Self, Errno> {
        let sets = PageSets {
            written: frozen.prepared()?.clone(),
            // One page of each large one.
            read: [TEXT, RODATA]
                .map(|start| PageRange::of_bytes(start, start + PAGE))
                .into_iter()
                .collect(),
            code: PageSet::new(),
            generation: 0,
        };
        // A function's own seed may need more.
        let usual = ram_bytes(USUAL_MEMORY).unwrap_or(0);
        Ok(Self {
            ram_bytes: usual.max(frozen.layer().bytes()),
            frozen,
            sets,
        })
    }

    /// The seed's name.
    pub fn parent(&self) -> Parent {
        Parent::of(&self.frozen)
    }
}

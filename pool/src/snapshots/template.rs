//! The state that zygotes are specialised with: a seed that others descend from, and the pages that
//! its requests use, as far as the seed alone shows them. The pages that the instances of one
//! function use are no hint for another function, so no working set is used.

use std::sync::Arc;

use faasw_abi::memory_map::{PAGE, RODATA, TEXT, ram_bytes};
use faasw_abi::pages::{PageRange, PageSet};
use faasw_seedtree::PageSets;
use rustix::io::Errno;

use super::parent::ParentRef;
use super::seed_snapshot::SeedSnapshot;

/// The default memory limit of functions. The RAM of other guests is resized when they are forked.
const USUAL_MEMORY: u64 = 128 << 20;

/// The state that zygotes are specialised with. The seed counts as in use while this exists.
#[derive(Debug)]
pub struct ZygoteTemplate {
    /// The seed.
    pub frozen: Arc<SeedSnapshot>,
    /// The pages that are written and read.
    pub sets: PageSets,
    /// The RAM of the guest, in bytes.
    pub ram_bytes: u64,
}

impl ZygoteTemplate {
    /// Creates the template for specialising zygotes for `frozen`.
    ///
    /// # Errors
    /// Returns the error of preparing the seed's pages.
    pub fn new(frozen: Arc<SeedSnapshot>) -> Result<Self, Errno> {
        let sets = PageSets {
            written: frozen.prepared()?.clone(),
            // A single page of each large page.
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

    /// Returns the seed's identity.
    pub fn parent(&self) -> ParentRef {
        ParentRef::of(&self.frozen)
    }
}

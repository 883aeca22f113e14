//! What shells are preset with: the seed that functions descend from, and the pages
//! that every function's requests use, as far as that can be told from the seed alone.
//! What one function's instances use says nothing to another's.

use std::sync::Arc;

use faasw_abi::memory_map::{
    BOOT_PAGE, DATA, DATA_END, HEAP, HEAP_END, PAGE, RODATA, RODATA_END, STACK_TOP, TEXT, ram_bytes,
};
use faasw_fri::messages::{SET_MAX, VcpuState};
use faasw_seedtree::{Extent, Seed, coalesce};
use rustix::io::Errno;

use crate::frozen::Frozen;
use crate::working_set::PageSets;

/// Memory limit that functions have unless they are told otherwise; the memory of
/// others is made larger or smaller when they are forked.
const USUAL_MEMORY: u64 = 128 << 20;
/// Pages of stack that a request uses.
const STACK_PAGES: u64 = 6;
/// Pages of heap that a function takes behind what its seed's parent has.
const HEAP_PAGES: u64 = 64;

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
            written: written(&frozen.seed)?,
            // One page of each large one.
            read: [TEXT, RODATA].map(page_at).to_vec(),
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
        let parent = frozen.seed.parent.as_ref();
        Arc::ptr_eq(&frozen.seed, &self.frozen.seed)
            || parent.is_some_and(|parent| Arc::ptr_eq(parent, &self.frozen.seed))
    }
}

fn page_at(start: u64) -> Extent {
    Extent {
        start,
        end: start + PAGE,
    }
}

/// What shells are preset with as private pages: what a request writes, and what a
/// function's seed has of its own, if it is a small one. That is the guest's data, the top
/// of its stack, its heap and somewhat more.
///
/// # Errors
/// The system's.
pub fn written(seed: &Seed<Box<VcpuState>>) -> Result<Vec<Extent>, Errno> {
    let mut changed = Vec::new();
    for own in seed.layer.extents() {
        let start = own.start.max(RODATA_END);
        if start < own.end {
            changed.extend(seed.differences(Extent {
                start,
                end: own.end,
            })?);
        }
    }
    let last = |start: u64, end: u64| {
        let inside = changed
            .iter()
            .filter(|extent| start <= extent.start && extent.end <= end);
        inside.map(|extent| extent.end).max().unwrap_or(start)
    };
    // Large allocations come from the heap's other end.
    let heap = last(HEAP, HEAP + (HEAP_END - HEAP) / 2);
    let mut all = vec![
        page_at(BOOT_PAGE),
        Extent {
            start: DATA,
            end: last(DATA, DATA_END),
        },
        Extent {
            start: STACK_TOP - STACK_PAGES * PAGE,
            end: heap + HEAP_PAGES * PAGE,
        },
    ];
    all.extend(changed.iter().copied());
    all.retain(|extent| extent.start < extent.end);
    all.sort_by_key(|extent| extent.start);
    Ok(coalesce(&all, PAGE, SET_MAX))
}

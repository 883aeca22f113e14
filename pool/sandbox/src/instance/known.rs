//! Which pages of its RAM an instance has of its own, known without a search.
//!
//! A search (`PAGEMAP_SCAN`) takes longer than all else that the reset of a small function
//! does, and mostly finds what the one before has left. So what a reset leaves private is
//! kept here, with the count of page faults as it was before that was found. As long as
//! the count is the same, there can be no other private page:
//!
//! - A guest writes to a page only while this process may write to it: KVM maps a page for
//!   writing only where it could have it for writing of the process's own page table
//!   (`hva_to_pfn` in `virt/kvm/kvm_main.c`), and forgets it when that changes. Whether
//!   the hardware walks the guest's tables or KVM shadows of them makes no difference, nor
//!   does the level that the guest runs at, nor whether the access is the guest's, the
//!   hardware's to its tables, or KVM's own in its name.
//! - A page of a private mapping that this process may write to is private. It becomes so
//!   by a fault (`handle_mm_fault` in `mm/memory.c`), whoever asks: the process, or KVM by
//!   `get_user_pages`. The system counts it for the thread that asks, the latter, too
//!   (`mm_account_fault`, since Linux 5.9).
//! - All who ask are the thread that runs the vCPU. KVM has a thread of its own ask only
//!   where a guest can wait for a page while it runs on, which takes an interrupt
//!   controller (`kvm_can_do_async_pf`); ours have none. The pager gives pages of zeroes
//!   that are nobody's own, and none once there can be resets. Sandboxes do not trace each other.
//! - Beside faults there is `khugepaged`, which completes large pages of fresh memory with
//!   zeroes that no fault is taken for when they are written. Where it could do that with
//!   pages that are kept it is told not to, and only what is found after that is known.
//!
//! KVM's own count is compared as well (its statistics are younger than Linux 5.9). It rises
//! whenever KVM maps a page for a guest that it had not mapped, or not for writing: so also a
//! page that came by a way that is not listed here is looked for once a guest has touched it.
//! When in doubt it is looked, and after every `TRUSTED` times: then what is found must be
//! known.

use std::num::NonZeroU32;

use faasw_abi::memory_map::{LARGE_PAGE, PAGE};
use faasw_abi::pages::{PageRange, PageSet};
use faasw_seedtree::Window;

use crate::memory::guest_memory::LARGE_FROM;
use crate::memory::mapping::Mapping;
use crate::vm::FaultCount;

/// Resets that go by what is known, before one looks again whether it is so.
const TRUSTED: u32 = 63;

/// Parts of RAM that are kept in small pages at most: each is up to two mappings more, and a
/// guest decides how many there are.
const SMALL_MAX: usize = 64;

/// Pages of a large page.
const LARGE: NonZeroU32 = NonZeroU32::new((LARGE_PAGE / PAGE) as u32).unwrap();

/// What is known.
#[derive(Debug, Default)]
pub struct Known {
    left: Option<Left>,
    /// Where `khugepaged` was told to let small pages be.
    small: PageSet,
}

/// What a reset left private.
#[derive(Debug)]
struct Left {
    pages: PageSet,
    /// As it was before they were found.
    faults: FaultCount,
    /// How often they were gone by since.
    trusted: u32,
}

impl Known {
    /// The pages that are private, if that is sure when so many faults have been counted, and
    /// not to be looked at again. The caller leaves them private.
    pub fn trust(&mut self, faults: Option<FaultCount>) -> Option<&PageSet> {
        let left = self.left.as_mut()?;
        if Some(left.faults) != faults || left.trusted >= TRUSTED {
            return None;
        }
        left.trusted += 1;
        Some(&left.pages)
    }

    /// The pages that there must be no other private ones beside when so many faults have been
    /// counted.
    pub fn expected(&self, faults: Option<FaultCount>) -> Option<&PageSet> {
        let left = self.left.as_ref()?;
        (Some(left.faults) == faults).then_some(&left.pages)
    }

    /// Takes note of the pages that a reset left private of those that it found, when so many
    /// faults had been counted before that.
    pub fn learn(
        &mut self,
        ram: Mapping,
        windows: &[Window],
        pages: PageSet,
        faults: Option<FaultCount>,
    ) {
        self.left = None;
        if let Some(faults) = faults
            && self.stay_small(ram, windows, &pages)
        {
            self.left = Some(Left {
                pages,
                faults,
                trusted: 0,
            });
        }
    }

    /// Has `khugepaged` not complete a large page round any of `pages`. Whether it was told
    /// before: else it may have done so already.
    fn stay_small(&mut self, ram: Mapping, windows: &[Window], pages: &PageSet) -> bool {
        let large = PageRange::around(LARGE_FROM, ram.bytes());
        if pages
            .ranges()
            .last()
            .is_none_or(|last| last.end <= large.start)
        {
            return true;
        }
        // A private page of a file's mapping is none of its business.
        let layers: PageSet = windows.iter().map(|window| window.range).collect();
        let fresh = PageSet::from(large).without(&layers);
        let blocks = pages.intersection(&fresh);
        let blocks: PageSet = blocks.iter().map(|range| range.widened(LARGE)).collect();
        let untold = blocks.intersection(&fresh).without(&self.small);
        for range in untold.iter() {
            if self.small.ranges().len() < SMALL_MAX && ram.stay_small(range).is_ok() {
                self.small.push(range);
            }
        }
        untold.is_empty()
    }
}

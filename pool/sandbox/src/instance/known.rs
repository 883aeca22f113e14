//! Which pages of its RAM are private to an instance, known without a search.
//!
//! A search (`PAGEMAP_SCAN`) takes longer than all other work in the reset of a small function, and
//! mostly finds the pages that the reset before has left. So this module keeps the pages that a
//! reset leaves private, with the count of page faults from before they were found. As long as the
//! count is the same, there can be no other private page:
//!
//! - A guest writes to a page only while this process may write to it. KVM maps a page for writing
//!   only if the process's own page table allows writing (`hva_to_pfn` in `virt/kvm/kvm_main.c`),
//!   and removes the mapping when that changes. It makes no difference whether the hardware walks
//!   the guest's tables or KVM's shadows of them, or at which level the guest runs. Nor does it
//!   matter whether the access is the guest's, the hardware's to its tables, or KVM's own on its
//!   behalf.
//! - A page of a private mapping that this process may write to is private. It becomes so by a
//!   fault (`handle_mm_fault` in `mm/memory.c`), taken by the process, or by KVM through
//!   `get_user_pages`. The kernel counts both for the thread that takes the fault
//!   (`mm_account_fault`, since Linux 5.9).
//! - Only the thread that runs the vCPU takes such faults. KVM uses a thread of its own only if a
//!   guest can go on while it waits for a page, which requires an interrupt controller
//!   (`kvm_can_do_async_pf`); ours have none. The pager provides pages of zeroes that are private
//!   to no process, and none once there can be resets. Sandboxes do not trace each other.
//! - Besides faults there is `khugepaged`, which completes large pages of fresh memory with pages
//!   of zeroes; writing those takes no fault. Where it could do that with pages that are kept, it
//!   is disabled by advice, and only pages that are found after that are known.
//!
//! KVM's own count is compared as well (its statistics are younger than Linux 5.9). It rises
//! whenever KVM maps a page for a guest that it had not mapped, or had not mapped for writing. So a
//! page that became private in a way that is not listed here is found, too, once a guest has
//! touched it. In doubt the reset searches, and also after every `TRUSTED` resets: then it must
//! find no page that was not known.

use std::num::NonZeroU32;

use faasw_abi::memory_map::{LARGE_PAGE, PAGE};
use faasw_abi::pages::{PageRange, PageSet};
use faasw_seedtree::Window;

use crate::memory::guest_memory::LARGE_FROM;
use crate::memory::mapping::Mapping;
use crate::vm::FaultCount;

/// Resets that rely on the known pages before the next search verifies them.
const TRUSTED: u32 = 63;

/// The most parts of RAM that are kept in small pages: each is up to two mappings more, and a guest
/// decides how many there are.
const SMALL_MAX: usize = 64;

/// Pages of a large page.
const LARGE: NonZeroU32 = NonZeroU32::new((LARGE_PAGE / PAGE) as u32).unwrap();

/// The pages of an instance that are known to be private.
#[derive(Debug, Default)]
pub struct KnownPages {
    left: Option<LeftPages>,
    /// Parts of RAM for which `khugepaged` is disabled by advice.
    small: PageSet,
}

/// The pages that a reset left private.
#[derive(Debug)]
struct LeftPages {
    pages: PageSet,
    /// The count of page faults from before the pages were found.
    faults: FaultCount,
    /// How often resets have relied on the pages since they were found.
    trusted: u32,
}

impl KnownPages {
    /// Returns the private pages if no other page can be private at this count of faults and no
    /// search is due. The caller leaves them private.
    pub fn trust(&mut self, faults: Option<FaultCount>) -> Option<&PageSet> {
        let left = self.left.as_mut()?;
        if Some(left.faults) != faults || left.trusted >= TRUSTED {
            return None;
        }
        left.trusted += 1;
        Some(&left.pages)
    }

    /// Returns the pages that must include every private page at this count of faults.
    pub fn expected(&self, faults: Option<FaultCount>) -> Option<&PageSet> {
        let left = self.left.as_ref()?;
        (Some(left.faults) == faults).then_some(&left.pages)
    }

    /// Stores the pages that a reset found and left private, with the count of faults from before
    /// it.
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
            self.left = Some(LeftPages {
                pages,
                faults,
                trusted: 0,
            });
        }
    }

    /// Keeps `khugepaged` from completing a large page around any of `pages`. Returns whether all
    /// of the advice was in force before this call: otherwise `khugepaged` may have completed one
    /// already.
    fn stay_small(&mut self, ram: Mapping, windows: &[Window], pages: &PageSet) -> bool {
        let large = PageRange::around(LARGE_FROM, ram.bytes());
        if pages
            .ranges()
            .last()
            .is_none_or(|last| last.end <= large.start)
        {
            return true;
        }
        // `khugepaged` does not touch private pages of a file's mapping.
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

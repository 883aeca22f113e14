//! The kernel heap, from which Wasmtime and the runtime allocate.
//!
//! The heap begins with the window of the memory map and takes whole 2 MiB frames when it needs
//! more, so that the memory that initialisation touches is contiguous.

use core::alloc::Layout;
use core::ptr;

use faasw_abi::memory_map::{HEAP, HEAP_END, LARGE_PAGE, PAGE};
use spinning_top::RawSpinlock;
use talc::TalcLock;
use talc::base::{Talc, binning::Binning};
use talc::source::Source;

use crate::frames;

#[global_allocator]
static ALLOCATOR: TalcLock<RawSpinlock, FromFrames> = TalcLock::new(FromFrames { begun: false });

/// The memory source of the allocator: the heap window first, then frames.
#[derive(Debug)]
struct FromFrames {
    begun: bool,
}

// SAFETY: `acquire` does not allocate, and reaches the allocator only through `talc`.
unsafe impl Source for FromFrames {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let (start, bytes) = if !talc.source.begun {
            talc.source.begun = true;
            (HEAP, HEAP_END - HEAP)
        } else {
            // The allocator uses a little of each range for itself.
            let wanted = (layout.size() as u64).checked_add(PAGE).ok_or(())?;
            let count = wanted.div_ceil(LARGE_PAGE);
            let start = frames::large_run(count).ok_or(())?;
            (start.address(), count * LARGE_PAGE)
        };
        // SAFETY: the window and every frame are mapped writable, and nothing else uses them.
        unsafe {
            talc.claim(
                ptr::with_exposed_provenance_mut(start as usize),
                bytes as usize,
            )
        }
        .map(|_| ())
        .ok_or(())
    }
}

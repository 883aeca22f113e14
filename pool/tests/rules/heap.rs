//! The heap of the test program. If the program acts as the spawner, it has the same kind of heap
//! as the spawner. Otherwise its sandboxes would make system calls that no real sandbox makes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

use spinning_top::RawSpinlock;
use talc::TalcLock;
use talc::source::Claim;

const BYTES: usize = 8 << 20;

static mut HEAP: [u8; BYTES] = [0; BYTES];

// SAFETY: the range has only this one user.
static FIXED: TalcLock<RawSpinlock, Claim> = TalcLock::new(unsafe { Claim::array(&raw mut HEAP) });

static IS_SPAWNER: AtomicBool = AtomicBool::new(false);

/// An allocator that uses the system's heap, and after [`Heap::fix`] a heap of fixed size.
pub struct Heap;

impl Heap {
    pub fn fix() {
        IS_SPAWNER.store(true, Ordering::Relaxed);
    }

    fn is_fixed(pointer: *mut u8) -> bool {
        let start = (&raw const HEAP).addr();
        (start..start + BYTES).contains(&pointer.addr())
    }
}

// SAFETY: each call is passed to the heap that the memory belongs to or will belong to, with the
// caller's own arguments.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract.
        unsafe {
            if IS_SPAWNER.load(Ordering::Relaxed) {
                FIXED.alloc(layout)
            } else {
                System.alloc(layout)
            }
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract.
        unsafe {
            if Self::is_fixed(pointer) {
                FIXED.dealloc(pointer, layout)
            } else {
                System.dealloc(pointer, layout)
            }
        }
    }
}

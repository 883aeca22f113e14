//! The end of a sandbox whose heap is used up: it exits, as quietly as after a panic.
//!
//! The standard library reports the failure and aborts, which requires system calls that no jail
//! allows. The process would then end by a forbidden call, like one that has tried to break out.

use std::alloc::{GlobalAlloc, Layout};

/// Exit code of a process whose heap is used up.
pub const HEAP_USED_UP: i32 = 102;

/// A heap that ends the process once it is used up.
#[derive(Debug)]
pub struct ExitOnOom<A>(pub A);

fn exit_if_null(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        // SAFETY: ends this process without running anything.
        unsafe { libc::_exit(HEAP_USED_UP) };
    }
    memory
}

// SAFETY: each call goes to the inner heap with the caller's own arguments, and returns that heap's
// result.
unsafe impl<A: GlobalAlloc> GlobalAlloc for ExitOnOom<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for the caller.
        exit_if_null(unsafe { self.0.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for the caller.
        exit_if_null(unsafe { self.0.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as for the caller.
        exit_if_null(unsafe { self.0.realloc(memory, layout, bytes) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as for the caller.
        unsafe { self.0.dealloc(memory, layout) }
    }
}

//! What a sandbox does where it has no memory left: it ends, as quietly as where it
//! panics.
//!
//! The standard library tells of it and aborts, which takes calls that no jail allows: it
//! would end as a forbidden call, and be taken for somebody who broke out.

use std::alloc::{GlobalAlloc, Layout};

/// Exit code of a process whose heap is used up.
pub const HEAP_USED_UP: i32 = 102;

/// A heap that ends the process where it is used up.
#[derive(Debug)]
pub struct Ending<A>(pub A);

fn unless_used_up(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        // SAFETY: ends this process without running anything.
        unsafe { libc::_exit(HEAP_USED_UP) };
    }
    memory
}

// SAFETY: each call goes to the heap within, with the caller's own arguments, and so does
// its answer.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Ending<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller's.
        unless_used_up(unsafe { self.0.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller's.
        unless_used_up(unsafe { self.0.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as the caller's.
        unless_used_up(unsafe { self.0.realloc(memory, layout, bytes) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller's.
        unsafe { self.0.dealloc(memory, layout) }
    }
}

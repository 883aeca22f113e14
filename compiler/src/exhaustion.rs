//! Handling of memory exhaustion: the process ends, quickly and quietly.
//!
//! The helper's address space is limited from outside, and a hostile upload is expected to exhaust
//! it. The standard handler prints, aborts and may leave a core file with the tenant's data;
//! unwinding would allocate again. Therefore the allocator itself exits.
#![allow(unsafe_code, reason = "an allocator is made of it")]

use std::alloc::{GlobalAlloc, Layout, System};

use crate::protocol::contract::EXIT_MEMORY;

/// The system allocator, whose failures end the process.
#[derive(Debug)]
pub struct ExitingAllocator;

impl ExitingAllocator {
    fn checked(pointer: *mut u8) -> *mut u8 {
        if pointer.is_null() {
            // SAFETY: `_exit` takes any number, runs nothing and does not return.
            unsafe { libc::_exit(EXIT_MEMORY) }
        }
        pointer
    }
}

// SAFETY: every call is passed on to `System` with the caller's own arguments, under the same
// contract. A null result ends the process; any other result is returned unchanged.
unsafe impl GlobalAlloc for ExitingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `GlobalAlloc::alloc`'s contract.
        Self::checked(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps `GlobalAlloc::alloc_zeroed`'s contract.
        Self::checked(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps `GlobalAlloc::realloc`'s contract.
        Self::checked(unsafe { System.realloc(pointer, layout, size) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `GlobalAlloc::dealloc`'s contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

//! Memory of the interpreter: the C library's, but that it is known whether it ran out.
//!
//! Where not even an error has room the interpreter throws `null`, which says nothing to anybody.

use std::{cell::Cell, ffi::c_void};

use rquickjs::allocator::Allocator;

/// An error and its stack take no more at once. What is larger fails with an error that says so.
const SMALL: usize = 4 << 10;

thread_local! {
    static RAN_OUT: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn calloc(count: usize, size: usize) -> *mut c_void;
    fn realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn free(old: *mut c_void);
    fn malloc_usable_size(of: *mut c_void) -> usize;
}

/// Whether there was not even a little room left, at some time.
pub(crate) fn ran_out() -> bool {
    RAN_OUT.get()
}

pub(crate) struct Memory;

fn noted(got: *mut c_void, size: usize) -> *mut u8 {
    if got.is_null() && size <= SMALL {
        RAN_OUT.set(true);
    }
    got.cast()
}

// SAFETY: each is the C library's function of that name, which keeps the trait's promises.
unsafe impl Allocator for Memory {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        // SAFETY: takes any size.
        noted(unsafe { malloc(size) }, size)
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        // SAFETY: takes any size, and looks whether the product is one.
        noted(unsafe { calloc(count, size) }, count.saturating_mul(size))
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: the caller's: it came from here.
        unsafe { free(ptr.cast()) }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's: it came from here.
        noted(unsafe { realloc(ptr.cast(), new_size) }, new_size)
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: the caller's: it came from here.
        unsafe { malloc_usable_size(ptr.cast()) }
    }
}

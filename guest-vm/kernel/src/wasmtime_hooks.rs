//! The functions that Wasmtime's custom platform calls (its `sys/custom/capi.rs`).

use core::ptr;

use faasw_abi::memory_map::{LINEAR_BASE, PAGE};

use crate::paging::{self, Access};
use crate::single::Single;
use crate::trap::{self, TrapHandler};

const READ: u32 = 1;
const WRITE: u32 = 2;
const EXECUTE: u32 = 4;

/// Error codes for Wasmtime, which accepts any number but 0 as an error.
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;

fn pages(start: u64, size: usize) -> Option<(u64, u64)> {
    let end = start
        .checked_add(size as u64)?
        .checked_next_multiple_of(PAGE)?;
    (start >= LINEAR_BASE && start.is_multiple_of(PAGE)).then_some((start, end))
}

fn protect(address: *mut u8, size: usize, rights: u32) -> i32 {
    let Some((start, end)) = pages(address.addr() as u64, size) else {
        return EINVAL;
    };
    let done = match rights {
        0 => paging::release(start, end),
        _ if rights & EXECUTE != 0 => return EINVAL,
        _ if rights & WRITE != 0 => paging::commit(start, end, Access::ReadWrite),
        _ => paging::commit(start, end, Access::Read),
    };
    match done {
        Ok(()) => 0,
        Err(paging::OutOfFrames) => ENOMEM,
    }
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_mmap_new(size: usize, rights: u32, out: &mut *mut u8) -> i32 {
    let Some(start) = paging::reserve(size as u64) else {
        return ENOMEM;
    };
    let start = ptr::with_exposed_provenance_mut(start as usize);
    *out = start;
    if rights & (READ | WRITE) == 0 {
        return 0;
    }
    protect(start, size, rights)
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_mmap_remap(address: *mut u8, size: usize, rights: u32) -> i32 {
    match protect(address, size, 0) {
        0 if rights != 0 => protect(address, size, rights),
        done => done,
    }
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_munmap(address: *mut u8, size: usize) -> i32 {
    protect(address, size, 0)
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_mprotect(address: *mut u8, size: usize, rights: u32) -> i32 {
    protect(address, size, rights)
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_page_size() -> usize {
    PAGE as usize
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_init_traps(handler: TrapHandler) -> i32 {
    trap::set_handler(handler);
    0
}

// There are no memory images, which a null image signals: a seed is instantiated once, so its data
// segments are copied only once anyway.
#[unsafe(no_mangle)]
extern "C" fn wasmtime_memory_image_new(_: *const u8, _: usize, out: &mut *mut u8) -> i32 {
    *out = ptr::null_mut();
    0
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_memory_image_map_at(_: *mut u8, _: *mut u8, _: usize) -> i32 {
    EINVAL
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_memory_image_free(_: *mut u8) {}

static TLS: Single<[*mut u8; 2]> = Single::new([ptr::null_mut(); 2]);

#[unsafe(no_mangle)]
extern "C" fn wasmtime_tls_get(slot: usize) -> *mut u8 {
    // SAFETY: the closure copies a pointer.
    unsafe { TLS.with(|tls| tls.get(slot).copied().unwrap_or(ptr::null_mut())) }
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_tls_set(slot: usize, value: *mut u8) {
    // SAFETY: the closure stores a pointer.
    unsafe {
        TLS.with(|tls| {
            if let Some(held) = tls.get_mut(slot) {
                *held = value;
            }
        });
    }
}

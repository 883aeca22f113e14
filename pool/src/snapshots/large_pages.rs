//! Large pages for memory that every guest reads.
//!
//! Where both sides map 2 MiB at once, one fault of a fresh VM brings in what
//! would be 512. The file's pages are gathered into large ones while the node
//! still may: a mapping for reading is enough for that.
#![expect(unsafe_code, reason = "mapping a file is")]

use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use faasw_abi::memory_map::LARGE_PAGE;

use crate::ablation::Mechanism;

/// Gathers the pages of `file` from `offset` on, both multiples of a large page,
/// into large pages. A host that cannot serves small ones: slower, not wrong.
pub fn gather(file: impl AsFd, offset: u64, bytes: u64) {
    if Mechanism::LargePages.is_off() {
        return;
    }
    let (Ok(length), Ok(start)) = (usize::try_from(bytes), libc::off_t::try_from(offset)) else {
        return;
    };
    let room = length + LARGE_PAGE as usize;
    // SAFETY: a new mapping without access; nothing refers to it yet.
    let reserved = unsafe {
        libc::mmap(
            ptr::null_mut(),
            room,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if reserved == libc::MAP_FAILED {
        return;
    }
    let skip = reserved.addr().next_multiple_of(LARGE_PAGE as usize) - reserved.addr();
    // SAFETY: `skip` is less than a large page, so the target lies in what was
    // reserved; the file's memory is never looked at through it.
    unsafe {
        let mapped = libc::mmap(
            reserved.byte_add(skip),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED | libc::MAP_FIXED,
            file.as_fd().as_raw_fd(),
            start,
        );
        if mapped != libc::MAP_FAILED && !collapse(mapped, length) {
            tracing::debug!(
                error = %std::io::Error::last_os_error(),
                "no large pages for what guests share"
            );
        }
        libc::munmap(reserved, room);
    }
}

/// Whether all of a mapping is in large pages then. Where guests use the pages meanwhile, some may
/// be in the way for a moment; those that are large already are passed by.
///
/// # Safety
/// The mapping has so many bytes.
unsafe fn collapse(mapped: *mut libc::c_void, length: usize) -> bool {
    const TRIES: usize = 4;
    for _ in 0..TRIES {
        // SAFETY: advice on a mapping; its content stays.
        if unsafe { libc::madvise(mapped, length, libc::MADV_COLLAPSE) } == 0 {
            return true;
        }
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EAGAIN) {
            break;
        }
    }
    false
}

//! Large pages for memory that every guest reads.
//!
//! If both sides map 2 MiB at once, one fault of a fresh VM does the work of 512. The node gathers
//! the file's pages into large ones while it still may: a mapping for reading is enough for that.
#![expect(unsafe_code, reason = "mapping a file is")]

use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use faasw_abi::memory_map::LARGE_PAGE;

use crate::ablation::Mechanism;

/// Gathers the pages of `file` from `offset` on into large pages; `offset` and `bytes` are
/// multiples of a large page. If the host cannot, small pages are used, which are slower.
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
    // SAFETY: `skip` is less than a large page, so the target lies in the reserved range; the
    // file's memory is never accessed through it.
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
                "shared guest memory has no large pages"
            );
        }
        libc::munmap(reserved, room);
    }
}

/// Gathers the pages of a mapping, and returns whether all of it is in large pages then. If guests
/// use the pages meanwhile, some may not be movable for a moment; pages that are large already are
/// skipped.
///
/// # Safety
/// The mapping has to be `length` bytes long.
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

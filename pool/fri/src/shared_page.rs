//! A page of a file that another process has mapped, too.
//!
//! Its words are only ever read and written by atomic operations, so no reference is made to memory
//! that somebody else changes but such as allow for that, and nothing that is read is believed to
//! be there a second time. The file is one in memory, whose size is sealed: it cannot end before
//! the page.
#![expect(unsafe_code, reason = "mapped memory")]

use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use faasw_abi::memory_map::PAGE;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

const BYTES: usize = PAGE as usize;

/// A mapped page.
#[derive(Debug)]
pub struct SharedPage {
    start: NonNull<u8>,
    is_own: bool,
}

// SAFETY: it is a page of memory that all threads see, and all of its words are atomic.
unsafe impl Send for SharedPage {}
// SAFETY: likewise.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// Maps the page of `file` at `offset` until it is dropped. The file's size must be sealed, and
    /// go beyond.
    ///
    /// # Errors
    /// The system's.
    pub fn map(file: impl AsFd, offset: u64) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses addresses that nobody has.
        let start = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                BYTES,
                protection,
                MapFlags::SHARED,
                file,
                offset,
            )
        }?;
        Ok(Self {
            start: NonNull::new(start.cast()).ok_or(Errno::FAULT)?,
            is_own: true,
        })
    }

    /// One that somebody else has mapped, and unmaps.
    ///
    /// # Safety
    /// There is a page from `start` on, whose address is a multiple of one, mapped for reading and
    /// writing for as long as this exists. Nobody in this process makes a reference to its content.
    #[must_use]
    pub unsafe fn borrowed(start: NonNull<u8>) -> Self {
        Self {
            start,
            is_own: false,
        }
    }

    /// The word at `at`.
    ///
    /// # Panics
    /// When that is not in the page, or no multiple of four.
    #[must_use]
    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at + size_of::<u32>() <= BYTES && at.is_multiple_of(size_of::<u32>()));
        // SAFETY: in bounds, and aligned as the page is; mapped for as long as this is borrowed.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// The word of eight bytes at `at`.
    ///
    /// # Panics
    /// When that is not in the page, or no multiple of eight.
    #[must_use]
    pub fn long_word(&self, at: usize) -> &AtomicU64 {
        assert!(at + size_of::<u64>() <= BYTES && at.is_multiple_of(size_of::<u64>()));
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        if self.is_own {
            // SAFETY: what `map` has mapped, which nobody uses any more.
            let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), BYTES) };
        }
    }
}

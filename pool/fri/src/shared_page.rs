//! A page of a file that another process has mapped as well.
//!
//! The page's words are only read and written by atomic operations, so the only references to
//! memory that another process changes are references to atomic types. No code may expect to read
//! the same value twice. The file must be one in memory whose size is sealed: it cannot end before
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

// SAFETY: all threads see the page, and all of its words are atomic.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// Maps the page of `file` at `offset` until it is dropped. The file's size must be sealed, and
    /// must include the page.
    ///
    /// # Errors
    /// Returns the error of `mmap`.
    pub fn map(file: impl AsFd, offset: u64) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses addresses that are not in use.
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

    /// Borrows a page that the caller has mapped and will unmap.
    ///
    /// # Safety
    /// A page must be mapped at `start`, page-aligned, for reading and writing, for as long as this
    /// object exists. No code in this process may make a reference to its content.
    #[must_use]
    pub unsafe fn borrowed(start: NonNull<u8>) -> Self {
        Self {
            start,
            is_own: false,
        }
    }

    /// Returns the word of four bytes at `at`.
    ///
    /// # Panics
    /// Panics if the word is not in the page, or `at` is not a multiple of four.
    #[must_use]
    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at + size_of::<u32>() <= BYTES && at.is_multiple_of(size_of::<u32>()));
        // SAFETY: in bounds, and aligned as the page is; mapped for as long as this is borrowed.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// Returns the word of eight bytes at `at`.
    ///
    /// # Panics
    /// Panics if the word is not in the page, or `at` is not a multiple of eight.
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
            // SAFETY: `map` has mapped this memory, and it is no longer used.
            let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), BYTES) };
        }
    }
}

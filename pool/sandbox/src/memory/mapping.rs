//! A guest's memory as this process maps it, for copying in and out.
//!
//! No reference to guest memory is ever made. The copying thread is the one that runs the vCPU,
//! which therefore does not run during a copy: a copy shows one moment. Only the node may write its
//! own part of a mailbox at any time.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use faasw_abi::memory_map::PAGE;
use faasw_abi::pages::{GuestAddress, Page, PageRange};
use rustix::io::Errno;
use rustix::mm::Advice;

/// A view of mapped memory. It is valid as long as the [`crate::memory::arena::Arena`] that it lies
/// in.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: u64,
}

impl Mapping {
    pub(crate) fn new(start: NonNull<u8>, bytes: u64) -> Self {
        Self { start, bytes }
    }

    /// Returns the first `bytes` from the next multiple of `alignment` on.
    pub(crate) fn aligned(self, alignment: u64, bytes: u64) -> Result<Self, Errno> {
        let skip = self.address().next_multiple_of(alignment) - self.address();
        let start = self.at(skip, bytes as usize).ok_or(Errno::NOMEM)?;
        let start = NonNull::new(start).ok_or(Errno::FAULT)?;
        Ok(Self { start, bytes })
    }

    /// Returns a view with the same start and this size. The caller must ensure that all of it
    /// belongs to the arena.
    pub(crate) fn resized(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Returns the start in this process.
    pub(crate) fn start(self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the start's address in this process.
    pub fn address(self) -> u64 {
        self.start.addr().get() as u64
    }

    /// Returns the size in bytes.
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    /// Returns the pages of the mapping, counted from its start.
    pub fn pages(self) -> PageRange {
        PageRange::around(0, self.bytes)
    }

    /// Returns the part from `offset` on.
    ///
    /// # Errors
    /// Returns `INVAL` if `offset` lies outside the mapping.
    pub fn from(self, offset: u64) -> Result<Self, Errno> {
        let start = self.at(offset, 0).and_then(NonNull::new);
        Ok(Self {
            start: start.ok_or(Errno::INVAL)?,
            bytes: self.bytes.saturating_sub(offset),
        })
    }

    /// Returns the address of `size` bytes at `offset`, if they lie within the mapping.
    pub(crate) fn at(self, offset: u64, size: usize) -> Option<*mut u8> {
        let end = offset.checked_add(size as u64)?;
        // SAFETY: offset + size lies within the mapping.
        (end <= self.bytes).then(|| unsafe { self.start.as_ptr().add(offset as usize) })
    }
}

/// Operations on pages of an instance whose vCPU does not run. They fail for pages that do not lie
/// in the mapping.
impl Mapping {
    /// Returns the start of pages, and their size in bytes.
    ///
    /// # Errors
    /// Returns `INVAL` outside the mapping.
    pub(crate) fn part(self, range: PageRange) -> Result<(*mut u8, usize), Errno> {
        let bytes = range.bytes() as usize;
        let start = self.at(range.start.address().get(), bytes);
        Ok((start.ok_or(Errno::INVAL)?, bytes))
    }

    /// Fills pages with zeroes.
    ///
    /// # Errors
    /// Returns `INVAL` outside the mapping.
    pub fn zero(self, range: PageRange) -> Result<(), Errno> {
        if range.is_empty() {
            // Most gaps between windows are empty. The C library's stores of no bytes, masked out
            // altogether, took 4 % of the time of a JavaScript function's sandboxes on Zen 4.
            return Ok(());
        }
        let (start, bytes) = self.part(range)?;
        // SAFETY: in bounds; nothing else refers to guest memory.
        unsafe { ptr::write_bytes(start, 0, bytes) };
        Ok(())
    }

    /// Fills pages from the same offset of `file`.
    ///
    /// # Errors
    /// Returns `INVAL` outside the mapping, `IO` if the file ends too early, and otherwise the
    /// error of `pread`.
    pub fn fill(self, file: BorrowedFd<'_>, range: PageRange) -> Result<(), Errno> {
        let (start, bytes) = self.part(range)?;
        let mut filled = 0;
        while filled < bytes {
            let offset = libc::off_t::try_from(range.start.address().get() + filled as u64);
            // SAFETY: start + bytes is in bounds; the kernel writes to it, and
            // nothing else refers to guest memory.
            let read = unsafe {
                libc::pread(
                    file.as_raw_fd(),
                    start.add(filled).cast(),
                    bytes - filled,
                    offset.map_err(|_| Errno::INVAL)?,
                )
            };
            match usize::try_from(read) {
                Ok(0) => return Err(Errno::IO),
                Ok(read) => filled += read,
                Err(_) => match last_errno() {
                    Errno::INTR => {}
                    errno => return Err(errno),
                },
            }
        }
        Ok(())
    }

    /// Fills pages from the same offset of `other`, which must not overlap this mapping.
    ///
    /// # Errors
    /// Returns `INVAL` outside either mapping.
    pub fn copy(self, other: Self, range: PageRange) -> Result<(), Errno> {
        let (to, bytes) = self.part(range)?;
        let (from, _) = other.part(range)?;
        // SAFETY: both in bounds, and apart; no reference is made to either.
        unsafe { ptr::copy_nonoverlapping(from.cast_const(), to, bytes) };
        Ok(())
    }

    /// Returns a copy of a page.
    ///
    /// # Errors
    /// Returns `INVAL` outside the mapping.
    pub fn page(self, page: Page) -> Result<[u8; PAGE as usize], Errno> {
        let at = self.at(page.address().get(), PAGE as usize);
        let at = at.ok_or(Errno::INVAL)?;
        // SAFETY: in bounds; every bit pattern is a number.
        Ok(unsafe { ptr::read_volatile(at.cast()) })
    }

    /// Writes words from `offset` on.
    ///
    /// # Errors
    /// Returns `INVAL` outside the mapping or if `offset` is not aligned to a word.
    pub fn put(self, offset: u64, words: &[u64]) -> Result<(), Errno> {
        let at = self.at(offset, size_of_val(words)).ok_or(Errno::INVAL)?;
        if !offset.is_multiple_of(size_of::<u64>() as u64) {
            return Err(Errno::INVAL);
        }
        for (index, word) in words.iter().enumerate() {
            // SAFETY: in bounds and aligned.
            unsafe { ptr::write_volatile(at.cast::<u64>().add(index), *word) };
        }
        Ok(())
    }

    /// Copies the memory at `address` to `out`.
    ///
    /// # Errors
    /// Returns `INVAL` outside the mapping.
    pub fn read(self, address: GuestAddress, out: &mut [u8]) -> Result<(), Errno> {
        let at = self.at(address.get(), out.len()).ok_or(Errno::INVAL)?;
        // SAFETY: in bounds, and no slice refers to guest memory; the vCPU does not run.
        unsafe { ptr::copy_nonoverlapping(at.cast_const(), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Keeps the kernel from making large pages of these pages, by advice.
    ///
    /// # Errors
    /// Returns `INVAL` outside the mapping; otherwise the error of `madvise`.
    pub fn stay_small(self, range: PageRange) -> Result<(), Errno> {
        let (start, bytes) = self.part(range)?;
        // SAFETY: advice on memory of this module's own.
        unsafe { rustix::mm::madvise(start.cast(), bytes, Advice::LinuxNoHugepage) }
    }

    /// Releases pages: afterwards they have the file's contents, or zeroes.
    ///
    /// # Errors
    /// Returns `INVAL` outside the mapping; otherwise the error of `madvise`.
    pub fn release(self, range: PageRange) -> Result<(), Errno> {
        let (start, bytes) = self.part(range)?;
        // SAFETY: memory of this module's own, which nothing refers to.
        unsafe { rustix::mm::madvise(start.cast(), bytes, Advice::LinuxDontNeed) }
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

//! A sandbox's mailbox: mapped, read for the few words that the sandbox acts on, and wiped between
//! two requests.
//!
//! Wiping must clear every page that was written, and avoids a search for them: a sandbox stores
//! which pages the file kept at the last wipe and fills these with zeroes. Then the number of the
//! file's pages shows whether there is any other page. Only in that case does it search. Pages
//! beyond the first few are released.

use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;

use faasw_abi::mailbox::{
    GUEST_WORDS, GuestWords, LOG, MAILBOX_BYTES, REPORT, SMALL_INVOCATION, WORDS,
};
use faasw_abi::memory_map::{LARGE_PAGE, PAGE};
use faasw_abi::pages::{GuestAddress, Page, PageRange, PageSet};
use faasw_fri::control::{CONTROL, Control, FILE_BYTES};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::memory::arena::Arena;
use crate::memory::guest_memory;
use crate::memory::mapping::Mapping;

/// Bytes of a mailbox that are kept warm.
const KEPT: u64 = 256 << 10;

/// The unit of `stat`'s block count, in bytes.
const BLOCK: u64 = 512;

/// The place of a sandbox's own lists for its guest: in the part that is wiped, in pages that most
/// invocations use.
const LIST: u64 = WORDS.offset + WORDS.size;

/// A mailbox.
#[derive(Debug)]
pub struct Mailbox {
    mapping: Mapping,
    file: OwnedFd,
    /// The pages that stay in the file.
    kept: PageSet,
    /// The control page after the mailbox in its file, once it is mapped.
    control: Option<Control>,
}

/// Returns the pages that a small invocation uses, and the first page of the report and of the log,
/// which it may use in addition.
pub fn usual() -> PageSet {
    let first = |offset| PageRange::of_bytes(offset, offset + PAGE);
    let small = SMALL_INVOCATION;
    [
        first(REPORT.offset),
        first(LOG.area.offset),
        PageRange::of_bytes(small.offset, small.offset + small.size),
    ]
    .into_iter()
    .collect()
}

impl Mailbox {
    /// Maps the mailbox in `file`.
    ///
    /// # Errors
    /// Returns the error of `mmap`.
    pub fn new(arena: &mut Arena, file: OwnedFd) -> Result<Self, Errno> {
        Ok(Self {
            mapping: guest_memory::shared(arena, file.as_fd(), MAILBOX_BYTES)?,
            file,
            kept: PageSet::default(),
            control: None,
        })
    }

    /// Returns the control page, which lies after the mailbox in the file and is not mapped into
    /// the guest. Maps it at the first call.
    ///
    /// # Errors
    /// Returns `INVAL` if the file has no such page; otherwise the error of `fstat` or `mmap`.
    pub fn control(&mut self, arena: &mut Arena) -> Result<&Control, Errno> {
        if self.control.is_none() {
            let size = rustix::fs::fstat(&self.file)?.st_size;
            if u64::try_from(size) != Ok(FILE_BYTES) {
                return Err(Errno::INVAL);
            }
            let page = guest_memory::shared_page(arena, self.file.as_fd(), CONTROL)?;
            self.control = Some(Control::new(page));
        }
        self.control.as_ref().ok_or(Errno::INVAL)
    }

    /// Returns the control page if it is mapped already.
    pub fn known_control(&self) -> Option<&Control> {
        self.control.as_ref()
    }

    /// Returns the mailbox's mapping.
    pub fn mapping(&self) -> Mapping {
        self.mapping
    }

    /// Writes words to a place where the guest can read them, and returns their offset in the
    /// mailbox. They stay until the mailbox is wiped.
    ///
    /// # Errors
    /// Returns `INVAL` if they do not fit.
    pub fn lend(&self, words: &[u64]) -> Result<u64, Errno> {
        self.mapping.put(LIST, words)?;
        Ok(LIST)
    }

    /// Wipes every page of the file, whether node or guest wrote it.
    ///
    /// # Errors
    /// Returns the error of a system call on the file.
    pub fn wipe(&mut self) -> Result<(), Errno> {
        for range in self.kept.iter() {
            self.mapping.zero(range)?;
        }
        // All kept pages are in the file now. So if the count is the same, there are no others.
        let blocks = rustix::fs::fstat(&self.file)?.st_blocks;
        let pages = self.kept.count() + u64::from(self.control.is_some());
        if blocks == (pages * PAGE / BLOCK) as i64 {
            return Ok(());
        }
        self.wipe_others()
    }

    /// Searches for pages besides those that are kept, and wipes them. Of these, the usual pages
    /// are kept as well, and others as long as there are few.
    fn wipe_others(&mut self) -> Result<(), Errno> {
        let (end, usual) = (self.mapping.bytes(), usual());
        let known = self.kept.clone();
        let mut at = 0;
        while at < end {
            let start = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(errno) => return Err(errno),
            };
            at = rustix::fs::seek(&self.file, SeekFrom::Hole(start))?.min(end);
            let found = PageSet::from(PageRange::around(start, at)).without(&known);
            for range in found.iter() {
                for (range, is_usual) in usual.cut(range) {
                    let few = if is_usual {
                        range.count()
                    } else {
                        (KEPT / PAGE).saturating_sub(self.kept.count())
                    };
                    let few = u32::try_from(few).unwrap_or(u32::MAX);
                    let (kept, gone) = range.split_at(few);
                    self.mapping.zero(kept)?;
                    self.kept = self.kept.union(&kept.into());
                    self.punch(gone)?;
                }
            }
        }
        Ok(())
    }

    /// Releases pages of the file, which become holes.
    fn punch(&self, range: PageRange) -> Result<(), Errno> {
        if range.is_empty() {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (start, bytes) = (range.start.address().get(), range.bytes());
        rustix::fs::fallocate(&self.file, flags, start, bytes)
    }

    /// Returns the range of memory that the guest is about to use, at most as much as it can
    /// request at once.
    pub fn populate_wanted(&self) -> PageRange {
        let start = self.word(offset_of!(GuestWords, populate_start));
        let bytes = self.word(offset_of!(GuestWords, populate_bytes));
        let Some(first) = GuestAddress::new(start).page() else {
            return PageRange::default();
        };
        let behind = PageRange::new(first, Page::new(u32::MAX));
        behind.split_at((bytes.min(LARGE_PAGE) / PAGE) as u32).0
    }

    /// Returns how long the guest has nothing to do, in nanoseconds.
    pub fn wait_wanted(&self) -> u64 {
        self.word(offset_of!(GuestWords, wait_nanoseconds))
    }

    fn word(&self, field: usize) -> u64 {
        let at = GUEST_WORDS.offset + field as u64;
        let at = self.mapping.at(at, size_of::<u64>());
        // SAFETY: in bounds and aligned; every bit pattern is a number.
        at.map_or(0, |at| unsafe { ptr::read_volatile(at.cast::<u64>()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox() -> Mailbox {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("mailbox", flags).unwrap();
        rustix::fs::ftruncate(&file, MAILBOX_BYTES).unwrap();
        Mailbox::new(&mut Arena::default(), file).unwrap()
    }

    fn write(mailbox: &Mailbox, at: u64) {
        assert_eq!(rustix::io::pwrite(&mailbox.file, &[7], at), Ok(1));
    }

    fn assert_empty(mailbox: &Mailbox) {
        let mut bytes = vec![1; MAILBOX_BYTES as usize];
        let read = rustix::io::pread(&mailbox.file, &mut bytes, 0).unwrap();
        assert_eq!(read, bytes.len());
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    fn pages(mailbox: &Mailbox) -> u64 {
        rustix::fs::fstat(&mailbox.file).unwrap().st_blocks as u64 * BLOCK / PAGE
    }

    #[test]
    fn nothing_is_left_wherever_it_was_written() {
        let mut mailbox = mailbox();
        for at in (0..MAILBOX_BYTES).step_by(PAGE as usize) {
            write(&mailbox, at);
            mailbox.wipe().unwrap();
            assert_empty(&mailbox);
        }
        assert!(pages(&mailbox) <= KEPT / PAGE + usual().count());
    }

    #[test]
    fn another_page_is_seen_beside_as_many_as_before() {
        let mut mailbox = mailbox();
        for page in usual().iter().flat_map(|range| range.pages()) {
            write(&mailbox, page.address().get());
        }
        mailbox.wipe().unwrap();
        let usual = pages(&mailbox);
        assert_eq!(usual, 5);
        // A known page is gone, and an unknown one is there.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&mailbox.file, flags, WORDS.offset, PAGE).unwrap();
        write(&mailbox, MAILBOX_BYTES - 1);
        assert_eq!(pages(&mailbox), usual);
        mailbox.wipe().unwrap();
        assert_empty(&mailbox);
        assert_eq!(pages(&mailbox), usual + 1);
    }

    #[test]
    fn a_mailbox_that_was_full_does_not_stay_large() {
        let mut mailbox = mailbox();
        for at in (0..MAILBOX_BYTES).step_by(PAGE as usize) {
            write(&mailbox, at);
        }
        mailbox.wipe().unwrap();
        assert_empty(&mailbox);
        let kept = mailbox.kept.clone();
        assert_eq!(pages(&mailbox), kept.count());
        assert!(kept.count() <= KEPT / PAGE + usual().count());
        // The pages of small invocations are among them, so these need no search.
        assert!(usual().without(&kept).is_empty());
        write(&mailbox, WORDS.offset);
        mailbox.wipe().unwrap();
        assert_empty(&mailbox);
        assert_eq!(pages(&mailbox), kept.count());
    }

    #[test]
    fn lent_mailbox_memory_is_wiped() {
        let mut mailbox = mailbox();
        let at = mailbox.lend(&[1, 2, 3]).unwrap();
        let mut words = [0; 24];
        rustix::io::pread(&mailbox.file, &mut words, at).unwrap();
        assert_eq!(words[8], 2);
        mailbox.wipe().unwrap();
        assert_empty(&mailbox);
        assert!(
            mailbox
                .lend(&vec![0; (MAILBOX_BYTES / 8) as usize])
                .is_err()
        );
    }
}

//! The content of a changed file: written pages, over the bundle's content.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use super::{FileError, MemoryBudget, SIZE_MAX};

const PAGE: usize = 4096;

/// Memory of a page, including its bookkeeping.
const PAGE_COST: usize = PAGE + 128;

/// A changed file.
#[derive(Debug)]
pub(super) struct Content {
    /// The part of the bundle's content that was never truncated.
    base: &'static [u8],
    size: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

/// Copies from a position on, and returns the number of bytes.
pub(super) fn read_from(content: &[u8], at: u64, out: &mut [u8]) -> usize {
    let from = usize::try_from(at).ok().and_then(|at| content.get(at..));
    let from = from.unwrap_or_default();
    let count = from.len().min(out.len());
    if let (Some(to), Some(from)) = (out.get_mut(..count), from.get(..count)) {
        to.copy_from_slice(from);
    }
    count
}

/// Returns the page of a position, and the offset in that page.
fn place(at: u64) -> (u64, usize) {
    (at / PAGE as u64, (at % PAGE as u64) as usize)
}

impl Content {
    /// Returns a file with the bundle's content.
    pub(super) fn of(base: &'static [u8]) -> Self {
        Self {
            base,
            size: base.len() as u64,
            pages: BTreeMap::new(),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the memory that the pages take.
    pub(super) fn cost(&self) -> usize {
        self.pages.len() * PAGE_COST
    }

    pub(super) fn read(&self, at: u64, out: &mut [u8]) -> usize {
        let left = usize::try_from(self.size.saturating_sub(at)).unwrap_or(usize::MAX);
        let count = left.min(out.len());
        let mut rest = out.get_mut(..count).unwrap_or_default();
        let mut at = at;
        while !rest.is_empty() {
            let (page, within) = place(at);
            let (piece, after) = rest.split_at_mut(rest.len().min(PAGE - within));
            match self.pages.get(&page) {
                Some(page) => {
                    read_from(page.as_slice(), within as u64, piece);
                }
                None => {
                    let read = read_from(self.base, at, piece);
                    piece.get_mut(read..).unwrap_or_default().fill(0);
                }
            }
            at += piece.len() as u64;
            rest = after;
        }
        count
    }

    /// Writes from a position on, and returns the number of bytes.
    ///
    /// # Errors
    /// Returns an error if there is no memory for even one byte, or the file would be too large.
    pub(super) fn write(
        &mut self,
        at: u64,
        bytes: &[u8],
        room: &mut dyn MemoryBudget,
    ) -> Result<usize, FileError> {
        let most = SIZE_MAX.saturating_sub(at);
        if most == 0 && !bytes.is_empty() {
            return Err(FileError::TooLarge);
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let bytes = bytes.get(..bytes.len().min(most)).unwrap_or_default();
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            let (page, within) = place(at + written as u64);
            let page = match self.page(page, room) {
                Ok(page) => page,
                Err(error) if written == 0 => return Err(error),
                Err(_) => break,
            };
            let to = page.get_mut(within..).unwrap_or_default();
            let count = to.len().min(rest.len());
            if let (Some(to), Some(from)) = (to.get_mut(..count), rest.get(..count)) {
                to.copy_from_slice(from);
            }
            written += count;
        }
        if written > 0 {
            self.size = self.size.max(at + written as u64);
        }
        Ok(written)
    }

    /// Returns a page for writing, which is copied from the bundle first if necessary.
    fn page(
        &mut self,
        number: u64,
        room: &mut dyn MemoryBudget,
    ) -> Result<&mut Box<[u8; PAGE]>, FileError> {
        if !self.pages.contains_key(&number) {
            room.take(PAGE_COST)?;
            let mut page = Box::new([0; PAGE]);
            read_from(self.base, number * PAGE as u64, page.as_mut_slice());
            self.pages.insert(number, page);
        }
        self.pages.get_mut(&number).ok_or(FileError::Invalid)
    }

    /// Truncates the file, or extends it by zeroes.
    ///
    /// # Errors
    /// Returns [`FileError::TooLarge`] if it would be too large.
    pub(super) fn set_size(
        &mut self,
        size: u64,
        room: &mut dyn MemoryBudget,
    ) -> Result<(), FileError> {
        if size > SIZE_MAX {
            return Err(FileError::TooLarge);
        }
        if size < self.size {
            let base = usize::try_from(size).unwrap_or(usize::MAX);
            self.base = self.base.get(..base).unwrap_or(self.base);
            let (last, within) = place(size);
            let behind = self.pages.split_off(&last);
            room.release(behind.len() * PAGE_COST);
            for (number, mut page) in behind {
                if number == last && within > 0 {
                    page.get_mut(within..).unwrap_or_default().fill(0);
                    // This memory was returned a moment ago, so it is available.
                    room.take(PAGE_COST)?;
                    self.pages.insert(number, page);
                }
            }
        }
        self.size = size;
        Ok(())
    }
}

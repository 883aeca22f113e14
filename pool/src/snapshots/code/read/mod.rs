//! Reading an artifact from a disk into memory, piece by piece, each verified before it is written
//! to memory. If guests wait for missing pages, only the used pieces are read first. Blocks.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use faasw_abi::memory_map::{CODE_MAX, PAGE};
use faasw_abi::pages::{Page, PageRange, PageSet};
use faasw_seedtree::reading::{AlignedBuffer, DemandFill, LoadProgress, PART, PartSource};
use faasw_seedtree::write_at;
use rustix::io::Errno;

use super::pieces::{PIECE, Pieces, digest};
use super::{Code, extend_to_mapped};
use crate::ablation::Mechanism;

/// The maximum number of threads that read, verify and copy pieces at once. While one waits for the
/// disk, others verify. Used pieces lie apart, so that a disk takes more time to answer than to
/// read.
const READERS: usize = 4;

/// There is one thread for this many reads.
const READS_PER_THREAD: usize = 2;

/// Code may run before it is completely read if at least this many bytes remain that requests have
/// not used so far. Fewer bytes are read in the time that it takes to make guests wait for them.
const DEFERRED_MIN: u64 = 1 << 20;

const _: () = assert!(PIECE == PART);

/// Why an artifact on disk is not used.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// The file is too short or too long, or the number of digests does not match its pieces.
    #[error("its size has changed")]
    Size,
    /// A piece differs from what was stored.
    #[error("piece {0} of it is damaged")]
    Damaged(usize),
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
    /// There is no memory for the code, or it is larger than guests can have.
    #[error("it cannot be loaded: {0}")]
    Memory(#[from] Errno),
}

/// The source of an artifact: a file, or in tests a disk that fails.
pub trait Source: fmt::Debug + Send + Sync {
    /// Fills the beginning of `out` from `offset` on. Returns the number of bytes.
    ///
    /// # Errors
    /// Returns the error of the disk.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Source for File {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, out, offset)
    }
}

/// Partly loaded code, and the source of the rest.
pub type CodeFill = DemandFill<StoredCode>;

/// Code that was read, and the source of the rest of it, if some is missing.
#[derive(Debug)]
pub struct LoadedCode {
    /// The code.
    pub code: Code,
    /// The source of the rest.
    pub rest: Option<CodeFill>,
}

impl From<Code> for LoadedCode {
    fn from(code: Code) -> Self {
        Self { code, rest: None }
    }
}

/// An artifact on a disk, the digests that verify its pieces, and the memory that it is read into.
#[derive(Debug)]
pub struct StoredCode {
    source: Box<dyn Source>,
    bytes: u64,
    pieces: Pieces,
    memory: OwnedFd,
}

impl StoredCode {
    /// Describes an artifact with this size and these pieces, of which nothing is in memory yet.
    ///
    /// # Errors
    /// Returns [`CodeError::Size`] if they do not match, or if guests cannot have so much code, and
    /// [`CodeError::Memory`] if there is no memory for it.
    pub fn new(source: Box<dyn Source>, bytes: u64, pieces: Pieces) -> Result<Self, CodeError> {
        if !pieces.are_of(bytes) || !(1..=CODE_MAX).contains(&bytes) {
            return Err(CodeError::Size);
        }
        let memory = Code::writable()?;
        extend_to_mapped(&memory, bytes)?;
        Ok(Self {
            source,
            bytes,
            pieces,
            memory,
        })
    }

    /// Returns all pages that contain any of it.
    fn pages(&self) -> PageRange {
        PageRange::around(0, self.bytes)
    }

    /// Returns the pages of a piece; for the last one, those that exist.
    fn piece_pages(&self, piece: usize) -> PageRange {
        let at = (piece * PIECE) as u64;
        let end = self.pages().end.address().get();
        PageRange::of_bytes(at.min(end), (at + PIECE as u64).min(end))
    }

    /// Fills the first `length` bytes of `buffer` from `at`. The last piece is requested in whole
    /// pages, too, because direct reads are of whole blocks; they end where the file does.
    fn read(&self, buffer: &mut [u8], length: usize, at: u64) -> Result<(), CodeError> {
        let mut read = 0;
        while read < length {
            let rest = buffer.get_mut(read..).unwrap_or_default();
            match self.source.read_at(rest, at + read as u64) {
                Ok(0) => return Err(CodeError::Size),
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads all of the artifact. If `first` names the used pages and the rest is large, reads only
    /// those, and returns the source of the rest. Blocks as long as the disk takes.
    ///
    /// # Errors
    /// Returns an error if the artifact differs from what was stored, or if the disk or the memory
    /// fails.
    pub fn load(self, first: Option<&PageSet>) -> Result<LoadedCode, CodeError> {
        let fill = DemandFill::new(self);
        let stored = fill.source();
        let first = first.filter(|first| {
            let used = fill.missing_parts(first).len();
            let later = (stored.count() - used) as u64 * PIECE as u64;
            used > 0 && later >= DEFERRED_MIN && !Mechanism::CodeParts.is_off()
        });
        let progress = match first {
            Some(first) => {
                fill.fill_set(first)?;
                fill.progress().clone()
            }
            None => {
                fill.fill_set(&stored.pages().into())?;
                fill.finish()?;
                LoadProgress::complete()
            }
        };
        let code = Code::of(&stored.memory, stored.bytes, progress)?;
        // No other thread has the code yet.
        let _ = code.pieces.set(stored.pieces.clone());
        let rest = first.map(|_| fill);
        Ok(LoadedCode { code, rest })
    }
}

impl PartSource for StoredCode {
    type Error = CodeError;

    const INCOMPLETE: CodeError = CodeError::Size;

    fn count(&self) -> usize {
        self.pieces.digests().len()
    }

    fn part_of(&self, page: Page) -> Option<(usize, PageRange)> {
        let piece = (page.address().get() / PIECE as u64) as usize;
        let is_stored = self.pages().contains(page);
        is_stored.then(|| (piece, self.piece_pages(piece)))
    }

    fn pages_of(&self, piece: usize) -> impl Iterator<Item = PageRange> {
        std::iter::once(self.piece_pages(piece))
    }

    fn readers(_pieces: usize, runs: usize) -> usize {
        READERS.min(runs.div_ceil(READS_PER_THREAD))
    }

    /// Writes none of the pieces if any differs from what was stored. The memory receives whole
    /// pages.
    fn load(&self, pieces: Range<usize>, buffer: &mut AlignedBuffer) -> Result<(), CodeError> {
        let (first, at) = (pieces.start, (pieces.start * PIECE) as u64);
        let end = ((pieces.end * PIECE) as u64).min(self.bytes);
        let length = end.saturating_sub(at);
        let all = length.next_multiple_of(PAGE) as usize;
        let length = length as usize;
        let part = buffer.first(all).ok_or(CodeError::Size)?;
        self.read(part, length, at)?;
        let (content, behind) = part.split_at_mut_checked(length).ok_or(CodeError::Size)?;
        for (number, piece) in (first..).zip(content.chunks(PIECE)) {
            if self.pieces.digests().get(number) != Some(&digest(piece)) {
                return Err(CodeError::Damaged(number));
            }
        }
        behind.fill(0);
        write_at(&self.memory, at, part)?;
        Ok(())
    }

    fn seal(&self) -> Result<(), CodeError> {
        faasw_seedtree::seal(&self.memory)?;
        Ok(())
    }
}

impl Code {
    /// Reads the artifact in a file, which has `bytes` bytes and these pieces: all of it, or with
    /// `first` only the used pages, if the rest is large. Blocks as long as the disk takes.
    ///
    /// # Errors
    /// Returns an error if the artifact differs from what was stored, or if the disk or the memory
    /// fails.
    pub fn read_from(
        file: File,
        bytes: u64,
        pieces: Pieces,
        first: Option<&PageSet>,
    ) -> Result<LoadedCode, CodeError> {
        if file.metadata()?.len() != bytes {
            return Err(CodeError::Size);
        }
        StoredCode::new(Box::new(file), bytes, pieces)?.load(first)
    }
}

#[cfg(test)]
pub(super) mod tests;

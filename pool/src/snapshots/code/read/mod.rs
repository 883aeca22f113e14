//! Reading an artifact from a disk into memory, piece by piece, each verified before it is written
//! to memory. Blocks.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use faasw_abi::memory_map::{CODE_MAX, PAGE};
use faasw_abi::pages::{Page, PageRange, PageSet};
use faasw_seedtree::reading::{self, BufferPool, runs};
use rustix::io::Errno;

use super::filling::CodeFilling;
use super::load_progress::LoadProgress;
use super::pieces::{PIECE, Pieces, digest};
use super::{Code, give_room};
use crate::ablation::Mechanism;

/// The maximum number of threads that read, verify and copy pieces at once. While one waits for the
/// disk, others verify. Used pieces lie apart, so that a disk takes more time to answer than to
/// read.
const READERS: usize = 4;

/// There is one thread for this many reads.
const READS_PER_THREAD: usize = 2;

/// The maximum number of pieces that are read at once: 1 MiB. A disk is not faster with more.
const PIECES_AT_ONCE: usize = (1 << 20) / PIECE;

/// Code may run before it is completely read if at least this many bytes remain that requests have
/// not used so far. Fewer bytes are read in the time that it takes to make guests wait for them.
const DEFERRED_MIN: u64 = 1 << 20;

/// The alignment of direct reads, in memory and in the file.
const ALIGNED: usize = 4096;

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

/// Code that was read, and the filling for the rest of it, if some is missing.
#[derive(Debug)]
pub struct LoadedCode {
    /// The code.
    pub code: Code,
    /// The filling for the rest.
    pub rest: Option<CodeFilling>,
}

impl From<Code> for LoadedCode {
    fn from(code: Code) -> Self {
        Self { code, rest: None }
    }
}

/// A buffer that a disk can write to without a copy.
pub struct ReadBuffer(Vec<u8>);

impl ReadBuffer {
    /// Allocates a buffer for the largest read.
    pub fn new() -> Self {
        Self(vec![0; PIECES_AT_ONCE * PIECE + ALIGNED])
    }

    fn first(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let skip = self.0.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        self.0.get_mut(skip..skip.checked_add(bytes)?)
    }
}

/// An artifact on a disk, and the digests that verify its pieces.
#[derive(Debug)]
pub struct StoredCode {
    source: Box<dyn Source>,
    bytes: u64,
    pieces: Pieces,
}

impl StoredCode {
    /// Describes an artifact with this size and these pieces.
    ///
    /// # Errors
    /// Returns [`CodeError::Size`] if they do not match, or if guests cannot have so much code.
    pub fn new(source: Box<dyn Source>, bytes: u64, pieces: Pieces) -> Result<Self, CodeError> {
        if pieces.are_of(bytes) && (1..=CODE_MAX).contains(&bytes) {
            Ok(Self {
                source,
                bytes,
                pieces,
            })
        } else {
            Err(CodeError::Size)
        }
    }

    /// Returns all pages that contain any of it.
    pub fn pages(&self) -> PageRange {
        PageRange::around(0, self.bytes)
    }

    /// Returns the number of its pieces.
    pub fn count(&self) -> usize {
        self.pieces.digests().len()
    }

    /// Returns the piece that contains a page.
    pub fn piece(page: Page) -> usize {
        (page.address().get() / PIECE as u64) as usize
    }

    /// Returns the pages of a piece; for the last one, those that exist.
    pub fn pages_of(&self, piece: usize) -> PageRange {
        let at = (piece * PIECE) as u64;
        let end = self.pages().end.address().get();
        PageRange::of_bytes(at.min(end), (at + PIECE as u64).min(end))
    }

    /// Returns the pieces that contain any of these pages, in order.
    fn pieces_with(&self, pages: &PageSet) -> Vec<usize> {
        let all = 0..self.count();
        all.filter(|piece| pages.first_in(self.pages_of(*piece)).is_some())
            .collect()
    }

    /// Reads pieces at once, verifies each, and writes them to their place in memory: whole pages.
    ///
    /// # Errors
    /// Returns [`CodeError::Damaged`] if a piece differs from what was stored, and then writes none
    /// of them. Otherwise returns the error of the disk or of the memory.
    pub fn load_pieces(
        &self,
        pieces: Range<usize>,
        memory: &OwnedFd,
        buffer: &mut ReadBuffer,
    ) -> Result<(), CodeError> {
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
        write(memory, part, at)?;
        Ok(())
    }

    /// Reads all of these pieces, which are in order; with several threads if they are many.
    ///
    /// # Errors
    /// As [`StoredCode::load_pieces`].
    fn load_all(&self, pieces: &[usize], memory: &OwnedFd) -> Result<(), CodeError> {
        let buffers = BufferPool::new(ReadBuffer::new);
        in_turns(pieces, |run| {
            buffers.with(|buffer| self.load_pieces(run, memory, buffer))
        })
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
    /// those, and returns the filling for the rest. Blocks as long as the disk takes.
    ///
    /// # Errors
    /// Returns an error if the artifact differs from what was stored, or if the disk or the memory
    /// fails.
    pub fn load(self, first: Option<&PageSet>) -> Result<LoadedCode, CodeError> {
        let memory = Code::writable()?;
        give_room(&memory, self.bytes)?;
        let first = first.map(|first| self.pieces_with(first));
        let first = first.filter(|first| {
            let later = (self.count() - first.len()) as u64 * PIECE as u64;
            !first.is_empty() && later >= DEFERRED_MIN && !Mechanism::CodeParts.is_off()
        });
        let Some(first) = first else {
            let all: Vec<usize> = (0..self.count()).collect();
            self.load_all(&all, &memory)?;
            faasw_seedtree::seal(&memory)?;
            let code = Code::of(&memory, self.bytes, None)?;
            // No other thread has the code yet.
            let _ = code.pieces.set(self.pieces);
            return Ok(code.into());
        };
        self.load_all(&first, &memory)?;
        let progress = Arc::new(LoadProgress::default());
        let code = Code::of(&memory, self.bytes, Some(progress.clone()))?;
        let _ = code.pieces.set(self.pieces.clone());
        Ok(LoadedCode {
            code,
            rest: Some(CodeFilling::new(self, memory, first, progress)),
        })
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

/// Calls `bring` for each run of these pieces, which are in order; with several threads if they are
/// many.
///
/// # Errors
/// As [`reading::read_concurrently`].
pub(super) fn in_turns(
    pieces: &[usize],
    bring: impl Fn(Range<usize>) -> Result<(), CodeError> + Sync,
) -> Result<(), CodeError> {
    let runs = runs(pieces, PIECES_AT_ONCE);
    let readers = READERS.min(runs.len().div_ceil(READS_PER_THREAD));
    reading::read_concurrently(&runs, readers, |run| bring(run.clone()))
}

fn write(memory: &OwnedFd, mut part: &[u8], mut at: u64) -> Result<(), Errno> {
    while !part.is_empty() {
        let written = rustix::io::pwrite(memory, part, at)?;
        part = part.get(written..).unwrap_or_default();
        at += written as u64;
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests;

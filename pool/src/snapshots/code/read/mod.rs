//! Reading an artifact from a disk into memory, piece by piece, each verified before it is in
//! there. It blocks.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use faasw_abi::memory_map::{CODE_MAX, PAGE};
use faasw_abi::pages::{Page, PageRange, PageSet};
use faasw_seedtree::reading::{self, Rooms, runs};
use rustix::io::Errno;

use super::filling::CodeFilling;
use super::pieces::{PIECE, Pieces, digest};
use super::progress::Progress;
use super::{Code, give_room};
use crate::ablation::Mechanism;

/// Who reads, verifies and copies pieces at once at most: while one waits for the disk others
/// verify, and pieces that are used lie apart, so that a disk takes more time to answer than to
/// read.
const READERS: usize = 4;

/// For so many reads there is one.
const READS_EACH: usize = 2;

/// Pieces that are read at once at most: 1 MiB. With more a disk is no quicker.
const PIECES_AT_ONCE: usize = (1 << 20) / PIECE;

/// Code may run before so many bytes of it are there that requests have not used so far: less is
/// read in the time that it takes to have guests wait for them.
const FILLED_LATER: u64 = 1 << 20;

/// What direct reads are aligned to, in memory and in the file.
const ALIGNED: usize = 4096;

/// Why an artifact on disk is not used.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// The file ends too early, or goes on, or there are not as many digests as pieces.
    #[error("it has not the size that it had")]
    Size,
    /// A piece is not what was stored.
    #[error("piece {0} of it is damaged")]
    Damaged(usize),
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
    /// There is no memory for it, or guests cannot have so much.
    #[error("it cannot be in memory: {0}")]
    Memory(#[from] Errno),
}

/// Where an artifact is read from: a file, or in tests a disk that fails.
pub trait Source: fmt::Debug + Send + Sync {
    /// Fills the beginning of `out` from `offset` on; says how much.
    ///
    /// # Errors
    /// The disk's.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Source for File {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, out, offset)
    }
}

/// Code that was read, and what brings the rest of it, if some is missing.
#[derive(Debug)]
pub struct ReadCode {
    /// The code.
    pub code: Code,
    /// What brings the rest.
    pub rest: Option<CodeFilling>,
}

impl From<Code> for ReadCode {
    fn from(code: Code) -> Self {
        Self { code, rest: None }
    }
}

/// Room that a disk can write to without a copy.
pub struct Room(Vec<u8>);

impl Room {
    /// Room for what is read at once.
    pub fn new() -> Self {
        Self(vec![0; PIECES_AT_ONCE * PIECE + ALIGNED])
    }

    fn first(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let skip = self.0.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        self.0.get_mut(skip..skip.checked_add(bytes)?)
    }
}

/// An artifact on a disk, and by what each piece of it is verified.
#[derive(Debug)]
pub struct Stored {
    source: Box<dyn Source>,
    bytes: u64,
    pieces: Pieces,
}

impl Stored {
    /// That which has so many bytes, and these pieces.
    ///
    /// # Errors
    /// When it cannot have.
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

    /// All pages that it has something in.
    pub fn pages(&self) -> PageRange {
        PageRange::around(0, self.bytes)
    }

    /// How many pieces it has.
    pub fn count(&self) -> usize {
        self.pieces.digests().len()
    }

    /// The piece that a page is in.
    pub fn piece(page: Page) -> usize {
        (page.address().get() / PIECE as u64) as usize
    }

    /// The pages of a piece: of the last one those that there are.
    pub fn pages_of(&self, piece: usize) -> PageRange {
        let at = (piece * PIECE) as u64;
        let end = self.pages().end.address().get();
        PageRange::of_bytes(at.min(end), (at + PIECE as u64).min(end))
    }

    /// The pieces that have some of these pages, in order.
    fn pieces_with(&self, pages: &PageSet) -> Vec<usize> {
        let all = 0..self.count();
        all.filter(|piece| pages.first_in(self.pages_of(*piece)).is_some())
            .collect()
    }

    /// Reads pieces at once, verifies each, and puts them where they belong: whole pages, whoever
    /// looks at them.
    ///
    /// # Errors
    /// When one is not what was stored, and then none is put anywhere; the disk's and the system's.
    pub fn bring(
        &self,
        pieces: Range<usize>,
        memory: &OwnedFd,
        room: &mut Room,
    ) -> Result<(), CodeError> {
        let (first, at) = (pieces.start, (pieces.start * PIECE) as u64);
        let end = ((pieces.end * PIECE) as u64).min(self.bytes);
        let length = end.saturating_sub(at);
        let all = length.next_multiple_of(PAGE) as usize;
        let length = length as usize;
        let part = room.first(all).ok_or(CodeError::Size)?;
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

    /// Brings all of these pieces, which are in order, by several threads where there are many.
    ///
    /// # Errors
    /// As [`Stored::bring`].
    fn bring_all(&self, pieces: &[usize], memory: &OwnedFd) -> Result<(), CodeError> {
        let rooms = Rooms::new(Room::new);
        in_turns(pieces, |run| {
            rooms.with(|room| self.bring(run, memory, room))
        })
    }

    /// Fills the first `length` bytes of `room` from `at`. The last piece is asked for in whole
    /// pages, too: direct reads are of whole blocks, and end where the file does.
    fn read(&self, room: &mut [u8], length: usize, at: u64) -> Result<(), CodeError> {
        let mut read = 0;
        while read < length {
            let rest = room.get_mut(read..).unwrap_or_default();
            match self.source.read_at(rest, at + read as u64) {
                Ok(0) => return Err(CodeError::Size),
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// All of it, or where some is used `first` and there is much besides, that, and what brings
    /// the rest. It blocks for as long as the disk takes.
    ///
    /// # Errors
    /// When it is not what was stored; the system's.
    pub fn load(self, first: Option<&PageSet>) -> Result<ReadCode, CodeError> {
        let memory = Code::writable()?;
        give_room(&memory, self.bytes)?;
        let first = first.map(|first| self.pieces_with(first));
        let first = first.filter(|first| {
            let later = (self.count() - first.len()) as u64 * PIECE as u64;
            !first.is_empty() && later >= FILLED_LATER && !Mechanism::CodeParts.is_off()
        });
        let Some(first) = first else {
            let all: Vec<usize> = (0..self.count()).collect();
            self.bring_all(&all, &memory)?;
            faasw_seedtree::seal(&memory)?;
            let code = Code::of(&memory, self.bytes, None)?;
            // Nobody else has it yet.
            let _ = code.pieces.set(self.pieces);
            return Ok(code.into());
        };
        self.bring_all(&first, &memory)?;
        let progress = Arc::new(Progress::default());
        let code = Code::of(&memory, self.bytes, Some(progress.clone()))?;
        let _ = code.pieces.set(self.pieces.clone());
        Ok(ReadCode {
            code,
            rest: Some(CodeFilling::new(self, memory, first, progress)),
        })
    }
}

impl Code {
    /// The artifact in a file, which has so many bytes and these pieces: all of it, or with `first`
    /// only what is used, where there is much besides. It blocks for as long as the disk takes.
    ///
    /// # Errors
    /// When it is not what was stored; the system's.
    pub fn read_from(
        file: File,
        bytes: u64,
        pieces: Pieces,
        first: Option<&PageSet>,
    ) -> Result<ReadCode, CodeError> {
        if file.metadata()?.len() != bytes {
            return Err(CodeError::Size);
        }
        Stored::new(Box::new(file), bytes, pieces)?.load(first)
    }
}

/// Has each run of these pieces, which are in order, brought, by several threads where there are
/// many.
///
/// # Errors
/// As [`reading::in_turns`].
pub(super) fn in_turns(
    pieces: &[usize],
    bring: impl Fn(Range<usize>) -> Result<(), CodeError> + Sync,
) -> Result<(), CodeError> {
    let runs = runs(pieces, PIECES_AT_ONCE);
    let readers = READERS.min(runs.len().div_ceil(READS_EACH));
    reading::in_turns(&runs, readers, |run| bring(run.clone()))
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

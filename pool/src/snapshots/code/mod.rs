//! Compiled code: an artifact of the compile helper in a sealed file.
//!
//! `pieces`: the parts by which it is known and verified; `read`: from disk into memory;
//! `kept`: what a function has of code that may have left memory.

mod kept;
mod pieces;
mod read;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::io::Errno;

use faasw_abi::memory_map::{CODE_MAX, LARGE_PAGE};
use faasw_seedtree::memory_file;

pub use self::kept::{Bringing, CodeSource, KeptCode};
use self::pieces::PIECE;
pub use self::pieces::{CodeDigest, Pieces};
pub use self::read::{CodeError, open_code};

use super::large_pages::gather;

/// Compiled code that nobody can change any more.
#[derive(Debug)]
pub struct Code {
    file: OwnedFd,
    bytes: u64,
    /// What the file takes of memory, in bytes.
    held_bytes: u64,
    tells_state: bool,
    pieces: OnceLock<Pieces>,
}

impl Code {
    /// An empty file that an artifact is written into.
    ///
    /// # Errors
    /// The system's.
    pub fn writable() -> Result<OwnedFd, Errno> {
        memory_file("faasw-code")
    }

    /// Seals a file that an artifact was written into.
    ///
    /// # Errors
    /// `FBIG` when the artifact is larger than a guest can have or empty; the system's.
    pub fn seal(file: OwnedFd) -> Result<Self, Errno> {
        /// As stat(2) counts, whatever the file's own blocks are.
        const BLOCK: u64 = 512;
        let bytes = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        if bytes == 0 || bytes > CODE_MAX {
            return Err(Errno::FBIG);
        }
        // Guests map large pages.
        rustix::fs::ftruncate(&file, bytes.next_multiple_of(LARGE_PAGE))?;
        gather(&file, 0, bytes.next_multiple_of(LARGE_PAGE));
        faasw_seedtree::seal(&file)?;
        let blocks = u64::try_from(rustix::fs::fstat(&file)?.st_blocks).unwrap_or(0);
        Ok(Self {
            file,
            bytes,
            held_bytes: blocks.saturating_mul(BLOCK),
            tells_state: false,
            pieces: OnceLock::new(),
        })
    }

    /// An artifact that is in memory already.
    ///
    /// # Errors
    /// As [`Code::seal`].
    pub fn copy_of(mut artifact: &[u8]) -> Result<Self, Errno> {
        let file = Self::writable()?;
        while !artifact.is_empty() {
            let written = rustix::io::write(&file, artifact)?;
            artifact = artifact.get(written..).unwrap_or_default();
        }
        Self::seal(file)
    }

    /// The same code, which was made to tell what it has become.
    #[must_use]
    pub fn that_tells(self) -> Self {
        Self {
            tells_state: true,
            ..self
        }
    }

    /// Whether it was made to tell what it has become, and does nothing else.
    #[must_use]
    pub fn tells_state(&self) -> bool {
        self.tells_state
    }

    /// Size of the artifact, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Size of the file: whole large pages.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.bytes.next_multiple_of(LARGE_PAGE)
    }

    /// What it takes of memory, in bytes: more than it has where that is in large pages.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// What it is known by: nothing that was made with other code is to run with this. Where it
    /// was not read from a disk, that is computed when it is asked for first.
    ///
    /// # Errors
    /// The system's.
    pub fn digest(&self) -> Result<CodeDigest, Errno> {
        if let Some(pieces) = self.pieces.get() {
            return Ok(pieces.digest(self.bytes));
        }
        let mut pieces = Pieces::default();
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        while at < self.bytes {
            let most = usize::try_from(self.bytes - at).unwrap_or(usize::MAX);
            let length = most.min(piece.len());
            let part = piece.get_mut(..length).unwrap_or_default();
            self.read_at(part, at)?;
            pieces.push(part);
            at += length as u64;
        }
        // Whoever else computes it meanwhile finds the same.
        Ok(self.pieces.get_or_init(|| pieces).digest(self.bytes))
    }

    /// A copy of the artifact.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&self) -> Result<Vec<u8>, Errno> {
        let size = usize::try_from(self.bytes).map_err(|_| Errno::FBIG)?;
        let mut copy = vec![0; size];
        self.read_at(&mut copy, 0)?;
        Ok(copy)
    }

    fn read_at(&self, out: &mut [u8], from: u64) -> Result<(), Errno> {
        let mut read = 0;
        while let Some(rest) = out.get_mut(read..)
            && !rest.is_empty()
        {
            match rustix::io::pread(&self.file, rest, from + read as u64)? {
                0 => return Err(Errno::IO),
                count => read += count,
            }
        }
        Ok(())
    }
}

impl AsFd for Code {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

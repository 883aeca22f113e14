//! Compiled code: an artifact of the compile helper in a sealed file.
//!
//! `pieces`: the parts by which code is identified and verified; `read`: reading from disk into
//! memory, in part while guests run; `handle`: a function's code that may have left memory.

mod handle;
mod pieces;
mod read;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;

use faasw_abi::memory_map::{CODE_MAX, LARGE_PAGE};
use faasw_seedtree::reading::LoadProgress;
use faasw_seedtree::{held_bytes, memory_file, read_at, reopen_read_only, write_at};

pub use self::handle::{CodeHandle, CodeSource, LoadFuture};
use self::pieces::PIECE;
pub use self::pieces::{CodeDigest, Pieces};
pub use self::read::{CodeError, CodeFill, LoadedCode};

use super::large_pages::gather;

/// Compiled code, in a file that guests cannot write. As long as some of it is being read, only
/// its `CodeFill` writes to the file; once all of it is present, the file is sealed.
#[derive(Debug)]
pub struct Code {
    file: OwnedFd,
    bytes: u64,
    /// The memory that the file takes, in bytes; while some is missing, the memory that it will
    /// take.
    held_bytes: AtomicU64,
    reports_state: bool,
    pieces: OnceLock<Pieces>,
    /// Whether gathering has begun: see [`Code::gather`].
    is_being_gathered: AtomicBool,
    /// Whether gathering has ended: the code is in large pages, as far as the host provides them.
    is_gathered: AtomicBool,
    progress: LoadProgress,
}

impl Code {
    /// Creates an empty file for an artifact.
    ///
    /// # Errors
    /// Returns the error of the system if no file can be created.
    pub fn writable() -> Result<OwnedFd, Errno> {
        memory_file("faasw-code")
    }

    /// Seals a file that an artifact was written into. It stays in its present pages.
    ///
    /// # Errors
    /// Returns `FBIG` if the artifact is empty or larger than a guest can have, or the error of a
    /// system call.
    pub fn seal(file: OwnedFd) -> Result<Self, Errno> {
        let bytes = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        extend_to_mapped(&file, bytes)?;
        faasw_seedtree::seal(&file)?;
        Self::of(&file, bytes, LoadProgress::complete())
    }

    /// Wraps the code in a file to which guests must not write. Until it is fully loaded, another
    /// descriptor is used to fill the file.
    fn of(file: &OwnedFd, bytes: u64, progress: LoadProgress) -> Result<Self, Errno> {
        let held_bytes = if progress.is_fully_loaded() {
            held_bytes(file)?
        } else {
            bytes.next_multiple_of(LARGE_PAGE)
        };
        Ok(Self {
            file: reopen_read_only(file)?,
            bytes,
            held_bytes: held_bytes.into(),
            reports_state: false,
            pieces: OnceLock::new(),
            is_being_gathered: AtomicBool::new(false),
            is_gathered: AtomicBool::new(false),
            progress,
        })
    }

    /// Returns whether all of the code is present and its file is sealed. Until then only a holder
    /// that waits for missing pages may use it.
    #[must_use]
    pub fn progress(&self) -> &LoadProgress {
        &self.progress
    }

    /// Gathers the code into large pages, which guests map, if all of it is present. Afterwards a
    /// survey cannot determine any more which small pages are used. Blocks for a third of a
    /// millisecond per large page.
    pub fn gather(&self) {
        if !self.progress.is_fully_loaded() || self.is_being_gathered.swap(true, Ordering::AcqRel) {
            return;
        }
        gather(&self.file, 0, self.mapped_bytes());
        self.is_gathered.store(true, Ordering::Release);
        if let Ok(held_bytes) = held_bytes(&self.file) {
            self.held_bytes.store(held_bytes, Ordering::Relaxed);
        }
    }

    /// Returns whether all of the code has been gathered.
    #[must_use]
    pub fn is_gathered(&self) -> bool {
        self.is_gathered.load(Ordering::Acquire)
    }

    /// Returns whether gathering has at least begun. Guests may lose their mappings of small pages
    /// then, and get large pages instead.
    #[must_use]
    pub fn is_being_gathered(&self) -> bool {
        self.is_being_gathered.load(Ordering::Acquire)
    }

    /// Copies an artifact that is in memory.
    ///
    /// # Errors
    /// Returns the errors of [`Code::seal`].
    pub fn copy_of(artifact: &[u8]) -> Result<Self, Errno> {
        let file = Self::writable()?;
        write_at(&file, 0, artifact)?;
        Self::seal(file)
    }

    /// Marks the code as made to report the state that it reaches.
    #[must_use]
    pub fn reporting_state(self) -> Self {
        Self {
            reports_state: true,
            ..self
        }
    }

    /// Returns whether the code was made to report the state that it reaches, and does nothing
    /// else.
    #[must_use]
    pub fn reports_state(&self) -> bool {
        self.reports_state
    }

    /// Returns the size of the artifact, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the size of the file, in bytes: whole large pages.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.bytes.next_multiple_of(LARGE_PAGE)
    }

    /// Returns the memory that the code takes, in bytes. In large pages that is more than its size.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Returns the digest of the code: nothing that was made with other code may run with this. If
    /// the code was not read from a disk, the first call computes the digest.
    ///
    /// # Errors
    /// Returns the error of reading the code.
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
            read_at(&self.file, at, part)?;
            pieces.push(part);
            at += length as u64;
        }
        // A concurrent computation gives the same result.
        Ok(self.pieces.get_or_init(|| pieces).digest(self.bytes))
    }

    /// Returns a copy of the artifact.
    ///
    /// # Errors
    /// Returns the error of reading the code.
    pub fn read(&self) -> Result<Vec<u8>, Errno> {
        let size = usize::try_from(self.bytes).map_err(|_| Errno::FBIG)?;
        let mut copy = vec![0; size];
        read_at(&self.file, 0, &mut copy)?;
        Ok(copy)
    }
}

/// Extends a file to the size at which a guest maps it: whole large pages.
///
/// # Errors
/// Returns `FBIG` if the artifact is empty or larger than a guest can have, or the error of the
/// system call.
fn extend_to_mapped(file: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    if bytes == 0 || bytes > CODE_MAX {
        return Err(Errno::FBIG);
    }
    rustix::fs::ftruncate(file, bytes.next_multiple_of(LARGE_PAGE))
}

impl AsFd for Code {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

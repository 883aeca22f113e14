//! Compiled code: an artifact of the compile helper in a sealed file.
//!
//! `pieces`: the parts by which it is known and verified; `read`: from disk into memory;
//! `filling`: the rest of it, while guests run; `progress`: who waits for that; `kept`: what a
//! function has of code that may have left memory.

mod filling;
mod kept;
mod pieces;
mod progress;
mod read;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use faasw_abi::memory_map::{CODE_MAX, LARGE_PAGE};
use faasw_seedtree::{memory_file, reopen_read_only};

pub use self::filling::CodeFilling;
pub use self::kept::{Bringing, CodeSource, KeptCode};
use self::pieces::PIECE;
pub use self::pieces::{CodeDigest, Pieces};
use self::progress::Progress;
pub use self::read::{CodeError, ReadCode};

use super::large_pages::gather;

/// Compiled code that nobody can change any more. Some of it may still be on its way.
#[derive(Debug)]
pub struct Code {
    file: OwnedFd,
    bytes: u64,
    /// What the file takes of memory, in bytes; what it will take, as long as some is missing.
    held_bytes: AtomicU64,
    tells_state: bool,
    pieces: OnceLock<Pieces>,
    /// Whether that has begun: see [`Code::gather`].
    is_being_gathered: AtomicBool,
    /// Whether it is in large pages, as far as the host gives any.
    is_gathered: AtomicBool,
    /// How far its reading is, where it was told before it was whole.
    coming: Option<Arc<Progress>>,
}

impl Code {
    /// An empty file that an artifact is written into.
    ///
    /// # Errors
    /// The system's.
    pub fn writable() -> Result<OwnedFd, Errno> {
        memory_file("faasw-code")
    }

    /// Seals a file that an artifact was written into. It stays in the pages that it is in.
    ///
    /// # Errors
    /// `FBIG` when the artifact is larger than a guest can have or empty; the system's.
    pub fn seal(file: OwnedFd) -> Result<Self, Errno> {
        let bytes = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        give_room(&file, bytes)?;
        faasw_seedtree::seal(&file)?;
        Self::of(&file, bytes, None)
    }

    /// That in a file to which no guest is to write. Where it is still `coming`, whoever fills the
    /// file has its own descriptor.
    fn of(file: &OwnedFd, bytes: u64, coming: Option<Arc<Progress>>) -> Result<Self, Errno> {
        let held_bytes = match coming {
            None => blocks(file)?,
            Some(_) => bytes.next_multiple_of(LARGE_PAGE),
        };
        Ok(Self {
            file: reopen_read_only(file)?,
            bytes,
            held_bytes: held_bytes.into(),
            tells_state: false,
            pieces: OnceLock::new(),
            is_being_gathered: AtomicBool::new(false),
            is_gathered: AtomicBool::new(false),
            coming,
        })
    }

    /// Whether all of it is there, and its file is sealed. Until then nobody is to have it who
    /// does not wait for what is missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let coming = self.coming.as_ref();
        coming.is_none_or(|coming| coming.outcome() == Some(true))
    }

    /// Whether some of it will never be there: nothing is to run with it.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let coming = self.coming.as_ref();
        coming.is_some_and(|coming| coming.outcome() == Some(false))
    }

    /// Waits until all of it is there; says whether it is, or never will be.
    pub async fn whole(&self) -> bool {
        match &self.coming {
            Some(coming) => coming.ended().await,
            None => true,
        }
    }

    /// Gathers it into large pages, which guests map, once all of it is there. Where it is in such
    /// it cannot be told any more which small ones are used. It blocks, for a third of a
    /// millisecond for each of them.
    pub fn gather(&self) {
        if !self.is_whole() || self.is_being_gathered.swap(true, Ordering::AcqRel) {
            return;
        }
        gather(&self.file, 0, self.mapped_bytes());
        self.is_gathered.store(true, Ordering::Release);
        if let Ok(held_bytes) = blocks(&self.file) {
            self.held_bytes.store(held_bytes, Ordering::Relaxed);
        }
    }

    /// Whether it was gathered, all of it.
    #[must_use]
    pub fn is_gathered(&self) -> bool {
        self.is_gathered.load(Ordering::Acquire)
    }

    /// Whether that has at least begun: guests may lose what they have mapped, to have it back in
    /// large pages.
    #[must_use]
    pub fn is_being_gathered(&self) -> bool {
        self.is_being_gathered.load(Ordering::Acquire)
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
        self.held_bytes.load(Ordering::Relaxed)
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

/// Makes a file as large as a guest maps it: whole large pages.
///
/// # Errors
/// `FBIG` when the artifact is larger than a guest can have or empty; the system's.
fn give_room(file: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    if bytes == 0 || bytes > CODE_MAX {
        return Err(Errno::FBIG);
    }
    rustix::fs::ftruncate(file, bytes.next_multiple_of(LARGE_PAGE))
}

/// Bytes of memory that a file takes.
fn blocks(file: &OwnedFd) -> Result<u64, Errno> {
    /// As stat(2) counts, whatever the file's own blocks are.
    const BLOCK: u64 = 512;
    let blocks = rustix::fs::fstat(file)?.st_blocks;
    Ok(u64::try_from(blocks).unwrap_or(0).saturating_mul(BLOCK))
}

impl AsFd for Code {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

//! Compiled code: an artifact of the compile helper in a sealed file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use faasw_abi::memory_map::{CODE_MAX, LARGE_PAGE};
use faasw_seedtree::memory_file;

use super::large_pages::gather;

/// Compiled code that nobody can change any more.
#[derive(Debug)]
pub struct Code {
    file: OwnedFd,
    bytes: u64,
    tells_state: bool,
    digest: OnceLock<[u8; 32]>,
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
        let bytes = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        if bytes == 0 || bytes > CODE_MAX {
            return Err(Errno::FBIG);
        }
        // Guests map large pages.
        rustix::fs::ftruncate(&file, bytes.next_multiple_of(LARGE_PAGE))?;
        gather(&file, 0, bytes.next_multiple_of(LARGE_PAGE));
        faasw_seedtree::seal(&file)?;
        Ok(Self {
            file,
            bytes,
            tells_state: false,
            digest: OnceLock::new(),
        })
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
    pub fn tells_state(&self) -> bool {
        self.tells_state
    }

    /// Size of the artifact, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Size of the file: whole large pages.
    pub fn mapped_bytes(&self) -> u64 {
        self.bytes.next_multiple_of(LARGE_PAGE)
    }

    /// Its SHA-256, computed when it is asked for first: nothing that was made with other code is
    /// to run with this.
    ///
    /// # Errors
    /// The system's.
    pub fn digest(&self) -> Result<[u8; 32], Errno> {
        if let Some(digest) = self.digest.get() {
            return Ok(*digest);
        }
        let mut hash = Sha256::new();
        let mut part = vec![0; 1 << 20];
        let mut at = 0;
        while at < self.bytes {
            let most = usize::try_from(self.bytes - at).unwrap_or(usize::MAX);
            let length = most.min(part.len());
            let room = part.get_mut(..length).unwrap_or_default();
            match rustix::io::pread(&self.file, &mut *room, at)? {
                0 => return Err(Errno::IO),
                count => {
                    hash.update(room.get(..count).unwrap_or_default());
                    at += count as u64;
                }
            }
        }
        // Whoever else computes it meanwhile finds the same.
        Ok(*self.digest.get_or_init(|| hash.finalize().into()))
    }

    /// A copy of the artifact.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&self) -> Result<Vec<u8>, Errno> {
        let size = usize::try_from(self.bytes).map_err(|_| Errno::FBIG)?;
        let mut copy = vec![0; size];
        let mut read = 0;
        while let Some(rest) = copy.get_mut(read..)
            && !rest.is_empty()
        {
            match rustix::io::pread(&self.file, rest, read as u64)? {
                0 => return Err(Errno::IO),
                count => read += count,
            }
        }
        Ok(copy)
    }
}

impl AsFd for Code {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

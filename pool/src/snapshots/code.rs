//! Compiled code: an artifact of the compile helper in a sealed file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use faasw_abi::memory_map::{CODE_MAX, LARGE_PAGE};
use faasw_seedtree::memory_file;

use super::large_pages::gather;

/// Compiled code that nobody can change any more.
#[derive(Debug)]
pub struct Code {
    file: OwnedFd,
    bytes: u64,
    tells_state: bool,
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

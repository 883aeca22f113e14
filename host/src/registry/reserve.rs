//! Disk space that is kept for removals.
//!
//! A transaction writes new pages before it frees old ones, so a nearly full disk would reject even
//! the removal that frees space on it. A small file without content is removed for that, and
//! written again when there is space.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::{RegistryError, blobs::create_private};

/// The size of the reserve in bytes: about ten times what a small transaction writes.
const BYTES: usize = 512 << 10;

/// The reserve's file, or `None` for a registry in memory.
#[derive(Debug)]
pub(super) struct DiskReserve(Option<PathBuf>);

impl DiskReserve {
    /// Creates a reserve in this file, which is written now if there is space.
    pub(super) fn new(path: PathBuf) -> Self {
        let reserve = Self(Some(path));
        reserve.fill();
        reserve
    }

    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Runs work that has to succeed on a full disk, too.
    pub(super) fn with_space_released<T>(
        &self,
        work: impl Fn() -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        match (work(), &self.0) {
            (Err(RegistryError::NoSpace), Some(path)) => {
                // If the file does not exist, the second attempt fails like the first.
                let _ = fs::remove_file(path);
                let done = work();
                self.fill();
                done
            }
            (done, _) => done,
        }
    }

    fn fill(&self) {
        let Some(path) = &self.0 else { return };
        let whole = |size| size == BYTES as u64;
        if fs::metadata(path).is_ok_and(|file| whole(file.len())) {
            return;
        }
        if let Err(error) = write(path) {
            let _ = fs::remove_file(path);
            tracing::warn!(%error, "no disk space could be reserved; removing functions may fail \
                 while the disk is full");
        }
    }
}

/// Writes the file's content rather than only setting its length, because a hole takes no space.
fn write(path: &Path) -> io::Result<()> {
    let mut file = create_private(path)?;
    file.write_all(&vec![0; BYTES])?;
    file.sync_all()
}

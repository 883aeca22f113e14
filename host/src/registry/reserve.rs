//! Room that is kept for removing things.
//!
//! A transaction writes new pages before it frees old ones, so a disk that is
//! quite full would refuse even the removal that makes room on it. A small file
//! that holds nothing is given up for that, and made anew when there is room.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
};

use super::RegistryError;

/// Bytes that are kept: some ten times what a small transaction writes.
const BYTES: usize = 512 << 10;

/// The file, or nothing for a registry in memory.
#[derive(Debug)]
pub(super) struct Reserve(Option<PathBuf>);

impl Reserve {
    /// A reserve in this file, which is made now if there is room.
    pub(super) fn new(path: PathBuf) -> Self {
        let reserve = Self(Some(path));
        reserve.fill();
        reserve
    }

    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Does something that is to work on a full disk, too.
    pub(super) fn spend<T>(
        &self,
        work: impl Fn() -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        match (work(), &self.0) {
            (Err(RegistryError::NoSpace), Some(path)) => {
                // If it is not there, the second attempt says so.
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
            tracing::warn!(%error, "no room could be reserved; removing functions may fail while \
                 the disk is full");
        }
    }
}

/// Written, not only made long: a hole takes no room.
fn write(path: &PathBuf) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(&vec![0; BYTES])?;
    file.sync_all()
}

//! Files that are written once, whole, and never changed.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::RegistryError;

/// A folder of such files. Names come from digests and generations: none has a `/`.
#[derive(Debug)]
pub(super) struct Blobs {
    folder: PathBuf,
}

/// What a file is called until it is whole; no digest begins like this.
const UNFINISHED: &str = ".unfinished";

impl Blobs {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The file's content; nothing if it is not there.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, RegistryError> {
        let path = self.folder.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RegistryError::File { path, error }),
        }
    }

    /// Writes a file so that after a crash it is whole or absent. One writer at a time.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), RegistryError> {
        let path = self.folder.join(name);
        self.write_whole(&path, bytes)
            .map_err(|error| RegistryError::File { path, error })
    }

    fn write_whole(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let unfinished = self.folder.join(UNFINISHED);
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        // The rename itself is durable only with its folder.
        File::open(&self.folder)?.sync_all()
    }

    /// Removes the files that `keep` does not want.
    pub(super) fn retain(&self, keep: impl Fn(&str) -> bool) -> Result<(), RegistryError> {
        let failed = |path: &Path, error| RegistryError::File {
            path: path.into(),
            error,
        };
        let entries = fs::read_dir(&self.folder).map_err(|error| failed(&self.folder, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| failed(&self.folder, error))?;
            if entry.file_name().to_str().is_some_and(&keep) {
                continue;
            }
            let path = entry.path();
            fs::remove_file(&path).map_err(|error| failed(&path, error))?;
        }
        Ok(())
    }
}

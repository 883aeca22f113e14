//! Files that are written once, whole, and never changed.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Cursor, Read, Seek, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use faasw_abi::pages::PageSet;
use faasw_pool::{CodeError, GivenFolder, Pieces, ReadCode, SealedCode, open_file, open_to_look};

use super::RegistryError;

/// Such files, by name. Names come from digests and generations: none has a `/`.
#[derive(Debug)]
pub(super) enum Blobs {
    /// In a folder of the data directory.
    Folder(PathBuf),
    /// Of a node that has none.
    Memory(InMemory),
}

/// Files of a node that writes none.
#[derive(Debug, Default)]
pub(super) struct InMemory {
    files: Mutex<HashMap<String, Vec<u8>>>,
    /// Where code is that somebody else has compiled, if anywhere.
    given: Option<Arc<GivenFolder>>,
}

impl InMemory {
    /// None yet but what is in this folder.
    pub(super) fn with(given: Option<Arc<GivenFolder>>) -> Self {
        Self {
            files: Mutex::default(),
            given,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<u8>>> {
        // It changes by single calls: a panic leaves nothing half done.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a file is called until it is whole; no digest begins like this.
const UNFINISHED: &str = ".unfinished";

/// What reads such a file, from wherever it likes.
pub(super) trait Reader: Read + Seek + Send + Sync {}

impl<T: Read + Seek + Send + Sync> Reader for T {}

impl Blobs {
    /// What reads the file; nothing if it is not there.
    pub(super) fn open(&self, name: &str) -> Result<Option<Box<dyn Reader>>, RegistryError> {
        let folder = match self {
            Self::Folder(folder) => folder,
            Self::Memory(files) => {
                let file = files.lock().get(name).cloned();
                return Ok(file.map(|file| Box::new(Cursor::new(file)) as Box<dyn Reader>));
            }
        };
        let path = folder.join(name);
        match open_to_look(&path) {
            Ok(file) => Ok(Some(Box::new(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RegistryError::file(&path, error)),
        }
    }

    /// The file's content; nothing if it is not there.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, RegistryError> {
        let folder = match self {
            Self::Folder(folder) => folder,
            Self::Memory(files) => return Ok(files.lock().get(name).cloned()),
        };
        let path = folder.join(name);
        let mut bytes = Vec::new();
        let read = open_to_look(&path).and_then(|mut file| file.read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RegistryError::file(&path, error)),
        }
    }

    /// The code that a file has, of so many bytes and of these pieces; nothing if it is not there,
    /// and why where it is not that. Where it is told what is used of it `first`, the rest may be
    /// on its way.
    pub(super) fn code(
        &self,
        name: &str,
        bytes: u64,
        pieces: Pieces,
        first: Option<&PageSet>,
    ) -> Option<Result<ReadCode, CodeError>> {
        let opened = match self {
            Self::Folder(folder) => open_file(&folder.join(name)),
            Self::Memory(files) => {
                if let Some(code) = files.lock().get(name).cloned() {
                    let code = SealedCode::copy_of(&code).map(Into::into);
                    return Some(code.map_err(Into::into));
                }
                files.given.as_ref()?.file(name)
            }
        };
        match opened {
            Ok(file) => Some(SealedCode::read_from(file, bytes, pieces, first)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(error.into())),
        }
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, name: &str) -> Result<(), RegistryError> {
        let folder = match self {
            Self::Folder(folder) => folder,
            Self::Memory(files) => {
                let removed = files.lock().remove(name);
                drop(removed);
                return Ok(());
            }
        };
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(RegistryError::file(&path, error))
            }
            _ => Ok(()),
        }
    }

    /// Writes a file so that after a crash it is whole or absent. One writer at a time.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), RegistryError> {
        self.put(name, bytes, true)
    }

    /// Writes a file that may be gone or damaged after a crash. One writer at a time.
    pub(super) fn write_for_now(&self, name: &str, bytes: &[u8]) -> Result<(), RegistryError> {
        self.put(name, bytes, false)
    }

    fn put(&self, name: &str, bytes: &[u8], is_to_last: bool) -> Result<(), RegistryError> {
        let folder = match self {
            Self::Folder(folder) => folder,
            Self::Memory(files) => {
                files.lock().insert(name.into(), bytes.into());
                return Ok(());
            }
        };
        let unfinished = folder.join(UNFINISHED);
        let path = folder.join(name);
        write_whole(folder, &unfinished, &path, bytes, is_to_last).map_err(|error| {
            // On a full disk a half file would stay in its own way.
            let _ = fs::remove_file(&unfinished);
            RegistryError::file(&path, error)
        })
    }

    /// Removes the files that `keep` does not want.
    pub(super) fn retain(&self, keep: impl Fn(&str) -> bool) -> Result<(), RegistryError> {
        let folder = match self {
            Self::Folder(folder) => folder,
            Self::Memory(files) => {
                files.lock().retain(|name, _| keep(name));
                return Ok(());
            }
        };
        let entries = fs::read_dir(folder).map_err(|error| RegistryError::file(folder, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| RegistryError::file(folder, error))?;
            if entry.file_name().to_str().is_some_and(&keep) {
                continue;
            }
            let path = entry.path();
            fs::remove_file(&path).map_err(|error| RegistryError::file(&path, error))?;
        }
        Ok(())
    }
}

fn write_whole(
    folder: &Path,
    unfinished: &Path,
    path: &Path,
    bytes: &[u8],
    is_to_last: bool,
) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(unfinished)?;
    file.write_all(bytes)?;
    if is_to_last {
        file.sync_all()?;
    }
    fs::rename(unfinished, path)?;
    if !is_to_last {
        return Ok(());
    }
    // The rename itself is durable only with its folder.
    File::open(folder)?.sync_all()
}

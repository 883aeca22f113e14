//! Files that are written once, completely, and never changed.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Cursor, Read, Seek, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use faasw_abi::pages::PageSet;
use faasw_pool::{
    CodeError, LoadedCode, Pieces, SealedCode, TrustedFolder, open_buffered, open_file,
};

use super::RegistryError;

/// Files of one kind, by name. Names consist of digests and generations, so none contains a `/`.
#[derive(Debug)]
pub(super) enum Blobs {
    /// In a folder of the data directory.
    Folder(PathBuf),
    /// In memory, for a node without a data directory.
    Memory(InMemory),
}

/// The files of a node that writes none to disk.
#[derive(Debug, Default)]
pub(super) struct InMemory {
    files: Mutex<HashMap<String, Vec<u8>>>,
    /// A folder with code that another node has compiled, if there is one.
    given: Option<Arc<TrustedFolder>>,
}

impl InMemory {
    /// Creates an empty set of files, which also finds code in the folder `given`.
    pub(super) fn with(given: Option<Arc<TrustedFolder>>) -> Self {
        Self {
            files: Mutex::default(),
            given,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<u8>>> {
        // Single calls change the map, so a panic leaves no partial change.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a file until it is complete. No digest begins like this.
const UNFINISHED: &str = ".unfinished";

/// Reads such a file from any position.
pub(super) trait BlobReader: Read + Seek + Send + Sync {}

impl<T: Read + Seek + Send + Sync> BlobReader for T {}

impl Blobs {
    /// Opens a file for reading. Returns `None` if it does not exist.
    pub(super) fn open(&self, name: &str) -> Result<Option<Box<dyn BlobReader>>, RegistryError> {
        let folder = match self {
            Self::Folder(folder) => folder,
            Self::Memory(files) => {
                let file = files.lock().get(name).cloned();
                return Ok(file.map(|file| Box::new(Cursor::new(file)) as Box<dyn BlobReader>));
            }
        };
        let file = found(folder, name, open_buffered)?;
        Ok(file.map(|file| Box::new(file) as Box<dyn BlobReader>))
    }

    /// Returns a file's content, or `None` if it does not exist.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, RegistryError> {
        let folder = match self {
            Self::Folder(folder) => folder,
            Self::Memory(files) => return Ok(files.lock().get(name).cloned()),
        };
        found(folder, name, |path| {
            let mut bytes = Vec::new();
            open_buffered(path)?.read_to_end(&mut bytes)?;
            Ok(bytes)
        })
    }

    /// Returns the code in a file, which has `bytes` bytes and these pieces. Returns `None` if the
    /// file does not exist, and an error if it has other content. If `first` names the pages that
    /// are used first, the other pages may still be loading.
    pub(super) fn code(
        &self,
        name: &str,
        bytes: u64,
        pieces: Pieces,
        first: Option<&PageSet>,
    ) -> Option<Result<LoadedCode, CodeError>> {
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

    /// Removes a file, if it exists.
    pub(super) fn remove(&self, name: &str) -> Result<(), RegistryError> {
        let folder = match self {
            Self::Folder(folder) => folder,
            Self::Memory(files) => {
                let removed = files.lock().remove(name);
                drop(removed);
                return Ok(());
            }
        };
        found(folder, name, |path| fs::remove_file(path)).map(drop)
    }

    /// Writes a file so that after a crash it is complete or absent. Only one writer at a time is
    /// allowed.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), RegistryError> {
        self.put(name, bytes, true)
    }

    /// Writes a file that may be missing or damaged after a crash. Only one writer at a time is
    /// allowed.
    pub(super) fn write_unsynced(&self, name: &str, bytes: &[u8]) -> Result<(), RegistryError> {
        self.put(name, bytes, false)
    }

    fn put(&self, name: &str, bytes: &[u8], is_durable: bool) -> Result<(), RegistryError> {
        let folder = match self {
            Self::Folder(folder) => folder,
            Self::Memory(files) => {
                files.lock().insert(name.into(), bytes.into());
                return Ok(());
            }
        };
        let unfinished = folder.join(UNFINISHED);
        let path = folder.join(name);
        let write = || -> io::Result<()> {
            let mut file = create_private(&unfinished)?;
            file.write_all(bytes)?;
            if is_durable {
                file.sync_all()?;
            }
            fs::rename(&unfinished, &path)?;
            if is_durable {
                // The rename is durable only once its folder is synced.
                File::open(folder)?.sync_all()?;
            }
            Ok(())
        };
        write().map_err(|error| {
            // On a full disk, the partial file would take the space that the next attempt needs.
            let _ = fs::remove_file(&unfinished);
            RegistryError::file(&path, error)
        })
    }

    /// Removes the files for which `keep` returns false.
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

/// Returns what `use_file` makes of a file of this name, or `None` if the file does not exist.
fn found<T>(
    folder: &Path,
    name: &str,
    use_file: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<Option<T>, RegistryError> {
    let path = folder.join(name);
    match use_file(&path) {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(RegistryError::file(&path, error)),
    }
}

/// Creates an empty file for the node's user alone, in place of one with this path.
pub(super) fn create_private(path: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

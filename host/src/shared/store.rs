//! A store: the place of entries, and their permissions.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use faasw_client::{Digest, FunctionName};
use faasw_pool::{ImageOrigin, open_trusted};

use super::{
    entry::Entry,
    error::{SharedError, at},
    note::Note,
    subject::{EntrySubject, Namespace},
};

/// The names in an entry's folder: the folder for pods, and its key.
pub(super) const ENTRY: &str = "entry";
pub(super) const KEY: &str = "key";
/// The lock file in a namespace's folder, held while entries are added and removed.
const LOCK: &str = ".lock";
/// Prefix of the names of folders that are not entries yet, or not any more. No digest starts with
/// it.
pub(super) const UNFINISHED_PREFIX: &str = ".passing-";
/// The mode bits of all users except the owner.
const OTHERS: u32 = 0o077;

/// A folder of entries that only root can access.
#[derive(Clone, Debug)]
pub struct EntryStore {
    pub(super) folder: PathBuf,
}

/// The place of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryLocation {
    /// The id of the entry.
    pub id: Digest,
    /// The folder that a pod can read ([`Entry::open`]), without the folders above it.
    pub folder: PathBuf,
    /// The file with the entry's key.
    pub key: PathBuf,
}

/// An entry in a list.
#[derive(Debug)]
pub struct ListedEntry {
    /// The namespace of the entry.
    pub namespace: Namespace,
    /// The place of the entry.
    pub found: EntryLocation,
    /// Bytes of all files in the entry.
    pub bytes: u64,
    /// The description of the entry, or the reason why it cannot be read.
    pub description: Result<EntryDescription, SharedError>,
}

/// The description of an entry.
#[derive(Clone, Debug)]
pub struct EntryDescription {
    /// The name of the function.
    pub name: FunctionName,
    /// Digest of the whole upload.
    pub upload: Digest,
    /// When the entry was made.
    pub made: SystemTime,
    /// The reason why no pod of this faasw on this machine uses the entry, if none does.
    pub stale: Option<&'static str>,
}

impl EntryStore {
    /// Opens the store in a folder.
    ///
    /// # Errors
    /// Returns an error if the folder is missing or no folder, if it does not belong to root, or if
    /// other users can access it.
    pub fn open(folder: &Path) -> Result<Self, SharedError> {
        let given = folder;
        let folder = at(given, fs::canonicalize(given))?;
        let status = at(given, fs::symlink_metadata(&folder))?;
        if !status.is_dir() {
            return at(given, Err(io::ErrorKind::NotADirectory.into()));
        }
        if status.uid() != 0 {
            return Err(SharedError::Owner(folder, status.uid()));
        }
        if status.mode() & OTHERS != 0 {
            return Err(SharedError::Open(folder));
        }
        Ok(Self { folder })
    }

    /// Returns the folder of the store.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the entry of `subject` for this build and machine, if there is one. Only its note is
    /// checked.
    ///
    /// # Errors
    /// Returns an error if the note cannot be read or opened, or [`SharedError::Misplaced`] if the
    /// entry is of something else.
    pub fn find(&self, subject: &EntrySubject) -> Result<Option<EntryLocation>, SharedError> {
        let found = self.place(subject)?;
        match self.note(&found) {
            Ok(note) if note.subject() == *subject => Ok(Some(found)),
            Ok(_) => Err(SharedError::Misplaced(found.folder)),
            Err(SharedError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the place of the entry of `subject`, whether it exists or not.
    pub(super) fn place(&self, subject: &EntrySubject) -> Result<EntryLocation, SharedError> {
        let id = subject.id(&ImageOrigin::here());
        let id = id.map_err(|error| SharedError::file(&self.folder, error))?;
        Ok(self.found(&subject.namespace, id))
    }

    fn found(&self, namespace: &Namespace, id: Digest) -> EntryLocation {
        let folder = self.of(namespace).join(id.to_string());
        EntryLocation {
            id,
            folder: folder.join(ENTRY),
            key: folder.join(KEY),
        }
    }

    /// Returns the folder of a namespace. A process that adds entries for it needs no other folder.
    #[must_use]
    pub fn of(&self, namespace: &Namespace) -> PathBuf {
        self.folder.join(namespace.as_str())
    }

    fn note(&self, found: &EntryLocation) -> Result<Note, SharedError> {
        let key = read_key(&found.key)?;
        Ok(Entry::open(&found.folder, &key)?.note().clone())
    }

    /// Lists all entries in order, of one namespace if `only` is set.
    ///
    /// # Errors
    /// Returns an error if a folder cannot be read.
    pub fn list(&self, only: Option<&Namespace>) -> Result<Vec<ListedEntry>, SharedError> {
        let mut all = Vec::new();
        let here = ImageOrigin::here();
        for namespace in names(&self.folder)? {
            let Ok(namespace) = Namespace::new(&namespace) else {
                continue;
            };
            if only.is_some_and(|only| *only != namespace) {
                continue;
            }
            for id in names(&self.of(&namespace))? {
                let Ok(id) = id.parse::<Digest>() else {
                    continue;
                };
                let found = self.found(&namespace, id);
                let description = self.note(&found).map(|note| EntryDescription {
                    stale: note.stale(&here),
                    name: note.name,
                    upload: note.upload,
                    made: note.made,
                });
                all.push(ListedEntry {
                    bytes: bytes_below(&found.folder).unwrap_or(0),
                    namespace: namespace.clone(),
                    found,
                    description,
                });
            }
        }
        Ok(all)
    }

    /// Removes an entry. Returns whether it existed. Pods that use it continue with what they have
    /// read, and make themselves what they would read later.
    ///
    /// # Errors
    /// Returns an error if the namespace cannot be locked, or if the entry cannot be renamed or
    /// deleted.
    pub fn remove(&self, namespace: &Namespace, id: Digest) -> Result<bool, SharedError> {
        let _lock = self.lock(namespace)?;
        self.sweep(namespace);
        self.remove_if_present(namespace, id)
    }

    /// Removes an entry while the caller holds the lock.
    pub(super) fn remove_if_present(
        &self,
        namespace: &Namespace,
        id: Digest,
    ) -> Result<bool, SharedError> {
        let of = self.of(namespace);
        let (from, gone) = (
            of.join(id.to_string()),
            of.join(format!("{UNFINISHED_PREFIX}{id}")),
        );
        match fs::rename(&from, &gone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            renamed => at(&from, renamed)?,
        }
        at(&gone, fs::remove_dir_all(&gone))?;
        Ok(true)
    }

    /// Locks a namespace against adding and removing, until the file is dropped.
    pub(super) fn lock(&self, namespace: &Namespace) -> Result<File, SharedError> {
        let path = self.of(namespace).join(LOCK);
        let locked = || {
            let mut options = File::options();
            options.write(true).create(true).truncate(false);
            let file = options.open(&path)?;
            file.lock()?;
            Ok(file)
        };
        at(&path, locked())
    }

    /// Removes leftovers that are not entries. The caller must hold the lock.
    pub(super) fn sweep(&self, namespace: &Namespace) {
        let of = self.of(namespace);
        for name in names(&of).unwrap_or_default() {
            if name.starts_with(UNFINISHED_PREFIX)
                && let Err(error) = fs::remove_dir_all(of.join(&name))
            {
                tracing::warn!(%namespace, name, %error, "an incomplete entry could not be \
                     removed");
            }
        }
    }
}

/// Returns the names in a folder, in order, or none if the folder does not exist.
fn names(folder: &Path) -> Result<Vec<String>, SharedError> {
    use io::ErrorKind::{NotADirectory, NotFound};
    let entries = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Ok(Vec::new()),
        entries => at(folder, entries)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        // Names that are not UTF-8 are not the store's.
        names.extend(at(folder, entry)?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// Returns the bytes of all files below a folder.
fn bytes_below(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let status = entry.metadata()?;
        bytes += if status.is_dir() {
            bytes_below(&entry.path())?
        } else {
            status.len()
        };
    }
    Ok(bytes)
}

/// Reads the key of an entry from a file that only root can write to. Other users may read it if
/// they can reach it.
///
/// # Errors
/// Returns an error if the file is missing, or if a user other than root may have written to it.
/// Also returns an error if it does not have the length of a key.
pub fn read_key(path: &Path) -> Result<[u8; Entry::KEY], SharedError> {
    let read = || {
        let mut key = Vec::new();
        let file = open_trusted(path)?;
        file.take(Entry::KEY as u64 + 1).read_to_end(&mut key)?;
        let size = |_| io::Error::other(format!("it does not have {} bytes", Entry::KEY));
        key.try_into().map_err(size)
    };
    at(path, read())
}

impl Note {
    /// Returns the reason why no pod of this faasw on this machine uses the entry, if none does.
    fn stale(&self, here: &ImageOrigin) -> Option<&'static str> {
        let subject = self.subject();
        self.check(&subject.name, subject.upload, &subject.options, here)
            .err()
    }
}

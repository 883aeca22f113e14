//! A store: where entries are, and who gets to them.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use faasw_client::{Digest, FunctionName};
use faasw_pool::{Origin, open_given};

use super::{
    entry::Entry,
    error::SharedError,
    note::Note,
    what::{Namespace, What},
};

/// In an entry's folder: what a pod is given, and the key to it.
pub(super) const ENTRY: &str = "entry";
pub(super) const KEY: &str = "key";
/// In a namespace's folder, held by who adds and removes.
const LOCK: &str = ".lock";
/// What the name of a folder begins with that is no entry: not yet, or not any more. No digest
/// begins so.
pub(super) const PASSING: &str = ".passing-";
/// Who is beside root.
const OTHERS: u32 = 0o077;

/// A folder of entries, which is root's alone.
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) folder: PathBuf,
}

/// Where an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it is called.
    pub id: Digest,
    /// What a pod is given to read ([`Entry::open`]): this folder and nothing above it.
    pub folder: PathBuf,
    /// The file with its key.
    pub key: PathBuf,
}

/// An entry of a store.
#[derive(Debug)]
pub struct Listed {
    /// Whose it is.
    pub namespace: Namespace,
    /// Where it is.
    pub found: Found,
    /// Bytes of all that is in it.
    pub bytes: u64,
    /// What it is of; why that cannot be told.
    pub told: Result<Told, SharedError>,
}

/// What an entry is of.
#[derive(Clone, Debug)]
pub struct Told {
    /// What the function is called.
    pub name: FunctionName,
    /// Of all that was deployed.
    pub upload: Digest,
    /// When it was made.
    pub made: SystemTime,
    /// Why no pod of this faasw on this machine finds it, if none does.
    pub stale: Option<&'static str>,
}

impl Store {
    /// The store in a folder.
    ///
    /// # Errors
    /// When it is not there, not root's, or open to others.
    pub fn open(folder: &Path) -> Result<Self, SharedError> {
        let failed = |error| SharedError::file(folder, error);
        let folder = fs::canonicalize(folder).map_err(failed)?;
        let status = fs::symlink_metadata(&folder).map_err(failed)?;
        if !status.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        if status.uid() != 0 {
            return Err(SharedError::Owner(folder, status.uid()));
        }
        if status.mode() & OTHERS != 0 {
            return Err(SharedError::Open(folder));
        }
        Ok(Self { folder })
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The entry of this that is good here, if there is one; it is sound as far as its note goes.
    ///
    /// # Errors
    /// When it is damaged, or an entry of something else.
    pub fn find(&self, what: &What) -> Result<Option<Found>, SharedError> {
        let found = self.place(what)?;
        match self.note(&found) {
            Ok(note) if note.what() == *what => Ok(Some(found)),
            Ok(_) => Err(SharedError::Misplaced(found.folder)),
            Err(SharedError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Where the entry of this is, or would be.
    pub(super) fn place(&self, what: &What) -> Result<Found, SharedError> {
        let id = what.id(&Origin::here());
        let id = id.map_err(|error| SharedError::file(&self.folder, error))?;
        Ok(self.found(&what.namespace, id))
    }

    fn found(&self, namespace: &Namespace, id: Digest) -> Found {
        let folder = self.of(namespace).join(id.to_string());
        Found {
            id,
            folder: folder.join(ENTRY),
            key: folder.join(KEY),
        }
    }

    /// The folder of a namespace. Who adds for that needs no other.
    #[must_use]
    pub fn of(&self, namespace: &Namespace) -> PathBuf {
        self.folder.join(namespace.as_str())
    }

    fn note(&self, found: &Found) -> Result<Note, SharedError> {
        let key = read_key(&found.key)?;
        Ok(Entry::open(&found.folder, &key)?.note().clone())
    }

    /// All entries, of one namespace if that is said, in order.
    ///
    /// # Errors
    /// When a folder of it cannot be read.
    pub fn list(&self, only: Option<&Namespace>) -> Result<Vec<Listed>, SharedError> {
        let mut all = Vec::new();
        let here = Origin::here();
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
                let told = self.note(&found).map(|note| Told {
                    stale: note.stale(&here),
                    name: note.name,
                    upload: note.upload,
                    made: note.made,
                });
                all.push(Listed {
                    bytes: bytes_below(&found.folder).unwrap_or(0),
                    namespace: namespace.clone(),
                    found,
                    told,
                });
            }
        }
        Ok(all)
    }

    /// Removes an entry; says whether there was one. Pods that have it go on with what they have
    /// read, and make themselves what they read later.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self, namespace: &Namespace, id: Digest) -> Result<bool, SharedError> {
        let _lock = self.lock(namespace)?;
        self.sweep(namespace);
        self.take_away(namespace, id)
    }

    /// The same, for who holds the lock.
    pub(super) fn take_away(&self, namespace: &Namespace, id: Digest) -> Result<bool, SharedError> {
        let of = self.of(namespace);
        let (from, gone) = (of.join(id.to_string()), of.join(format!("{PASSING}{id}")));
        match fs::rename(&from, &gone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            renamed => renamed.map_err(|error| SharedError::file(&from, error))?,
        }
        fs::remove_dir_all(&gone).map_err(|error| SharedError::file(&gone, error))?;
        Ok(true)
    }

    /// Keeps others from adding to a namespace and removing from it, for as long as it is there.
    pub(super) fn lock(&self, namespace: &Namespace) -> Result<File, SharedError> {
        let path = self.of(namespace).join(LOCK);
        let locked = || {
            let mut options = File::options();
            let file = options
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)?;
            file.lock()?;
            Ok(file)
        };
        locked().map_err(|error: io::Error| SharedError::file(&path, error))
    }

    /// Removes what was left of a namespace's that is no entry: only while the lock is held.
    pub(super) fn sweep(&self, namespace: &Namespace) {
        let of = self.of(namespace);
        for name in names(&of).unwrap_or_default() {
            if name.starts_with(PASSING)
                && let Err(error) = fs::remove_dir_all(of.join(&name))
            {
                tracing::warn!(%namespace, name, %error, "what is no entry stays");
            }
        }
    }
}

/// Names in a folder, in order; none where there is no folder.
fn names(folder: &Path) -> Result<Vec<String>, SharedError> {
    let failed = |error| SharedError::file(folder, error);
    let entries = match fs::read_dir(folder) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        entries => entries.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        // Nothing of ours is called otherwise.
        names.extend(entry.map_err(failed)?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// Bytes of the files below a folder.
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

/// Reads the key of an entry from a file that root alone may write to; others may read it, who are
/// let come so far.
///
/// # Errors
/// When it is not there, somebody else may have written to it, or it is no key.
pub fn read_key(path: &Path) -> Result<[u8; Entry::KEY], SharedError> {
    let read = || {
        let mut key = Vec::new();
        let file = open_given(path)?;
        file.take(Entry::KEY as u64 + 1).read_to_end(&mut key)?;
        let size = |_| io::Error::other(format!("it has not {} bytes", Entry::KEY));
        key.try_into().map_err(size)
    };
    read().map_err(|error| SharedError::file(path, error))
}

impl Note {
    /// Why no pod of this faasw on this machine finds it, if none does.
    fn stale(&self, here: &Origin) -> Option<&'static str> {
        let what = self.what();
        self.check(&what.name, what.upload, &what.options, here)
            .err()
    }
}

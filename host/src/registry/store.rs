//! The registry's transactions.
//!
//! After a failed read or write, redb rejects every call until the database is opened again. So a
//! failure closes the database here, and the next call opens it: a disk that was full for a moment
//! does not end the node. A commit that failed may still have reached the file. Every change
//! increments a revision, by which such a commit is detected.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use redb::{
    Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, WriteTransaction,
    backends::InMemoryBackend,
};

use super::{
    RegistryError,
    record::{FORMAT, FORMAT_WITH_FILES},
    tables::{FORMAT_KEY, META, make_tables},
};
use crate::redb_file;

/// The size of redb's page cache in bytes. The registry is small and rarely read, and the default
/// of 1 GiB is meant for large databases.
const CACHE: usize = 1 << 20;

const REVISION_KEY: &str = "revision";

/// A database that is opened when it is needed.
#[derive(Debug)]
pub(super) struct Store {
    /// `None` for a store in memory.
    file: Option<PathBuf>,
    /// `None` after a failure, until the next call.
    database: Mutex<Option<Database>>,
}

impl Store {
    /// Opens or creates the store in this file.
    pub(super) fn open(file: PathBuf) -> Result<Self, RegistryError> {
        let database = open(&file)?;
        Ok(Self {
            file: Some(file),
            database: Mutex::new(Some(database)),
        })
    }

    /// Creates a store that ends with the process.
    pub(super) fn in_memory() -> Result<Self, RegistryError> {
        let database = Database::builder()
            .set_cache_size(CACHE)
            .create_with_backend(InMemoryBackend::new())?;
        check(&database)?;
        Ok(Self {
            file: None,
            database: Mutex::new(Some(database)),
        })
    }

    /// Reads one state of the store.
    pub(super) fn read<T>(
        &self,
        work: impl FnOnce(&ReadTransaction) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let mut open = self.lock();
        let read = self
            .database(&mut open)?
            .begin_read()
            .map_err(RegistryError::from)
            .and_then(|state| work(&state));
        self.close_if_failed(&mut open, read)
    }

    /// Changes the store: either everything that `work` does, or nothing.
    pub(super) fn change<T>(
        &self,
        work: impl FnOnce(&WriteTransaction) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let mut open = self.lock();
        let database = self.database(&mut open)?;
        let before = revision(database);
        let (done, committed) = match change(database, work) {
            Ok(changed) => changed,
            Err(error) => return self.close_if_failed(&mut open, Err(error)),
        };
        match self.close_if_failed(&mut open, committed) {
            Ok(()) => Ok(done),
            // The commit counts if it is in the file nevertheless.
            Err(error) => match (before, self.database(&mut open).and_then(revision)) {
                (Ok(before), Ok(now)) if now > before => Ok(done),
                _ => Err(error),
            },
        }
    }

    fn database<'a>(&self, open: &'a mut Option<Database>) -> Result<&'a Database, RegistryError> {
        match open {
            Some(database) => Ok(database),
            closed => {
                let file = self.file.as_deref().ok_or(RegistryError::Interrupted)?;
                Ok(closed.insert(self::open(file)?))
            }
        }
    }

    fn close_if_failed<T>(
        &self,
        open: &mut Option<Database>,
        result: Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let failed = matches!(
            result,
            Err(RegistryError::Store(_) | RegistryError::NoSpace)
        );
        if failed && self.file.is_some() {
            // Dropped before another is opened, because each locks the file.
            *open = None;
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Option<Database>> {
        // A transaction that a panic interrupted was not committed.
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of the work of a change, and the result of its commit.
type ChangeResult<T> = (T, Result<(), RegistryError>);

fn change<T>(
    database: &Database,
    work: impl FnOnce(&WriteTransaction) -> Result<T, RegistryError>,
) -> Result<ChangeResult<T>, RegistryError> {
    let transaction = database.begin_write()?;
    let done = work(&transaction)?;
    {
        let mut meta = transaction.open_table(META)?;
        let revision = meta.get(REVISION_KEY)?.map_or(0, |number| number.value());
        meta.insert(REVISION_KEY, revision + 1)?;
    }
    Ok((done, transaction.commit().map_err(RegistryError::from)))
}

fn revision(database: &Database) -> Result<u64, RegistryError> {
    let meta = database.begin_read()?.open_table(META)?;
    Ok(meta.get(REVISION_KEY)?.map_or(0, |number| number.value()))
}

/// Opens the database, or creates one.
fn open(path: &Path) -> Result<Database, RegistryError> {
    let failed = |error| match error {
        redb::Error::Io(error) => RegistryError::file(path, error),
        error => error.into(),
    };
    let database = redb_file::open(path, CACHE, check, failed)?;
    check(&database)?;
    Ok(database)
}

/// Rejects an unknown format, and makes the tables of a new store. A store that has its tables is
/// not written to, so that it opens on a full disk, too.
fn check(database: &Database) -> Result<(), RegistryError> {
    let state = database.begin_read()?;
    let format = match state.open_table(META) {
        Ok(meta) => meta.get(FORMAT_KEY)?.map(|format| format.value()),
        Err(redb::TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(error.into()),
    };
    match format {
        Some(FORMAT..=FORMAT_WITH_FILES) => return Ok(()),
        Some(found) => return Err(RegistryError::Format { found }),
        None => {}
    }
    let transaction = database.begin_write()?;
    transaction.open_table(META)?.insert(FORMAT_KEY, FORMAT)?;
    // Readers find all tables from now on.
    make_tables(&transaction)?;
    Ok(transaction.commit()?)
}

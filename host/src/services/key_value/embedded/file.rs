//! The store's file, opened when it is needed.
//!
//! After a failed read or write, redb rejects every call until the file is opened again, as in the
//! registry (docs/decisions/0010). So a failure closes the file, and the next call opens it.
//! Readers and the writer share the open file, so no read waits for a commit.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use redb::{
    Database, Key, ReadOnlyTable, ReadableDatabase as _, TableDefinition, Value,
    backends::InMemoryBackend,
};

use super::{
    super::{StoreError, failure_log::FailureLog},
    apply::{COMMITS, PAIRS, USES},
};
use crate::redb_file;

/// The size of redb's page cache in bytes. The kernel has a page cache of its own.
const CACHE: usize = 16 << 20;

/// A database that may be closed.
#[derive(Debug)]
pub(super) struct StoreFile {
    /// The file's path, or a placeholder for a store in memory.
    path: PathBuf,
    in_memory: bool,
    database: RwLock<Option<Database>>,
    failure_log: FailureLog,
}

impl StoreFile {
    /// Returns a file that is opened or created at its first use. So a damaged file does not
    /// prevent a node from starting.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            in_memory: false,
            database: RwLock::new(None),
            failure_log: FailureLog::default(),
        }
    }

    /// Creates a store that ends with the process.
    pub(super) fn in_memory() -> Result<Self, StoreError> {
        let path = PathBuf::from("(memory)");
        let database = Database::builder()
            .set_cache_size(CACHE)
            .create_with_backend(InMemoryBackend::new())
            .map_err(|error| StoreError::of(&path, error))?;
        make_tables(&database, &path)?;
        Ok(Self {
            path,
            in_memory: true,
            database: RwLock::new(Some(database)),
            failure_log: FailureLog::default(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` with the open database, and closes it if that fails. redb panics over some kinds
    /// of damage to the file; that counts as a failure, too.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let work = AssertUnwindSafe(|| match &*self.open()? {
            Some(database) => work(database),
            None => Err(StoreError::Interrupted),
        });
        let done = catch_unwind(work).unwrap_or_else(|_| {
            Err(StoreError::File {
                path: self.path.clone(),
                why: "the database gave up, as it does over a damaged page".to_owned(),
            })
        });
        if let Err(error) = &done
            && error.closes_store()
        {
            self.failure_log.log_failure(error);
            if !self.in_memory {
                self.close();
            }
        }
        done
    }

    /// Reads a table as the last commit left it.
    pub(super) fn read<K: Key + 'static, V: Value + 'static, T>(
        &self,
        table: TableDefinition<'static, K, V>,
        work: impl FnOnce(ReadOnlyTable<K, V>) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        self.with(|database| read(database, &self.path, table, work))
    }

    /// Closes the database, so that the next call opens it again.
    fn close(&self) {
        let mut open = self
            .database
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let closed = open.take();
        // Dropping a database that has panicked may panic again.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(closed)));
    }

    /// Returns the database, open for as long as the guard is held.
    fn open(&self) -> Result<RwLockReadGuard<'_, Option<Database>>, StoreError> {
        let open = self.database.read().unwrap_or_else(PoisonError::into_inner);
        if open.is_some() {
            return Ok(open);
        }
        drop(open);
        let mut open = self
            .database
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if open.is_none() {
            *open = Some(self::open(&self.path)?);
        }
        // The downgrade keeps the lock, so the database is not closed in between.
        Ok(RwLockWriteGuard::downgrade(open))
    }
}

fn open(path: &Path) -> Result<Database, StoreError> {
    let make = |database: &Database| make_tables(database, path);
    let failed = |error| StoreError::of(path, error);
    let database = redb_file::open(path, CACHE, make, failed)?;
    // This read fails now if the file is a different database.
    read(&database, path, PAIRS, |_| Ok(()))?;
    Ok(database)
}

/// Reads a table as the last commit left it.
fn read<K: Key + 'static, V: Value + 'static, T>(
    database: &Database,
    path: &Path,
    table: TableDefinition<'static, K, V>,
    work: impl FnOnce(ReadOnlyTable<K, V>) -> Result<T, redb::Error>,
) -> Result<T, StoreError> {
    let read = || work(database.begin_read()?.open_table(table)?);
    read().map_err(|error| StoreError::of(path, error))
}

/// Makes all tables, so that readers find them.
fn make_tables(database: &Database, path: &Path) -> Result<(), StoreError> {
    let make = || {
        let change = database.begin_write()?;
        change.open_table(PAIRS)?;
        change.open_table(USES)?;
        change.open_table(COMMITS)?;
        Ok(change.commit()?)
    };
    make().map_err(|error: redb::Error| StoreError::of(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_the_file_is_reopened() {
        let folder = tempfile::tempdir().unwrap();
        let file = StoreFile::new(folder.path().join("kv.redb"));
        let keys = || file.read(PAIRS, |pairs| Ok(pairs.range::<(&str, &[u8])>(..)?.count()));
        assert_eq!(keys().unwrap(), 0);
        for _ in 0..2 {
            let failed = file.with(|_| -> Result<(), StoreError> { panic!("a damaged page") });
            assert!(matches!(failed, Err(StoreError::File { .. })), "{failed:?}");
            assert!(file.database.read().unwrap().is_none());
        }
        assert_eq!(keys().unwrap(), 0);
    }
}

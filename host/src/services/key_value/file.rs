//! The store's file, opened when it is needed.
//!
//! redb refuses everything after a failed read or write until the file is opened again, as in the
//! registry (docs/decisions/0010): a failure closes it, the next call opens it anew. Readers and
//! the writer share it meanwhile, so no read waits for a commit.

use std::{
    fs::{self, File},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use faasw_text::Line;
use redb::{Database, ReadableDatabase as _, backends::InMemoryBackend};

use super::{
    StoreError,
    change::{COMMITS, PAIRS, USES},
};

/// redb's page cache, in bytes; the system has its own.
const CACHE: usize = 16 << 20;

/// How often the node's log has that the file cannot be used: functions may ask without end.
const TOLD: Duration = Duration::from_secs(10);

/// A database that may be closed.
#[derive(Debug)]
pub(super) struct StoreFile {
    /// Where it is, or a word for a store in memory.
    path: PathBuf,
    in_memory: bool,
    database: RwLock<Option<Database>>,
    /// When the last failure was told.
    told: Mutex<Option<Instant>>,
}

impl StoreFile {
    /// A file that is opened, or begun, at the first use: one that is damaged keeps no node from
    /// starting.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            in_memory: false,
            database: RwLock::new(None),
            told: Mutex::default(),
        }
    }

    /// A store that ends with the process.
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
            told: Mutex::default(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Does something with the open database; closes it if that fails.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.open_if_closed()
            .inspect_err(|error| self.tell(error))?;
        let done = {
            let open = self.database.read().unwrap_or_else(PoisonError::into_inner);
            work(open.as_ref().ok_or(StoreError::Interrupted)?)
        };
        if let Err(error) = &done
            && error.closes()
            && !self.in_memory
        {
            self.tell(error);
            let mut open = self
                .database
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            *open = None;
        }
        done
    }

    /// Says in the node's log that the file cannot be used, now and then.
    fn tell(&self, error: &StoreError) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= TOLD) {
            *told = Some(Instant::now());
            tracing::error!(error = %Line(error), "the key-value stores of functions cannot be used");
        }
    }

    fn open_if_closed(&self) -> Result<(), StoreError> {
        let is_open = {
            let open = self.database.read().unwrap_or_else(PoisonError::into_inner);
            open.is_some()
        };
        if is_open {
            return Ok(());
        }
        let mut open = self
            .database
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if open.is_none() {
            *open = Some(self::open(&self.path)?);
        }
        Ok(())
    }
}

/// Opens the file. A new one is made aside and renamed when it is whole: redb does not know
/// one again whose making was cut off.
fn open(path: &Path) -> Result<Database, StoreError> {
    let failed = |error: std::io::Error| StoreError::io(path, &error);
    if !path.try_exists().map_err(failed)? {
        let unfinished = path.with_extension("unfinished");
        // Closed before it is renamed, by which all of it is written.
        make_tables(&open_file(&unfinished, true)?, path)?;
        fs::rename(&unfinished, path).map_err(failed)?;
        let folder = path.parent().unwrap_or(path);
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed)?;
    }
    let database = open_file(path, false)?;
    // Whoever put another database there is told now.
    let state = database
        .begin_read()
        .map_err(|error| StoreError::of(path, error))?;
    state
        .open_table(PAIRS)
        .map_err(|error| StoreError::of(path, error))?;
    drop(state);
    Ok(database)
}

fn open_file(path: &Path, empty: bool) -> Result<Database, StoreError> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(empty)
        .truncate(empty)
        .mode(0o600)
        .open(path)
        .map_err(|error| StoreError::io(path, &error))?;
    Database::builder()
        .set_cache_size(CACHE)
        .create_file(file)
        .map_err(|error| StoreError::of(path, error))
}

/// Readers find all tables from now on.
fn make_tables(database: &Database, path: &Path) -> Result<(), StoreError> {
    let change = database
        .begin_write()
        .map_err(|error| StoreError::of(path, error))?;
    change
        .open_table(PAIRS)
        .map_err(|error| StoreError::of(path, error))?;
    change
        .open_table(USES)
        .map_err(|error| StoreError::of(path, error))?;
    change
        .open_table(COMMITS)
        .map_err(|error| StoreError::of(path, error))?;
    change.commit().map_err(|error| StoreError::of(path, error))
}

//! The store in a file of the node's own, with a namespace for each function and each shared store.
//!
//! A write is answered once it is on disk. A write that failed is not in the file: if the end of a
//! commit could not be written, the writer looks for the commit in the file. Reads see the last
//! commit. Reads and writes are queued by function ([`fair`](super::fair)), and a listing gives way
//! after each [`PIECE`] keys. Everything here blocks except [`Embedded::change`],
//! [`Embedded::read`] and [`Embedded::list`], which call the others off the runtime's threads.

mod apply;
mod file;
mod listing;
mod recent;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
};

use redb::{Key, ReadOnlyTable, ReadableTable as _, TableDefinition, Value};
use tokio::sync::oneshot;

use super::{Change, Changed, NamespaceUsage, Page, Quota, Start, StoreError, fair::FairPermits};
use apply::{PAIRS, USES};
use file::StoreFile;
use listing::Listing;
use recent::RecentValues;
use writer::{Job, Jobs};

/// Entries that a listing reads in one turn. That takes less than a millisecond; then other callers
/// get their turn.
const PIECE: usize = 1024;

/// The store of a node.
#[derive(Debug)]
pub(crate) struct Embedded {
    file: Arc<StoreFile>,
    recent: Arc<RecentValues>,
    /// Changes that wait to be written.
    jobs: Arc<Jobs>,
    writer: Option<JoinHandle<()>>,
    /// Turns to read. The limits of a function do not count the CPU time of its reads.
    reading: Arc<FairPermits>,
}

/// Returns the number of simultaneous reads: half the number of processors, so that the other half
/// is left for other work.
fn readers() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).max(1)
}

impl Drop for Embedded {
    /// Waits for the commit under way, so that the file is free. A waiting change would borrow the
    /// store, so no caller waits for a change now, and the writer does not begin a change without a
    /// caller. So this takes one commit at most.
    fn drop(&mut self) {
        self.jobs.close();
        if let Some(writer) = self.writer.take() {
            // Callers that waited for a writer that panicked have received an error.
            let _ = writer.join();
        }
    }
}

impl Embedded {
    /// Returns the store in this file, which is created at its first use.
    pub(crate) fn in_file(path: PathBuf) -> Result<Self, StoreError> {
        Self::of(StoreFile::new(path), readers())
    }

    /// Creates a store that ends with the process.
    pub(crate) fn in_memory() -> Result<Self, StoreError> {
        Self::of(StoreFile::in_memory()?, readers())
    }

    fn of(file: StoreFile, readers: usize) -> Result<Self, StoreError> {
        let file = Arc::new(file);
        let jobs = Arc::new(Jobs::default());
        let (written, recent) = (Arc::clone(&file), Arc::new(RecentValues::default()));
        let (changed, waiting) = (Arc::clone(&recent), Arc::clone(&jobs));
        // The thread ends when the jobs are closed and all of them are written.
        let writer = thread::Builder::new()
            .name("key-value".into())
            .spawn(move || writer::run(&written, &changed, &waiting))
            .map_err(|error| StoreError::io(file.path(), &error))?;
        Ok(Self {
            file,
            recent,
            jobs,
            writer: Some(writer),
            reading: FairPermits::new(readers, readers),
        })
    }

    /// Runs `work`, which may block, when it is the turn of `owner`. A caller that drops the future
    /// leaves the queue.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        owner: &str,
        work: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = self.reading.take(owner).await;
        let turn = turn.ok_or(StoreError::Interrupted)?;
        let store = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            // The turn lasts until the work is done, whether or not the caller still waits.
            let _turn = turn;
            work(&store)
        });
        done.await.unwrap_or(Err(StoreError::Interrupted))
    }

    /// Reads at most `most` keys from `start` on, in order. Each piece of the listing is a turn of
    /// its own and sees the last commit before it.
    pub(crate) async fn list(
        self: &Arc<Self>,
        owner: &str,
        namespace: String,
        start: Start,
        most: usize,
    ) -> Result<Page, StoreError> {
        let mut listing = Listing::new(namespace, start, most)?;
        loop {
            let piece = move |store: &Self| store.list_piece(listing);
            listing = self.read(owner, piece).await?;
            if let Some(page) = listing.page() {
                return Ok(page);
            }
        }
    }

    /// Changes a namespace for `owner`. Returns once the change is on disk.
    pub(crate) async fn change(
        &self,
        owner: &str,
        namespace: String,
        quota: Quota,
        change: Change,
    ) -> Result<Changed, StoreError> {
        let (answer, answered) = oneshot::channel();
        let job = Job {
            namespace,
            quota,
            change,
            answer,
        };
        // Dropping it takes the change back, unless it was begun.
        let _waiting = self.jobs.push(owner, job);
        answered.await.map_err(|_| StoreError::Interrupted)?
    }

    /// Reads a table. After a failure the file is opened again, and all values in `recent` are
    /// dropped.
    fn read_table<K: Key + 'static, V: Value + 'static, T>(
        &self,
        table: TableDefinition<'static, K, V>,
        work: impl FnOnce(ReadOnlyTable<K, V>) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let read = self.file.read(table, work);
        read.inspect_err(|_| self.recent.forget_all())
    }

    /// Returns the values of these keys, all of one commit, unless they take more than `most` bytes
    /// together. Blocks.
    pub(crate) fn get(
        &self,
        namespace: &str,
        keys: &[Vec<u8>],
        most: usize,
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mark = self.recent.mark(namespace);
        let values = self.read_table(PAIRS, |pairs| {
            let mut values = Vec::with_capacity(keys.len());
            let mut bytes = 0;
            for key in keys {
                let value = pairs.get((namespace, key.as_slice()))?;
                bytes += value.as_ref().map_or(0, |value| value.value().len());
                if bytes > most {
                    return Ok(None);
                }
                values.push(value.map(|value| value.value().to_vec()));
            }
            Ok(Some(values))
        })?;
        let values = values.ok_or(StoreError::TooMuch(most))?;
        if let Some(mark) = mark {
            self.recent.keep(mark, namespace, keys, &values);
        }
        Ok(values)
    }

    /// Returns these values without waiting, if the keys are few and all of their values are in
    /// memory.
    pub(crate) fn cached(&self, namespace: &str, keys: &[Vec<u8>]) -> Option<Vec<Option<Vec<u8>>>> {
        self.recent.values(namespace, keys)
    }

    /// Whether a key exists. Blocks.
    pub(crate) fn exists(&self, namespace: &str, key: &[u8]) -> Result<bool, StoreError> {
        self.read_table(PAIRS, |pairs| Ok(pairs.get((namespace, key))?.is_some()))
    }

    /// Reads a listing's next [`PIECE`] entries. Blocks.
    fn list_piece(&self, mut listing: Listing) -> Result<Listing, StoreError> {
        self.read_table(PAIRS, move |pairs| {
            listing.read(&pairs, PIECE)?;
            Ok(listing)
        })
    }

    /// Lists the keys and bytes of each namespace in the order of their names. Blocks.
    pub(crate) fn uses(&self) -> Result<Vec<NamespaceUsage>, StoreError> {
        self.read_table(USES, |uses| {
            let mut all = Vec::new();
            for entry in uses.iter()? {
                let (namespace, of) = entry?;
                let (keys, bytes) = of.value();
                all.push(NamespaceUsage {
                    namespace: namespace.value().to_owned(),
                    keys,
                    bytes,
                });
            }
            Ok(all)
        })
    }
}

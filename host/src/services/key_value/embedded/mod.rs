//! The store in a file of the node's own, with a namespace for each function and each shared store.
//!
//! A write is answered when it is on disk, and one that failed is not there: a commit whose end could not be
//! written is looked for in the file. What waits to be written takes [`WAITING`] bytes at most, and further
//! changes wait in whoever makes them, in their order. Reads see the last commit. Everything here
//! blocks but [`Embedded::change`] and [`Embedded::read`], by which others are called off the runtime's threads.

mod apply;
mod file;
mod recent;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use redb::{Key, ReadOnlyTable, ReadableTable as _, TableDefinition, Value};
use tokio::sync::{Semaphore, oneshot};

use super::{Change, Changed, Page, Quota, Start, StoreError, Use};
use apply::{PAIRS, USES};
use file::StoreFile;
use recent::Recent;
use writer::Job;

/// Most KiB of changes that wait to be written.
const WAITING: u32 = 64 << 10;

/// What a change takes beside its keys and values, in KiB.
const EACH: u32 = 4;

/// The store of a node.
#[derive(Debug)]
pub(crate) struct Embedded {
    file: Arc<StoreFile>,
    recent: Arc<Recent>,
    /// Nothing once it is dropped.
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
    /// For what waits to be written.
    room: Arc<Semaphore>,
    /// Turns to read. No limit of a function counts what its reads take of the processors.
    reading: Arc<Semaphore>,
}

/// Reads that are made at once: half of the processors' number, so that the rest is left to all else.
fn readers() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).max(1)
}

impl Drop for Embedded {
    /// Waits until what is being written is, and the file is free. Nobody waits for any change then, for
    /// that borrows the store, and what nobody waits for is not begun: this takes one commit at most.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            // Whoever waited for a writer that panicked was told.
            let _ = writer.join();
        }
    }
}

impl Embedded {
    /// The store in this file, which is made when it is first used.
    pub(crate) fn in_file(path: PathBuf) -> Result<Self, StoreError> {
        Self::of(StoreFile::new(path))
    }

    /// A store that ends with the process.
    pub(crate) fn in_memory() -> Result<Self, StoreError> {
        Self::of(StoreFile::in_memory()?)
    }

    fn of(file: StoreFile) -> Result<Self, StoreError> {
        let file = Arc::new(file);
        let (jobs, waiting) = mpsc::channel();
        let (written, recent) = (Arc::clone(&file), Arc::new(Recent::default()));
        let changed = Arc::clone(&recent);
        // It ends with the sender, once all that waits is written.
        let writer = thread::Builder::new()
            .name("key-value".into())
            .spawn(move || writer::run(&written, &changed, &waiting))
            .map_err(|error| StoreError::io(file.path(), &error))?;
        Ok(Self {
            file,
            recent,
            jobs: Some(jobs),
            writer: Some(writer),
            room: Arc::new(Semaphore::new(WAITING as usize)),
            reading: Arc::new(Semaphore::new(readers())),
        })
    }

    /// Reads where that may block, when it is its turn. Whoever goes before leaves the queue.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = Arc::clone(&self.reading).acquire_owned().await;
        let turn = turn.map_err(|_| StoreError::Interrupted)?;
        let store = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            // Until it is done, whether somebody waits for it still or not.
            let _turn = turn;
            work(&store)
        });
        done.await.unwrap_or(Err(StoreError::Interrupted))
    }

    /// Changes a namespace; comes back when the change is on disk.
    pub(crate) async fn change(
        &self,
        namespace: String,
        quota: Quota,
        change: Change,
    ) -> Result<Changed, StoreError> {
        let size = u32::try_from(change.bytes() >> 10).unwrap_or(WAITING);
        let size = size.saturating_add(EACH).min(WAITING);
        let room = Arc::clone(&self.room).acquire_many_owned(size).await;
        let room = room.map_err(|_| StoreError::Interrupted)?;
        let (answer, answered) = oneshot::channel();
        let job = Job {
            namespace,
            quota,
            change,
            answer,
            room,
        };
        let jobs = self.jobs.as_ref().ok_or(StoreError::Interrupted)?;
        jobs.send(job).map_err(|_| StoreError::Interrupted)?;
        answered.await.map_err(|_| StoreError::Interrupted)?
    }

    /// Reads a table. After a failure the file is opened anew, and nothing of it is known.
    fn look_into<K: Key + 'static, V: Value + 'static, T>(
        &self,
        table: TableDefinition<'static, K, V>,
        work: impl FnOnce(ReadOnlyTable<K, V>) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let read = self.file.read(table, work);
        read.inspect_err(|_| self.recent.forget_all())
    }

    /// The values of these keys, all of one commit, if they take `most` bytes together. Blocks.
    pub(crate) fn get(
        &self,
        namespace: &str,
        keys: &[Vec<u8>],
        most: usize,
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mark = self.recent.mark(namespace);
        let values = self.look_into(PAIRS, |pairs| {
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

    /// The same without waiting for anything, if they are few and all of them are known.
    pub(crate) fn known(&self, namespace: &str, keys: &[Vec<u8>]) -> Option<Vec<Option<Vec<u8>>>> {
        self.recent.values(namespace, keys)
    }

    /// Whether there is a key. Blocks.
    pub(crate) fn exists(&self, namespace: &str, key: &[u8]) -> Result<bool, StoreError> {
        self.look_into(PAIRS, |pairs| Ok(pairs.get((namespace, key))?.is_some()))
    }

    /// At most `most` keys from `start` on, in their order. Blocks.
    pub(crate) fn keys(
        &self,
        namespace: &str,
        start: &Start,
        most: usize,
    ) -> Result<Page, StoreError> {
        let (behind, mut passed) = match start {
            Start::Behind(key) => (key.as_slice(), 0),
            Start::Number(_) => (Default::default(), start.counted()?),
        };
        self.look_into(PAIRS, |pairs| {
            let mut keys = Vec::new();
            for entry in pairs.range((namespace, behind)..)? {
                let (found, _) = entry?;
                let (whose, key) = found.value();
                if whose != namespace {
                    break;
                }
                // No key is empty, so the first one is behind an empty one.
                if key == behind {
                    continue;
                }
                if passed > 0 {
                    passed -= 1;
                    continue;
                }
                if keys.len() == most {
                    return Ok((keys, true));
                }
                keys.push(key.to_vec());
            }
            Ok((keys, false))
        })
    }

    /// What each namespace has, in the order of their names. Blocks.
    pub(crate) fn uses(&self) -> Result<Vec<Use>, StoreError> {
        self.look_into(USES, |uses| {
            let mut all = Vec::new();
            for entry in uses.iter()? {
                let (namespace, of) = entry?;
                let (keys, bytes) = of.value();
                all.push(Use {
                    namespace: namespace.value().to_owned(),
                    keys,
                    bytes,
                });
            }
            Ok(all)
        })
    }
}

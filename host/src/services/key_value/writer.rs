//! The one writer: what is waiting becomes one transaction and one sync, then all are answered.

use std::sync::{Arc, mpsc};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, WriteTransaction};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    StoreError,
    change::{COMMITS, Change, Changed, LAST, Quota, apply},
    file::StoreFile,
};

/// Most changes of one transaction, so that nobody waits for all that ever come.
const TOGETHER: usize = 256;

/// A change that waits, and who waits for it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) namespace: String,
    pub(super) quota: Quota,
    pub(super) change: Change,
    pub(super) answer: oneshot::Sender<Result<Changed, StoreError>>,
    /// Among all that waits.
    pub(super) room: OwnedSemaphorePermit,
}

/// A change that was tried, and what is to be said of it once the rest is known.
struct Tried {
    answer: oneshot::Sender<Result<Changed, StoreError>>,
    done: Result<Changed, StoreError>,
    _room: OwnedSemaphorePermit,
}

/// What became of a transaction.
enum Committed {
    /// It is on disk, or there was nothing to be written.
    Yes,
    /// Nothing of it is.
    No(StoreError),
    /// Writing its end failed: it has this number if it is there.
    Perhaps(u64, StoreError),
}

/// Writes until nobody is left who could have anything written.
pub(super) fn run(file: &Arc<StoreFile>, jobs: &mpsc::Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let mut together = vec![first];
        together.extend(jobs.try_iter().take(TOGETHER - 1));
        // Whoever has gone was told nothing, and so may find nothing.
        together.retain(|job| !job.answer.is_closed());
        if !together.is_empty() {
            write(file, together);
        }
    }
}

fn write(file: &StoreFile, mut jobs: Vec<Job>) {
    let mut tried = Vec::with_capacity(jobs.len());
    let mut number = None;
    let mut written = file.with(
        |database| match commit(database, file, &mut jobs, &mut tried) {
            Committed::Yes => Ok(()),
            Committed::No(error) => Err(error),
            Committed::Perhaps(sequence, error) => {
                number = Some(sequence);
                Err(error)
            }
        },
    );
    // The file was closed by the failure, and is looked at anew.
    if let Some(number) = number {
        match file.with(|database| last_commit(database, file)) {
            Ok(last) if last >= number => written = Ok(()),
            Ok(_) => {}
            // Why not was told when it was opened.
            Err(_) => written = Err(StoreError::Unknown),
        }
    }
    for job in jobs {
        // A file that cannot be opened is told to all.
        let failed = written.clone().and(Err(StoreError::Interrupted));
        let _ = job.answer.send(failed);
    }
    for Tried { answer, done, .. } in tried {
        // Who has gone meanwhile hears nothing; the change is there all the same.
        let _ = answer.send(written.clone().and(done));
    }
}

/// Does all changes that can be done; each that cannot has its own error.
fn commit(
    database: &Database,
    file: &StoreFile,
    jobs: &mut Vec<Job>,
    tried: &mut Vec<Tried>,
) -> Committed {
    let path = file.path();
    let mut transaction = match database.begin_write() {
        Ok(transaction) => transaction,
        Err(error) => return Committed::No(StoreError::of(path, error)),
    };
    // What is written is a stranger's, and the checksum by which redb would tell a commit that was cut
    // off is none that resists one. With it, opening after a crash reads no more than it must.
    transaction.set_quick_repair(true);
    let mut has_changed = false;
    for job in jobs.drain(..) {
        let done = apply(&transaction, path, &job.namespace, job.quota, job.change);
        let failure = done.as_ref().err().filter(|error| error.closes()).cloned();
        has_changed |= done.as_ref().is_ok_and(Changed::has_changed);
        tried.push(Tried {
            answer: job.answer,
            done,
            _room: job.room,
        });
        if let Some(failure) = failure {
            return Committed::No(failure);
        }
    }
    if !has_changed {
        // A change that is refused costs nobody a sync.
        return match transaction.abort() {
            Ok(()) => Committed::Yes,
            Err(error) => Committed::No(StoreError::of(path, error)),
        };
    }
    let number = match next_commit(&transaction, file) {
        Ok(number) => number,
        Err(error) => return Committed::No(error),
    };
    match transaction.commit() {
        Ok(()) => Committed::Yes,
        Err(error) => Committed::Perhaps(number, StoreError::of(path, error)),
    }
}

/// Counts this commit.
fn next_commit(transaction: &WriteTransaction, file: &StoreFile) -> Result<u64, StoreError> {
    let failed = |error| StoreError::of(file.path(), error);
    let mut commits = transaction
        .open_table(COMMITS)
        .map_err(|error| StoreError::of(file.path(), error))?;
    let last = commits.get(LAST).map_err(failed)?.map(|last| last.value());
    let number = last.unwrap_or(0).saturating_add(1);
    commits.insert(LAST, number).map_err(failed)?;
    Ok(number)
}

/// The number of the last commit that the file has.
fn last_commit(database: &Database, file: &StoreFile) -> Result<u64, StoreError> {
    let state = database
        .begin_read()
        .map_err(|error| StoreError::of(file.path(), error))?;
    let commits = state
        .open_table(COMMITS)
        .map_err(|error| StoreError::of(file.path(), error))?;
    let last = commits.get(LAST);
    let last = last.map_err(|error| StoreError::of(file.path(), error))?;
    Ok(last.map_or(0, |last| last.value()))
}

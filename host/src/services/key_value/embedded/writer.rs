//! The one writer: what is waiting becomes one transaction and one sync, then all are answered.

use std::sync::{Arc, mpsc};

use redb::{Database, ReadableTable, WriteTransaction};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    super::{Change, Changed, Quota, StoreError},
    apply::{COMMITS, LAST, apply},
    file::StoreFile,
    recent::Recent,
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

/// Writes until nobody is left who could have anything written.
pub(super) fn run(file: &Arc<StoreFile>, recent: &Recent, jobs: &mpsc::Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let mut together = vec![first];
        together.extend(jobs.try_iter().take(TOGETHER - 1));
        // Whoever has gone was told nothing, and so may find nothing.
        together.retain(|job| !job.answer.is_closed());
        if !together.is_empty() {
            write(file, recent, together);
        }
    }
}

fn write(file: &StoreFile, recent: &Recent, mut jobs: Vec<Job>) {
    let changes = jobs.iter();
    recent.begin(changes.map(|job| (job.namespace.as_str(), &job.change)));
    let mut tried = Vec::with_capacity(jobs.len());
    let mut number = None;
    let mut written =
        file.with(|database| commit(database, file, &mut jobs, &mut tried, &mut number));
    // The file was closed by the failure, and is looked at anew.
    if written.is_err()
        && let Some(number) = number
    {
        match file.read(COMMITS, |commits| last(&commits)) {
            Ok(last) if last >= number => written = Ok(()),
            Ok(_) => {}
            // Why not was told when it was opened.
            Err(_) => written = Err(StoreError::Unknown),
        }
    }
    if written.is_err() {
        // Whatever the file has when it is opened anew.
        recent.forget_all();
    }
    // Before anybody hears of it: who has heard finds no older value.
    recent.end();
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

/// Does all changes that can be done; each that cannot has its own error. From when `number` is set the
/// commit may be there, whatever is returned: it has that number then.
fn commit(
    database: &Database,
    file: &StoreFile,
    jobs: &mut Vec<Job>,
    tried: &mut Vec<Tried>,
    number: &mut Option<u64>,
) -> Result<(), StoreError> {
    let path = file.path();
    let failed = |error: redb::Error| StoreError::of(path, error);
    let transaction = database.begin_write();
    let mut transaction = transaction.map_err(|error| failed(error.into()))?;
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
            return Err(failure);
        }
    }
    if !has_changed {
        // A change that is refused costs nobody a sync.
        return transaction.abort().map_err(|error| failed(error.into()));
    }
    let next = next_commit(&transaction).map_err(failed)?;
    *number = Some(next);
    transaction.commit().map_err(|error| failed(error.into()))
}

/// Counts this commit.
fn next_commit(transaction: &WriteTransaction) -> Result<u64, redb::Error> {
    let mut commits = transaction.open_table(COMMITS)?;
    let number = last(&commits)?.saturating_add(1);
    commits.insert(LAST, number)?;
    Ok(number)
}

/// The number of the last commit.
fn last(commits: &impl ReadableTable<&'static str, u64>) -> Result<u64, redb::Error> {
    Ok(commits.get(LAST)?.map_or(0, |last| last.value()))
}

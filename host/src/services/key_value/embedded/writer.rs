//! The only writer: combines all waiting changes in one transaction with one sync, and then answers
//! all of them.
//!
//! Changes wait in one queue per function, and a transaction takes from each queue in turn.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use redb::{Database, ReadableTable, WriteTransaction};
use tokio::sync::oneshot;

use super::{
    super::{
        Change, Changed, Quota, StoreError,
        fair::{FairQueue, Ticket},
    },
    apply::{COMMITS, LAST, apply},
    file::StoreFile,
    recent::RecentValues,
};

/// The most changes of one transaction, which bounds the wait for a commit.
const TOGETHER: usize = 256;

/// Bytes of keys and values beyond which a transaction takes no further change. A commit of this
/// size takes tens of milliseconds on an ordinary disk, and the next caller waits for one such
/// commit.
const TOGETHER_BYTES: usize = 4 << 20;

/// A waiting change, and the channel for its result.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) namespace: String,
    pub(super) quota: Quota,
    pub(super) change: Change,
    pub(super) answer: oneshot::Sender<Result<Changed, StoreError>>,
}

/// A change that was applied, and its result if the commit succeeds.
struct AppliedChange {
    answer: oneshot::Sender<Result<Changed, StoreError>>,
    done: Result<Changed, StoreError>,
}

/// Changes that wait to be written. Their number is not bounded here: each is in the memory of its
/// caller's invocation.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    waiting: Mutex<PendingChanges>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PendingChanges {
    queue: FairQueue<Job>,
    /// No more changes will be queued.
    is_closed: bool,
    /// The writer has ended. Later changes are dropped, which reports an error to their callers.
    has_ended: bool,
}

/// A change in the queue. Dropping it takes the change back, unless it was begun.
#[must_use = "dropping it takes the change back"]
pub(super) struct Queued<'a> {
    jobs: &'a Jobs,
    owner: &'a str,
    ticket: Ticket,
}

impl Jobs {
    /// Queues a change of `owner`.
    pub(super) fn push<'a>(&'a self, owner: &'a str, job: Job) -> Queued<'a> {
        let mut waiting = self.lock();
        let ticket = waiting.queue.push(owner, job);
        if waiting.has_ended {
            drop(waiting.queue.remove(owner, ticket));
        }
        drop(waiting);
        self.changed.notify_one();
        Queued {
            jobs: self,
            owner,
            ticket,
        }
    }

    /// Makes the writer end once no change waits.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits for changes and takes those of one transaction. Returns `None` if no more will come.
    fn next(&self) -> Option<Vec<Job>> {
        let has_none =
            |waiting: &mut PendingChanges| waiting.queue.is_empty() && !waiting.is_closed;
        let waiting = self.changed.wait_while(self.lock(), has_none);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let (mut together, mut bytes) = (Vec::new(), 0);
        while together.len() < TOGETHER && bytes < TOGETHER_BYTES {
            let Some((_, job)) = waiting.queue.pop(|_| true) else {
                break;
            };
            bytes += job.change.bytes();
            together.push(job);
        }
        (!together.is_empty()).then_some(together)
    }

    fn lock(&self) -> MutexGuard<'_, PendingChanges> {
        // The queue is consistent between any two statements.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let taken_back = self.jobs.lock().queue.remove(self.owner, self.ticket);
        // Outside the lock, because the change may be large.
        drop(taken_back);
    }
}

/// Reports to all callers when dropped that the writer has ended, even by a panic.
struct WriterEnd<'a>(&'a Jobs);

impl Drop for WriterEnd<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.has_ended = true;
        drop(std::mem::take(&mut waiting.queue));
    }
}

/// Writes changes until the jobs are closed and none waits.
pub(super) fn run(file: &Arc<StoreFile>, recent: &RecentValues, jobs: &Jobs) {
    let _end = WriterEnd(jobs);
    while let Some(mut together) = jobs.next() {
        // A caller that is gone has received no result, so its change need not be made.
        together.retain(|job| !job.answer.is_closed());
        if !together.is_empty() {
            write(file, recent, together);
        }
    }
}

fn write(file: &StoreFile, recent: &RecentValues, mut jobs: Vec<Job>) {
    let changes = jobs.iter();
    recent.begin(changes.map(|job| (job.namespace.as_str(), &job.change)));
    let mut tried = Vec::with_capacity(jobs.len());
    let mut number = None;
    let mut written =
        file.with(|database| commit(database, file, &mut jobs, &mut tried, &mut number));
    // The failure closed the file, so it is opened again here.
    if written.is_err()
        && let Some(number) = number
    {
        match file.read(COMMITS, |commits| last(&commits)) {
            Ok(last) if last >= number => written = Ok(()),
            Ok(_) => {}
            // The reason was logged when the file was opened.
            Err(_) => written = Err(StoreError::Unknown),
        }
    }
    if written.is_err() {
        // The file may hold anything when it is opened again.
        recent.forget_all();
    }
    // Before any caller receives its result, so that none then reads an older value.
    recent.end();
    for job in jobs {
        // If the file cannot be opened, all callers receive that error.
        let failed = written.clone().and(Err(StoreError::Interrupted));
        let _ = job.answer.send(failed);
    }
    for AppliedChange { answer, done } in tried {
        // A caller that is gone receives no result, but its change is made nevertheless.
        let _ = answer.send(written.clone().and(done));
    }
}

/// Applies all changes and commits them; a change that cannot be applied gets its own error. Once
/// `number` is set, the commit may be in the file whatever this returns, and has that number.
fn commit(
    database: &Database,
    file: &StoreFile,
    jobs: &mut Vec<Job>,
    tried: &mut Vec<AppliedChange>,
    number: &mut Option<u64>,
) -> Result<(), StoreError> {
    let path = file.path();
    let failed = |error: redb::Error| StoreError::of(path, error);
    let transaction = database.begin_write();
    let mut transaction = transaction.map_err(|error| failed(error.into()))?;
    // Functions write untrusted data, and the checksum by which redb would detect an interrupted
    // commit does not resist an attacker. With quick repair, opening the file after a crash reads
    // no more than it must.
    transaction.set_quick_repair(true);
    let mut has_changed = false;
    for job in jobs.drain(..) {
        let applied = apply(&transaction, &job.namespace, job.quota, job.change);
        let applied = applied.map_err(failed);
        let failure = applied.as_ref().err().cloned();
        let done = applied.flatten();
        has_changed |= done.as_ref().is_ok_and(Changed::has_changed);
        tried.push(AppliedChange {
            answer: job.answer,
            done,
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
    }
    if !has_changed {
        // Changes that are all rejected cost no sync.
        return transaction.abort().map_err(|error| failed(error.into()));
    }
    let next = next_commit(&transaction).map_err(failed)?;
    *number = Some(next);
    transaction.commit().map_err(|error| failed(error.into()))
}

/// Counts this commit and returns its number.
fn next_commit(transaction: &WriteTransaction) -> Result<u64, redb::Error> {
    let mut commits = transaction.open_table(COMMITS)?;
    let number = last(&commits)?.saturating_add(1);
    commits.insert(LAST, number)?;
    Ok(number)
}

/// Returns the number of the last commit.
fn last(commits: &impl ReadableTable<&'static str, u64>) -> Result<u64, redb::Error> {
    Ok(commits.get(LAST)?.map_or(0, |last| last.value()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn job(bytes: usize) -> (Job, oneshot::Receiver<Result<Changed, StoreError>>) {
        let (answer, answered) = oneshot::channel();
        let pairs = BTreeMap::from([(b"k".to_vec(), Some(vec![0; bytes]))]);
        let job = Job {
            namespace: "n".into(),
            quota: Quota { keys: 1, bytes: 1 },
            change: Change::Put(pairs),
            answer,
        };
        (job, answered)
    }

    #[test]
    fn a_change_is_in_the_next_transaction_whatever_others_write() {
        let jobs = Jobs::default();
        let large: Vec<_> = (0..64).map(|_| job(1 << 20)).collect();
        let (large, _answered): (Vec<_>, Vec<_>) = large.into_iter().unzip();
        let _queued: Vec<_> = large
            .into_iter()
            .map(|job| jobs.push("busy", job))
            .collect();
        let (small, _answered) = job(3);
        let _small = jobs.push("quiet", small);
        let sizes: Vec<_> = jobs.next().unwrap();
        let sizes: Vec<_> = sizes.iter().map(|job| job.change.bytes()).collect();
        let [large, small] = [(1 << 20) + 1, 4];
        assert_eq!(sizes, [large, small, large, large, large]);
    }

    #[test]
    fn a_withdrawn_or_late_change_is_dropped() {
        let jobs = Jobs::default();
        let (first, mut answered) = job(1);
        drop(jobs.push("a", first));
        assert!(matches!(
            answered.try_recv(),
            Err(oneshot::error::TryRecvError::Closed)
        ));
        jobs.close();
        assert!(jobs.next().is_none());
        let (waits, mut answered) = job(1);
        let _waits = jobs.push("a", waits);
        drop(WriterEnd(&jobs));
        assert!(matches!(
            answered.try_recv(),
            Err(oneshot::error::TryRecvError::Closed)
        ));
        let (late, mut answered) = job(1);
        let _late = jobs.push("a", late);
        assert!(matches!(
            answered.try_recv(),
            Err(oneshot::error::TryRecvError::Closed)
        ));
    }
}

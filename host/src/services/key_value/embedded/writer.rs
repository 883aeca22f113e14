//! The one writer: what is waiting becomes one transaction and one sync, then all are answered.
//!
//! Changes wait in a queue for each function, and a transaction takes from each in turn.

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
    recent::Recent,
};

/// Most changes of one transaction, so that nobody waits for all that ever come.
const TOGETHER: usize = 256;

/// Bytes of keys and values beyond which a transaction takes no further change: a commit of so much
/// takes tens of milliseconds on an ordinary disk, and the next in line waits for one.
const TOGETHER_BYTES: usize = 4 << 20;

/// A change that waits, and its caller's end.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) namespace: String,
    pub(super) quota: Quota,
    pub(super) change: Change,
    pub(super) answer: oneshot::Sender<Result<Changed, StoreError>>,
}

/// A change that was tried, and what is to be said of it once the rest is known.
struct Tried {
    answer: oneshot::Sender<Result<Changed, StoreError>>,
    done: Result<Changed, StoreError>,
}

/// Changes that wait to be written. Each is in the memory of its caller's invocation, as many as
/// there are.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    queue: FairQueue<Job>,
    /// No more will come.
    is_closed: bool,
    /// The writer has ended: what comes is dropped, which tells its caller.
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

    /// Has the writer end once nothing waits.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits for changes and takes those of one transaction; nothing if no more will come.
    fn next(&self) -> Option<Vec<Job>> {
        let has_none = |waiting: &mut Waiting| waiting.queue.is_empty() && !waiting.is_closed;
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

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // The queue is whole between any two statements.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let taken_back = self.jobs.lock().queue.remove(self.owner, self.ticket);
        // Outside the lock: the change may be large.
        drop(taken_back);
    }
}

/// Tells the callers when the writer ends, even by a panic. Dropping it does.
struct WriterEnd<'a>(&'a Jobs);

impl Drop for WriterEnd<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.has_ended = true;
        drop(std::mem::take(&mut waiting.queue));
    }
}

/// Writes until nobody is left who could have anything written.
pub(super) fn run(file: &Arc<StoreFile>, recent: &Recent, jobs: &Jobs) {
    let _end = WriterEnd(jobs);
    while let Some(mut together) = jobs.next() {
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
    for Tried { answer, done } in tried {
        // Who has gone meanwhile hears nothing; the change is there all the same.
        let _ = answer.send(written.clone().and(done));
    }
}

/// Does all changes that can be done; each that cannot has its own error. From when `number` is set
/// the commit may be there, whatever is returned: it has that number then.
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
    // What is written is a stranger's, and the checksum by which redb would tell a commit that was
    // cut off is none that resists one. With it, opening after a crash reads no more than it must.
    transaction.set_quick_repair(true);
    let mut has_changed = false;
    for job in jobs.drain(..) {
        let done = apply(&transaction, path, &job.namespace, job.quota, job.change);
        let failure = done.as_ref().err().filter(|error| error.closes()).cloned();
        has_changed |= done.as_ref().is_ok_and(Changed::has_changed);
        tried.push(Tried {
            answer: job.answer,
            done,
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
    fn a_neighbours_change_is_in_the_next_transaction_whatever_another_function_writes() {
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
    fn a_change_that_is_taken_back_or_comes_too_late_is_dropped() {
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

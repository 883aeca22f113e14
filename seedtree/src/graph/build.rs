//! Building snapshots: requests for them, jobs to build them, and notifications of waiters.
//!
//! If the ancestors of a requested node are missing as well, the caller receives at most the job of
//! the topmost missing step. The nodes below await it, and their jobs follow from its result.

use std::sync::Arc;
use std::time::Duration;

use super::node::Progress;
use super::{Graph, Resident};
use crate::key::{Key, Owner};

/// Identifies an open job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    key: Key,
    number: u64,
}

impl Ticket {
    /// Returns the node whose snapshot is to be built.
    #[must_use]
    pub fn key(self) -> Key {
        self.key
    }
}

/// A step to be executed. Its result must be passed to [`Graph::finish_job`], even if the job was
/// abandoned: until then its node counts as being built, and waiters wait.
#[derive(Debug)]
#[must_use = "its node counts as being built until `finish_job` receives its outcome"]
pub struct Job<T, R> {
    /// Identifies the job when its result is reported.
    pub ticket: Ticket,
    /// Owner of the new seed.
    pub owner: Owner,
    /// How the step is executed.
    pub recipe: Arc<R>,
    /// The snapshot that the step begins with. The new snapshot has to hold this `Arc`.
    pub parent: Option<Arc<T>>,
}

/// The result of a request for a snapshot.
#[derive(Debug)]
#[must_use = "it may be a job"]
pub enum SnapshotRequest<T, R, W> {
    /// The snapshot is in memory. The waiter is returned, because it need not wait.
    InMemory(Arc<T>, Option<W>),
    /// The snapshot will be in memory once this job and those that follow from it are complete.
    Build(Job<T, R>),
    /// The snapshot will be in memory once jobs that are already open are complete.
    UnderWay,
    /// There is no such node. The waiter is returned.
    Unknown(Option<W>),
}

/// The consequences of a job's end.
#[derive(Debug)]
#[must_use = "waiters have to be told, and jobs done"]
pub struct JobOutcome<T, R, W, E> {
    /// The waiters, and the result for each of them.
    pub results: Vec<(W, Result<Arc<T>, E>)>,
    /// Jobs that can be executed now.
    pub jobs: Vec<Job<T, R>>,
    /// Snapshots that left the graph.
    pub gone: Vec<Arc<T>>,
}

impl<T: Resident, R, W> Graph<T, R, W> {
    /// Requests a snapshot. The `waiter`, if there is one, is notified when the snapshot is in
    /// memory or cannot be made.
    pub fn request(&mut self, key: Key, waiter: Option<W>) -> SnapshotRequest<T, R, W> {
        let Some(node) = self.nodes.get_mut(&key) else {
            return SnapshotRequest::Unknown(waiter);
        };
        if let Some(snapshot) = node.slot.get() {
            return SnapshotRequest::InMemory(snapshot, waiter);
        }
        node.waiters.extend(waiter);
        let mut at = key;
        while let Some(node) = self.nodes.get_mut(&at) {
            if !matches!(node.progress, Progress::Idle) {
                break;
            }
            node.progress = Progress::Awaits;
            let parent = match node.parent {
                None => None,
                Some(parent) => match self.get(parent) {
                    Some(snapshot) => Some(snapshot),
                    None => {
                        at = parent;
                        continue;
                    }
                },
            };
            if let Some(job) = self.open(at, parent) {
                return SnapshotRequest::Build(job);
            }
        }
        SnapshotRequest::UnderWay
    }

    /// Removes the waiters of a snapshot for which `has_gone` returns true. Returns the snapshots
    /// that leave the graph as a consequence.
    pub fn remove_waiters(&mut self, key: Key, has_gone: impl Fn(&W) -> bool) -> Vec<Arc<T>> {
        let mut gone = Vec::new();
        if let Some(node) = self.nodes.get_mut(&key) {
            node.waiters.retain(|waiter| !has_gone(waiter));
            self.prune(key, &mut gone);
        }
        gone
    }

    /// Returns whether there is a handle of the job's node or of one below it, or one of these is
    /// pinned. Otherwise the job may be abandoned, which must be reported like any other end.
    #[must_use]
    pub fn is_wanted(&self, job: Ticket) -> bool {
        let mut open = vec![job.key];
        while let Some(node) = open.pop().and_then(|key| self.nodes.get(&key)) {
            if node.handles > 0 || node.is_pinned {
                return true;
            }
            open.extend_from_slice(&node.children);
        }
        false
    }

    /// Records the result of a job. On success it is the snapshot, which holds the job's parent,
    /// and its cost. On failure all waiters for it or for a node below it receive the error. A
    /// second report of the same job has no effect.
    pub fn finish_job<E: Clone>(
        &mut self,
        job: Ticket,
        result: Result<(Arc<T>, Duration), E>,
    ) -> JobOutcome<T, R, W, E> {
        let mut done = JobOutcome {
            results: Vec::new(),
            jobs: Vec::new(),
            gone: Vec::new(),
        };
        if !self.is_open(job) {
            done.gone.extend(result.ok().map(|(snapshot, _)| snapshot));
            return done;
        }
        match result {
            Ok((snapshot, cost)) => self.keep(job.key, snapshot, cost, &mut done),
            Err(error) => self.fail(job.key, &error, &mut done),
        }
        done
    }

    fn is_open(&self, job: Ticket) -> bool {
        let progress = self.nodes.get(&job.key).map(|node| &node.progress);
        matches!(progress, Some(Progress::Building { ticket, .. }) if *ticket == job.number)
    }

    fn open(&mut self, key: Key, parent: Option<Arc<T>>) -> Option<Job<T, R>> {
        let number = self.next_ticket;
        let node = self.nodes.get_mut(&key)?;
        node.progress = Progress::Building {
            ticket: number,
            parent: parent.clone(),
        };
        self.next_ticket += 1;
        Some(Job {
            ticket: Ticket { key, number },
            owner: node.owner,
            recipe: node.recipe.clone(),
            parent,
        })
    }

    fn keep<E>(
        &mut self,
        key: Key,
        snapshot: Arc<T>,
        cost: Duration,
        done: &mut JobOutcome<T, R, W, E>,
    ) {
        let Some(node) = self.nodes.get_mut(&key) else {
            return;
        };
        let parent = match &node.progress {
            Progress::Building { parent, .. } => parent.as_ref(),
            Progress::Idle | Progress::Awaits => None,
        };
        debug_assert_eq!(
            parent.map(Arc::as_ptr),
            snapshot.parent().map(Arc::as_ptr),
            "a snapshot holds what its job began with"
        );
        node.cost = cost;
        node.progress = Progress::Idle;
        let waiters = node.waiters.drain(..);
        done.results
            .extend(waiters.map(|waiter| (waiter, Ok(snapshot.clone()))));
        if !node.is_pinned {
            self.accounts.put(node.owner, key, snapshot.bytes());
            self.stuck = None;
        }
        node.slot.fill(snapshot.clone());
        let children = node.children.clone();
        for child in children {
            let progress = self.nodes.get(&child).map(|child| &child.progress);
            if matches!(progress, Some(Progress::Awaits)) {
                done.jobs.extend(self.open(child, Some(snapshot.clone())));
            }
        }
        drop(snapshot);
        // The node may have been forgotten in the meantime.
        self.prune(key, &mut done.gone);
    }

    fn fail<E: Clone>(&mut self, key: Key, error: &E, done: &mut JobOutcome<T, R, W, E>) {
        let mut failed = Vec::new();
        let mut open = vec![key];
        while let Some(key) = open.pop() {
            let Some(node) = self.nodes.get_mut(&key) else {
                continue;
            };
            if matches!(node.progress, Progress::Idle) {
                continue;
            }
            node.progress = Progress::Idle;
            let waiters = node.waiters.drain(..);
            done.results
                .extend(waiters.map(|waiter| (waiter, Err(error.clone()))));
            open.extend_from_slice(&node.children);
            failed.push(key);
        }
        // Children before parents.
        for key in failed.into_iter().rev() {
            self.prune(key, &mut done.gone);
        }
    }
}

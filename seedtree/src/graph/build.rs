//! Building snapshots: who asks, what is to be done, and who is told.
//!
//! Whoever asks for a node whose ancestors are missing as well gets the topmost missing
//! step's job at most; the ones below await it, and their jobs follow from its result.

use std::sync::Arc;
use std::time::Duration;

use super::node::Progress;
use super::{Graph, Resident};
use crate::key::{Key, Owner};

/// Names an open job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    key: Key,
    number: u64,
}

impl Ticket {
    /// The node whose snapshot is to be built.
    #[must_use]
    pub fn key(self) -> Key {
        self.key
    }
}

/// A step to be done. Whatever becomes of it is to be told by [`Graph::built`], also that
/// nobody does it any more: until then its node counts as being built, and waiters wait.
#[derive(Debug)]
#[must_use = "its node counts as being built until `built` is told what became of it"]
pub struct Job<T, R> {
    /// By what name its result is told.
    pub ticket: Ticket,
    /// Whose its seed will be.
    pub owner: Owner,
    /// How it is done.
    pub recipe: Arc<R>,
    /// What it begins with. The new snapshot has to hold this `Arc`.
    pub parent: Option<Arc<T>>,
}

/// What comes of asking.
#[derive(Debug)]
#[must_use = "it may be a job"]
pub enum Asked<T, R, W> {
    /// It is in memory. Whoever wanted to wait need not.
    InMemory(Arc<T>, Option<W>),
    /// It will be, once this and what follows from it is done.
    Build(Job<T, R>),
    /// It will be by what is being done already.
    UnderWay,
    /// There is no such node.
    Unknown(Option<W>),
}

/// What follows from a job's end.
#[derive(Debug)]
#[must_use = "waiters have to be told, and jobs done"]
pub struct Done<T, R, W, E> {
    /// What each waiter is to be told.
    pub told: Vec<(W, Result<Arc<T>, E>)>,
    /// Steps that can be done now.
    pub jobs: Vec<Job<T, R>>,
    /// Snapshots that left the graph.
    pub gone: Vec<Arc<T>>,
}

impl<T: Resident, R, W> Graph<T, R, W> {
    /// Somebody needs a snapshot; `waiter`, if there is one, is told when it is there or
    /// cannot be made.
    pub fn ask(&mut self, key: Key, waiter: Option<W>) -> Asked<T, R, W> {
        let Some(node) = self.nodes.get_mut(&key) else {
            return Asked::Unknown(waiter);
        };
        if let Some(snapshot) = node.slot.get() {
            return Asked::InMemory(snapshot, waiter);
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
                return Asked::Build(job);
            }
        }
        Asked::UnderWay
    }

    /// Those who wait for a snapshot and of whom `has_gone` says so need not be told. What
    /// leaves the graph with them is given back.
    pub fn leave(&mut self, key: Key, has_gone: impl Fn(&W) -> bool) -> Vec<Arc<T>> {
        let mut gone = Vec::new();
        if let Some(node) = self.nodes.get_mut(&key) {
            node.waiters.retain(|waiter| !has_gone(waiter));
            self.prune(key, &mut gone);
        }
        gone
    }

    /// Whether anybody still has a handle of what a job leads to: of its node or of one
    /// below it. Otherwise it may be given up, which has to be told like any other end.
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

    /// What became of a job: a snapshot, which holds the job's parent, and what it cost;
    /// or why there is none, which every waiter is told that waited for it or for
    /// something below it. Nothing comes of telling the same job's end again.
    pub fn built<E: Clone>(
        &mut self,
        job: Ticket,
        result: Result<(Arc<T>, Duration), E>,
    ) -> Done<T, R, W, E> {
        let mut done = Done {
            told: Vec::new(),
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

    fn keep<E>(&mut self, key: Key, snapshot: Arc<T>, cost: Duration, done: &mut Done<T, R, W, E>) {
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
        done.told
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
        // Somebody may have forgotten it meanwhile.
        self.prune(key, &mut done.gone);
    }

    fn fail<E: Clone>(&mut self, key: Key, error: &E, done: &mut Done<T, R, W, E>) {
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
            done.told
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

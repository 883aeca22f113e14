//! A node of the graph, and the accounts of the snapshots in memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Slot;
use crate::key::{Key, Owner};

/// Progress of the build of a snapshot that is not in memory.
#[derive(Debug)]
pub enum Progress<T> {
    /// The snapshot was not requested.
    Idle,
    /// The snapshot is built once its parent exists.
    Awaits,
    /// The job of the snapshot is open.
    Building {
        /// The job's number.
        ticket: u64,
        /// The snapshot that the job begins with. It stays in memory during the build.
        parent: Option<Arc<T>>,
    },
}

/// A step and its result.
#[derive(Debug)]
pub struct Node<T, R, W> {
    pub parent: Option<Key>,
    /// Children in the order of their definition.
    pub children: Vec<Key>,
    pub owner: Owner,
    /// Number of ancestors.
    pub depth: usize,
    pub recipe: Arc<R>,
    pub slot: Slot<T>,
    pub handles: usize,
    pub is_pinned: bool,
    pub progress: Progress<T>,
    /// Waiters; empty unless the snapshot is being built or awaits its build.
    pub waiters: Vec<W>,
    /// Duration of the last build.
    pub cost: Duration,
}

impl<T, R, W> Node<T, R, W> {
    pub fn new(parent: Option<Key>, owner: Owner, depth: usize, recipe: R, now: Instant) -> Self {
        Self {
            parent,
            children: Vec::new(),
            owner,
            depth,
            recipe: Arc::new(recipe),
            slot: Slot::new(now),
            handles: 0,
            is_pinned: false,
            progress: Progress::Idle,
            waiters: Vec::new(),
            cost: Duration::ZERO,
        }
    }

    /// Returns whether the node has to stay in the graph.
    pub fn is_needed(&self) -> bool {
        self.is_pinned
            || self.handles > 0
            || !self.waiters.is_empty()
            || !self.children.is_empty()
            || matches!(self.progress, Progress::Building { .. })
    }
}

/// Progress of the search for a seed that can be evicted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Search {
    /// The node that was examined last.
    pub at: Option<(Owner, Key)>,
}

/// The snapshots in memory that are not pinned, and their bytes at the last count.
#[derive(Debug, Default)]
pub struct Accounts {
    all: u64,
    count: usize,
    by_owner: BTreeMap<Owner, Account>,
}

/// The account of one owner. It exists while the owner has nodes in memory.
#[derive(Debug, Default)]
struct Account {
    bytes: u64,
    nodes: BTreeMap<Key, u64>,
}

impl Accounts {
    pub fn all(&self) -> u64 {
        self.all
    }

    /// Returns the number of counted nodes.
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn of(&self, owner: Owner) -> u64 {
        self.by_owner.get(&owner).map_or(0, |of| of.bytes)
    }

    /// Records that a node is in memory and takes `bytes`, in place of earlier values.
    pub fn put(&mut self, owner: Owner, key: Key, bytes: u64) {
        let of_owner = self.by_owner.entry(owner).or_default();
        let before = of_owner.nodes.insert(key, bytes);
        self.count += usize::from(before.is_none());
        let before = before.unwrap_or(0);
        for sum in [&mut self.all, &mut of_owner.bytes] {
            *sum = sum.saturating_sub(before).saturating_add(bytes);
        }
    }

    /// Records that a node is not in memory any more, or is pinned. Has no effect on a node that
    /// was not counted.
    pub fn remove(&mut self, owner: Owner, key: Key) {
        let Some(of_owner) = self.by_owner.get_mut(&owner) else {
            return;
        };
        let removed = of_owner.nodes.remove(&key);
        self.count -= usize::from(removed.is_some());
        let bytes = removed.unwrap_or(0);
        for sum in [&mut self.all, &mut of_owner.bytes] {
            *sum = sum.saturating_sub(bytes);
        }
        if of_owner.nodes.is_empty() {
            self.by_owner.remove(&owner);
        }
    }

    /// Returns the nodes after `at`, or all, in a fixed order.
    pub fn behind(&self, at: Option<(Owner, Key)>) -> impl Iterator<Item = (Owner, Key)> {
        let from = at.map_or(Bound::Unbounded, |(owner, _)| Bound::Included(owner));
        let owners = self.by_owner.range((from, Bound::Unbounded));
        owners.flat_map(move |(owner, of)| {
            let from = match at {
                Some((same, key)) if same == *owner => Bound::Excluded(key),
                _ => Bound::Unbounded,
            };
            let keys = of.nodes.range((from, Bound::Unbounded));
            keys.map(|(key, _)| (*owner, *key))
        })
    }

    /// Returns each node of an owner, or of all owners, with its bytes.
    pub fn nodes(&self, owner: Option<Owner>) -> impl Iterator<Item = (Key, u64)> {
        let (one, all) = match owner {
            Some(owner) => (self.by_owner.get(&owner), None),
            None => (None, Some(self.by_owner.values())),
        };
        let accounts = one.into_iter().chain(all.into_iter().flatten());
        accounts.flat_map(|of| of.nodes.iter().map(|(key, bytes)| (*key, *bytes)))
    }
}

//! A node of the graph, and the accounts of what is in memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Slot;
use crate::key::{Key, Owner};

/// How far the building of a snapshot is that is not in memory.
#[derive(Debug)]
pub enum Progress<T> {
    /// Nobody asked for it.
    Idle,
    /// It is built when its parent is.
    Awaits,
    /// Its job is open.
    Building {
        /// The job's number.
        ticket: u64,
        /// What it begins with, which stays in memory for as long.
        parent: Option<Arc<T>>,
    },
}

/// A step, and what it leads to.
#[derive(Debug)]
pub struct Node<T, R, W> {
    pub parent: Option<Key>,
    /// In the order in which they were defined.
    pub children: Vec<Key>,
    pub owner: Owner,
    /// Ancestors.
    pub depth: usize,
    pub recipe: Arc<R>,
    pub slot: Slot<T>,
    pub handles: usize,
    pub is_pinned: bool,
    pub progress: Progress<T>,
    /// Only while it is being built or awaits that.
    pub waiters: Vec<W>,
    /// What building it took when that was done last.
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

    /// Whether it has to be in the graph.
    pub fn is_needed(&self) -> bool {
        self.is_pinned
            || self.handles > 0
            || !self.waiters.is_empty()
            || !self.children.is_empty()
            || matches!(self.progress, Progress::Building { .. })
    }
}

/// What is in memory and not pinned, and the bytes of it as they were counted last.
#[derive(Debug, Default)]
pub struct Accounts {
    all: u64,
    count: usize,
    by_owner: BTreeMap<Owner, Account>,
}

/// What there is of one owner: as long as that is anything.
#[derive(Debug, Default)]
struct Account {
    bytes: u64,
    nodes: BTreeMap<Key, u64>,
}

impl Accounts {
    pub fn all(&self) -> u64 {
        self.all
    }

    /// How many nodes are counted.
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn of(&self, owner: Owner) -> u64 {
        self.by_owner.get(&owner).map_or(0, |of| of.bytes)
    }

    /// A node is in memory and takes `bytes`, whatever it took before.
    pub fn put(&mut self, owner: Owner, key: Key, bytes: u64) {
        let of_owner = self.by_owner.entry(owner).or_default();
        let before = of_owner.nodes.insert(key, bytes);
        self.count += usize::from(before.is_none());
        let before = before.unwrap_or(0);
        for sum in [&mut self.all, &mut of_owner.bytes] {
            *sum = sum.saturating_sub(before).saturating_add(bytes);
        }
    }

    /// A node is not in memory any more, or is pinned, if it was ever counted.
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

    /// The nodes behind one of them, or all, in an order of their own.
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

    /// Each node of an owner, or of all, and its bytes.
    pub fn nodes(&self, owner: Option<Owner>) -> impl Iterator<Item = (Key, u64)> {
        let (one, all) = match owner {
            Some(owner) => (self.by_owner.get(&owner), None),
            None => (None, Some(self.by_owner.values())),
        };
        let accounts = one.into_iter().chain(all.into_iter().flatten());
        accounts.flat_map(|of| of.nodes.iter().map(|(key, bytes)| (*key, *bytes)))
    }
}

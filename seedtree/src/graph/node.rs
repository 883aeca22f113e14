//! A node of the graph, and the accounts of what is in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Resident, Slot};
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

impl<T: Resident, R, W> Node<T, R, W> {
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

    /// Bytes of its snapshot, while it is in memory.
    pub fn bytes(&self) -> u64 {
        self.slot.look(|snapshot| snapshot.bytes()).unwrap_or(0)
    }
}

/// Bytes in memory, of all owners and of each.
#[derive(Debug, Default)]
pub struct Accounts {
    all: u64,
    by_owner: BTreeMap<Owner, u64>,
}

impl Accounts {
    pub fn all(&self) -> u64 {
        self.all
    }

    pub fn of(&self, owner: Owner) -> u64 {
        self.by_owner.get(&owner).copied().unwrap_or(0)
    }

    pub fn add(&mut self, owner: Owner, bytes: u64) {
        self.all = self.all.saturating_add(bytes);
        let of_owner = self.by_owner.entry(owner).or_default();
        *of_owner = of_owner.saturating_add(bytes);
    }

    pub fn remove(&mut self, owner: Owner, bytes: u64) {
        self.all = self.all.saturating_sub(bytes);
        if let Some(of_owner) = self.by_owner.get_mut(&owner) {
            *of_owner = of_owner.saturating_sub(bytes);
            if *of_owner == 0 {
                self.by_owner.remove(&owner);
            }
        }
    }
}

//! The graph of seeds: which seeds can be made from which, and which are in memory.
//!
//! A node is a step from its parent's snapshot to its own, named by its content ([`Key`]), with an
//! owner. A node exists as long as it is pinned, is being built, or has a handle
//! ([`Graph::define`], [`Graph::forget`]), a waiter or a child. Its snapshot is temporary: it is
//! built on request ([`Graph::request`]), and evicted when memory runs out and it is not in use
//! ([`Graph::fit`]).
//!
//! The graph never waits, starts nothing in the background and reads no clock. It returns jobs,
//! accepts their results ([`Graph::finish_job`]), and returns the waiters to be notified. The
//! caller notifies, runs or drops what the graph returns, outside the lock that protects the graph.
//! Requests do not take that lock: they use their node's [`Slot`].
//!
//! Invariants: the parent of a snapshot in memory is in memory, and is the very `Arc` that its
//! child holds; at most one job is open for a node; each waiter is notified once.

mod build;
mod describe;
mod evict;
mod node;
mod resident;
mod slot;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

pub use build::{Job, JobOutcome, SnapshotRequest, Ticket};
pub use describe::{Description, State};
pub use evict::{Budget, OwnerEvictions, Resting};
pub use resident::{CompanionState, Resident};
pub use slot::Slot;

use self::node::{Accounts, Node, Search};
use crate::key::{Key, Owner, StepDigest};
use crate::limits::LAYERS_MAX;

/// The graph of seeds, with snapshots `T`, steps that `R` describes, and waiters `W`.
#[derive(Debug)]
pub struct Graph<T, R, W> {
    nodes: BTreeMap<Key, Node<T, R, W>>,
    accounts: Accounts,
    /// Set if the last search found all snapshots in use and over the budget, and none was added or
    /// removed since.
    stuck: Option<Search>,
    next_ticket: u64,
}

/// A handle of a node.
#[derive(Debug)]
pub struct SeedHandle<T, R> {
    /// Name of the node.
    pub key: Key,
    /// The slot of its snapshot.
    pub slot: Slot<T>,
    /// How the step is executed, as given at the first definition. It also collects what is learnt
    /// during the step, for all who have defined the same node.
    pub recipe: Arc<R>,
}

/// The reason why a step cannot be a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefineError {
    /// The snapshot would have more than [`LAYERS_MAX`] layers.
    TooDeep,
    /// The parent is not in the graph.
    NoParent,
    /// The parent has run another function's code, or a shared step has a function's node as its
    /// parent.
    ForeignParent,
}

impl fmt::Display for DefineError {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep => write!(text, "a seed would have more than {LAYERS_MAX} layers"),
            Self::NoParent => text.write_str("a seed's parent is not known"),
            Self::ForeignParent => text.write_str("a seed's parent belongs to another function"),
        }
    }
}

impl std::error::Error for DefineError {}

impl<T, R, W> Default for Graph<T, R, W> {
    fn default() -> Self {
        Self {
            nodes: BTreeMap::new(),
            accounts: Accounts::default(),
            stuck: None,
            next_ticket: 0,
        }
    }
}

impl<T: Resident, R, W> Graph<T, R, W> {
    /// Returns a handle of the node for `step` on `parent`'s snapshot, or on nothing. Equal content
    /// is one node. A node with `is_pinned` is permanent: it does not need a handle, and its
    /// snapshot is neither evicted nor counted.
    ///
    /// # Errors
    /// Returns the [`DefineError`] that names the violated rule.
    pub fn define(
        &mut self,
        parent: Option<Key>,
        owner: Owner,
        step: StepDigest,
        recipe: R,
        is_pinned: bool,
        now: Instant,
    ) -> Result<SeedHandle<T, R>, DefineError> {
        let key = Key::new(parent, owner, step);
        let depth = match parent {
            None => 0,
            Some(parent) => {
                let parent = self.nodes.get(&parent).ok_or(DefineError::NoParent)?;
                if !parent.owner.admits(owner) {
                    return Err(DefineError::ForeignParent);
                }
                parent.depth + 1
            }
        };
        if depth >= LAYERS_MAX {
            return Err(DefineError::TooDeep);
        }
        if !self.nodes.contains_key(&key)
            && let Some(parent) = parent.and_then(|parent| self.nodes.get_mut(&parent))
        {
            parent.children.push(key);
        }
        let node = self
            .nodes
            .entry(key)
            .or_insert_with(|| Node::new(parent, owner, depth, recipe, now));
        node.handles += 1;
        if is_pinned && !node.is_pinned {
            node.is_pinned = true;
            self.accounts.remove(owner, key);
        }
        Ok(SeedHandle {
            key,
            slot: node.slot.clone(),
            recipe: node.recipe.clone(),
        })
    }

    /// Releases a handle. Nodes that are not needed any more leave the graph, and their snapshots
    /// are returned. A node that is being built stays until its build ends.
    pub fn forget(&mut self, key: Key) -> Vec<Arc<T>> {
        let mut gone = Vec::new();
        if let Some(node) = self.nodes.get_mut(&key) {
            node.handles = node.handles.saturating_sub(1);
            self.prune(key, &mut gone);
        }
        gone
    }

    /// Returns a node's snapshot, if it is in memory.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<Arc<T>> {
        self.nodes.get(&key)?.slot.get()
    }

    /// Records a use of a node.
    pub fn used(&self, key: Key, now: Instant) {
        if let Some(node) = self.nodes.get(&key) {
            node.slot.note_use(now);
        }
    }

    /// Returns the nearest snapshot in memory among a node and its ancestors, and the missing steps
    /// from there in their order.
    #[must_use]
    pub fn nearest(&self, key: Key) -> Option<(Arc<T>, Vec<Arc<R>>)> {
        let mut missing = Vec::new();
        let mut next = Some(key);
        loop {
            let node = self.nodes.get(&next?)?;
            if let Some(snapshot) = node.slot.get() {
                missing.reverse();
                return Some((snapshot, missing));
            }
            missing.push(node.recipe.clone());
            next = node.parent;
        }
    }

    /// Updates the counted bytes of a node and its ancestors in memory: they may have grown.
    pub fn recount(&mut self, key: Key) {
        let mut next = Some(key);
        while let Some(key) = next
            && let Some(node) = self.nodes.get(&key)
        {
            if !node.is_pinned
                && let Some(bytes) = node.slot.look(T::bytes)
            {
                self.accounts.put(node.owner, key, bytes);
            }
            next = node.parent;
        }
    }

    /// Returns the bytes of all snapshots in memory that are not pinned.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.accounts.all()
    }

    /// Returns the bytes of an owner's snapshots in memory that are not pinned.
    #[must_use]
    pub fn bytes_of(&self, owner: Owner) -> u64 {
        self.accounts.of(owner)
    }

    /// Removes `key` from the graph if it is not needed, and then each of its ancestors that is not
    /// needed without it.
    fn prune(&mut self, key: Key, gone: &mut Vec<Arc<T>>) {
        let mut next = Some(key);
        while let Some(key) = next {
            let Some(node) = self.nodes.get(&key).filter(|node| !node.is_needed()) else {
                return;
            };
            next = node.parent;
            if let Some(snapshot) = node.slot.empty() {
                self.accounts.remove(node.owner, key);
                self.stuck = None;
                gone.push(snapshot);
            }
            self.nodes.remove(&key);
            if let Some(parent) = next.and_then(|parent| self.nodes.get_mut(&parent)) {
                parent.children.retain(|child| *child != key);
            }
        }
    }
}

//! The graph of seeds: what there is to be made of what, and what of it is in memory.
//!
//! A node is a step from its parent's snapshot to its own, named by its content
//! ([`Key`]), with an owner. It exists as long as somebody has a handle of it
//! ([`Graph::define`], [`Graph::forget`]), waits for it or has made children of it; its
//! snapshot comes and goes: it is built when somebody asks ([`Graph::ask`]) and evicted
//! when memory runs out and nobody has it ([`Graph::fit`]).
//!
//! The graph never waits, does nothing in the background and looks at no clock. It gives
//! out jobs, takes what became of them ([`Graph::built`]), and says who is to be told.
//! What it hands back is to be told, run or dropped by the caller, outside whatever lock
//! the graph is behind. Requests do not take that lock: they have their node's [`Slot`].
//!
//! Invariants: the parent of what is in memory is in memory, and is the very `Arc` that
//! its child holds; at most one job is open for a node; each waiter is told once.

mod build;
mod describe;
mod evict;
mod node;
mod resident;
mod search;
mod slot;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

pub use build::{Asked, Done, Job, Ticket};
pub use describe::{Description, State};
pub use evict::{Budget, OwnerEvictions, Resting};
pub use resident::{Beside, Resident};
pub use slot::Slot;

use self::node::{Accounts, Node};
use self::search::Search;
use crate::key::{Key, Owner, StepDigest};
use crate::limits::LAYERS_MAX;

/// The graph of seeds, whose snapshots are `T`, whose steps are described by `R` and for
/// which `W` wait.
#[derive(Debug)]
pub struct Graph<T, R, W> {
    nodes: BTreeMap<Key, Node<T, R, W>>,
    accounts: Accounts,
    /// All were in use when they were looked at last, and take more than they may; nothing
    /// came or went since.
    stuck: Option<Search>,
    next_ticket: u64,
}

/// A node that somebody has a handle of.
#[derive(Debug)]
pub struct Defined<T, R> {
    /// Its name.
    pub key: Key,
    /// Where its snapshot is, while it is in memory.
    pub slot: Slot<T>,
    /// How it is made: that of whoever defined it first. What is learnt of a step while
    /// it is done belongs here, for all who have defined the same.
    pub recipe: Arc<R>,
}

/// Why a step cannot be a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefineError {
    /// It would have more than [`LAYERS_MAX`] layers.
    TooDeep,
    /// Its parent is not in the graph.
    NoParent,
    /// Its parent has run another function's code, or it would share a function's.
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
    /// A handle of what `step` makes of `parent`'s snapshot, or of nothing. The same
    /// content is the same node. With `is_pinned` it stays for ever: its node does not
    /// need a handle, and its snapshot is neither evicted nor counted.
    ///
    /// # Errors
    /// When there can be no such node.
    pub fn define(
        &mut self,
        parent: Option<Key>,
        owner: Owner,
        step: StepDigest,
        recipe: R,
        is_pinned: bool,
        now: Instant,
    ) -> Result<Defined<T, R>, DefineError> {
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
        Ok(Defined {
            key,
            slot: node.slot.clone(),
            recipe: node.recipe.clone(),
        })
    }

    /// A handle less. What nobody needs any more leaves the graph; its snapshots are
    /// given back. One that is being built stays until that is done.
    pub fn forget(&mut self, key: Key) -> Vec<Arc<T>> {
        let mut gone = Vec::new();
        if let Some(node) = self.nodes.get_mut(&key) {
            node.handles = node.handles.saturating_sub(1);
            self.prune(key, &mut gone);
        }
        gone
    }

    /// A node's snapshot, if it is in memory.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<Arc<T>> {
        self.nodes.get(&key)?.slot.get()
    }

    /// Somebody uses a node.
    pub fn used(&self, key: Key, now: Instant) {
        if let Some(node) = self.nodes.get(&key) {
            node.slot.note_use(now);
        }
    }

    /// The nearest of a node and its ancestors that is in memory, and the steps that are
    /// missing from there, in their order.
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

    /// Counts what is in memory of a node and of its ancestors again: they may have grown
    /// since.
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

    /// Bytes of all snapshots in memory that are not pinned.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.accounts.all()
    }

    /// Bytes of an owner's snapshots in memory that are not pinned.
    #[must_use]
    pub fn bytes_of(&self, owner: Owner) -> u64 {
        self.accounts.of(owner)
    }

    /// Takes `key` out of the graph if nobody needs it, and then whichever of its
    /// ancestors nobody needs without it.
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

//! What there is in the graph, for who wants to look at it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::node::Progress;
use super::{Graph, Resident};
use crate::key::{Key, Owner};

/// Where a node's snapshot is.
#[derive(Clone, Debug)]
pub enum State<T> {
    /// It is not there, and nobody makes it.
    Absent,
    /// It is built when its parent is.
    Awaiting,
    /// It is being built.
    Building,
    /// Here. Whoever keeps this uses it.
    InMemory(Arc<T>),
}

/// A node as it is now.
#[derive(Clone, Debug)]
pub struct Description<T, R> {
    /// Its name.
    pub key: Key,
    /// Its parent's.
    pub parent: Option<Key>,
    /// Whose it is.
    pub owner: Owner,
    /// How many ancestors it has.
    pub depth: usize,
    /// How it is made.
    pub recipe: Arc<R>,
    /// Where its snapshot is.
    pub state: State<T>,
    /// Bytes of that, while it is in memory.
    pub bytes: u64,
    /// Whether it stays for ever.
    pub is_pinned: bool,
    /// How many have a handle of it.
    pub handles: usize,
    /// How many wait for it.
    pub waiters: usize,
    /// Uses in a unit of time, of it and by half of what is below it, older ones counting
    /// less.
    pub frequency: f64,
    /// What building it took when that was done last.
    pub cost: Duration,
}

impl<T: Resident, R, W> Graph<T, R, W> {
    /// All nodes, parents before their children, and those in the order in which they were
    /// defined.
    #[must_use]
    pub fn describe(&self, now: Instant) -> Vec<Description<T, R>> {
        let roots = self.nodes.iter().filter(|(_, node)| node.parent.is_none());
        let mut open: Vec<Key> = roots.map(|(key, _)| *key).collect();
        let mut all = Vec::with_capacity(self.nodes.len());
        while let Some(key) = open.pop() {
            let Some(node) = self.nodes.get(&key) else {
                continue;
            };
            open.extend(node.children.iter().rev());
            let state = match (node.slot.get(), &node.progress) {
                (Some(snapshot), _) => State::InMemory(snapshot),
                (None, Progress::Idle) => State::Absent,
                (None, Progress::Awaits) => State::Awaiting,
                (None, Progress::Building { .. }) => State::Building,
            };
            all.push(Description {
                key,
                parent: node.parent,
                owner: node.owner,
                depth: node.depth,
                recipe: node.recipe.clone(),
                bytes: match &state {
                    State::InMemory(snapshot) => snapshot.bytes(),
                    _ => 0,
                },
                state,
                is_pinned: node.is_pinned,
                handles: node.handles,
                waiters: node.waiters.len(),
                frequency: self.frequency(node, now),
                cost: node.cost,
            });
        }
        all
    }
}

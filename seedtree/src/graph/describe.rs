//! Descriptions of the nodes of the graph, for inspection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::node::Progress;
use super::{Graph, Resident};
use crate::key::{Key, Owner};

/// The state of a node's snapshot.
#[derive(Clone, Debug)]
pub enum State<T> {
    /// The snapshot does not exist, and is not being built.
    Absent,
    /// The snapshot is built once its parent exists.
    Awaiting,
    /// The snapshot is being built.
    Building,
    /// The snapshot is in memory. It counts as in use while this `Arc` is held.
    InMemory(Arc<T>),
}

/// A node at the moment of the description.
#[derive(Clone, Debug)]
pub struct Description<T, R> {
    /// Name of the node.
    pub key: Key,
    /// Name of its parent.
    pub parent: Option<Key>,
    /// Owner of the node.
    pub owner: Owner,
    /// Number of ancestors.
    pub depth: usize,
    /// How its snapshot is made.
    pub recipe: Arc<R>,
    /// State of its snapshot.
    pub state: State<T>,
    /// Bytes of the snapshot, while it is in memory; otherwise 0.
    pub bytes: u64,
    /// Whether the node is permanent.
    pub is_pinned: bool,
    /// Number of handles of the node.
    pub handles: usize,
    /// Number of waiters for its snapshot.
    pub waiters: usize,
    /// Uses per unit of time, of the node and, at half weight, of the nodes below it. Older uses
    /// count less.
    pub frequency: f64,
    /// Duration of the last build of its snapshot.
    pub cost: Duration,
}

impl<T: Resident, R, W> Graph<T, R, W> {
    /// Returns all nodes: parents before their children, and siblings in the order of their
    /// definition.
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

//! The expected state of the graph: a list that is searched from its start each time.

use std::collections::BTreeMap;

use faasw_seedtree::{Key, Owner};

#[derive(Debug)]
pub struct ModelNode {
    pub parent: Option<Key>,
    pub owner: Owner,
    pub depth: usize,
    pub recipe: u64,
    pub handles: usize,
    pub is_pinned: bool,
    pub is_in_memory: bool,
    pub is_open: bool,
    pub is_awaiting: bool,
    pub waiters: Vec<u64>,
}

#[derive(Debug, Default)]
pub struct Model {
    pub nodes: BTreeMap<Key, ModelNode>,
}

impl Model {
    /// Returns a node and its ancestors, itself first.
    pub fn line(&self, key: Key) -> Vec<Key> {
        let above = |key: &Key| self.nodes[key].parent;
        std::iter::successors(Some(key), above).collect()
    }

    /// Returns a node and everything below it.
    pub fn below(&self, key: Key) -> Vec<Key> {
        let all = self.nodes.keys().copied();
        all.filter(|other| self.line(*other).contains(&key))
            .collect()
    }

    pub fn children(&self, key: Key) -> impl Iterator<Item = (&Key, &ModelNode)> {
        let all = self.nodes.iter();
        all.filter(move |(_, node)| node.parent == Some(key))
    }

    pub fn has_child_in_memory(&self, key: Key) -> bool {
        self.children(key).any(|(_, child)| child.is_in_memory)
    }

    /// Returns whether a job begins with a node's snapshot.
    pub fn has_job_below(&self, key: Key) -> bool {
        self.children(key).any(|(_, child)| child.is_open)
    }

    /// Removes nodes that are not needed, until all are needed.
    pub fn clean(&mut self) -> Vec<Key> {
        let mut gone = Vec::new();
        loop {
            let unneeded = self.nodes.iter().find(|(key, node)| {
                let is_needed = node.is_pinned
                    || node.handles > 0
                    || !node.waiters.is_empty()
                    || node.is_open
                    || self.children(**key).next().is_some();
                !is_needed
            });
            let Some(key) = unneeded.map(|(key, _)| *key) else {
                return gone;
            };
            let node = self.nodes.remove(&key).unwrap();
            gone.extend(node.is_in_memory.then_some(key));
        }
    }
}

//! Which snapshots are evicted, and when.
//!
//! [`crate::eviction`] chooses them; this module computes its input. The value of a node counts its
//! own uses and, at half weight, those of the nodes below it, because they are built from it. At
//! the eviction itself, use of the snapshot is checked again under its slot's lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::node::{Node, Search};
use super::{Graph, Resident};
use crate::eviction::{Candidate, Evictions, evict_to_fit, seeds_to_evict};
use crate::key::{Key, Owner};

/// The weight of a node's use for its parent.
const INHERITED: f64 = 0.5;

/// Number of further nodes that each search examines if nothing could be evicted before.
const LOOKED_AT: usize = 16;

/// Limits for all snapshots that are not pinned, together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of memory.
    pub bytes: u64,
    /// Maximum number of snapshots: each holds open files.
    pub count: usize,
}

impl From<u64> for Budget {
    fn from(bytes: u64) -> Self {
        let count = usize::MAX;
        Self { bytes, count }
    }
}

/// An idle instance, which holds the snapshot that it was forked from.
#[derive(Clone, Copy, Debug)]
pub struct Resting {
    /// The node of that snapshot.
    pub key: Key,
    /// Bytes that are freed when the instance ends.
    pub bytes: u64,
}

/// The evictions that are necessary among what an owner holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerEvictions {
    /// Number of resting instances to end: those at the front of the list.
    pub instances: usize,
    /// Nodes whose snapshots are to be evicted once these instances have ended, in this order.
    pub seeds: Vec<Key>,
}

impl<T: Resident, R, W> Graph<T, R, W> {
    /// Evicts unused snapshots until all together fit `budget`, or until no more can be evicted.
    /// The evicted snapshots stay in memory until the caller drops them.
    pub fn fit(&mut self, budget: impl Into<Budget>, now: Instant) -> Vec<(Key, Arc<T>)> {
        let budget = budget.into();
        self.stuck = None;
        let mut gone = Vec::new();
        if self.bytes() > budget.bytes {
            let (keys, candidates) = self.candidates(None, &[], now);
            let indices = seeds_to_evict(&candidates, budget.bytes);
            gone = self.evict(&at(&keys, &indices));
        }
        if self.accounts.count() > budget.count {
            let (keys, mut candidates) = self.candidates(None, &[], now);
            // Each snapshot holds as many open files as any other.
            for candidate in &mut candidates {
                candidate.bytes = 1;
            }
            let indices = seeds_to_evict(&candidates, budget.count as u64);
            gone.extend(self.evict(&at(&keys, &indices)));
        }
        self.stuck = self.is_over(budget).then(Search::default);
        gone
    }

    /// Returns whether the snapshots that are not pinned exceed `budget`.
    pub fn is_over(&self, budget: Budget) -> bool {
        self.bytes() > budget.bytes || self.accounts.count() > budget.count
    }

    /// Works like [`Graph::fit`], for calls when a use of one of `owner`'s snapshots may have
    /// ended. If all snapshots were in use before, it examines only the owner's and the shared
    /// ones, and a few others in turn. A budget that cannot be met then costs each request little.
    pub fn fit_after(
        &mut self,
        owner: Owner,
        budget: impl Into<Budget>,
        now: Instant,
    ) -> Vec<(Key, Arc<T>)> {
        let budget = budget.into();
        if self.is_over(budget) && !self.search_on(owner) {
            Vec::new()
        } else {
            self.fit(budget, now)
        }
    }

    /// Returns whether a complete search is worthwhile. If the last one found nothing, examines the
    /// owner's nodes, the shared ones, and the next others in turn.
    fn search_on(&mut self, owner: Owner) -> bool {
        let Some(Search { at }) = self.stuck else {
            return true;
        };
        // The first snapshot to be evicted has no holder but its slot, not even a child.
        let is_free = |key: &Key| {
            let node = self.nodes.get(key);
            node.is_some_and(|node| node.slot.holders() == 1)
        };
        let others: Vec<(Owner, Key)> = self.accounts.behind(at).take(LOOKED_AT).collect();
        let is_one_free = [owner, Owner::Shared]
            .into_iter()
            .flat_map(|owner| self.accounts.nodes(Some(owner)))
            .map(|(key, _)| key)
            .chain(others.iter().map(|(_, key)| *key))
            .any(|key| is_free(&key));
        if !is_one_free {
            let at = others.last().copied();
            self.stuck = Some(Search { at });
        }
        is_one_free
    }

    /// Computes the evictions after which an owner's snapshots and its `resting` instances take at
    /// most `budget` bytes. The instances are ordered from the one that was unused for longest.
    /// Instances end before any seed is evicted. The caller ends them, and evicts the seeds by
    /// [`Graph::evict`].
    #[must_use]
    pub fn fit_owner(
        &self,
        owner: Owner,
        budget: u64,
        resting: &[Resting],
        now: Instant,
    ) -> OwnerEvictions {
        let bytes: Vec<u64> = resting.iter().map(|instance| instance.bytes).collect();
        let all = bytes.iter().fold(self.bytes_of(owner), |all, bytes| {
            all.saturating_add(*bytes)
        });
        // This runs after each request, and nearly always there is nothing to do.
        if all <= budget {
            return OwnerEvictions::default();
        }
        let (keys, candidates) = self.candidates(Some(owner), resting, now);
        let Evictions { instances, seeds } = evict_to_fit(&bytes, &candidates, budget);
        OwnerEvictions {
            instances,
            seeds: at(&keys, &seeds),
        }
    }

    /// Evicts those of `keys` that are not in use, in this order, which must have children before
    /// their parents. The evicted snapshots stay in memory until the caller drops them.
    pub fn evict(&mut self, keys: &[Key]) -> Vec<(Key, Arc<T>)> {
        let mut gone: Vec<(Key, Arc<T>)> = Vec::new();
        for key in keys {
            let Some(node) = self.nodes.get(key).filter(|node| !node.is_pinned) else {
                continue;
            };
            // A child in memory holds the snapshot, and so do children that were evicted in this
            // call.
            let by_gone = |snapshot: &Arc<T>| {
                let parents = gone.iter().filter_map(|(_, child)| child.parent());
                parents
                    .filter(|parent| Arc::ptr_eq(parent, snapshot))
                    .count()
            };
            if let Some(snapshot) = node.slot.evict(by_gone) {
                self.accounts.remove(node.owner, *key);
                self.stuck = None;
                gone.push((*key, snapshot));
            }
        }
        gone
    }

    /// Removes an unusable snapshot from its node, even if it is in use. It is not returned to
    /// callers any more, and stays in memory until all holders have dropped it. Returns nothing if
    /// the node has another snapshot by now.
    pub fn discard(&mut self, key: Key, snapshot: &Arc<T>) -> Option<Arc<T>> {
        let node = self.nodes.get(&key)?;
        let gone = node.slot.discard(snapshot)?;
        self.accounts.remove(node.owner, key);
        self.stuck = None;
        Some(gone)
    }

    /// Discards the snapshots of a node and its ancestors for which `is_useless` returns true.
    pub fn discard_line(&mut self, key: Key, is_useless: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut gone = Vec::new();
        let mut next = Some(key);
        while let Some(key) = next {
            let useless = self.get(key).filter(|snapshot| is_useless(snapshot));
            gone.extend(useless.and_then(|snapshot| self.discard(key, &snapshot)));
            next = self.nodes.get(&key).and_then(|node| node.parent);
        }
        gone
    }

    /// Returns the nodes in memory that are not pinned, only those of `owner` if it is set, as
    /// candidates. A snapshot that only `resting` instances and candidates hold is not in use.
    fn candidates(
        &self,
        owner: Option<Owner>,
        resting: &[Resting],
        now: Instant,
    ) -> (Vec<Key>, Vec<Candidate>) {
        let counted = self.accounts.nodes(owner);
        let nodes: Vec<(Key, &Node<T, R, W>, u64)> = counted
            .filter_map(|(key, bytes)| Some((key, self.nodes.get(&key)?, bytes)))
            .collect();
        // Number of holders of each snapshot, besides its slot, that may be removed before it. A
        // child that is no candidate stays, and counts as a use.
        let mut held: BTreeMap<Key, usize> = BTreeMap::new();
        let children = nodes.iter().filter_map(|(_, node, _)| node.parent);
        for key in children.chain(resting.iter().map(|instance| instance.key)) {
            *held.entry(key).or_default() += 1;
        }
        let indices = nodes.iter().enumerate();
        let indices: BTreeMap<Key, usize> =
            indices.map(|(index, (key, ..))| (*key, index)).collect();
        let candidates = nodes.iter().map(|(key, node, bytes)| {
            let count = node.slot.holders();
            Candidate {
                frequency: 0.0,
                cost: node.cost,
                bytes: *bytes,
                in_use: count > 1 + held.get(key).copied().unwrap_or(0),
                parent: node.parent.and_then(|parent| indices.get(&parent).copied()),
            }
        });
        let mut candidates: Vec<Candidate> = candidates.collect();
        // If all are in use, their value is not needed, and that state may last.
        if candidates.iter().any(|candidate| !candidate.in_use) {
            for (candidate, (_, node, _)) in candidates.iter_mut().zip(&nodes) {
                candidate.frequency = self.frequency(node, now);
            }
        }
        (nodes.iter().map(|(key, ..)| *key).collect(), candidates)
    }

    /// Returns how often a node is used, including uses of the nodes below it at half weight.
    pub(super) fn frequency(&self, node: &Node<T, R, W>, now: Instant) -> f64 {
        let children = node.children.iter().filter_map(|key| self.nodes.get(key));
        let below: f64 = children.map(|child| self.frequency(child, now)).sum();
        node.slot.frequency(now) + INHERITED * below
    }
}

fn at(keys: &[Key], indices: &[usize]) -> Vec<Key> {
    let keys = indices.iter().filter_map(|index| keys.get(*index));
    keys.copied().collect()
}

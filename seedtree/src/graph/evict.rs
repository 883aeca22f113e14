//! Which snapshots leave memory, and when.
//!
//! What goes is decided by [`crate::eviction`]; here is what it decides about: a node's
//! worth is its own uses and, by half, those of what is below it, for that is built from
//! it. Whether somebody has a snapshot is looked at again under its slot's lock when it
//! is evicted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::node::Node;
use super::search::Search;
use super::{Graph, Resident};
use crate::eviction::{Candidate, Evictions, evict_to_fit, seeds_to_evict};
use crate::key::{Key, Owner};

/// How much a use of a node counts for its parent.
const INHERITED: f64 = 0.5;

/// How many more are looked at, each time, where nothing could go before.
const LOOKED_AT: usize = 16;

/// Limits of all snapshots that are not pinned, together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of memory.
    pub bytes: u64,
    /// How many there may be: each holds open files.
    pub count: usize,
}

impl From<u64> for Budget {
    fn from(bytes: u64) -> Self {
        let count = usize::MAX;
        Self { bytes, count }
    }
}

/// An instance that nobody uses, and which holds the snapshot that it was forked from.
#[derive(Clone, Copy, Debug)]
pub struct Resting {
    /// The snapshot's node.
    pub key: Key,
    /// What ending it frees.
    pub bytes: u64,
}

/// What has to go of what an owner holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerEvictions {
    /// How many of its resting instances are to be ended, those that were told first.
    pub instances: usize,
    /// Nodes whose snapshots are to be evicted when those have ended, in this order.
    pub seeds: Vec<Key>,
}

impl<T: Resident, R, W> Graph<T, R, W> {
    /// Evicts unused snapshots until all together fit `budget`, or until there is none. The evicted
    /// ones stay in memory until the caller drops them.
    pub fn fit(&mut self, budget: impl Into<Budget>, now: Instant) -> Vec<(Key, Arc<T>)> {
        let budget = budget.into();
        self.stuck = None;
        let mut gone = Vec::new();
        if self.bytes() > budget.bytes {
            let (keys, candidates) = self.candidates(None, &[], now);
            let places = seeds_to_evict(&candidates, budget.bytes);
            gone = self.evict(&at(&keys, &places));
        }
        if self.accounts.count() > budget.count {
            let (keys, mut candidates) = self.candidates(None, &[], now);
            // Each takes as many open files as any other.
            for candidate in &mut candidates {
                candidate.bytes = 1;
            }
            let places = seeds_to_evict(&candidates, budget.count as u64);
            gone.extend(self.evict(&at(&keys, &places)));
        }
        self.stuck = self.is_over(budget).then(Search::default);
        gone
    }

    /// Whether the snapshots that are not pinned come to more than `budget`.
    pub fn is_over(&self, budget: Budget) -> bool {
        self.bytes() > budget.bytes || self.accounts.count() > budget.count
    }

    /// As [`Graph::fit`], when a use of one of `owner`'s snapshots may have ended. Where all
    /// were in use before, only those of the owner are looked at, and a few others in turn:
    /// a budget that cannot be met costs each request little.
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

    /// Where nothing was found before that can go, looks at the owner's, and at those that are
    /// next in turn; whether it is worth while to look at all.
    fn search_on(&mut self, owner: Owner) -> bool {
        let Some(Search { at }) = self.stuck else {
            return true;
        };
        // What can go first is nobody's, not even a child's.
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

    /// What has to go so that an owner's snapshots and its `resting` instances, those first
    /// that nobody took for longest, take `budget` bytes at most. Instances end before
    /// any seed is evicted; to be done by the caller and by [`Graph::evict`].
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
        // After each request: nearly always there is nothing to do.
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

    /// Evicts those of `keys` that nobody has, in this order, which has children before
    /// their parents. They are memory until the caller drops them.
    pub fn evict(&mut self, keys: &[Key]) -> Vec<(Key, Arc<T>)> {
        let mut gone: Vec<(Key, Arc<T>)> = Vec::new();
        for key in keys {
            let Some(node) = self.nodes.get(key).filter(|node| !node.is_pinned) else {
                continue;
            };
            // A child in memory holds it, and so do those that have just been evicted.
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

    /// A node's snapshot is of no use, whoever has it: it is not given to anybody any more, and is
    /// memory until all who have it have let it go. Nothing where the node has another by now.
    pub fn discard(&mut self, key: Key, snapshot: &Arc<T>) -> Option<Arc<T>> {
        let node = self.nodes.get(&key)?;
        let gone = node.slot.discard(snapshot)?;
        self.accounts.remove(node.owner, key);
        self.stuck = None;
        Some(gone)
    }

    /// The same of a node and its ancestors, as far as their snapshots are of no use.
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

    /// What is in memory and not pinned, of `owner` if one is named. What only as many
    /// have as are `resting` is not in use.
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
        // How many hold each beside its slot, and might go before it. A child that is no
        // candidate stays, and is a use like any other.
        let mut held: BTreeMap<Key, usize> = BTreeMap::new();
        let children = nodes.iter().filter_map(|(_, node, _)| node.parent);
        for key in children.chain(resting.iter().map(|instance| instance.key)) {
            *held.entry(key).or_default() += 1;
        }
        let places = nodes.iter().enumerate();
        let places: BTreeMap<Key, usize> = places.map(|(place, (key, ..))| (*key, place)).collect();
        let candidates = nodes.iter().map(|(key, node, bytes)| {
            let count = node.slot.holders();
            Candidate {
                frequency: 0.0,
                cost: node.cost,
                bytes: *bytes,
                in_use: count > 1 + held.get(key).copied().unwrap_or(0),
                parent: node.parent.and_then(|parent| places.get(&parent).copied()),
            }
        });
        let mut candidates: Vec<Candidate> = candidates.collect();
        // Where all are in use nobody asks what they are worth, and that may be so for long.
        if candidates.iter().any(|candidate| !candidate.in_use) {
            for (candidate, (_, node, _)) in candidates.iter_mut().zip(&nodes) {
                candidate.frequency = self.frequency(node, now);
            }
        }
        (nodes.iter().map(|(key, ..)| *key).collect(), candidates)
    }

    /// How often a node is used, itself or by what is below it.
    pub(super) fn frequency(&self, node: &Node<T, R, W>, now: Instant) -> f64 {
        let children = node.children.iter().filter_map(|key| self.nodes.get(key));
        let below: f64 = children.map(|child| self.frequency(child, now)).sum();
        node.slot.frequency(now) + INHERITED * below
    }
}

fn at(keys: &[Key], places: &[usize]) -> Vec<Key> {
    let keys = places.iter().filter_map(|place| keys.get(*place));
    keys.copied().collect()
}

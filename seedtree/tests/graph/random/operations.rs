//! The operations, and the expected result of each.

use std::collections::BTreeSet;
use std::sync::Arc;

use faasw_seedtree::graph::{DefineError, Resident, Resting, SnapshotRequest};
use faasw_seedtree::limits::LAYERS_MAX;
use faasw_seedtree::{Key, Owner, StepDigest};

use super::model::ModelNode;
use super::{Lease, World};
use crate::common::{COST, Frozen, frozen};

/// Number of step contents: small, so that equal steps are defined again.
const STEPS: usize = 4;
const OWNERS: [Owner; 3] = [Owner::Shared, Owner::Function(1), Owner::Function(2)];

impl World {
    fn any_key(&mut self) -> Option<Key> {
        let keys: Vec<Key> = self.model.nodes.keys().copied().collect();
        let place = (!keys.is_empty()).then(|| self.random.usize(..keys.len()));
        place.map(|place| keys[place])
    }

    pub fn define(&mut self) {
        let mut parent = self.any_key().filter(|_| self.random.usize(..8) > 0);
        // Deep nodes are rare otherwise.
        for _ in 0..self.random.usize(..8) {
            let deeper = parent.and_then(|key| self.model.children(key).next());
            parent = deeper.map(|(key, _)| *key).or(parent);
        }
        let owner = OWNERS[self.random.usize(..OWNERS.len())];
        let number = self.random.usize(..STEPS) as u64;
        let is_pinned = self.random.usize(..40) == 0;
        let step = StepDigest::of(&[&number.to_le_bytes()]);
        let (graph, now) = (&mut self.graph, self.now);
        let recipe = self.next_waiter;
        let defined = graph.define(parent, owner, step, recipe, is_pinned, now);
        let of_parent = parent.map(|parent| &self.model.nodes[&parent]);
        let depth = of_parent.map_or(0, |parent| parent.depth + 1);
        let is_foreign =
            of_parent.is_some_and(|parent| parent.owner != Owner::Shared && parent.owner != owner);
        match defined {
            Err(DefineError::ForeignParent) => assert!(is_foreign),
            Err(DefineError::TooDeep) => assert!(depth >= LAYERS_MAX),
            Err(DefineError::NoParent) => panic!("it is there"),
            Ok(defined) => {
                assert!(!is_foreign && depth < LAYERS_MAX);
                assert_eq!(defined.key, Key::new(parent, owner, step));
                let new = ModelNode {
                    parent,
                    owner,
                    depth,
                    recipe,
                    handles: 0,
                    is_pinned: false,
                    is_in_memory: false,
                    is_open: false,
                    is_awaiting: false,
                    waiters: Vec::new(),
                };
                let node = self.model.nodes.entry(defined.key).or_insert(new);
                node.handles += 1;
                node.is_pinned |= is_pinned;
            }
        }
    }

    pub fn forget(&mut self) {
        if let Some(key) = self.any_key() {
            self.forget_one(key);
        }
    }

    pub fn forget_one(&mut self, key: Key) {
        let node = self.model.nodes.get_mut(&key).unwrap();
        if node.handles == 0 {
            return;
        }
        node.handles -= 1;
        let expected: BTreeSet<Key> = self.model.clean().into_iter().collect();
        let gone = self.graph.forget(key);
        assert_eq!(keys(&gone), expected);
    }

    pub fn ask(&mut self) {
        let Some(key) = self.any_key() else {
            return;
        };
        let waiter = self.random.bool().then(|| {
            self.next_waiter += 1;
            self.next_waiter
        });
        let missing: Vec<Key> = self
            .model
            .line(key)
            .into_iter()
            .take_while(|key| {
                let node = &self.model.nodes[key];
                !node.is_in_memory
            })
            .collect();
        let topmost = missing.last().copied();
        let is_under_way = missing.iter().any(|key| self.model.nodes[key].is_open);
        match self.graph.request(key, waiter) {
            SnapshotRequest::InMemory(snapshot, back) => {
                assert!(missing.is_empty());
                assert_eq!((snapshot.key, back), (key, waiter));
                return;
            }
            SnapshotRequest::Build(job) => {
                assert!(!is_under_way);
                assert_eq!(Some(job.ticket.key()), topmost);
                self.jobs.push(job);
            }
            SnapshotRequest::UnderWay => assert!(is_under_way),
            SnapshotRequest::Unknown(_) => panic!("it is there"),
        }
        for key in missing {
            let node = self.model.nodes.get_mut(&key).unwrap();
            node.is_open |= Some(key) == topmost;
            node.is_awaiting = !node.is_open;
            if node.is_open {
                break;
            }
        }
        let node = self.model.nodes.get_mut(&key).unwrap();
        node.waiters.extend(waiter);
    }

    /// Ends an open job, with or without success.
    pub fn finish(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let place = self.random.usize(..self.jobs.len());
        let job = self.jobs.swap_remove(place);
        let (ticket, key) = (job.ticket, job.ticket.key());
        let below = self.model.below(key);
        let is_wanted = below.iter().any(|key| {
            let node = &self.model.nodes[key];
            node.handles > 0 || node.is_pinned
        });
        assert_eq!(self.graph.is_wanted(ticket), is_wanted);
        let is_good = self.random.usize(..4) > 0;
        let result = if is_good {
            let bytes = self.random.u64(..1000);
            let snapshot = frozen(&job, bytes, self.layers.as_deref());
            self.snapshots.push(Arc::downgrade(&snapshot));
            Ok((snapshot, COST * self.random.u32(..100)))
        } else {
            Err("no")
        };
        drop(job);
        let done = self.graph.finish_job(ticket, result);

        let mut expected: BTreeSet<u64> = BTreeSet::new();
        let mut follow: BTreeSet<Key> = BTreeSet::new();
        for at in below {
            let is_child = self.model.nodes[&at].parent == Some(key);
            let node = self.model.nodes.get_mut(&at).unwrap();
            if at == key || !is_good {
                // All waiters for this node fail as well.
                expected.extend(node.waiters.drain(..));
                node.is_open = false;
                node.is_awaiting = false;
                node.is_in_memory = is_good;
            } else if is_child && node.is_awaiting {
                node.is_awaiting = false;
                node.is_open = true;
                follow.insert(at);
            }
        }
        let gone: BTreeSet<Key> = self.model.clean().into_iter().collect();
        assert_eq!(keys(&done.gone), gone);
        let jobs = done.jobs.iter().map(|job| job.ticket.key());
        assert_eq!(
            (jobs.collect::<BTreeSet<_>>(), done.jobs.len()),
            (follow.clone(), follow.len())
        );
        self.jobs.extend(done.jobs);
        assert_eq!(done.results.len(), expected.len(), "each is told once");
        for (waiter, result) in done.results {
            assert!(expected.remove(&waiter));
            match result {
                Ok(snapshot) => {
                    assert!(is_good && snapshot.key == key);
                    if self.random.bool() {
                        self.leases.push(snapshot);
                    }
                }
                Err(error) => assert!(!is_good && error == "no"),
            }
        }
        // A second report has no effect.
        let twice = self.graph.finish_job(ticket, Err("twice"));
        assert!(twice.results.is_empty() && twice.jobs.is_empty() && twice.gone.is_empty());
    }

    pub fn take(&mut self) {
        let Some(key) = self.any_key() else {
            return;
        };
        self.graph.used(key, self.now);
        let lease = self.graph.get(key);
        assert_eq!(lease.is_some(), self.model.nodes[&key].is_in_memory);
        self.leases.extend(lease);
    }

    pub fn give_back(&mut self) {
        for _ in 0..3 {
            if !self.leases.is_empty() {
                let place = self.random.usize(..self.leases.len());
                self.leases.swap_remove(place);
            }
        }
    }

    /// Makes a used instance rest, or uses a resting one.
    pub fn rest(&mut self) {
        if self.random.usize(..3) > 0
            && let Some(lease) = self.leases.pop()
        {
            let bytes = self.random.u64(..300);
            self.resting.push((lease, bytes));
        } else if !self.resting.is_empty() {
            let place = self.random.usize(..self.resting.len());
            let (lease, _) = self.resting.remove(place);
            self.leases.push(lease);
        }
    }

    pub fn look(&mut self) {
        let Some(key) = self.any_key() else {
            return;
        };
        let line = self.model.line(key);
        let missing = line
            .iter()
            .take_while(|key| !self.model.nodes[key].is_in_memory)
            .count();
        match self.graph.nearest(key) {
            None => assert_eq!(missing, line.len()),
            Some((nearest, steps)) => {
                assert_eq!(nearest.key, line[missing]);
                let expected = line[..missing].iter().rev();
                let expected = expected.map(|key| self.model.nodes[key].recipe);
                assert!(steps.iter().map(|step| **step).eq(expected));
            }
        }
    }

    /// Returns the snapshots that are held outside the graph, including those of resting instances.
    fn leased(&self) -> BTreeSet<*const Frozen> {
        let resting = self.resting.iter().map(|(lease, _)| lease);
        let all = self.leases.iter().chain(resting);
        all.flat_map(|lease| self.held_by(lease)).collect()
    }

    /// Returns a leased snapshot, and the ancestors that it holds if it has left the graph.
    fn held_by(&self, lease: &Lease) -> Vec<*const Frozen> {
        let mut held = Vec::new();
        let mut at = Some(lease);
        while let Some(snapshot) = at {
            held.push(Arc::as_ptr(snapshot));
            let current = self.graph.get(snapshot.key);
            if current.is_some_and(|current| Arc::ptr_eq(&current, snapshot)) {
                break;
            }
            at = snapshot.parent();
        }
        held
    }

    /// Returns whether the snapshot at `key` can be evicted.
    fn is_free(&self, key: Key, leased: &BTreeSet<*const Frozen>) -> bool {
        let node = &self.model.nodes[&key];
        let snapshot = self.graph.get(key);
        let is_leased = snapshot.is_some_and(|snapshot| leased.contains(&Arc::as_ptr(&snapshot)));
        node.is_in_memory
            && !node.is_pinned
            && !is_leased
            && !self.model.has_child_in_memory(key)
            && !self.model.has_job_below(key)
    }

    /// Records evictions: the snapshots were not in use, and children were evicted before their
    /// parents.
    fn note_evicted(&mut self, gone: &[(Key, Lease)], leased: &BTreeSet<*const Frozen>) {
        for (key, snapshot) in gone {
            assert!(!leased.contains(&Arc::as_ptr(snapshot)));
            assert!(!self.model.nodes[key].is_pinned);
            assert!(!self.model.has_child_in_memory(*key));
            assert!(!self.model.has_job_below(*key));
            self.model.nodes.get_mut(key).unwrap().is_in_memory = false;
        }
    }

    pub fn fit(&mut self) {
        let leased = self.leased();
        let gone = self.graph.fit(self.all_budget, self.now);
        self.note_evicted(&gone, &leased);
        let left = self.graph.bytes();
        let mut keys = self.model.nodes.keys();
        let could_more = keys.any(|key| self.is_free(*key, &leased));
        assert!(
            left <= self.all_budget || !could_more,
            "it stopped too early"
        );
        let last = gone.last().map_or(u64::MAX, |(_, last)| last.bytes());
        assert!(
            left.saturating_add(last) > self.all_budget,
            "it went too far"
        );
    }

    pub fn fit_an_owner(&mut self) {
        let owner = OWNERS[self.random.usize(..OWNERS.len())];
        // Instances of snapshots that have left the graph do not count for the owner any more.
        let is_owners = |world: &Self, lease: &Lease| {
            let node = world.model.nodes.get(&lease.key);
            let current = world.graph.get(lease.key);
            node.is_some_and(|node| node.owner == owner)
                && current.is_some_and(|current| Arc::ptr_eq(&current, lease))
        };
        let resting = std::mem::take(&mut self.resting);
        let (mut of_owner, of_others): (Vec<_>, Vec<_>) = resting
            .into_iter()
            .partition(|(lease, _)| is_owners(self, lease));
        let resting: Vec<Resting> = of_owner
            .iter()
            .map(|(lease, bytes)| Resting {
                key: lease.key,
                bytes: *bytes,
            })
            .collect();
        let budget = self.owner_budget;
        let before = self.graph.bytes_of(owner);
        let plan = self.graph.fit_owner(owner, budget, &resting, self.now);
        let (ended, kept) = resting.split_at(plan.instances);
        let of_kept: u64 = kept.iter().map(|instance| instance.bytes).sum();
        // Instances end first, and not one too many.
        assert!(plan.seeds.is_empty() || kept.is_empty());
        assert!(kept.is_empty() || before + of_kept <= budget);
        if let Some(last) = ended.last() {
            assert!(before + of_kept + last.bytes > budget);
        }
        of_owner.drain(..plan.instances);
        self.resting = of_owner;
        self.resting.extend(of_others);
        let leased = self.leased();
        let gone = self.graph.evict(&plan.seeds);
        self.note_evicted(&gone, &leased);
        assert!(
            gone.iter()
                .all(|(key, _)| self.model.nodes[key].owner == owner)
        );
        let left = self.graph.bytes_of(owner) + of_kept;
        let mut of_owner = self
            .model
            .nodes
            .iter()
            .filter(|(_, node)| node.owner == owner);
        let could_more = of_owner.any(|(key, _)| self.is_free(*key, &leased));
        assert!(left <= budget || !could_more, "it stopped too early");
        if let Some((_, last)) = gone.last() {
            assert!(left + last.bytes() > budget, "it went too far");
        }
    }
}

fn keys(snapshots: &[Lease]) -> BTreeSet<Key> {
    let keys: BTreeSet<Key> = snapshots.iter().map(|snapshot| snapshot.key).collect();
    assert_eq!(keys.len(), snapshots.len());
    keys
}

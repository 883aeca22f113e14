//! Under random operations, the graph behaves like a plain list of nodes that is searched from its
//! start each time, and keeps its rules.
//!
//! `FAASW_TEST_SEED` repeats a run. The number of each run is printed.

mod model;
mod operations;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use faasw_seedtree::graph::{Resident, State};
use faasw_seedtree::{Key, Owner};
use fastrand::Rng;

use self::model::Model;
use crate::common::{Frozen, Seeds, Step};

const RUNS: usize = 60;
const OPERATIONS: usize = 300;
/// Every run whose number is divisible by this has real layers.
const REAL: usize = 10;

/// A snapshot that is held outside the graph.
type Lease = Arc<Frozen>;

/// The graph, its expected state, and the objects outside of it.
struct World {
    graph: Seeds,
    model: Model,
    random: Rng,
    now: Instant,
    jobs: Vec<Step>,
    leases: Vec<Lease>,
    /// Resting instances, from the one that rests for longest, with the bytes that ending each
    /// frees.
    resting: Vec<(Lease, u64)>,
    all_budget: u64,
    owner_budget: u64,
    next_waiter: u64,
    /// Every snapshot so far.
    snapshots: Vec<Weak<Frozen>>,
    /// Name of the layers in this run, if they are real.
    layers: Option<String>,
}

impl World {
    fn new(random: Rng, layers: Option<String>) -> Self {
        Self {
            graph: Seeds::default(),
            model: Model::default(),
            random,
            now: Instant::now(),
            jobs: Vec::new(),
            leases: Vec::new(),
            resting: Vec::new(),
            all_budget: 5000,
            owner_budget: 2000,
            next_waiter: 0,
            snapshots: Vec::new(),
            layers,
        }
    }

    fn step(&mut self) {
        match self.random.usize(..20) {
            0..4 => self.define(),
            4 => self.forget(),
            5..9 => self.ask(),
            9..13 => self.finish(),
            13 => self.take(),
            14 => self.give_back(),
            15 => self.rest(),
            16 => self.fit(),
            17 => self.fit_an_owner(),
            18 => self.look(),
            _ => self.pass(),
        }
        self.check();
    }

    /// Advances the time, and changes the budgets.
    fn pass(&mut self) {
        self.now += Duration::from_secs(self.random.u64(..100));
        self.all_budget = self.random.u64(..10_000);
        self.owner_budget = self.random.u64(..3_000);
    }

    /// Checks everything that does not depend on the last operation.
    fn check(&self) {
        let described = self.graph.describe(self.now);
        let mut seen: BTreeSet<Key> = BTreeSet::new();
        let mut bytes = 0;
        for node in &described {
            // Parents come before children, and each node once; equal keys are one node.
            assert!(node.parent.is_none_or(|parent| seen.contains(&parent)));
            assert!(seen.insert(node.key));
            let model = &self.model.nodes[&node.key];
            assert_eq!((node.parent, node.owner), (model.parent, model.owner));
            assert_eq!(
                (node.handles, node.is_pinned),
                (model.handles, model.is_pinned)
            );
            assert_eq!(
                (node.waiters, node.depth),
                (model.waiters.len(), model.depth)
            );
            assert_eq!(*node.recipe, model.recipe);
            let parent = node.parent.and_then(|key| self.graph.get(key));
            match &node.state {
                State::InMemory(snapshot) => {
                    // The parent of a snapshot in memory is in memory, and is the `Arc` that it
                    // holds.
                    assert!(same(snapshot.parent(), parent.as_ref()));
                    assert_eq!(snapshot.key, node.key);
                    assert!(model.is_in_memory && !model.is_open && !model.is_awaiting);
                    assert!(node.waiters == 0);
                    bytes += if node.is_pinned { 0 } else { snapshot.bytes() };
                }
                State::Building => {
                    assert!(model.is_open && !model.is_in_memory);
                    // Exactly one job is open for the node. The job holds the node's parent, which
                    // stays in memory.
                    let mut jobs = self.jobs.iter().filter(|job| job.ticket.key() == node.key);
                    let job = jobs.next().unwrap();
                    assert!(jobs.next().is_none());
                    assert!(same(job.parent.as_ref(), parent.as_ref()));
                }
                State::Awaiting => {
                    assert!(model.is_awaiting && !model.is_open && parent.is_none());
                    // An ancestor is being built.
                    let above = &self.model.nodes[&node.parent.unwrap()];
                    assert!(above.is_open || above.is_awaiting);
                }
                State::Absent => {
                    assert!(!model.is_in_memory && !model.is_open && !model.is_awaiting);
                    // A node that is not being built has no waiters.
                    assert_eq!(node.waiters, 0);
                }
            }
            // A tenant's node has only that tenant's nodes below it.
            if let Some(parent) = node.parent {
                let of_parent = self.model.nodes[&parent].owner;
                assert!(of_parent == Owner::Shared || of_parent == node.owner);
            }
        }
        assert_eq!(seen.len(), self.model.nodes.len());
        assert_eq!(self.graph.bytes(), bytes);
        let owners: BTreeSet<Owner> = described.iter().map(|node| node.owner).collect();
        let of_each = owners.iter().map(|owner| self.graph.bytes_of(*owner));
        assert_eq!(of_each.sum::<u64>(), bytes);
        for owner in owners {
            let of_owner = described
                .iter()
                .filter(|node| node.owner == owner && !node.is_pinned);
            let bytes: u64 = of_owner.map(|node| node.bytes).sum();
            assert_eq!(self.graph.bytes_of(owner), bytes);
        }
    }

    /// Checks that at the end only pinned nodes and their ancestors are left.
    fn end(mut self) {
        while !self.jobs.is_empty() {
            self.finish();
            self.check();
        }
        assert!(
            self.model
                .nodes
                .values()
                .all(|node| node.waiters.is_empty())
        );
        let keys: Vec<Key> = self.model.nodes.keys().copied().collect();
        for key in keys {
            while self
                .model
                .nodes
                .get(&key)
                .is_some_and(|node| node.handles > 0)
            {
                self.forget_one(key);
                self.check();
            }
        }
        self.leases.clear();
        self.resting.clear();
        for node in self.graph.describe(self.now) {
            let has_child = |key: Key| {
                let mut below = self.model.nodes.values();
                below.any(|node| node.parent == Some(key))
            };
            assert!(node.is_pinned || has_child(node.key));
        }
        let left = self.graph.describe(self.now);
        let in_memory = left
            .iter()
            .filter(|node| matches!(node.state, State::InMemory(_)))
            .count();
        drop(left);
        let alive = self
            .snapshots
            .iter()
            .filter(|snapshot| snapshot.strong_count() > 0);
        assert_eq!(alive.count(), in_memory, "something holds what nobody has");
        if let Some(name) = &self.layers {
            assert_eq!(open_layers(name), in_memory);
        }
        drop(self.graph);
        assert!(
            self.snapshots
                .iter()
                .all(|snapshot| snapshot.strong_count() == 0)
        );
        if let Some(name) = &self.layers {
            assert_eq!(open_layers(name), 0);
        }
    }
}

fn same(one: Option<&Lease>, other: Option<&Lease>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// Returns the number of open files of this process that are layers of this name.
fn open_layers(name: &str) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let wanted = format!("/memfd:{name} (deleted)");
    targets.filter(|target| *target == *wanted).count()
}

#[test]
fn random_operations_keep_the_graphs_invariants() {
    let given = std::env::var("FAASW_TEST_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |number| number.parse().unwrap());
    println!("again with FAASW_TEST_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    for run in 0..RUNS {
        let layers = run
            .is_multiple_of(REAL)
            .then(|| format!("faasw-graph-{run}"));
        let mut world = World::new(random.fork(), layers);
        for _ in 0..OPERATIONS {
            world.step();
        }
        world.end();
    }
}

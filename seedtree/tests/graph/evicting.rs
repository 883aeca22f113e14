//! Which snapshots are evicted, and which stay.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use faasw_seedtree::HALF_LIFE;
use faasw_seedtree::graph::{Budget, OwnerEvictions, Resident as _, Resting};
use faasw_seedtree::{Key, Owner};

use crate::common::{COST, Frozen, Seeds, ask, build, define, frozen, path, succeed};

fn fit(graph: &mut Seeds, budget: u64) -> Vec<Key> {
    let gone = graph.fit(budget, Instant::now());
    gone.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn snapshots_in_use_and_their_ancestors_stay() {
    let mut graph = Seeds::default();
    let keys = path(&mut graph, None, 3);
    let beside = define(&mut graph, Some(keys[1]), Owner::Shared, 9, false);
    build(&mut graph, keys[2]);
    build(&mut graph, beside.key);
    let lease = beside.slot.get().unwrap();
    assert_eq!(fit(&mut graph, 0), [keys[2]]);
    assert_eq!(fit(&mut graph, 0), []);
    drop(lease);
    assert_eq!(fit(&mut graph, 200), [beside.key]);
    // A job holds its parent until its result is reported.
    let job = ask(&mut graph, keys[2], 1).unwrap();
    let ticket = job.ticket;
    drop(job);
    assert_eq!(fit(&mut graph, 0), []);
    drop(graph.finish_job(ticket, Err("lost")));
    assert_eq!(fit(&mut graph, 0), [keys[1], keys[0]]);
}

#[test]
fn a_forgotten_seed_in_use_keeps_its_parent() {
    let mut graph = Seeds::default();
    let keys = path(&mut graph, None, 2);
    build(&mut graph, keys[1]);
    let lease = graph.get(keys[1]).unwrap();
    drop(graph.forget(keys[1]));
    assert_eq!(graph.bytes(), 100);
    // Evicting the snapshot would free nothing.
    assert_eq!(fit(&mut graph, 0), []);
    drop(lease);
    assert_eq!(fit(&mut graph, 0), [keys[0]]);
}

#[test]
fn pinned_seeds_are_neither_counted_nor_evicted() {
    let mut graph = Seeds::default();
    let root = define(&mut graph, None, Owner::Shared, 0, true).key;
    let later = define(&mut graph, Some(root), Owner::Shared, 1, false).key;
    let child = define(&mut graph, Some(later), Owner::Function(1), 2, false).key;
    build(&mut graph, child);
    assert_eq!(graph.bytes(), 200);
    define(&mut graph, Some(root), Owner::Shared, 1, true);
    assert_eq!((graph.bytes(), graph.bytes_of(Owner::Shared)), (100, 0));
    assert_eq!(fit(&mut graph, 0), [child]);
    for key in [child, later, later, root] {
        graph.forget(key);
    }
    let left: Vec<Key> = graph
        .describe(Instant::now())
        .iter()
        .map(|node| node.key)
        .collect();
    assert_eq!(left, [root, later]);
    assert!(graph.get(root).is_some() && graph.get(later).is_some());
}

#[test]
fn a_grown_snapshot_is_recounted() {
    let mut graph = Seeds::default();
    let root = define(&mut graph, None, Owner::Shared, 0, true).key;
    let owner = Owner::Function(1);
    let code = define(&mut graph, Some(root), owner, 1, false).key;
    let ready = define(&mut graph, Some(code), owner, 2, false);
    build(&mut graph, ready.key);
    for (key, bytes) in [(root, 9000), (code, 300), (ready.key, 500)] {
        let snapshot = graph.get(key).unwrap();
        snapshot.bytes.store(bytes, Ordering::Relaxed);
    }
    assert_eq!((graph.bytes(), graph.bytes_of(owner)), (200, 200));
    graph.recount(ready.key);
    assert_eq!((graph.bytes(), graph.bytes_of(owner)), (800, 800));
    assert_eq!(fit(&mut graph, 300), [ready.key]);
    assert_eq!((graph.bytes(), graph.bytes_of(owner)), (300, 300));
    // Snapshots that are not in memory are not counted, and neither are unknown nodes.
    graph.recount(ready.key);
    graph.forget(ready.key);
    graph.recount(ready.key);
    assert_eq!(graph.bytes(), 300);
    assert_eq!(fit(&mut graph, 0), [code]);
    assert_eq!((graph.bytes(), graph.bytes_of(owner)), (0, 0));
}

#[test]
fn a_budget_that_cannot_be_met_is_met_when_something_can_go() {
    let mut graph = Seeds::default();
    let root = define(&mut graph, None, Owner::Shared, 0, true).key;
    let mut used = Vec::new();
    for number in 0..2000 {
        let of = define(&mut graph, Some(root), Owner::Function(number), 1, false);
        build(&mut graph, of.key);
        used.push(Some((of.key, of.slot.get().unwrap())));
    }
    let now = Instant::now();
    let fit_after = |graph: &mut Seeds, owner| -> Vec<Key> {
        let gone = graph.fit_after(Owner::Function(owner), 0, now);
        gone.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(fit_after(&mut graph, 5), []);
    // A released snapshot of the same owner is found at once.
    for number in [5, 1999, 0] {
        let (key, lease) = used[number].take().unwrap();
        assert_eq!(fit_after(&mut graph, number as u64), []);
        drop(lease);
        assert_eq!(fit_after(&mut graph, number as u64), [key]);
    }
    // Snapshots of other owners are found after some calls, wherever they are. Then everything is
    // evicted that can be.
    for numbers in [[7, 1500], [1998, 1], [1000, 999]] {
        let mut keys = numbers.map(|number| used[number].take().unwrap().0);
        let mut rounds = (0..200).map(|_| fit_after(&mut graph, 77));
        let mut gone = rounds.find(|gone| !gone.is_empty()).unwrap();
        gone.sort();
        keys.sort();
        assert_eq!(gone, keys);
    }
    // A minute suffices on a busy machine; quadratic work would take several minutes.
    let began = Instant::now();
    for _ in 0..100_000 {
        assert_eq!(fit_after(&mut graph, 3), []);
    }
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    // A direct call of `fit` examines all nodes.
    let (key, lease) = used[50].take().unwrap();
    drop(lease);
    assert_eq!(fit(&mut graph, 0), [key]);
}

#[test]
fn the_least_used_is_evicted_first_and_uses_of_children_count_half() {
    let mut graph = Seeds::default();
    let start = Instant::now();
    let [one, other] = [0, 1].map(|number| define(&mut graph, None, Owner::Shared, number, false));
    let child = define(&mut graph, Some(one.key), Owner::Shared, 2, false);
    build(&mut graph, one.key);
    build(&mut graph, other.key);
    let now = start + 20 * HALF_LIFE;
    let frequency = |graph: &Seeds, key| {
        let all = graph.describe(now);
        all.iter().find(|node| node.key == key).unwrap().frequency
    };
    for _ in 0..8 {
        child.slot.note_use(now);
    }
    for _ in 0..3 {
        graph.used(other.key, now);
    }
    assert!((frequency(&graph, child.key) - 8.0).abs() < 1e-3);
    assert!((frequency(&graph, one.key) - 4.0).abs() < 1e-3);
    assert!((frequency(&graph, other.key) - 3.0).abs() < 1e-3);
    let gone = graph.fit(100, now);
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].0, other.key);
}

#[test]
fn seeds_beyond_their_number_are_evicted_however_small_they_are() {
    let mut graph = Seeds::default();
    let now = Instant::now();
    let root = define(&mut graph, None, Owner::Shared, 0, true).key;
    let seeds: Vec<_> = (0..5)
        .map(|number| {
            define(
                &mut graph,
                Some(root),
                Owner::Function(number),
                number,
                false,
            )
        })
        .collect();
    for seed in &seeds {
        build(&mut graph, seed.key);
    }
    // The first two are in use, and of the others the last is used most.
    let held: Vec<_> = seeds.iter().take(2).map(|seed| seed.slot.get()).collect();
    seeds[4].slot.note_use(now);
    let budget = Budget {
        bytes: u64::MAX,
        count: 3,
    };
    assert!(graph.is_over(budget));
    let gone: Vec<_> = graph.fit(budget, now).iter().map(|(key, _)| *key).collect();
    assert_eq!(gone, [seeds[2].key, seeds[3].key]);
    assert!(!graph.is_over(budget));
    let count = 1;
    assert_eq!(graph.fit(Budget { count, ..budget }, now).len(), 1);
    // Snapshots in use stay.
    assert!(graph.is_over(Budget { count, ..budget }));
    drop(held);
    let gone = graph.fit_after(Owner::Function(0), Budget { count, ..budget }, now);
    assert_eq!(gone.len(), 1);
    assert!(!graph.is_over(Budget { count, ..budget }));
}

#[test]
fn an_owners_resting_instances_end_before_its_seeds_are_evicted() {
    let mut graph = Seeds::default();
    let owner = Owner::Function(5);
    let root = define(&mut graph, None, Owner::Shared, 0, true).key;
    let code = define(&mut graph, Some(root), owner, 1, false).key;
    let ready = define(&mut graph, Some(code), owner, 2, false);
    let foreign = define(&mut graph, Some(root), Owner::Function(6), 2, false).key;
    build(&mut graph, ready.key);
    build(&mut graph, foreign);
    assert_eq!(graph.bytes_of(owner), 200);
    let mut instances: Vec<_> = (0..3).map(|_| ready.slot.get().unwrap()).collect();
    let resting: Vec<Resting> = [10, 20, 30]
        .map(|bytes| Resting {
            key: ready.key,
            bytes,
        })
        .into();
    let now = Instant::now();
    let of = |graph: &Seeds, budget| graph.fit_owner(owner, budget, &resting, now);
    assert_eq!(of(&graph, 260), OwnerEvictions::default());
    assert_eq!(
        (of(&graph, 230).instances, of(&graph, 229).instances),
        (2, 3)
    );
    assert_eq!(of(&graph, 200).seeds, []);
    let all = of(&graph, 0);
    assert_eq!((all.instances, &all.seeds), (3, &vec![ready.key, code]));
    // The seeds cannot be evicted before the instances have ended.
    assert!(graph.evict(&all.seeds).is_empty());
    let used = instances.pop();
    instances.clear();
    assert!(graph.evict(&all.seeds).is_empty());
    // An instance that is not resting counts as a use.
    let two = graph.fit_owner(owner, 0, &[], now);
    assert_eq!(two, OwnerEvictions::default());
    drop(used);
    let gone = graph.evict(&all.seeds);
    assert_eq!(gone.len(), 2);
    assert_eq!((graph.bytes_of(owner), graph.bytes()), (0, 100));
}

#[test]
fn ancestors_of_other_owners_seeds_are_not_evictable() {
    let mut graph = Seeds::default();
    let [used, free] = [0, 1].map(|number| define(&mut graph, None, Owner::Shared, number, false));
    let child = define(&mut graph, Some(used.key), Owner::Function(1), 2, false);
    build(&mut graph, child.key);
    build(&mut graph, free.key);
    // `used` is worth less, but the function's seed holds it.
    for _ in 0..9 {
        free.slot.note_use(Instant::now());
    }
    let plan = graph.fit_owner(Owner::Shared, 100, &[], Instant::now());
    assert_eq!(plan.seeds, [free.key]);
}

#[test]
fn a_parent_is_not_evicted_without_its_children() {
    let mut graph = Seeds::default();
    let keys = path(&mut graph, None, 2);
    build(&mut graph, keys[1]);
    assert!(graph.evict(&keys).iter().map(|(key, _)| *key).eq([keys[1]]));
}

#[test]
fn a_useless_snapshot_is_discarded_with_its_descendants() {
    let mut graph = Seeds::default();
    let root = define(&mut graph, None, Owner::Shared, 0, false);
    let engine = define(&mut graph, Some(root.key), Owner::Shared, 1, false);
    let [one, other] = [2, 3].map(|number| {
        define(
            &mut graph,
            Some(engine.key),
            Owner::Function(1),
            number,
            false,
        )
    });
    build(&mut graph, one.key);
    build(&mut graph, other.key);
    let descends = |from: Key| {
        move |seed: &Frozen| {
            let mut line = std::iter::successors(Some(seed), |seed| Some(&**seed.parent()?));
            line.any(|seed| seed.key == from)
        }
    };
    let gone = graph.discard_line(one.key, descends(engine.key));
    assert!(gone.iter().map(|seed| seed.key).eq([one.key, engine.key]));
    assert!(graph.get(root.key).is_some() && graph.get(other.key).is_some());
    // The engine is built again, and the seed built from it holds the new one.
    assert_eq!(build(&mut graph, one.key), [engine.key, one.key]);
    let gone = graph.discard_line(other.key, |seed| seed.key == other.key);
    assert_eq!(gone.len(), 1);
    assert_eq!(build(&mut graph, other.key), [other.key]);
    let engine = graph.get(engine.key).unwrap();
    for child in [one.key, other.key] {
        let child = graph.get(child).unwrap();
        assert!(
            child
                .parent()
                .is_some_and(|parent| Arc::ptr_eq(parent, &engine))
        );
    }
    assert_eq!(graph.bytes(), 400);
}

/// Sets a flag when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Requests take snapshots without the graph's lock while others evict them.
#[test]
fn an_evicted_snapshot_is_not_held() {
    let mut graph = Seeds::default();
    let root = define(&mut graph, None, Owner::Shared, 0, false).key;
    let child = define(&mut graph, Some(root), Owner::Shared, 1, false);
    let slot = child.slot.clone();
    let is_over = AtomicBool::new(false);
    let graph = Mutex::new(graph);
    std::thread::scope(|threads| {
        // The flag is set even if this thread panics, because the others would never end otherwise.
        let _end = End(&is_over);
        for _ in 0..2 {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if let Some(snapshot) = slot.get() {
                        assert_eq!(snapshot.key, child.key);
                        slot.note_use(Instant::now());
                    }
                }
            });
        }
        let mut evicted = 0;
        let began = Instant::now();
        while evicted < 2000 && began.elapsed().as_secs() < 20 {
            let mut graph = graph.lock().unwrap();
            if let faasw_seedtree::graph::SnapshotRequest::Build(job) =
                graph.request(child.key, None)
            {
                let mut jobs = succeed(&mut graph, job, 1).jobs;
                if let Some(job) = jobs.pop() {
                    drop(graph.finish_job::<()>(job.ticket, Ok((frozen(&job, 1, None), COST))));
                }
            }
            for (_, snapshot) in graph.fit(0, Instant::now()) {
                assert_eq!(Arc::strong_count(&snapshot), 1);
                evicted += 1;
            }
        }
        assert!(evicted > 0);
    });
}

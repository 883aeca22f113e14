//! Requests for snapshots, jobs to build them, and notifications of waiters.

use std::collections::BTreeSet;
use std::time::Instant;

use faasw_seedtree::graph::{DefineError, SnapshotRequest, State};
use faasw_seedtree::limits::LAYERS_MAX;
use faasw_seedtree::{Key, Owner, StepDigest};

use crate::common::{Seeds, Step, ask, build, define, path, succeed};

#[test]
fn a_tree_of_fifty_seeds_is_built_evicted_and_built_again() {
    let mut graph = Seeds::default();
    let root = define(&mut graph, None, Owner::Shared, 0, false).key;
    // Each level has ten children of one node.
    let (mut parent, mut all) = (root, vec![root]);
    for level in 1..=5 {
        let children = (0..10).map(|child| level * 10 + child);
        let children: Vec<Key> = children
            .map(|number| define(&mut graph, Some(parent), Owner::Shared, number, false).key)
            .collect();
        parent = children[level as usize];
        all.extend(children);
    }
    let mut jobs: Vec<Step> = Vec::new();
    for key in &all {
        jobs.extend(ask(&mut graph, *key, 0));
    }
    assert_eq!(jobs.len(), 1, "all await the root");
    let mut built = Vec::new();
    while let Some(job) = jobs.pop() {
        built.push(job.ticket.key());
        jobs.extend(succeed(&mut graph, job, 100).jobs);
    }
    assert_eq!((built.len(), built[0]), (51, root));
    assert_eq!(built.iter().collect::<BTreeSet<_>>().len(), 51);
    assert_eq!(graph.bytes(), 5100);

    let described = graph.describe(Instant::now());
    for (place, node) in described.iter().enumerate() {
        let parents = described[..place].iter().map(|node| node.key);
        assert!(node.parent.is_none() || parents.map(Some).any(|key| key == node.parent));
        assert!(matches!(node.state, State::InMemory(_)));
    }
    assert_eq!(described.iter().map(|node| node.depth).max(), Some(5));
    drop(described);

    let gone = graph.fit(0, Instant::now());
    assert_eq!((gone.len(), graph.bytes()), (51, 0));
    for (place, (key, _)) in gone.iter().enumerate() {
        let later = gone[place..].iter().filter_map(|(_, snapshot)| {
            let parent = faasw_seedtree::graph::Resident::parent(&**snapshot);
            parent.map(|parent| parent.key)
        });
        assert!(!later.into_iter().any(|parent| parent == *key));
    }
    drop(gone);

    // The deepest seed alone is built again, with its ancestors.
    let deepest = *all.last().unwrap();
    let again = build(&mut graph, deepest);
    assert_eq!((again.len(), again[0], again[5]), (6, root, deepest));
    assert_eq!(graph.bytes(), 600);
}

#[test]
fn twenty_waiters_cause_one_job_per_step() {
    let mut graph = Seeds::default();
    let keys = path(&mut graph, None, 3);
    let mut jobs: Vec<Step> = (0..20)
        .filter_map(|waiter| ask(&mut graph, keys[2], waiter))
        .collect();
    let mut steps = 0;
    loop {
        assert_eq!(jobs.len(), 1);
        let done = succeed(&mut graph, jobs.remove(0), 1);
        steps += 1;
        jobs = done.jobs;
        if steps < 3 {
            assert!(done.results.is_empty());
            continue;
        }
        let told: Vec<u64> = done.results.iter().map(|(waiter, _)| *waiter).collect();
        assert_eq!(told, (0..20).collect::<Vec<_>>());
        for (_, snapshot) in done.results {
            assert_eq!(snapshot.unwrap().key, keys[2]);
        }
        break;
    }
    assert!(jobs.is_empty());
    // The snapshot is in memory, so nothing needs to wait.
    let SnapshotRequest::InMemory(snapshot, Some(7)) = graph.request(keys[2], Some(7)) else {
        panic!("it was built");
    };
    assert_eq!(snapshot.key, keys[2]);
}

#[test]
fn a_failed_step_fails_only_the_waiters_below_it_once() {
    let mut graph = Seeds::default();
    let keys = path(&mut graph, None, 5);
    let beside = define(&mut graph, Some(keys[0]), Owner::Shared, 9, false).key;
    let root = ask(&mut graph, keys[4], 4).unwrap();
    for (waiter, place) in [(0, 0), (2, 2), (3, 3)] {
        assert!(ask(&mut graph, keys[place], waiter).is_none());
    }
    assert!(ask(&mut graph, beside, 9).is_none());
    let mut done = succeed(&mut graph, root, 1);
    assert_eq!(done.results.len(), 1);
    done.jobs.sort_by_key(|job| job.ticket.key() == beside);
    let [first, second] = <[Step; 2]>::try_from(done.jobs).unwrap();
    assert_eq!((first.ticket.key(), second.ticket.key()), (keys[1], beside));

    let failed = graph.finish_job(first.ticket, Err("no"));
    let mut told: Vec<_> = failed.results.into_iter().collect();
    told.sort_by_key(|(waiter, _)| *waiter);
    let told: Vec<_> = told
        .iter()
        .map(|(waiter, why)| (*waiter, why.as_ref().err()))
        .collect();
    assert_eq!(told, [2, 3, 4].map(|waiter| (waiter, Some(&"no"))));
    assert!(failed.jobs.is_empty());
    // A second report of the same job notifies no waiter.
    let twice = graph.finish_job(first.ticket, Err("again"));
    assert!(twice.results.is_empty() && twice.jobs.is_empty());

    assert_eq!(succeed(&mut graph, second, 1).results.len(), 1);
    for node in graph.describe(Instant::now()) {
        let is_there = matches!(node.state, State::InMemory(_));
        let is_absent = matches!(node.state, State::Absent);
        assert_eq!(is_there, [keys[0], beside].contains(&node.key));
        assert!(is_there || is_absent, "{node:?}");
    }
    assert_eq!(build(&mut graph, keys[4]), keys[1..]);
}

#[test]
fn a_lost_job_is_reported_like_a_failed_one() {
    let mut graph = Seeds::default();
    let key = path(&mut graph, None, 1)[0];
    let ticket = {
        let job = ask(&mut graph, key, 1).unwrap();
        job.ticket
    };
    assert!(ask(&mut graph, key, 2).is_none(), "it might still be done");
    let done = graph.finish_job(ticket, Err("lost"));
    assert_eq!(done.results.len(), 2);
    // A new job is independent: the end of the lost one does not affect it.
    let job = ask(&mut graph, key, 3).unwrap();
    assert!(graph.finish_job(ticket, Err("late")).results.is_empty());
    assert_eq!(succeed(&mut graph, job, 1).results.len(), 1);
}

#[test]
fn a_seed_has_no_more_layers_than_there_may_be() {
    let mut graph = Seeds::default();
    let keys = path(&mut graph, None, LAYERS_MAX as u64);
    let step = StepDigest::of(&[b"one more"]);
    let parent = keys.last().copied();
    let deeper = graph.define(parent, Owner::Shared, step, 0, false, Instant::now());
    assert_eq!(deeper.unwrap_err(), DefineError::TooDeep);
    assert_eq!(build(&mut graph, keys[LAYERS_MAX - 1]), keys);
}

#[test]
fn no_function_can_define_a_seed_below_another_functions() {
    let mut graph = Seeds::default();
    let now = Instant::now();
    let root = define(&mut graph, None, Owner::Shared, 0, true).key;
    let [one, other] = [1, 2].map(Owner::Function);
    let step = StepDigest::of(&[b"equal"]);
    let mut of = |parent, owner| {
        let defined = graph.define(Some(parent), owner, step, 1, false, now);
        defined.map(|defined| defined.key)
    };
    let ones = of(root, one).unwrap();
    let others = of(root, other).unwrap();
    assert_ne!(ones, others, "equal bytes of two functions are two nodes");
    assert_eq!(of(root, one), Ok(ones));
    assert!(of(ones, one).is_ok());
    assert_eq!(of(ones, other), Err(DefineError::ForeignParent));
    assert_eq!(of(ones, Owner::Shared), Err(DefineError::ForeignParent));
    let unknown = Key::new(None, one, step);
    assert_eq!(of(unknown, one), Err(DefineError::NoParent));
}

#[test]
fn the_same_twice_is_one_node_with_two_handles() {
    let mut graph = Seeds::default();
    let first = define(&mut graph, None, Owner::Shared, 7, false);
    let second = define(&mut graph, None, Owner::Shared, 7, false);
    assert_eq!(first.key, second.key);
    assert!(std::sync::Arc::ptr_eq(&first.recipe, &second.recipe));
    build(&mut graph, first.key);
    assert_eq!(second.slot.get().unwrap().key, second.key);
    assert!(graph.forget(first.key).is_empty());
    assert_eq!(graph.describe(Instant::now()).len(), 1);
    assert_eq!(graph.forget(first.key).len(), 1);
    assert!(graph.describe(Instant::now()).is_empty());
    assert!(second.slot.get().is_none());
    assert!(matches!(
        graph.request(first.key, Some(1)),
        SnapshotRequest::Unknown(Some(1))
    ));
}

#[test]
fn a_seed_forgotten_while_built_notifies_its_waiters_and_is_removed() {
    let mut graph = Seeds::default();
    let keys = path(&mut graph, None, 2);
    build(&mut graph, keys[0]);
    let job = ask(&mut graph, keys[1], 1).unwrap();
    assert!(graph.is_wanted(job.ticket));
    assert!(graph.forget(keys[1]).is_empty());
    assert!(graph.forget(keys[0]).is_empty(), "it has a child");
    assert!(!graph.is_wanted(job.ticket));
    // A request in the meantime waits for the same job.
    assert!(ask(&mut graph, keys[1], 2).is_none());
    let done = succeed(&mut graph, job, 1);
    let told = done
        .results
        .iter()
        .map(|(_, snapshot)| snapshot.as_ref().unwrap().key);
    assert_eq!(told.collect::<Vec<_>>(), [keys[1]; 2]);
    let gone: Vec<Key> = done.gone.iter().map(|snapshot| snapshot.key).collect();
    assert_eq!(gone, [keys[1], keys[0]]);
    assert!(graph.describe(Instant::now()).is_empty());
    assert_eq!(graph.bytes(), 0);
}

#[test]
fn a_waiting_step_is_removed_when_it_is_forgotten() {
    let mut graph = Seeds::default();
    let keys = path(&mut graph, None, 3);
    let SnapshotRequest::Build(root) = graph.request(keys[2], None) else {
        panic!("the root is missing");
    };
    graph.forget(keys[2]);
    graph.forget(keys[1]);
    assert_eq!(graph.describe(Instant::now()).len(), 1);
    assert!(succeed(&mut graph, root, 1).jobs.is_empty());
}

#[test]
fn the_nearest_ancestor_and_the_missing_steps_are_found() {
    let mut graph = Seeds::default();
    let keys = path(&mut graph, None, 4);
    assert!(graph.nearest(keys[3]).is_none());
    build(&mut graph, keys[1]);
    let (nearest, missing) = graph.nearest(keys[3]).unwrap();
    let missing: Vec<u64> = missing.iter().map(|step| **step).collect();
    assert_eq!((nearest.key, missing), (keys[1], vec![2, 3]));
    build(&mut graph, keys[3]);
    let (nearest, missing) = graph.nearest(keys[3]).unwrap();
    assert_eq!((nearest.key, missing.len()), (keys[3], 0));
}

#[test]
fn removed_waiters_are_not_notified() {
    let mut graph = Seeds::default();
    let keys = path(&mut graph, None, 2);
    let job = ask(&mut graph, keys[1], 1).unwrap();
    for waiter in 2..9 {
        assert!(ask(&mut graph, keys[1], waiter).is_none());
    }
    let even = |waiter: &u64| waiter.is_multiple_of(2);
    assert!(graph.remove_waiters(keys[0], even).is_empty());
    assert!(graph.remove_waiters(keys[1], even).is_empty());
    let next = succeed(&mut graph, job, 100).jobs.pop().unwrap();
    let told = succeed(&mut graph, next, 100).results;
    let told: Vec<u64> = told.into_iter().map(|(waiter, _)| waiter).collect();
    assert_eq!(told, [1, 3, 5, 7]);
    // A job whose node only a waiter kept leaves with the waiter.
    let job = {
        drop(graph.fit(0, std::time::Instant::now()));
        ask(&mut graph, keys[1], 1).unwrap()
    };
    for key in [keys[1], keys[0]] {
        assert!(graph.forget(key).is_empty());
    }
    assert!(graph.remove_waiters(keys[1], |_| true).is_empty());
    assert!(succeed(&mut graph, job, 100).results.is_empty());
    assert!(graph.describe(std::time::Instant::now()).is_empty());
}

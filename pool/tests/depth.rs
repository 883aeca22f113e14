//! A seed tree of depth five in real microVMs: it is built, evicted, built again and forked.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use faasw_pool::steps::{ForkMeasurement, StepTree};
use faasw_pool::{FreezePolicy, FunctionSpec};
use faasw_seedtree::{Key, Owner};

use support::{Bench, Log, give_up, slowness, spec};

const DEPTH: usize = 5;
const CHILDREN: u64 = 10;
const OWNER: Owner = Owner::Function(0);
/// Name of the export. Each call increments a counter and logs its value.
const EXPORT: &str = "init";

async fn tree(bench: &Bench) -> (Arc<StepTree>, Arc<Log>) {
    let log = Arc::new(Log::default());
    let spec = FunctionSpec {
        log: log.clone(),
        ..spec(FreezePolicy::AfterInit)
    };
    let compiled = bench.compile("pool/tests/support/steps.wat").await;
    let tree = StepTree::new(&bench.pool, &spec, &compiled).await.unwrap();
    (Arc::new(tree), log)
}

/// A making ahead of need holds the owner's only slot when it finds that a client's making of the
/// same seed is under way. The client's making needs that slot.
async fn a_prewarmed_seed_does_not_block_that_of_a_client(bench: &Bench) {
    let (tree, _) = tree(bench).await;
    let key = tree.define(None, OWNER, EXPORT, 0).unwrap();
    let by_client = Mutex::new(None);
    let permitted = async || {
        let (client, making) = (tree.clone(), tree.clone());
        let client = tokio::spawn(async move { client.make(key).await });
        by_client.lock().unwrap().replace(client);
        while !making.is_queued(key) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let made = tree.prewarm_seed((key, OWNER), permitted);
    let made = tokio::time::timeout(give_up(), made).await;
    made.unwrap().unwrap();
    let by_client = by_client.lock().unwrap().take().unwrap();
    by_client.await.unwrap().unwrap();
}

/// Defines `children` seeds on each level, all with the first seed of the level above as parent.
fn levels(tree: &StepTree, children: u64) -> Vec<Vec<Key>> {
    let mut levels: Vec<Vec<Key>> = Vec::new();
    for _ in 0..DEPTH {
        let parent = levels.last().map(|level| level[0]);
        let level = (0..children).map(|salt| tree.define(parent, OWNER, EXPORT, salt).unwrap());
        levels.push(level.collect());
    }
    levels
}

async fn fifty_seeds_are_built_evicted_and_built_again(bench: &Bench) {
    let (tree, log) = tree(bench).await;
    // Where guests are slow, each takes many times as long.
    let children = (CHILDREN / u64::from(slowness())).max(2);
    let levels = levels(&tree, children);
    for key in levels.iter().flatten().rev() {
        tree.make(*key).await.unwrap();
    }
    let path: Vec<Key> = levels.iter().map(|level| level[0]).collect();
    // Each seed was made once, from its parent.
    let forks: Vec<_> = path.iter().map(|key| tree.forks(*key).unwrap()).collect();
    let (deepest, above) = forks.split_last().unwrap();
    assert_eq!(tree.forks_of_root(), Some(children));
    assert!(above.iter().all(|forks| *forks == children), "{forks:?}");
    assert_eq!(*deepest, 0);

    // Seeds in use stay, and so do their ancestors; then only the root stays.
    let all = tree.fit(u64::MAX);
    assert!(all > 0);
    assert_eq!(tree.fit(0), 0);
    assert!(
        levels
            .iter()
            .flatten()
            .all(|key| tree.forks(*key).is_none())
    );
    assert_eq!(tree.forks_of_root(), Some(children));

    // However many clients want the deepest seed, each step to it is done once.
    let asking: Vec<_> = (0..20)
        .map(|_| {
            let (tree, key) = (tree.clone(), path[DEPTH - 1]);
            tokio::spawn(async move { tree.make(key).await })
        })
        .collect();
    for asked in asking {
        asked.await.unwrap().unwrap();
    }
    let forks: Vec<_> = path.iter().map(|key| tree.forks(*key).unwrap()).collect();
    assert_eq!(forks, [1, 1, 1, 1, 0]);
    assert_eq!(tree.forks_of_root(), Some(children + 1));

    // Each fork continues counting where its ancestors stopped, and its ancestors do not change.
    log.lines.lock().unwrap().clear();
    // This holds for a sandbox that was specialised for any seed between the root and this one, or
    // for none.
    for (depth, key) in path.iter().enumerate() {
        let images = (0..=depth + 1).map(Some).chain([None]);
        for steps in images {
            let forked = tree.fork(*key, steps, EXPORT).await.unwrap();
            assert_eq!(forked.steps, steps);
            let lines = std::mem::take(&mut *log.lines.lock().unwrap());
            assert_eq!(lines, [format!("count{}", depth + 1)], "{steps:?}");
        }
    }
}

/// A dropped future of a making is removed from the queue before the seed exists.
async fn a_dropped_caller_leaves_the_queue_for_a_seed(bench: &Bench) {
    let (tree, _log) = tree(bench).await;
    let levels = levels(&tree, 1);
    let deepest = levels[DEPTH - 1][0];
    let begun = |key| {
        let mut making = Box::pin(tree.make(key));
        let mut context = Context::from_waker(Waker::noop());
        assert!(making.as_mut().poll(&mut context).is_pending());
        making
    };
    let stays = begun(deepest);
    let go: Vec<_> = (0..50).map(|_| begun(deepest)).collect();
    assert_eq!(tree.waiting(deepest), 51);
    drop(go);
    assert_eq!(tree.waiting(deepest), 1);
    stays.await.unwrap();
    assert_eq!(tree.waiting(deepest), 0);
}

fn median<T: PartialOrd + Copy>(mut all: Vec<T>) -> T {
    all.sort_by(|one, other| one.partial_cmp(other).unwrap());
    all[all.len() / 2]
}

fn took(all: &[ForkMeasurement]) -> Duration {
    median(all.iter().map(|fork| fork.took).collect())
}

/// Returns the fewest faults, because the system now and then adds one.
fn faults(all: &[ForkMeasurement]) -> u64 {
    all.iter().map(|fork| fork.page_faults).min().unwrap()
}

/// Forks each seed of `path` in sandboxes that are specialised `steps` above it, and returns the
/// forks by seed. Each round forks each seed once, beginning with another seed.
async fn forks(
    tree: &StepTree,
    path: &[Key],
    steps: Option<usize>,
    rounds: u32,
) -> Vec<Vec<ForkMeasurement>> {
    let rounds = (rounds / slowness()).max(2) as usize;
    let mut all = vec![Vec::new(); path.len()];
    for round in 0..rounds {
        for place in 0..path.len() {
            let place = (place + round) % path.len();
            let forked = tree.fork(path[place], steps, EXPORT).await.unwrap();
            all[place].push(forked);
        }
    }
    all
}

/// The times are printed and not asserted, because they depend on the machine. The assertions are
/// about counts: what a sandbox does for a fork, and what causes the times.
async fn a_fork_in_a_sandbox_specialised_for_the_parent_is_the_same_at_any_depth(bench: &Bench) {
    let (tree, _log) = tree(bench).await;
    let path: Vec<Key> = levels(&tree, 1).into_iter().flatten().collect();
    let pair = forks(&tree, &[path[1], path[4]], Some(1), 120).await;
    let [second, fifth] = [&pair[0], &pair[1]];
    let rounds = second.iter().zip(fifth);
    let ratios = rounds.map(|(two, five)| five.took.as_secs_f64() / two.took.as_secs_f64());
    println!(
        "specialised for the parent: {:?} at depth two, {:?} at depth five, {:.2} times as long in \
         the median round of {}",
        took(second),
        took(fifth),
        median(ratios.collect()),
        second.len(),
    );
    // The sandbox's orders, and so its work, do not grow with depth.
    assert_eq!(faults(fifth), faults(second));
    assert_eq!(fifth[0].own_pages, second[0].own_pages);
    assert_eq!(fifth[0].windows, second[0].windows);
    assert_eq!(fifth[0].layers, second[0].layers + 3);
}

/// The most page faults that one more level may cost a fork in a generic zygote. Where a level
/// changes the same pages as the level above it, none was seen.
const FAULTS_A_LEVEL: u64 = 1;

async fn a_fork_in_a_bare_sandbox_costs_little_more_a_level(bench: &Bench) {
    let (tree, _log) = tree(bench).await;
    let path: Vec<Key> = levels(&tree, 1).into_iter().flatten().collect();
    let bare = forks(&tree, &path, None, 24).await;
    for (depth, forked) in bare.iter().enumerate() {
        let ForkMeasurement {
            windows,
            layers,
            own_pages,
            ..
        } = forked[0];
        println!(
            "bare, depth {}: {layers} layers, {windows} windows, {own_pages} own pages: {:?}, \
             {} faults",
            depth + 1,
            took(forked),
            faults(forked),
        );
    }
    for (above, below) in bare.iter().zip(bare.iter().skip(1)).skip(1) {
        let (above, below) = (faults(above), faults(below));
        assert!(below <= above + FAULTS_A_LEVEL, "{below} behind {above}");
    }
}

async fn a_fork_from_a_zygote_of_an_ancestor_is_better_than_from_a_generic_one(bench: &Bench) {
    let (tree, _log) = tree(bench).await;
    let deepest = *levels(&tree, 1).last().unwrap().last().unwrap();
    let rounds = (24 / slowness() as usize).max(2);
    let images: Vec<Option<usize>> = (0..DEPTH).map(Some).chain([None]).collect();
    let mut forked: Vec<Vec<ForkMeasurement>> = vec![Vec::new(); images.len()];
    for round in 0..rounds {
        for place in 0..images.len() {
            let place = (place + round) % images.len();
            let one = tree.fork(deepest, images[place], EXPORT).await.unwrap();
            forked[place].push(one);
        }
    }
    for (steps, all) in images.iter().zip(&forked) {
        println!(
            "specialised {steps:?} steps up: {:?}, {} faults",
            took(all),
            faults(all)
        );
    }
    let bare = faults(forked.last().unwrap());
    for (steps, all) in images.iter().zip(&forked).take(DEPTH) {
        let found = faults(all);
        assert!(found <= bare, "{steps:?}: {found} and {bare}");
    }
}

fn main() {
    support::main(|skip| {
        let mut all = Vec::new();
        for confinement in support::EACH {
            all.extend(trials![skip, confinement;
                a_prewarmed_seed_does_not_block_that_of_a_client,
                fifty_seeds_are_built_evicted_and_built_again,
                a_dropped_caller_leaves_the_queue_for_a_seed,
                a_fork_in_a_sandbox_specialised_for_the_parent_is_the_same_at_any_depth,
                a_fork_in_a_bare_sandbox_costs_little_more_a_level,
                a_fork_from_a_zygote_of_an_ancestor_is_better_than_from_a_generic_one,
            ]);
        }
        all
    });
}

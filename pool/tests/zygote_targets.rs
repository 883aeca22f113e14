//! Zygotes for several parents at once: which request gets which, and when they end.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::sync::Arc;
use std::time::Instant;

use faasw_pool::steps::{ForkMeasurement, StepTree};
use faasw_pool::{FreezePolicy, FunctionSpec, PoolOptions, PoolStats};
use faasw_seedtree::{Key, Owner};

use support::{Bench, Log, give_up, spec};

const EXPORT: &str = "init";
const SANDBOXES: usize = 8;

fn several() -> PoolOptions {
    PoolOptions {
        zygotes: SANDBOXES,
        ..PoolOptions::default()
    }
}

struct Family {
    tree: StepTree,
    log: Arc<Log>,
}

impl Family {
    async fn new(bench: &Bench) -> Self {
        let log = Arc::new(Log::default());
        let spec = FunctionSpec {
            log: log.clone(),
            ..spec(FreezePolicy::AfterInit)
        };
        let compiled = bench.compile("pool/tests/support/steps.wat").await;
        let tree = StepTree::new(&bench.pool, &spec, &compiled).await.unwrap();
        Self { tree, log }
    }

    /// Makes a parent of `owner`, and a child of it whose owner is `child`.
    async fn parent_and_child(&self, salt: u64, owner: Owner, child: Owner) -> (Key, Key) {
        let parent = self.tree.define(None, owner, EXPORT, salt).unwrap();
        let child = self.tree.define(Some(parent), child, EXPORT, 0).unwrap();
        self.tree.make(child).await.unwrap();
        (parent, child)
    }

    /// Forks `child`, whose first call counts to two, and calls its export.
    async fn serve(&self, child: Key) -> ForkMeasurement {
        self.log.lines.lock().unwrap().clear();
        let forked = self.tree.serve(child, EXPORT).await.unwrap();
        assert_eq!(*self.log.lines.lock().unwrap(), ["count2"]);
        forked
    }

    /// Serves `child` until a sandbox specialised for its parent does so. Returns that fork.
    async fn until_near(&self, bench: &Bench, child: Key) -> ForkMeasurement {
        let deadline = Instant::now() + give_up();
        loop {
            let forked = self.serve(child).await;
            if forked.steps == Some(1) {
                assert!(forked.was_ready);
                return forked;
            }
            assert!(
                Instant::now() < deadline,
                "no sandbox is specialised for it"
            );
            is_settled(bench).await;
        }
    }
}

/// Waits until the wanted number of sandboxes is ready, and all of them are specialised.
async fn is_settled(bench: &Bench) {
    let is_full = |stats: PoolStats| {
        stats.zygotes == stats.zygote_pool.wanted && stats.specialised == stats.zygotes
    };
    bench.settles("all are ready", is_full).await;
}

async fn two_popular_parents_have_specialised_sandboxes_at_once(bench: &Bench) {
    let family = Family::new(bench).await;
    let mut children = Vec::new();
    for number in [1, 2] {
        let (shared, own) = (Owner::Shared, Owner::Function(number));
        let (_, child) = family.parent_and_child(number, shared, own).await;
        let bare = family.tree.fork(child, None, EXPORT).await.unwrap();
        family.until_near(bench, child).await;
        children.push((child, bare.page_faults));
    }
    // Both parents have specialised sandboxes now, in each round.
    let mut faults = [u64::MAX; 2];
    for _ in 0..4 {
        is_settled(bench).await;
        let stats = bench.pool.stats();
        // The seed that all functions of the pool descend from keeps its part.
        assert_eq!(stats.zygote_pool.parents, 3, "{stats:?}");
        for ((child, _), least) in children.iter().zip(&mut faults) {
            let before = bench.pool.stats().zygote_pool;
            let forked = family.serve(*child).await;
            let after = bench.pool.stats().zygote_pool;
            assert_eq!((forked.steps, forked.was_ready), (Some(1), true));
            assert_eq!((after.hits - before.hits, after.near - before.near), (1, 1));
            *least = forked.page_faults.min(*least);
        }
    }
    for ((_, bare), specialised) in children.iter().zip(faults) {
        println!("{specialised} page faults instead of {bare}");
        if *bare >= 16 {
            assert!(specialised < bare / 2, "{specialised} and {bare}");
        }
    }
}

async fn a_zygote_specialised_for_one_function_serves_no_other(bench: &Bench) {
    let family = Family::new(bench).await;
    let owners = [1, 2].map(Owner::Function);
    let (_, mine) = family.parent_and_child(1, owners[0], owners[0]).await;
    let (_, anothers) = family.parent_and_child(2, owners[1], owners[1]).await;
    // A child of the same function, with another parent.
    let (_, aside) = family.parent_and_child(3, owners[0], owners[0]).await;
    for _ in 0..SANDBOXES {
        family.until_near(bench, mine).await;
    }
    is_settled(bench).await;
    assert_eq!(bench.pool.stats().zygote_pool.parents, 2);
    // All ready sandboxes belong to another owner or parent, so one is made.
    for other in [anothers, aside] {
        let sandboxes = bench.pool.stats().zygotes;
        let forked = family.serve(other).await;
        assert_eq!((forked.steps, forked.was_ready), (None, false));
        assert!(sandboxes > 0);
        is_settled(bench).await;
    }
    // All sandboxes that they have now are their own, and all owners together have half at most.
    for key in [mine, anothers, aside, mine] {
        family.until_near(bench, key).await;
    }
}

async fn an_evicted_parents_sandboxes_end_with_it(bench: &Bench) {
    let family = Family::new(bench).await;
    let owner = Owner::Function(1);
    let (parent, child) = family.parent_and_child(1, owner, owner).await;
    family.until_near(bench, child).await;
    is_settled(bench).await;
    assert_eq!(bench.pool.stats().zygote_pool.parents, 2);
    // Sandboxes do not keep their parent: every unused seed is evicted.
    assert_eq!(family.tree.fit(0), 0);
    assert_eq!(family.tree.forks(parent), None);
    let zygote_pool = bench.pool.stats().zygote_pool;
    assert_eq!(zygote_pool.parents, 1, "{zygote_pool:?}");
    is_settled(bench).await;
    let are_as_many = |stats: PoolStats| support::processes::sandboxes().len() == stats.zygotes;
    if bench.confinement == faasw_pool::Confinement::Jailed {
        bench.settles("the others have ended", are_as_many).await;
    }
    // The next parent is another seed with the same key.
    family.tree.make(child).await.unwrap();
    let forked = family.serve(child).await;
    assert_eq!(forked.steps, None);
    family.until_near(bench, child).await;
}

async fn sandboxes_are_taken_from_the_nearest_parent_that_has_any(bench: &Bench) {
    let family = Family::new(bench).await;
    let owner = Owner::Function(1);
    let (parent, middle) = family
        .parent_and_child(1, Owner::Shared, Owner::Shared)
        .await;
    let deepest = family.tree.define(Some(middle), owner, EXPORT, 0).unwrap();
    family.tree.make(deepest).await.unwrap();
    // Forks of the middle seed make the pool specialise sandboxes for its parent.
    for _ in 0..2 * SANDBOXES {
        family.until_near(bench, middle).await;
    }
    is_settled(bench).await;
    let farther = family.tree.serve(deepest, EXPORT).await.unwrap();
    assert_eq!((farther.steps, farther.was_ready), (Some(2), true));
    let deadline = Instant::now() + give_up();
    loop {
        is_settled(bench).await;
        let forked = family.tree.serve(deepest, EXPORT).await.unwrap();
        if forked.steps == Some(1) {
            break;
        }
        assert_eq!(forked.steps, Some(2));
        assert!(
            Instant::now() < deadline,
            "no sandbox is specialised for the nearer"
        );
    }
    assert!(family.tree.forks(parent).is_some());
}

fn main() {
    support::main(|skip| {
        let mut all = Vec::new();
        for confinement in support::EACH {
            all.extend(trials![skip, confinement;
                two_popular_parents_have_specialised_sandboxes_at_once in several(),
                a_zygote_specialised_for_one_function_serves_no_other in several(),
                an_evicted_parents_sandboxes_end_with_it in several(),
                sandboxes_are_taken_from_the_nearest_parent_that_has_any in several(),
            ]);
        }
        all
    });
}

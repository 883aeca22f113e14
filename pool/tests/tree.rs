//! The tree of seeds in real microVMs: what is shared, what gives way, and how a
//! function is served whose seed did.
//!
//! Without `/dev/kvm` every test here says so and counts as ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::time::{Duration, Instant};

use faasw_pool::{FreezePolicy, PoolOptions, Seed, SeedInfo, Served};

use support::{Bench, bytes_of, call, slowness};

const PROBE: &str = "fixtures/http-probe.wasm";
const HELLO: &str = "examples/hello/hello.wasm";

/// No function's seed fits.
fn no_room() -> PoolOptions {
    PoolOptions {
        seed_memory: 1,
        ..support::usual()
    }
}

/// One function's seed fits, two do not.
fn room_for_one() -> PoolOptions {
    PoolOptions {
        seed_memory: 700 << 10,
        ..support::usual()
    }
}

/// A function may hold nothing.
fn nothing_rests() -> PoolOptions {
    PoolOptions {
        function_memory: 1,
        ..support::usual()
    }
}

fn functions(bench: &Bench) -> Vec<SeedInfo> {
    let mut seeds = bench.pool.tree();
    seeds.retain(|seed| seed.level == 2);
    seeds
}

async fn eventually(what: &str, bench: &Bench, holds: impl Fn(&[SeedInfo]) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10) * slowness();
    while !holds(&functions(bench)) {
        let tree = bench.pool.tree();
        assert!(Instant::now() < deadline, "{what}: {tree:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn served(bench: &Bench, seed: &Seed, path: &str) -> (String, Served) {
    let reply = bench.get(seed, path).await.unwrap();
    let served = reply.timing.served;
    let body = bytes_of(reply.body).await.unwrap();
    (String::from_utf8(body).unwrap(), served)
}

async fn functions_share_what_they_have_in_common(bench: &Bench) {
    let seeds = [
        bench.seed(HELLO, FreezePolicy::Auto).await.unwrap(),
        bench.seed(PROBE, FreezePolicy::Auto).await.unwrap(),
        bench
            .seed("fixtures/cgi-probe.wasm", FreezePolicy::Auto)
            .await
            .unwrap(),
    ];
    for seed in &seeds {
        bench.get(seed, "/hello").await.unwrap();
    }
    let tree = bench.pool.tree();
    let levels: Vec<u8> = tree.iter().map(|seed| seed.level).collect();
    assert_eq!(levels, [0, 1, 2, 2, 2]);
    // All of the guest is in level 0, and nobody has a copy of it.
    let (guest, others) = tree.split_first().unwrap();
    assert!(guest.layer_bytes > 2 << 20, "{guest:?}");
    for seed in others {
        assert!(seed.layer_bytes < guest.layer_bytes / 2, "{seed:?}");
    }
    // Level 1 was forked for each function, its own parent once.
    assert_eq!((guest.forks, others[0].forks), (1, 3));
    drop(seeds);
    eventually("they go", bench, <[SeedInfo]>::is_empty).await;
}

async fn a_function_without_its_seed_is_served_from_an_ancestor(bench: &Bench) {
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    eventually("the seed gives way", bench, |all| !all[0].is_in_memory).await;
    for _ in 0..5 {
        let (body, kind) = served(bench, &seed, "/count").await;
        assert_eq!(body.trim(), "1");
        // While it is made again it may be there for a moment.
        assert!(matches!(kind, Served::Ancestor | Served::Shell), "{kind:?}");
    }
    // Environment and a body come through, as with a seed of its own.
    let (body, _) = served(bench, &seed, "/env").await;
    assert!(body.contains("COLOUR=green"), "{body}");
    let mut order = call("/echo");
    order.head.method = b"POST".to_vec();
    order.body = support::whole(&[7; 300_000]);
    let reply = bench.pool.invoke(&seed, order).await.unwrap();
    let body = bytes_of(reply.body).await.unwrap();
    assert!(body.ends_with(&[7; 300_000]), "{} bytes", body.len());
    // Its instances are not of the seed, and so none is kept.
    bench
        .settles("all instances end", |stats| stats.busy == 0)
        .await;
    assert!(functions(bench)[0].hits == 0, "{:?}", bench.pool.tree());
}

async fn many_that_wait_for_a_seed_have_it_made_once(bench: &Bench) {
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    eventually("the seed gives way", bench, |all| !all[0].is_in_memory).await;
    let before = bench.pool.tree()[1].forks;
    for body in bench.at_once(&seed, 8, "/count").await {
        assert_eq!(body.trim_ascii(), b"1");
    }
    bench
        .settles("all instances end", |stats| stats.busy == 0)
        .await;
    eventually("it gives way again", bench, |all| !all[0].is_in_memory).await;
    // Each request took a fork of level 1 at most, and so did each making, of
    // which there is one at a time.
    let forks = bench.pool.tree()[1].forks - before;
    assert!(forks <= 8 + 8, "{forks}");
}

async fn the_seed_that_is_worth_less_gives_way(bench: &Bench) {
    let hello = bench.seed(HELLO, FreezePolicy::Auto).await.unwrap();
    for _ in 0..20 {
        served(bench, &hello, "/").await;
    }
    // hello has instances: nothing takes its seed away.
    let probe = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    eventually("one gives way", bench, |all| {
        all.iter().filter(|seed| seed.is_in_memory).count() == 1
    })
    .await;
    assert!(functions(bench)[0].is_in_memory, "{:?}", bench.pool.tree());
    let (_, kind) = served(bench, &probe, "/count").await;
    assert_eq!(kind, Served::Ancestor);
    // Parked after a request, or made ahead while one was waiting.
    let (_, kind) = served(bench, &hello, "/").await;
    assert!(matches!(kind, Served::Parked | Served::Ready), "{kind:?}");
}

async fn an_early_frozen_function_is_served_from_an_ancestor_too(bench: &Bench) {
    let seed = bench
        .seed("fixtures/init-draws.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    eventually("the seed gives way", bench, |all| !all[0].is_in_memory).await;
    let mut drawn = std::collections::BTreeSet::new();
    for _ in 0..6 {
        let (body, _) = served(bench, &seed, "/").await;
        assert!(drawn.insert(body), "two initialisations drew the same");
    }
}

/// Has the probe serve several requests at once, after it is known what it writes.
async fn load(bench: &Bench, seed: &Seed) {
    for _ in 0..3 {
        bench.through(seed, call("/hello")).await;
    }
    let path = format!("/sleep/{}", 30 * slowness());
    bench.at_once(seed, 4, &path).await;
    bench
        .settles("all requests end", |stats| stats.busy == 0)
        .await;
}

async fn a_function_holds_no_more_than_it_may(roomy: &Bench) {
    let seed = roomy.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    load(roomy, &seed).await;
    let (held, stats) = (&functions(roomy)[0], roomy.pool.stats());
    assert!(held.parked >= 3, "{held:?}");
    let each = held.parked_bytes / held.parked as u64;
    assert!(each >= 4096, "{held:?}");
    // Also where the system gives large pages unasked.
    assert!(held.layer_bytes > 2 * each, "{held:?}");
    assert_eq!(
        (stats.seed_bytes, stats.parked_bytes),
        (held.layer_bytes, held.parked_bytes)
    );

    let budget = held.layer_bytes + each * 3 / 2;
    let bench = roomy
        .another(PoolOptions {
            function_memory: budget,
            // Of which the budget comes first.
            min_parked: 3,
            ..support::usual()
        })
        .await;
    let holds = |all: &[SeedInfo]| -> u64 {
        let each = all.iter().map(|version| match version.is_in_memory {
            true => version.layer_bytes + version.parked_bytes,
            false => version.parked_bytes,
        });
        each.sum()
    };
    let old = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    load(&bench, &old).await;
    eventually("one rests", &bench, |all| {
        all[0].parked == 1 && holds(all) <= budget
    })
    .await;
    let forks = functions(&bench)[0].forks;
    for _ in 0..5 {
        let (_, timing, _) = bench.through(&old, call("/hello")).await;
        assert_eq!(timing.served, Served::Parked);
        eventually("it rests again", &bench, |all| all[0].parked == 1).await;
    }
    let held = &functions(&bench)[0];
    assert!(held.is_in_memory);
    assert_eq!(held.forks, forks, "instances are made only to be ended");

    // Another version counts with it: first what rests ends, then one seed gives way.
    let new = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    eventually("one version stays", &bench, |all| {
        let in_memory = all.iter().filter(|version| version.is_in_memory).count();
        all.len() == 2 && in_memory == 1 && holds(all) <= budget
    })
    .await;
    for seed in [&old, &new] {
        let (body, _) = served(&bench, seed, "/count").await;
        assert_eq!(body.trim(), "1");
    }
    bench.pool.shutdown().await;
}

async fn a_function_that_may_hold_nothing_is_served_all_the_same(bench: &Bench) {
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    for _ in 0..3 {
        eventually("nothing is held", bench, |all| {
            !all[0].is_in_memory && all[0].parked == 0 && all[0].busy == 0
        })
        .await;
        let (body, kind) = served(bench, &seed, "/count").await;
        assert_eq!(body.trim(), "1");
        // While it is made again it may be there for a moment.
        assert!(matches!(kind, Served::Ancestor | Served::Shell), "{kind:?}");
    }
}

fn main() {
    support::main(|skip| {
        let mut all = Vec::new();
        for confinement in support::EACH {
            all.extend(trials![skip, confinement;
                functions_share_what_they_have_in_common,
                a_function_without_its_seed_is_served_from_an_ancestor in no_room(),
                many_that_wait_for_a_seed_have_it_made_once in no_room(),
                the_seed_that_is_worth_less_gives_way in room_for_one(),
                an_early_frozen_function_is_served_from_an_ancestor_too in no_room(),
                a_function_holds_no_more_than_it_may,
                a_function_that_may_hold_nothing_is_served_all_the_same in nothing_rests(),
            ]);
        }
        all
    });
}

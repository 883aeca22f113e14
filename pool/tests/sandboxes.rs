//! Zygotes: whatever they were specialised for, they serve like generic ones.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use faasw_pool::{
    Confinement, FreezePolicy, FunctionVersion, InvocationRequest, Pool, PoolOptions, Served,
};

use support::processes::{name_of, our_processes, sandboxes};
use support::{Bench, arriving, call, give_up, spec};

const PROBE: &str = "tests/fixtures/http-probe.wasm";

/// Options under which each request has a sandbox of its own.
fn forking() -> PoolOptions {
    PoolOptions {
        max_reuse: 1,
        zygotes: 3,
        ..PoolOptions::default()
    }
}

fn without_any() -> PoolOptions {
    PoolOptions {
        zygotes: 0,
        ..forking()
    }
}

/// Sends requests until a zygote serves one. Returns the response body and the number of page
/// faults.
async fn by_a_zygote(bench: &Bench, seed: &FunctionVersion, path: &str) -> (String, u64) {
    let deadline = Instant::now() + give_up();
    loop {
        let (body, timing, effort) = bench.through(seed, call(path)).await;
        if timing.served == Served::Zygote {
            return (String::from_utf8(body).unwrap(), effort.page_faults);
        }
        assert!(Instant::now() < deadline, "no zygote is made");
        bench
            .settles("one is made", |stats| stats.zygotes > 0)
            .await;
    }
}

/// Waits until every zygote is specialised for the seed that functions descend from.
async fn all_are_specialised(bench: &Bench) {
    let all_specialised =
        |stats: faasw_pool::PoolStats| stats.zygotes > 0 && stats.specialised == stats.zygotes;
    bench
        .settles("all zygotes are specialised", all_specialised)
        .await;
}

async fn seed_and_specialised_zygotes(bench: &Bench) -> FunctionVersion {
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    all_are_specialised(bench).await;
    seed
}

async fn a_dropped_pool_leaves_no_sandboxes_while_a_version_is_held(bench: &Bench) {
    let other = bench.another(forking()).await;
    let seed = seed_and_specialised_zygotes(&other).await;
    assert!(!sandboxes().is_empty());
    drop(other);
    let deadline = Instant::now() + give_up();
    while !sandboxes().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", sandboxes());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(seed);
}

fn spawners() -> BTreeSet<u32> {
    let all = our_processes().into_iter();
    all.filter(|pid| name_of(*pid) == "faasw-spawner").collect()
}

/// The spawner of such a pool has no sandboxes, and so would never send another report.
async fn an_empty_pool_that_is_dropped_leaves_no_spawner(bench: &Bench) {
    let before = spawners();
    let other = bench.another(without_any()).await;
    let deadline = Instant::now() + give_up();
    while spawners() == before || !sandboxes().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", sandboxes());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(other);
    while spawners() != before {
        assert!(Instant::now() < deadline, "{:?}", spawners());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn a_specialised_sandbox_needs_few_page_faults(bench: &Bench) {
    let bare = bench.another(without_any()).await;
    let made = bare.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    let mut before = u64::MAX;
    // The first instance has no working set yet.
    for _ in 0..3 {
        let (_, timing, effort) = bare.through(&made, call("/count")).await;
        assert_eq!(timing.served, Served::Made);
        before = before.min(effort.page_faults);
    }
    bare.pool.shutdown().await;
    let seed = seed_and_specialised_zygotes(bench).await;
    if before < 16 {
        println!("{before} page faults: the host fills tables in advance");
        return;
    }
    let deadline = Instant::now() + give_up();
    loop {
        let (body, faults) = by_a_zygote(bench, &seed, "/count").await;
        assert_eq!(body.trim(), "1");
        // Sandboxes from before the seeds were made are specialised one after the other.
        if faults < before / 2 {
            println!("{faults} page faults instead of {before}");
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{faults} faults, not half of {before}"
        );
    }
}

async fn no_sandbox_serves_twice(bench: &Bench) {
    let seed = seed_and_specialised_zygotes(bench).await;
    let mut drawn = BTreeSet::new();
    for _ in 0..4 {
        let asking: Vec<_> = (0..16)
            .flat_map(|_| ["/count", "/random"])
            .map(|path| {
                let (pool, seed) = (bench.pool.clone(), seed.clone());
                tokio::spawn(async move { (path, pool.invoke(&seed, call(path)).await) })
            })
            .collect();
        for asked in asking {
            let (path, reply) = asked.await.unwrap();
            let body = support::bytes_of(reply.unwrap().body).await.unwrap();
            let body = String::from_utf8(body).unwrap();
            match path {
                "/count" => assert_eq!(body.trim(), "1"),
                _ => assert!(drawn.insert(body), "two drew the same"),
            }
        }
    }
    bench
        .settles("all end", |stats| stats.busy == 0 && stats.warm == 0)
        .await;
}

async fn functions_of_any_memory_are_served(bench: &Bench) {
    let compiled = bench.compile(PROBE).await;
    for mib in [8, 128, 600] {
        let mut spec = spec(FreezePolicy::Auto);
        spec.memory_limit = mib << 20;
        let made = bench.pool.make_seed(&spec, &compiled).await;
        let seed = made.unwrap().version;
        all_are_specialised(bench).await;
        let most = (mib << 20 >> 16) - 64;
        for _ in 0..3 {
            let (told, _) = by_a_zygote(bench, &seed, &format!("/grow/{most}")).await;
            assert!(!told.contains("failed"), "{mib} MiB: {told}");
            let (told, _) = by_a_zygote(bench, &seed, &format!("/grow/{}", 2 * most)).await;
            assert!(told.contains("failed"), "{mib} MiB: {told}");
        }
    }
}

async fn a_large_function_is_served(bench: &Bench) {
    // More of its own than is copied.
    let seed = bench
        .seed("examples/go-http/go-http.wasm", FreezePolicy::AfterInit)
        .await
        .unwrap();
    all_are_specialised(bench).await;
    for _ in 0..4 {
        let (told, faults) = by_a_zygote(bench, &seed, "/hello").await;
        assert!(told.contains("count 1"), "{told}");
        println!("{faults} page faults");
    }
}

async fn a_sandbox_that_was_ready_is_a_hit_and_one_that_is_made_a_miss(bench: &Bench) {
    let seed = seed_and_specialised_zygotes(bench).await;
    let zygote_pool = bench.pool.stats().zygote_pool;
    assert_eq!((zygote_pool.low, zygote_pool.high), (3, 24));
    assert_eq!(zygote_pool.parents, 1, "what all functions descend from");
    let bare = bench.another(without_any()).await;
    let made = bare.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    let mut hits = 0;
    for (bench, seed) in [(bench, &seed), (&bare, &made)] {
        for _ in 0..4 {
            let before = bench.pool.stats().zygote_pool;
            let (_, timing, _) = bench.through(seed, call("/count")).await;
            let after = bench.pool.stats().zygote_pool;
            let rose = (after.hits - before.hits, after.misses - before.misses);
            match timing.served {
                Served::Zygote => assert_eq!(rose, (1, 0)),
                served => assert_eq!((served, rose), (Served::Made, (0, 1))),
            }
            assert!((after.low..=after.high).contains(&after.wanted));
            hits += rose.0;
        }
    }
    // All sandboxes were ready before the first request, so it found one.
    assert!(hits > 0);
    // With one parent, each sandbox that was ready was specialised for it.
    let zygote_pool = bench.pool.stats().zygote_pool;
    assert_eq!(zygote_pool.near, zygote_pool.hits);
    // The last ones may just have been taken.
    bench
        .settles("sandboxes are specialised again", |stats| {
            stats.zygote_pool.parents == 1
        })
        .await;
    assert_eq!(bare.pool.stats().zygote_pool.hits, 0);
    bare.pool.shutdown().await;
}

async fn working_sets_of_functions_do_not_change_those_of_shared_seeds(bench: &Bench) {
    let seed = seed_and_specialised_zygotes(bench).await;
    // Some instances are forked from the function's seed, and record what they use.
    for _ in 0..4 {
        bench.through(&seed, call("/count")).await;
    }
    // Without memory for seeds, all instances are forked from what functions share.
    let roomless = PoolOptions {
        seed_memory: 0,
        ..forking()
    };
    let roomless = bench.another(roomless).await;
    let evicted = seed_and_specialised_zygotes(&roomless).await;
    let mut by_ancestor = 0;
    for _ in 0..4 {
        let (_, timing, _) = roomless.through(&evicted, call("/count")).await;
        by_ancestor += u32::from(timing.served == Served::Ancestor);
    }
    assert!(by_ancestor > 0);
    for pool in [&bench.pool, &roomless.pool] {
        let tree = pool.tree();
        let shared: Vec<_> = tree.iter().filter(|seed| seed.level < 2).collect();
        assert_eq!(shared.len(), 2);
        for seed in shared {
            let learnt = (seed.written_pages, seed.read_pages);
            assert_eq!(learnt, (0, 0), "{seed:?}");
        }
    }
    let own = bench.pool.tree().into_iter().find(|seed| seed.level == 2);
    assert!(own.is_some_and(|own| own.written_pages > 0));
    roomless.pool.shutdown().await;
}

/// Sends three requests, each served by a sandbox of its own, and waits for each sandbox to end.
/// Returns how many jails reused a free control group, and how many had one made.
async fn groups_of_three_sandboxes(bench: &Bench) -> (u64, u64) {
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    let all_ended = |stats: faasw_pool::PoolStats| stats.busy == 0 && stats.groups.used == 0;
    bench.settles("all end", all_ended).await;
    let before = bench.pool.stats().groups;
    for _ in 0..3 {
        let (_, timing, _) = bench.through(&seed, call("/count")).await;
        assert_eq!(timing.served, Served::Made);
        bench.settles("it ends", all_ended).await;
    }
    let after = bench.pool.stats().groups;
    assert!(after.free <= after.free_max, "{after:?}");
    (after.hits - before.hits, after.misses - before.misses)
}

async fn groups_are_used_again_when_their_sandboxes_have_ended(bench: &Bench) {
    let (hits, misses) = groups_of_three_sandboxes(bench).await;
    // A group is made anew if too much memory is still charged to the old one.
    assert!(hits > 0 && hits + misses == 3, "{hits} and {misses}");
    assert!(bench.pool.stats().groups.free > 0);
    let unkept = bench
        .another(PoolOptions {
            groups_kept: 0,
            ..without_any()
        })
        .await;
    assert_eq!(groups_of_three_sandboxes(&unkept).await, (0, 3));
    assert_eq!(unkept.pool.stats().groups.free, 0);
    unkept.pool.shutdown().await;
    // The groups are removed with the spawner, and the counters stay.
    let groups = unkept.pool.stats().groups;
    assert!((groups.free, groups.used) == (0, 0) && groups.misses > 3);
}

async fn no_more_groups_are_kept_than_are_allowed(bench: &Bench) {
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    bench.at_once(&seed, 8, "/count").await;
    bench
        .settles("all end", |stats| stats.busy == 0 && stats.groups.used == 0)
        .await;
    let groups = bench.pool.stats().groups;
    // Eight sandboxes had a group.
    assert_eq!(groups.free_max, 2, "{groups:?}");
    assert!(groups.free <= groups.free_max, "{groups:?}");
}

async fn as_many_groups_are_in_use_as_there_are_jails(bench: &Bench) {
    seed_and_specialised_zygotes(bench).await;
    let are_as_many = |stats: faasw_pool::PoolStats| {
        let jails = support::processes::sandboxes().len() as u64;
        stats.groups.used == jails
    };
    bench.settles("groups and jails", are_as_many).await;
}

async fn threads_have_no_groups(bench: &Bench) {
    bench
        .settles("sandboxes are made", |stats| stats.zygotes > 0)
        .await;
    let groups = bench.pool.stats().groups;
    assert_eq!(groups, faasw_pool::GroupStats::default());
}

/// The pool knows how many instances are possible only after the spawner has reported whether
/// control groups limit their memory.
async fn reading_statistics_before_the_first_sandbox_changes_nothing(bench: &Bench) {
    let spec = spec(FreezePolicy::Auto);
    let options = PoolOptions {
        confinement: bench.confinement,
        // Memory for one instance at its limit.
        instance_memory: Some(spec.memory_limit + (32 << 20)),
        ..forking()
    };
    let starting = Pool::begin(options).unwrap();
    let other = Bench {
        pool: starting.with(None).unwrap(),
        confinement: bench.confinement,
    };
    assert_eq!(other.pool.stats().busy, 0);
    other.pool.started().await.unwrap();
    // If control groups kill instances that exceed their memory, four times as many are possible.
    let most = match other.pool.stats().memory.used {
        Some(_) => 4,
        None => 1,
    };
    let seed = other.seed_of(PROBE, &spec).await.unwrap();
    let held: Vec<_> = (0..most)
        .map(|_| {
            let (client, body) = arriving();
            let order = InvocationRequest {
                body,
                ..call("/echo")
            };
            let (pool, seed) = (other.pool.clone(), seed.clone());
            (
                client,
                tokio::spawn(async move { pool.invoke(&seed, order).await }),
            )
        })
        .collect();
    other
        .settles("all are at work", |stats| stats.busy == most)
        .await;
    for (client, answer) in held {
        drop(client);
        answer.await.unwrap().unwrap();
    }
    other.pool.shutdown().await;
}

fn main() {
    support::main(|skip| {
        let mut all = Vec::new();
        for confinement in support::EACH {
            all.extend(trials![skip, confinement;
                a_specialised_sandbox_needs_few_page_faults in forking(),
                no_sandbox_serves_twice in forking(),
                functions_of_any_memory_are_served in forking(),
                a_large_function_is_served in forking(),
                a_sandbox_that_was_ready_is_a_hit_and_one_that_is_made_a_miss in forking(),
                working_sets_of_functions_do_not_change_those_of_shared_seeds in forking(),
            ]);
        }
        all.extend(trials![skip;
            an_empty_pool_that_is_dropped_leaves_no_spawner in without_any(),
            reading_statistics_before_the_first_sandbox_changes_nothing in without_any(),
            a_dropped_pool_leaves_no_sandboxes_while_a_version_is_held in without_any(),
        ]);
        all.extend(trials![skip || !support::jails::have_groups();
            groups_are_used_again_when_their_sandboxes_have_ended in without_any(),
            no_more_groups_are_kept_than_are_allowed in PoolOptions {
                groups_kept: 2,
                ..without_any()
            },
            as_many_groups_are_in_use_as_there_are_jails in forking(),
        ]);
        all.extend(trials![skip, Confinement::InProcess;
            threads_have_no_groups in forking(),
        ]);
        all
    });
}

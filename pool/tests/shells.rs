//! Shells that are made ahead: whatever they were preset with, they serve as shells
//! that were not.
//!
//! Without `/dev/kvm` every test here says so and counts as ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use faasw_pool::{FreezePolicy, PoolOptions, Seed, Served};

use support::{Bench, call, slowness, spec};

const PROBE: &str = "fixtures/http-probe.wasm";

/// Each request has a shell of its own.
fn forking() -> PoolOptions {
    PoolOptions {
        max_reuse: 1,
        shells_ready: 3,
        ..PoolOptions::default()
    }
}

fn without_any() -> PoolOptions {
    PoolOptions {
        shells_ready: 0,
        ..forking()
    }
}

/// What a request answers that a shell serves which was there before, and the page
/// faults that it took.
async fn by_a_shell(bench: &Bench, seed: &Seed, path: &str) -> (String, u64) {
    let deadline = Instant::now() + Duration::from_secs(10) * slowness();
    loop {
        let (body, timing, effort) = bench.through(seed, call(path)).await;
        if timing.served == Served::Shell {
            return (String::from_utf8(body).unwrap(), effort.page_faults);
        }
        assert!(Instant::now() < deadline, "no shell is made ahead");
        bench.settles("one is made", |stats| stats.shells > 0).await;
    }
}

/// Waits until every shell that is ready is an image of what functions descend from.
async fn all_are_preset(bench: &Bench) {
    let all_preset =
        |stats: faasw_pool::EngineStats| stats.shells > 0 && stats.preset == stats.shells;
    bench.settles("all shells are preset", all_preset).await;
}

async fn seed_and_preset_shells(bench: &Bench) -> Seed {
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    all_are_preset(bench).await;
    seed
}

async fn a_preset_shell_needs_few_page_faults(bench: &Bench) {
    let bare = bench.another(without_any()).await;
    let made = bare.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    let mut before = u64::MAX;
    // The first has no working set yet.
    for _ in 0..3 {
        let (_, timing, effort) = bare.through(&made, call("/count")).await;
        assert_eq!(timing.served, Served::Made);
        before = before.min(effort.page_faults);
    }
    bare.pool.shutdown().await;
    let seed = seed_and_preset_shells(bench).await;
    if before < 16 {
        println!("{before} page faults: the host fills tables in advance");
        return;
    }
    let deadline = Instant::now() + Duration::from_secs(10) * slowness();
    loop {
        let (body, faults) = by_a_shell(bench, &seed, "/count").await;
        assert_eq!(body.trim(), "1");
        // Those that were there before the seeds are preset one after the other.
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

async fn no_shell_serves_twice(bench: &Bench) {
    let seed = seed_and_preset_shells(bench).await;
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
        .settles("all end", |stats| stats.busy == 0 && stats.parked == 0)
        .await;
}

async fn functions_of_any_memory_are_served(bench: &Bench) {
    let compiled = bench.compile(PROBE).await;
    for mib in [8, 128, 600] {
        let mut spec = spec(FreezePolicy::Auto);
        spec.memory_limit = mib << 20;
        let (seed, _) = bench.pool.make_seed(&spec, &compiled).await.unwrap();
        all_are_preset(bench).await;
        let most = (mib << 20 >> 16) - 64;
        for _ in 0..3 {
            let (told, _) = by_a_shell(bench, &seed, &format!("/grow/{most}")).await;
            assert!(!told.contains("failed"), "{mib} MiB: {told}");
            let (told, _) = by_a_shell(bench, &seed, &format!("/grow/{}", 2 * most)).await;
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
    all_are_preset(bench).await;
    for _ in 0..4 {
        let (told, faults) = by_a_shell(bench, &seed, "/hello").await;
        assert!(told.contains("count 1"), "{told}");
        println!("{faults} page faults");
    }
}

fn main() {
    support::main(|skip| {
        let mut all = Vec::new();
        for confinement in support::EACH {
            all.extend(trials![skip, confinement;
                a_preset_shell_needs_few_page_faults in forking(),
                no_shell_serves_twice in forking(),
                functions_of_any_memory_are_served in forking(),
                a_large_function_is_served in forking(),
            ]);
        }
        all
    });
}

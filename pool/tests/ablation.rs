//! A pool serves functions with any one mechanism switched off.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::time::Duration;

use faasw_pool::{FreezePolicy, Mechanism, PoolOptions, SeedInfo};

use support::{Bench, call};

const PROBE: &str = "tests/fixtures/http-probe.wasm";

/// Options under which instances poll for their next request, without `mechanism`.
fn hot_without(mechanism: Mechanism) -> PoolOptions {
    PoolOptions {
        poll: Duration::from_micros(200),
        ..without(mechanism)
    }
}

fn without(mechanism: Mechanism) -> PoolOptions {
    PoolOptions {
        without: vec![mechanism],
        ..support::usual()
    }
}

/// Serves a few requests of a function, one after another and then at once. Returns its seed.
async fn serve(bench: &Bench) -> SeedInfo {
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    for _ in 0..3 {
        bench.through(&seed, call("/hello")).await;
    }
    for body in bench.at_once(&seed, 6, "/count").await {
        assert_eq!(body.trim_ascii(), b"1");
    }
    let tree = bench.pool.tree();
    tree.into_iter().find(|seed| seed.level == 2).unwrap()
}

async fn every_mechanism_is_on_by_default(bench: &Bench) {
    let seed = serve(bench).await;
    assert!(seed.written_pages > 0 && seed.read_pages > 0, "{seed:?}");
    // A sandbox that is still being made installs its filter soon.
    let all_are = |_| {
        let filtered = are_filtered();
        !filtered.is_empty() && !filtered.contains(&false)
    };
    bench.settles("every sandbox is filtered", all_are).await;
}

async fn without_its_write_set_a_function_is_served(bench: &Bench) {
    let seed = serve(bench).await;
    assert!(seed.written_pages == 0 && seed.read_pages > 0, "{seed:?}");
}

async fn without_its_read_set_a_function_is_served(bench: &Bench) {
    let seed = serve(bench).await;
    assert!(seed.written_pages > 0 && seed.read_pages == 0, "{seed:?}");
}

/// Returns, for each sandbox that still exists, whether it has a filter of its own in addition to
/// those that it inherits from the spawner.
fn are_filtered() -> Vec<bool> {
    let told = |pid: u32, key: &str| -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        value?.trim().parse().ok()
    };
    let filters = |pid| told(pid, "Seccomp_filters");
    let sandboxes = support::processes::sandboxes();
    let filtered = |pid| Some(filters(pid)? > filters(told(pid, "PPid")?)?);
    sandboxes.into_iter().filter_map(filtered).collect()
}

async fn without_its_jail_a_function_is_served(bench: &Bench) {
    serve(bench).await;
    let filtered = are_filtered();
    assert!(
        !filtered.is_empty() && !filtered.contains(&true),
        "{filtered:?}"
    );
}

/// Sends requests one after the other, each as soon as the response to the previous one is read.
async fn serve_one_after_the_other(bench: &Bench) {
    serve(bench).await;
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    for _ in 0..100 {
        bench.through(&seed, call("/hello")).await;
    }
}

async fn without_hot_instances_no_request_is_found(bench: &Bench) {
    serve_one_after_the_other(bench).await;
    let polling = bench.pool.stats().polling;
    assert_eq!((polling.found, polling.cpu), (0, Duration::ZERO));
}

async fn without_polling_for_answers_a_function_is_served(bench: &Bench) {
    serve_one_after_the_other(bench).await;
}

/// Covers mechanisms whose absence only shows in times.
async fn a_function_is_served(bench: &Bench) {
    serve(bench).await;
}

fn mechanisms_are_known_by_name() {
    for one in Mechanism::ALL {
        assert_eq!(one.name().parse(), Ok(one));
    }
    let error = "isolation".parse::<Mechanism>().unwrap_err();
    assert!(error.contains("write-set"), "{error}");
}

fn main() {
    support::main(|skip| {
        let mut trials = trials![skip;
            every_mechanism_is_on_by_default,
            without_its_write_set_a_function_is_served in without(Mechanism::WriteSet),
            without_its_read_set_a_function_is_served in without(Mechanism::ReadSet),
            without_its_jail_a_function_is_served in without(Mechanism::Jail),
            without_hot_instances_no_request_is_found in hot_without(Mechanism::Hot),
            without_polling_for_answers_a_function_is_served in hot_without(Mechanism::NodeLooks),
        ];
        // The tests above check a visible effect of the mechanism that they switch off.
        let only_times = [
            Mechanism::LargePages,
            Mechanism::EarlyEnd,
            Mechanism::Turns,
            Mechanism::ResetWait,
            Mechanism::SetSplit,
            Mechanism::Prefill,
        ];
        for mechanism in only_times {
            let name = format!("without_{}_a_function_is_served", mechanism.name());
            let trial = libtest_mimic::Trial::test(name, move || {
                support::run(without(mechanism), |bench| {
                    Box::pin(a_function_is_served(bench))
                })
            });
            trials.push(trial.with_ignored_flag(skip));
        }
        trials.push(libtest_mimic::Trial::test(
            "mechanisms_are_known_by_name",
            || {
                mechanisms_are_known_by_name();
                Ok(())
            },
        ));
        trials
    });
}

//! Properties that only microVMs on threads of the program have. The other suites run with threads
//! as well as with jails, and show that both serve alike.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use faasw_pool::{
    CompileError, Confinement, FreezePolicy, FunctionKind, FunctionVersion, InvokeError,
    PlatformError, Pool, PoolOptions, Served, StartError,
};

use support::processes::{descriptors, name_of, our_processes, our_threads, sandboxes};
use support::{Bench, call, give_up, slowness, spec};

const PROBE: &str = "tests/fixtures/http-probe.wasm";
const HELLO: &str = "examples/hello/hello.wasm";

/// Options without zygotes: each thread is an instance.
fn only_instances() -> PoolOptions {
    PoolOptions {
        zygotes: 0,
        ..PoolOptions::default()
    }
}

/// Options under which each request has a microVM of its own.
fn of_one_request() -> PoolOptions {
    PoolOptions {
        max_reuse: 1,
        zygotes: 2,
        ..PoolOptions::default()
    }
}

async fn requests_are_served_by_threads_without_processes(bench: &Bench) {
    let compiled = bench.compile(PROBE).await;
    let artifact = compiled.bytes().unwrap();
    bench.pool.shutdown().await;

    let bench = bench.another(support::usual()).await;
    let loaded = support::load_code(compiled.kind, &artifact);
    let spec = spec(FreezePolicy::Auto);
    let made = bench.pool.make_seed(&spec, &loaded).await;
    let seed = made.unwrap().version;
    for _ in 0..3 {
        assert_eq!(bench.text(&seed, "/count").await.trim(), "1");
    }
    assert!(!sandboxes().is_empty());
    assert!(our_processes().is_empty(), "nobody asked for a process");
    bench.pool.shutdown().await;
    assert!(sandboxes().is_empty());
}

async fn the_threads_of_looping_guests_end(bench: &Bench) {
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    let before = caught();
    let looping = |limit: Duration| {
        let (pool, seed) = (bench.pool.clone(), seed.clone());
        let mut order = call("/loop");
        order.limits.first_byte = limit;
        tokio::spawn(async move { pool.invoke(&seed, order).await })
    };
    let limit = Duration::from_millis(200) * slowness();
    let asked: Vec<_> = (0..8)
        .map(|part| looping(limit + limit * part / 8))
        .collect();
    for asked in asked {
        let ended = asked.await.unwrap();
        assert!(matches!(ended, Err(InvokeError::TimedOut(_))), "{ended:?}");
    }
    bench
        .settles("their threads end", |stats| {
            stats.busy == 0 && sandboxes().is_empty()
        })
        .await;
    // Threads of requests that are dropped at any moment of entering the VM end as well.
    for microseconds in (0..4000).step_by(100) {
        let asked = looping(Duration::from_secs(60) * slowness());
        tokio::time::sleep(Duration::from_micros(microseconds) * slowness()).await;
        asked.abort();
    }
    bench
        .settles("their threads end", |stats| {
            stats.busy == 0 && sandboxes().is_empty()
        })
        .await;
    assert_eq!(bench.text(&seed, "/count").await.trim(), "1");
    assert_eq!(caught(), before, "signals have other handlers now");
}

/// Returns the signals that this program has handlers for, as the kernel prints them.
fn caught() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let caught = status.lines().find(|line| line.starts_with("SigCgt:"));
    caught.unwrap().to_owned()
}

/// Resources of this program that its microVMs take and must return.
#[derive(Debug, PartialEq, Eq)]
struct HeldResources {
    /// Threads other than the runtime's, which come and go.
    threads: usize,
    descriptors: usize,
    /// Mappings of memory that belongs to microVMs.
    mappings: usize,
}

fn held_resources() -> HeldResources {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let of_microvms = |line: &&str| line.contains("/memfd:faasw-") || line.contains("kvm-vcpu");
    let is_own = |thread: &u32| !name_of(*thread).starts_with("tokio");
    HeldResources {
        threads: our_threads().iter().filter(|thread| is_own(thread)).count(),
        descriptors: descriptors(),
        mappings: maps.lines().filter(of_microvms).count(),
    }
}

/// Returns the size of this program's address space, in bytes.
fn address_space() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages = pages.split_whitespace().next().unwrap();
    pages.parse::<u64>().unwrap() * 4096
}

async fn hundreds_of_instances_leave_nothing_behind(first: &Bench) {
    first.compile(HELLO).await;
    first.pool.shutdown().await;
    let before = held_resources();
    assert_eq!(before.mappings, 0, "{before:?}");
    let mut spaces = Vec::new();
    for _ in 0..3 {
        let bench = first.another(of_one_request()).await;
        let seed = bench.seed(HELLO, FreezePolicy::Auto).await.unwrap();
        for _ in 0..(40 / slowness()).max(2) {
            let four = [(); 4].map(|()| {
                let (pool, seed) = (bench.pool.clone(), seed.clone());
                tokio::spawn(async move { pool.invoke(&seed, call("/")).await })
            });
            for asked in four {
                assert_eq!(asked.await.unwrap().unwrap().head.status, 200);
            }
        }
        let served = held_resources();
        assert!(
            served.mappings > 0 && served.threads > before.threads,
            "{served:?}"
        );
        bench.pool.shutdown().await;
        drop(seed);
        assert_eq!(held_resources().mappings, 0);
        // Joining a thread returns a moment before the kernel stops listing it.
        let deadline = Instant::now() + give_up();
        while held_resources().threads != before.threads {
            assert!(
                Instant::now() < deadline,
                "{:?} {before:?}",
                held_resources()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        spaces.push(address_space());
    }
    // The last tasks that refer to a seed release its layers.
    let deadline = Instant::now() + give_up();
    while held_resources() != before {
        assert!(
            Instant::now() < deadline,
            "{:?} {before:?}",
            held_resources()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // An instance has more than 100 MiB of addresses, and a round makes at least eight of them.
    // For comparison: an arena of the C library for a new thread takes 64 MiB.
    assert!(spaces[2] < spaces[0] + (1 << 30), "{spaces:?}");
}

async fn a_pool_that_is_dropped_leaves_no_thread(first: &Bench) {
    first.pool.shutdown().await;
    {
        let bench = first.another(support::usual()).await;
        let seed = bench.seed(HELLO, FreezePolicy::Auto).await.unwrap();
        bench.text(&seed, "/").await;
        assert!(!sandboxes().is_empty());
    }
    let deadline = Instant::now() + give_up();
    while !sandboxes().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", sandboxes());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Environment variable with the path of the artifact, for a copy of this program that runs where
/// jails are not allowed.
const ARTIFACT: &str = "FAASW_TEST_ARTIFACT";

/// Script that forbids itself to create namespaces, which needs a user namespace, and then runs the
/// given command.
const FORBID: &str = r#"
for most in /proc/sys/user/max_*_namespaces; do echo 0 > "$most" || exit 1; done
exec "$@""#;

async fn compiled_code_runs_where_no_jails_are_allowed(bench: &Bench) {
    let compiled = bench.compile(PROBE).await;
    let path = std::env::temp_dir().join(format!("faasw-artifact-{}", std::process::id()));
    fs::write(&path, compiled.bytes().unwrap()).unwrap();
    let ended = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", FORBID, "sh"])
        .arg(std::env::current_exe().unwrap())
        .env(ARTIFACT, &path)
        .output();
    fs::remove_file(&path).unwrap();
    let ended = ended.unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{ended:?}");
    assert!(said.contains("1 passed"), "{said}");
}

/// The test that the copy runs.
async fn without_jails(bench: &Bench) {
    let artifact = fs::read(std::env::var_os(ARTIFACT).unwrap()).unwrap();
    let loaded = support::load_code(FunctionKind::HttpComponent, &artifact);
    let spec = spec(FreezePolicy::Auto);
    let made = bench.pool.make_seed(&spec, &loaded).await;
    let seed = made.unwrap().version;
    for _ in 0..3 {
        assert_eq!(bench.text(&seed, "/count").await.trim(), "1");
    }
    let refused = bench.pool.compile(support::module(HELLO)).await;
    assert!(
        matches!(
            &refused,
            Err(CompileError::Platform(PlatformError::Jail { .. }))
        ),
        "{refused:?}"
    );
    // The node does not silently replace jails if they are wanted.
    let jailed = Pool::start(PoolOptions::default()).await;
    assert!(
        matches!(
            &jailed,
            Err(StartError::Sandbox(PlatformError::Jail { .. }))
        ),
        "{jailed:?}"
    );
    assert_eq!(bench.text(&seed, "/count").await.trim(), "1");
}

/// Returns the median time of a request to a warm instance.
async fn measure_warm(bench: &Bench, seed: &FunctionVersion, requests: usize) -> Duration {
    let mut took = Vec::new();
    while took.len() < requests {
        let started = Instant::now();
        let reply = bench.get(seed, "/").await.unwrap();
        if reply.timing.served == Served::Warm {
            took.push(started.elapsed());
        }
        // The next request is to find the instance warm.
        bench.settles("it is warm", |stats| stats.busy == 0).await;
    }
    took.sort_unstable();
    took[took.len() / 2]
}

async fn a_warm_instance_answers_as_soon_as_in_a_jail(bench: &Bench) {
    let jailed = Bench::start(only_instances()).await;
    let seeds = [
        bench.seed(HELLO, FreezePolicy::Auto).await.unwrap(),
        jailed.seed(HELLO, FreezePolicy::Auto).await.unwrap(),
    ];
    let requests = (100 / slowness() as usize).max(5);
    let mut medians = [Vec::new(), Vec::new()];
    // The rounds alternate, so that other load on the host affects both.
    for _ in 0..5 {
        medians[0].push(measure_warm(bench, &seeds[0], requests).await);
        medians[1].push(measure_warm(&jailed, &seeds[1], requests).await);
    }
    // Other work on the machine makes some rounds slower and none faster.
    let [thread, jail] = medians.map(|all| all.into_iter().min().unwrap());
    let ratio = thread.as_secs_f64() / jail.as_secs_f64();
    println!("warm hello: {thread:?} in process, {jail:?} in a jail, {ratio:.2} times");
    jailed.pool.shutdown().await;
    assert!(ratio < 2.0, "{ratio}");
}

fn main() {
    assert_eq!(PoolOptions::default().confinement, Confinement::Jailed);
    support::main(|skip| {
        if std::env::var_os(ARTIFACT).is_some() {
            return trials![skip, Confinement::InProcess; without_jails];
        }
        trials![skip, Confinement::InProcess;
            requests_are_served_by_threads_without_processes,
            the_threads_of_looping_guests_end in only_instances(),
            hundreds_of_instances_leave_nothing_behind,
            a_pool_that_is_dropped_leaves_no_thread,
            compiled_code_runs_where_no_jails_are_allowed,
            a_warm_instance_answers_as_soon_as_in_a_jail in only_instances(),
        ]
    });
}

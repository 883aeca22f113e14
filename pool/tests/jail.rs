//! Checks the jails of live processes as the kernel shows them: idle sandboxes, warm instances
//! and the compile helper at work; and that nothing of them remains.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored. They are ignored for users
//! other than root, too, because only root may inspect the jails.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use faasw_pool::{Confinement, FreezePolicy, PoolOptions};

use support::jails::{
    self, assert_closed, assert_reduced, descriptors, filters, groups, is_left, namespace,
    soft_limit, threads, user, weight,
};
use support::processes::{kill, name_of, our_processes, sandboxes};
use support::{Bench, give_up};

const HELLO: &str = "examples/hello/hello.wasm";
/// A module that takes seconds to compile.
const LARGE: &str = "examples/go-http/go-http.wasm";

fn two_ahead() -> PoolOptions {
    PoolOptions {
        zygotes: 2,
        ..support::usual()
    }
}

fn none_ahead() -> PoolOptions {
    PoolOptions {
        zygotes: 0,
        ..support::usual()
    }
}

fn main() {
    let not_root = !jails::may_look();
    support::main(|skip| {
        let mut all = trials![skip || not_root;
            sandboxes_have_no_access_outside_their_jail in two_ahead(),
            a_warm_instance_has_exactly_its_descriptors in none_ahead(),
            the_compile_helper_has_no_access_outside_its_jail,
        ];
        all.extend(trials![skip || not_root, Confinement::Reduced;
            reduced_sandboxes_lack_only_namespaces in two_ahead(),
            a_reduced_instance_serves_and_is_reset in none_ahead(),
            the_reduced_compile_helper_is_confined_as_well in none_ahead(),
        ]);
        all.extend(trials![skip || not_root || !jails::have_groups();
            groups_go_with_their_process,
            a_function_weighs_the_same_however_many_instances_it_has in none_ahead(),
        ]);
        all
    });
}

/// Descriptors that each sandbox has, and their targets.
const BARE: [(u32, &str); 9] = [
    (0, "/dev/null"),
    (1, "/dev/null"),
    (2, "/dev/null"),
    (3, "socket:"),
    (4, "pagemap"),
    (5, "anon_inode:kvm-vm"),
    (6, "anon_inode:kvm-vcpu"),
    (7, "anon_inode:kvm-vcpu-stats"),
    (8, "anon_inode:[eventfd]"),
];

fn assert_bare(descriptors: &BTreeMap<u32, String>) {
    for (number, target) in BARE {
        let found = descriptors.get(&number).map(String::as_str);
        assert!(
            found.is_some_and(|found| found.contains(target)),
            "{number}: {found:?}"
        );
    }
}

async fn sandboxes_have_no_access_outside_their_jail(bench: &Bench) {
    bench
        .settles("two are ready", |stats| stats.zygotes == 2)
        .await;
    let sandboxes = sandboxes();
    let [one, other] = sandboxes.as_slice() else {
        panic!("{sandboxes:?}");
    };
    for pid in [*one, *other] {
        assert_closed(pid);
        assert_bare(&descriptors(pid));
        assert_eq!(soft_limit(pid, "Max open files"), "28");
        assert_eq!(soft_limit(pid, "Max locked memory"), "0");
        assert_eq!(soft_limit(pid, "Max core file size"), "0");
        // KVM's own thread is a kernel thread with the process's name.
        let threads = threads(pid);
        let other: Vec<_> = threads
            .iter()
            .filter(|name| !name.starts_with("kvm-nx"))
            .collect();
        assert_eq!(other, ["faasw-sandbox"], "{threads:?}");
    }
    assert_ne!(user(*one), user(*other));
    let (one, other) = (one.to_string(), other.to_string());
    for kind in ["user", "pid", "mnt", "uts"] {
        assert_ne!(namespace(&one, kind), namespace(&other, kind), "{kind}");
    }
    for kind in ["net", "ipc"] {
        assert_eq!(namespace(&one, kind), namespace(&other, kind), "{kind}");
    }
    let [of_one, of_other] = [groups(sandboxes[0]), groups(sandboxes[1])];
    assert!(of_one != of_other || of_one.is_empty(), "{of_one:?}");

    let _seed = bench.seed(HELLO, FreezePolicy::Auto).await.unwrap();
    // And none is being made, because a sandbox has its jail only when it is finished.
    let all_specialised = |stats: faasw_pool::PoolStats| {
        stats.zygotes > 0
            && stats.specialised == stats.zygotes
            && self::sandboxes().len() == stats.zygotes
    };
    bench
        .settles("all sandboxes are specialised", all_specialised)
        .await;
    for pid in self::sandboxes() {
        assert_layers_are_read_only(pid);
    }
}

async fn reduced_sandboxes_lack_only_namespaces(bench: &Bench) {
    bench
        .settles("two are ready", |stats| stats.zygotes == 2)
        .await;
    let sandboxes = sandboxes();
    let [one, other] = sandboxes.as_slice() else {
        panic!("{sandboxes:?}");
    };
    for pid in [*one, *other] {
        assert_reduced(pid);
        assert_bare(&descriptors(pid));
        assert_eq!(soft_limit(pid, "Max open files"), "28");
        // The sandbox has a user of its own, so the kernel counts only its processes.
        assert_eq!(soft_limit(pid, "Max processes"), "2");
    }
    assert_ne!(user(*one), user(*other));
    assert_eq!(bench.pool.stats().confinement, Confinement::Reduced);
}

async fn a_reduced_instance_serves_and_is_reset(bench: &Bench) {
    let seed = bench.seed(HELLO, FreezePolicy::Auto).await.unwrap();
    let instance = bench.warm_one(&seed, "/").await;
    assert_reduced(instance);
    assert_eq!(bench.pool.stats().forbidden_calls, 0);
}

async fn the_reduced_compile_helper_is_confined_as_well(bench: &Bench) {
    let pool = bench.pool.clone();
    let compiling = tokio::spawn(async move { pool.compile(support::module(LARGE)).await });
    let helper = helper().await;
    assert_reduced(helper);
    let numbers: Vec<u32> = descriptors(helper).into_keys().collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    assert_eq!(soft_limit(helper, "Max processes"), "32");
    assert!(!compiling.is_finished(), "it was looked at while it worked");
    assert!(compiling.await.unwrap().is_ok());
}

async fn a_warm_instance_has_exactly_its_descriptors(bench: &Bench) {
    let seed = bench.seed(HELLO, FreezePolicy::Auto).await.unwrap();
    let instance = bench.warm_one(&seed, "/").await;
    assert_closed(instance);
    let descriptors = descriptors(instance);
    assert_bare(&descriptors);
    assert!(descriptors[&9].contains("mailbox"));
    // Layers and code are mapped, so their descriptors are no longer needed.
    assert_eq!(descriptors.keys().find(|number| **number > 9), None);
}

/// Asserts that the layers of a specialised sandbox are read-only: writes to them would reach other
/// sandboxes.
fn assert_layers_are_read_only(pid: u32) {
    let mut descriptors = descriptors(pid);
    assert_bare(&descriptors);
    assert!(descriptors[&9].contains("mailbox"));
    descriptors.retain(|number, _| *number > 9);
    assert_eq!(descriptors.len(), 2, "{descriptors:?}");
    assert!(
        descriptors
            .values()
            .all(|target| target.starts_with("/memfd:faasw-level-"))
    );
    for number in descriptors.keys() {
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).unwrap();
        let flags = info
            .lines()
            .find_map(|line| line.strip_prefix("flags:"))
            .unwrap();
        let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
        assert_eq!(flags & 3, 0, "{number} can be written to");
    }
}

/// Returns the compile helper, once it has closed its jail: installing its own filter, in addition
/// to those that it inherits, is the last thing it does.
async fn helper() -> u32 {
    let deadline = Instant::now() + give_up();
    loop {
        let is_closed = |pid: &u32| {
            let born_with = fs::read_to_string(format!("/proc/{pid}/status")).ok();
            let parent = born_with.and_then(|text| {
                let mut lines = text.lines();
                Some(
                    lines
                        .find_map(|line| line.strip_prefix("PPid:"))?
                        .trim()
                        .to_owned(),
                )
            });
            name_of(*pid).starts_with("memfd:faasw-com")
                && parent.is_some_and(|parent| filters(&pid.to_string()) > filters(&parent))
        };
        if let Some(pid) = our_processes().into_iter().find(is_closed) {
            return pid;
        }
        assert!(Instant::now() < deadline, "no helper was seen");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn the_compile_helper_has_no_access_outside_its_jail(bench: &Bench) {
    let pool = bench.pool.clone();
    let compiling = tokio::spawn(async move { pool.compile(support::module(LARGE)).await });
    let helper = helper().await;
    assert_closed(helper);
    let descriptors = descriptors(helper);
    let numbers: Vec<u32> = descriptors.keys().copied().collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5], "{descriptors:?}");
    assert!((0..3).all(|number| descriptors[&number] == "/dev/null"));
    for sandbox in sandboxes() {
        assert_ne!(user(helper), user(sandbox));
    }
    assert!(!compiling.is_finished(), "it was looked at while it worked");
    assert!(compiling.await.unwrap().is_ok());
}

/// Control groups are removed, however the spawner ends.
async fn groups_go_with_their_process(bench: &Bench) {
    let spawner = || {
        let is_it = |pid: &u32| name_of(*pid) == "faasw-spawner";
        our_processes().into_iter().find(is_it).unwrap()
    };
    bench
        .settles("one is ready", |stats| stats.zygotes == 1)
        .await;
    let first = groups(sandboxes()[0]);
    assert!(!first.is_empty());
    assert!(is_left(&first), "they are found while they are there");
    kill(spawner());
    // The pool replaces the spawner when it needs one and knows that the old one has ended. The new
    // one removes the old groups.
    let deadline = Instant::now() + give_up();
    while let Err(error) = bench.seed(HELLO, FreezePolicy::Auto).await {
        assert!(Instant::now() < deadline, "{error}");
    }
    // A process that was still ending when the new spawner started ends within a short time.
    while is_left(&first) {
        assert!(Instant::now() < deadline, "{first:?} is left");
        // This takes a sandbox, so that another one is made.
        bench.seed(HELLO, FreezePolicy::Auto).await.unwrap();
    }
    // The sandbox that was taken last is replaced after a while, and only its replacement is sure
    // to stay.
    bench
        .settles("one is ready again", |stats| stats.zygotes == 1)
        .await;
    let second = groups(sandboxes()[0]);
    assert!(is_left(&second));
    bench.pool.shutdown().await;
    assert!(!is_left(&second));
}

/// Checks the weights of control groups while one function has more busy instances than there are
/// processors, beside a neighbour with one instance.
async fn a_function_weighs_the_same_however_many_instances_it_has(bench: &Bench) {
    let processors = std::thread::available_parallelism().unwrap().get();
    let spec_of = |name: &str| faasw_pool::FunctionSpec {
        name: name.to_owned(),
        ..support::spec(FreezePolicy::Auto)
    };
    let neighbour = bench.seed_of(HELLO, &spec_of("neighbour")).await.unwrap();
    let warm = bench.warm_one(&neighbour, "/").await;
    let full = weight(warm).unwrap();
    let probe = "tests/fixtures/http-probe.wasm";
    let hog = bench.seed_of(probe, &spec_of("hog")).await.unwrap();
    // More instances than processors, so that they contend.
    let count = 4 * processors;
    let spinning: Vec<_> = (0..count)
        .map(|_| {
            let (pool, hog) = (bench.pool.clone(), hog.clone());
            tokio::spawn(async move {
                let mut order = support::call("/loop");
                // The guest spins until its client disconnects.
                order.limits.cpu = Duration::from_secs(600);
                order.limits.first_byte = order.limits.cpu;
                pool.invoke(&hog, order).await
            })
        })
        .collect();
    let divided = |pid: &u32| weight(*pid).is_some_and(|weight| weight * count as u64 / 2 <= full);
    let deadline = Instant::now() + give_up();
    loop {
        let hogs: Vec<_> = sandboxes().into_iter().filter(|pid| *pid != warm).collect();
        if hogs.iter().filter(|pid| divided(pid)).count() == count {
            break;
        }
        let weights: Vec<_> = hogs.iter().map(|pid| weight(*pid)).collect();
        assert!(Instant::now() < deadline, "{weights:?} of {full}");
        // The neighbour keeps its weight.
        bench.text(&neighbour, "/").await;
        assert_eq!(weight(warm).unwrap_or(full), full);
    }
    for one in spinning {
        one.abort();
    }
    bench
        .settles("no request is left", |stats| stats.busy == 0)
        .await;
    // All weights are full again after the contention.
    while sandboxes().iter().any(divided) {
        assert!(Instant::now() < deadline, "some are still divided");
        bench.text(&hog, "/hello").await;
    }
}

//! Every rule of a sandbox's filter is needed: without any one of them, ordinary work gets a
//! sandbox killed.
//!
//! This program is its own spawner, with one rule fewer. Rules that ordinary work does not use are
//! listed separately in `faasw_sandbox::process::jail`, with the reasons for them.
//!
//! Without `/dev/kvm` the tests here print a notice and are ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod heap;
#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;

use faasw_jail::ConfinementLevel;
use faasw_jail::filter::{ArgCondition, rule};
use faasw_pool::{Confinement, FreezePolicy, Pool, PoolOptions, trial};
use faasw_sandbox::process::jail::{self, HostFeatures};
use faasw_sandbox::vm::{PageWalk, VmTemplate};
use libtest_mimic::{Arguments, Trial};

use support::{Bench, bytes_of, call, spec, whole};

#[global_allocator]
static HEAP: heap::Heap = heap::Heap;

/// Index that removes no rule.
const NONE: usize = usize::MAX;

fn main() {
    let mut words = std::env::args();
    if words.next().as_deref() == Some("faasw-spawner") {
        heap::Heap::fix();
        let missing: usize = words.next().unwrap().parse().unwrap();
        let rules = |host| {
            let everyday = jail::rules(host).len();
            let mut rules = jail::all_rules(host);
            if missing < everyday {
                rules.remove(missing);
            }
            if cfg!(debug_assertions) {
                // The standard library checks each descriptor that it closes in debug builds.
                let get = ArgCondition::Equals(1, libc::F_GETFD.cast_unsigned());
                rules.push(rule("check a descriptor", libc::SYS_fcntl, &[get]));
            }
            rules
        };
        faasw_sandbox::spawner::run(ConfinementLevel::Full, rules).unwrap();
        return;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let skip = faasw_pool::check_kvm().is_err();
    if skip {
        eprintln!("WITHOUT KVM: the tests of this file are ignored");
    }
    let mut trials = vec![
        Trial::test("every_rule_is_enough", || {
            assert!(!is_missed(NONE), "the filter forbids what is needed");
            Ok(())
        })
        .with_ignored_flag(skip),
    ];
    // Without KVM the host's properties are unknown; the rules then only provide the tests' names.
    let host = host().unwrap_or(HostFeatures {
        scans: true,
        prefaults: false,
        page_walk: PageWalk::Shadowed,
    });
    for (index, rule) in jail::rules(host).into_iter().enumerate() {
        let name = format!("needed::{}", rule.name.replace(' ', "_"));
        let trial = Trial::test(name, move || {
            assert!(is_missed(index), "nothing comes to use it");
            Ok(())
        });
        trials.push(trial.with_ignored_flag(skip));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn host() -> Option<HostFeatures> {
    let template = VmTemplate::new(kvm_ioctls::Kvm::new().ok()?).ok()?;
    Some(HostFeatures {
        scans: faasw_sandbox::memory::page_map::PageMap::open()
            .ok()?
            .scans(),
        prefaults: template.can_prefault(),
        page_walk: template.page_walk(),
    })
}

/// Whether a sandbox is killed for a system call during ordinary work without this rule.
fn is_missed(missing: usize) -> bool {
    trial::use_spawner(PathBuf::from("/proc/self/exe"), missing.to_string());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let options = PoolOptions {
            zygotes: 1,
            ..PoolOptions::default()
        };
        match Pool::start(options).await {
            // Not even one sandbox could be made.
            Err(error) => is_told(&error),
            Ok(pool) => {
                let bench = Bench {
                    pool,
                    confinement: Confinement::Jailed,
                };
                let told = work(&bench).await;
                bench.pool.shutdown().await;
                told || bench.pool.stats().forbidden_calls > 0
            }
        }
    })
}

/// Whether an error reports a sandbox that was killed for a system call. The error may arrive
/// before the call is counted.
fn is_told(error: &impl ToString) -> bool {
    error.to_string().contains("forbidden system call")
}

/// Does everything that sandboxes do, each a few times: the first instance of a function records
/// its working set, and the next ones are forked with that, are reset and used again. Stops at the
/// first forbidden call. Returns whether an error reported one.
async fn work(bench: &Bench) -> bool {
    const FUNCTIONS: [(&str, u64, &[&str]); 3] = [
        (
            "tests/fixtures/http-probe.wasm",
            128,
            &["/hello", "/sleep/20", "/echo"],
        ),
        // Less memory than specialised zygotes have, and more.
        ("tests/fixtures/http-probe.wasm", 16, &["/hello"]),
        (
            "tests/fixtures/compute/compute-cgi.wasm",
            512,
            &["/fib?n=5", "/touch?n=256"],
        ),
    ];
    let is_over = || bench.pool.stats().forbidden_calls > 0;
    for (path, memory, requests) in FUNCTIONS {
        let compiled = bench.compile(path).await;
        let mut spec = spec(FreezePolicy::Auto);
        spec.memory_limit = memory << 20;
        let seed = match bench.pool.make_seed(&spec, &compiled).await {
            Ok(made) => made.version,
            Err(error) => return is_told(&error),
        };
        for request in requests.iter().cycle().take(requests.len() * 4) {
            let mut order = call(request);
            if *request == "/echo" {
                order.head.method = b"POST".to_vec();
                order.body = whole(&[7; 900 << 10]);
            }
            // A sandbox that lacks a rule is killed in the middle of a request.
            let done = match bench.pool.invoke(&seed, order).await {
                Ok(reply) => bytes_of(reply.body).await.map(|_| ()),
                Err(error) => Err(error),
            };
            if is_over() || done.is_err_and(|error| is_told(&error)) {
                return true;
            }
            // Waits until the instance is reset, or ended.
            bench
                .settles("nothing is under way", |stats| stats.busy == 0)
                .await;
        }
    }
    false
}

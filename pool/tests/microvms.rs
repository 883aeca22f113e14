//! Tests the pool against real KVM: processes that start and end, guests that misbehave at the
//! boundary, and what forks share and do not share.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use faasw_pool::{Confinement, FreezePolicy, InvokeError, SeedError, TrapKind};

use support::processes::{cpu_ticks, kill, name_of, our_processes, sandboxes};
use support::{Bench, Log, bytes_of, call, give_up, slowness, spec, timing_of};

async fn a_component_answers_from_a_fresh_vm_each_time(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    for _ in 0..3 {
        assert_eq!(bench.text(&seed, "/count").await.trim(), "1");
    }
}

async fn a_small_request_leaves_the_vm_once(bench: &Bench) {
    let seed = bench
        .seed("examples/hello/hello.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut told = Vec::new();
    for _ in 0..9 {
        let mut order = call("/");
        let log = Arc::new(Log::default());
        order.log = log.clone();
        let reply = bench.pool.invoke(&seed, order).await.unwrap();
        let timing = timing_of(reply, &log).await;
        let effort = log.effort().await;
        assert_eq!(effort.exits, 1, "{effort:?}");
        told.push(timing);
    }
    // The times are printed for measurements and not asserted.
    told.sort_by_key(|timing| timing.run);
    println!("median request: {:?}", told[told.len() / 2]);
}

async fn pages_that_the_first_instance_wrote_are_prefilled_in_the_next(bench: &Bench) {
    let seed = bench
        .seed("examples/hello/hello.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut faults = Vec::new();
    for _ in 0..6 {
        let mut order = call("/");
        let log = Arc::new(Log::default());
        order.log = log.clone();
        let reply = bench.pool.invoke(&seed, order).await.unwrap();
        timing_of(reply, &log).await;
        faults.push(log.effort().await.page_faults);
    }
    // On a busy machine another instance than the warm one may serve any of the requests.
    assert!(faults[2..].iter().min() < faults.first(), "{faults:?}");
    // The pages that were filled in have the seed's content, not the first instance's.
    let probe = bench
        .seed("tests/fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    for _ in 0..6 {
        assert_eq!(bench.text(&probe, "/count").await.trim(), "1");
    }
}

async fn a_command_answers_in_cgi_style(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/cgi-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let reply = bench.get(&seed, "/env").await.unwrap();
    assert_eq!(reply.head.status, 200);
    let text = String::from_utf8(bytes_of(reply.body).await.unwrap()).unwrap();
    assert!(text.contains("COLOUR=green"), "{text}");
    assert!(text.contains("GATEWAY_INTERFACE=CGI/1.1"), "{text}");
}

async fn no_two_instances_draw_the_same_randomness(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut drawn = Vec::new();
    for _ in 0..8 {
        let text = bench.text(&seed, "/random").await;
        drawn.extend(text.lines().map(str::to_owned));
    }
    let before = drawn.len();
    drawn.sort();
    drawn.dedup();
    assert_eq!(drawn.len(), before);
}

async fn traps_are_reported_with_the_functions_name(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    for (path, expected, trap) in [
        (
            "/trap/unreachable",
            "trap_unreachable",
            TrapKind::Unreachable,
        ),
        ("/trap/oob", "trap_oob", TrapKind::MemoryOutOfBounds),
        ("/trap/div0", "trap_div0", TrapKind::DivideByZero),
        (
            "/trap/indirect",
            "indirect call",
            TrapKind::SignatureMismatch,
        ),
        ("/trap/recurse", "stack", TrapKind::StackExhausted),
        ("/host-recurse", "stack", TrapKind::StackExhausted),
        ("/alloc", "memory limit", TrapKind::MemoryLimit),
    ] {
        match bench.get(&seed, path).await {
            Err(InvokeError::Trap { kind, report }) => {
                assert!(report.contains(expected), "{path}: {report}");
                assert_eq!(kind, trap, "{path}: {report}");
            }
            other => panic!("{path}: {other:?}"),
        }
        assert_eq!(bench.text(&seed, "/count").await.trim(), "1");
    }
}

async fn a_guest_that_loops_is_ended_with_its_process(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut order = call("/loop");
    let limit = Duration::from_millis(300) * slowness();
    order.limits.first_byte = limit;
    // Without the time limit the guest would run until it had used this.
    order.limits.cpu = Duration::from_secs(3600);
    let ended = tokio::time::timeout(limit + give_up(), bench.pool.invoke(&seed, order)).await;
    let ended = ended.unwrap();
    assert!(matches!(ended, Err(InvokeError::TimedOut(_))), "{ended:?}");
    assert_eq!(bench.text(&seed, "/count").await.trim(), "1");
}

async fn a_killed_sandbox_fails_its_request_and_no_other(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    // Zygotes have used some CPU time already, or use some while they are made. The sandbox that
    // keeps using it is the one in the loop.
    let before: BTreeMap<u32, u64> = sandboxes()
        .into_iter()
        .map(|pid| (pid, cpu_ticks(pid)))
        .collect();
    let victim = tokio::spawn({
        let (pool, seed) = (bench.pool.clone(), seed.clone());
        let mut order = call("/loop");
        // No limit ends the guest before the test does.
        order.limits.cpu = Duration::from_secs(3600);
        order.limits.first_byte = order.limits.cpu;
        async move { pool.invoke(&seed, order).await }
    });
    let enough = 10 * u64::from(slowness());
    let deadline = Instant::now() + give_up();
    let pid = loop {
        assert!(Instant::now() < deadline, "no sandbox is running");
        let busy = sandboxes().into_iter().find(|pid| {
            let before = before.get(pid).copied().unwrap_or(0);
            cpu_ticks(*pid).saturating_sub(before) > enough
        });
        match busy {
            Some(pid) => break pid,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    kill(pid);
    let ended = victim.await.unwrap();
    assert!(
        matches!(
            &ended,
            Err(InvokeError::Platform(error)) if error.to_string().contains("signal 9")
        ),
        "{ended:?}"
    );
    assert_eq!(bench.text(&seed, "/count").await.trim(), "1");
}

async fn a_killed_spawner_is_replaced(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let spawner = our_processes()
        .into_iter()
        .find(|pid| name_of(*pid) == "faasw-spawner")
        .unwrap();
    kill(spawner);
    // Requests may arrive before the spawner's end is known: a few fail, then none.
    let (begun, mut answered) = (Instant::now(), 0);
    while answered < 20 {
        assert!(begun.elapsed() < give_up());
        match bench.get(&seed, "/count").await {
            Ok(reply) => {
                assert_eq!(bytes_of(reply.body).await.unwrap()[..1], *b"1");
                answered += 1;
            }
            Err(_) => {
                answered = 0;
                // A task that never waits would keep the runtime from processing events.
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn an_initialisation_that_draws_entropy_is_not_shared(bench: &Bench) {
    let compiled = bench.compile("tests/fixtures/init-draws.wasm").await;
    let drawn = |text: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix("init-random "))
            .unwrap()
            .to_owned()
    };
    for (freeze, after_init, shared) in [
        (FreezePolicy::Auto, false, false),
        (FreezePolicy::BeforeInit, false, false),
        (FreezePolicy::AfterInit, true, true),
    ] {
        let made = bench.pool.make_seed(&spec(freeze), &compiled).await;
        let made = made.unwrap();
        let (seed, report) = (made.version, made.report);
        assert_eq!(report.after_init, after_init);
        assert!(report.drew_entropy);
        assert!(
            report.drawn.contains("get-random-bytes"),
            "{}",
            report.drawn
        );
        let first = bench.text(&seed, "/").await;
        let second = bench.text(&seed, "/").await;
        assert_eq!(drawn(&first) == drawn(&second), shared, "{freeze:?}");
    }
}

async fn a_function_that_fails_to_start_is_rejected_with_the_reason(bench: &Bench) {
    for (file, expected) in [
        ("tests/fixtures/wat/start-trap.wat", "unreachable"),
        ("tests/fixtures/wat/big-memory.wat", "128 MiB"),
        ("tests/fixtures/wat/data-out-of-range.wat", "out of bounds"),
    ] {
        match bench.seed(file, FreezePolicy::Auto).await {
            Err(SeedError::Function(error)) => {
                assert!(error.to_string().contains(expected), "{file}: {error}");
            }
            other => panic!("{file}: {other:?}"),
        }
    }
}

async fn the_pool_leaves_no_process_behind(bench: &Bench) {
    let seed = bench
        .seed("examples/hello/hello.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    bench.get(&seed, "/").await.unwrap();
    bench.pool.shutdown().await;
    let deadline = Instant::now() + give_up();
    // A thread has ended once it was joined.
    assert!(bench.confinement == Confinement::Jailed || sandboxes().is_empty());
    while !our_processes().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", our_processes());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn main() {
    support::main(|skip| {
        // These tests kill processes, so they do not run in process.
        let mut all = trials![skip;
            a_killed_sandbox_fails_its_request_and_no_other,
            a_killed_spawner_is_replaced,
        ];
        for confinement in support::EACH {
            all.extend(trials![skip, confinement;
                a_component_answers_from_a_fresh_vm_each_time,
                a_small_request_leaves_the_vm_once,
                pages_that_the_first_instance_wrote_are_prefilled_in_the_next,
                a_command_answers_in_cgi_style,
                no_two_instances_draw_the_same_randomness,
                traps_are_reported_with_the_functions_name,
                a_guest_that_loops_is_ended_with_its_process,
                an_initialisation_that_draws_entropy_is_not_shared,
                a_function_that_fails_to_start_is_rejected_with_the_reason,
                the_pool_leaves_no_process_behind,
            ]);
        }
        all
    });
}

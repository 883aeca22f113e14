//! Limits on an instance's use over several requests, and its cost while it is warm.

use std::time::{Duration, Instant};

use faasw_pool::{FreezePolicy, InvokeError, Served};

use crate::probe;
use crate::support::processes::{cpu_time, memory, our_processes, peak_memory, sandboxes};
use crate::support::{Bench, arriving, bytes_of, call, slowness};

pub async fn cpu_time_is_limited_per_request(bench: &Bench) {
    let limit = Duration::from_millis(100) * slowness();
    let seed = probe(bench).await;
    let instance = bench.warm_one(&seed, "/compute").await;
    let mut requests = 0;
    while cpu_time(instance) < limit * 5 / 4 {
        let mut order = call("/compute");
        order.limits.cpu = limit;
        let (text, timing, _) = bench.through(&seed, order).await;
        assert_eq!(text, b"196418\n");
        assert_eq!(timing.served, Served::Warm);
        requests += 1;
        // The cost is reported a moment before the instance can be taken again.
        bench
            .settles("it is warm again", |stats| stats.warm == 1)
            .await;
    }
    assert!(requests > 1, "one request takes the whole limit");
    // The node checks the limit when the request is as old as the limit.
    let path = format!("/sleep/{}", limit.as_millis() * 3 / 2);
    let mut order = call(&path);
    order.limits.cpu = limit;
    let (_, timing, effort) = bench.through(&seed, order).await;
    assert_eq!(timing.served, Served::Warm);
    assert!(effort.reset.is_some());
    bench
        .settles("it is warm again", |stats| stats.warm == 1)
        .await;
    assert_eq!(sandboxes(), [instance]);
    // A single request is held to the limit.
    let mut order = call("/loop");
    order.limits.cpu = limit;
    let started = Instant::now();
    let ended = bench.pool.invoke(&seed, order).await;
    assert!(matches!(ended, Err(InvokeError::CpuLimit(_))), "{ended:?}");
    assert!(started.elapsed() >= limit);
}

pub async fn memory_comes_back_after_a_large_request(bench: &Bench) {
    const LARGE: u64 = 16 << 10;
    const KINDS: [&str; 2] = ["Private_Clean:", "Private_Dirty:"];
    let seed = bench
        .seed(
            "tests/fixtures/compute/compute-cgi.wasm",
            FreezePolicy::Auto,
        )
        .await
        .unwrap();
    let instance = bench.warm_one(&seed, "/fib?n=5").await;
    let small = memory(instance, &KINDS);
    for _ in 0..3 {
        let before = peak_memory(instance);
        let (text, timing, effort) = bench
            .through(&seed, call(&format!("/touch?n={}", LARGE / 64)))
            .await;
        assert!(text.starts_with(b"kernel touch"), "{text:?}");
        assert_eq!(timing.served, Served::Warm);
        assert_eq!(sandboxes(), [instance]);
        assert!(effort.reset.is_some(), "{effort:?}");
        // The request was large; the peak shows it only the first time.
        assert!(peak_memory(instance) >= (small + LARGE - 1024).max(before));
        let after = memory(instance, &KINDS);
        println!("private memory: {small} KiB, after {LARGE} KiB were written {after} KiB");
        assert!(after < small + 1024, "{after} KiB instead of {small} KiB");
    }
    bench.through(&seed, call("/fib?n=5")).await;
    let after = memory(instance, &KINDS);
    assert!(after < small + 512, "{after} KiB instead of {small} KiB");
}

pub async fn warm_instances_take_no_cpu_time(bench: &Bench) {
    let is_metal = slowness() == 1;
    let instances = if is_metal { 100 } else { 10 };
    let seed = probe(bench).await;
    // The working set is known before instances are forked that are to stay.
    bench.warm_one(&seed, "/count").await;
    let held: Vec<_> = (0..instances)
        .map(|_| {
            let (client, body) = arriving();
            let mut order = call("/echo");
            order.body = body;
            let (pool, seed) = (bench.pool.clone(), seed.clone());
            let answer = tokio::spawn(async move {
                let reply = pool.invoke(&seed, order).await.unwrap();
                bytes_of(reply.body).await.unwrap()
            });
            (client, answer)
        })
        .collect();
    bench
        .settles("all are at work", |stats| {
            stats.busy == instances && sandboxes().len() >= instances
        })
        .await;
    for (client, answer) in held {
        drop(client);
        answer.await.unwrap();
    }
    bench
        .settles("all are warm", |stats| {
            stats.busy == 0 && stats.warm >= instances && sandboxes().len() == stats.warm
        })
        .await;

    let children = our_processes();
    let of_children = || -> Duration { children.iter().map(|pid| cpu_time(*pid)).sum() };
    let of_this = || cpu_time(std::process::id());
    // Work after the last requests may go on for a moment, and longer on a busy machine. Warm
    // instances that used CPU time would never stop.
    for look in 1.. {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // In this order the CPU time of these queries is not counted.
        let (children_before, this_before, started) = (of_children(), of_this(), Instant::now());
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (took, this) = (started.elapsed(), of_this().saturating_sub(this_before));
        let used = this + of_children().saturating_sub(children_before);
        let part = used.as_secs_f64() / took.as_secs_f64();
        let warm = bench.pool.stats().warm;
        println!(
            "{warm} warm instances: {used:?} of CPU time in {took:?}, {:.2}% of a core",
            part * 100.0
        );
        assert!(warm >= instances);
        if part < 0.01 || !is_metal {
            break;
        }
        assert!(look < 8, "{part}");
    }
}

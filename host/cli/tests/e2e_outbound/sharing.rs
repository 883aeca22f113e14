//! Functions that take as much of a node as they can, and what remains for others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use faasw::{FunctionOptions, Node, NodeBuilder, OutboundOptions};

use super::{
    PROBE, REACHING, common,
    e2e::{Bench, limits},
    granted, until, upstream,
};

/// Number of invocations that one client's request may cause.
const NESTED: usize = 1024;

/// A limit that no test reaches.
const LONG: Duration = Duration::from_secs(300);

/// Number of requests of the flood: more than either node of the tests admits.
const FLOOD: usize = 40;

/// A function that uses next to no CPU time and memory holds its requests for ever, and more arrive
/// than its node admits. Meanwhile a neighbour receives its first requests, one at a time.
fn flood(builder: NodeBuilder, memory: u64, expected: &[usize]) {
    let upstream = upstream();
    let options = OutboundOptions::default().allow_private("127.0.0.0/8".parse().unwrap());
    let bench = Bench::start(builder.outbound(options), limits());
    bench.probe();
    let options = granted(&["http://127.0.0.1:*"]).memory(memory);
    bench.function("flood", PROBE, options);
    let refused = Arc::<AtomicUsize>::default();
    let path = format!("/flood/get/{}/held", upstream.address);
    let flood: Vec<_> = (0..FLOOD)
        .map(|_| {
            let (address, path, refused) = (bench.address, path.clone(), refused.clone());
            bench.runtime().spawn(async move {
                let answer = common::raw::get(address, &path).await;
                if answer.status == 503 {
                    refused.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    until("each request of the flood is held or refused", || {
        upstream.held().0 + refused.load(Ordering::SeqCst) == FLOOD
    });
    let held = upstream.held().0;
    assert!(expected.contains(&held), "{held} are held");
    for _ in 0..20 {
        let answer = bench.get("/probe/hello");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    flood.iter().for_each(|request| request.abort());
    bench.end();
}

pub fn a_flood_leaves_a_neighbour_an_eighth_of_the_permits() {
    flood(Node::builder().max_instances(16), 128 << 20, &[14]);
}

pub fn a_flood_leaves_a_neighbour_an_eighth_of_the_memory() {
    // Instances of the flood may use 512 MiB, and 16 MiB for the node's part. Eight fit, or four
    // times as many if a control group limits microVMs to the budget.
    let memory = 8 * ((512 + 16) << 20);
    let builder = Node::builder().instance_memory(memory);
    flood(builder, 512 << 20, &[7, 28]);
}

pub fn a_request_causes_a_bounded_number_of_invocations() {
    REACHING.function(
        "hello",
        "tests/fixtures/wat/hello.wasm",
        FunctionOptions::default(),
    );
    REACHING.function(
        "storms",
        PROBE,
        granted(&["http://*.spin.internal"]).cpu_time(LONG),
    );
    let path = |calls: usize| format!("/storms/in-turn/hello.spin.internal/{calls}");
    let refused = format!("has caused {NESTED} invocations");
    // Each client's request may cause this number.
    for _ in 0..2 {
        let answer = REACHING.text(&path(NESTED));
        let good = format!("{NESTED} good, last 200");
        assert!(answer.starts_with(&good), "{answer}");
    }
    let answer = REACHING.text(&path(NESTED + 10));
    assert!(answer.starts_with(&format!("{NESTED} good")), "{answer}");
    assert!(answer.contains(&refused), "{answer}");
    // The log has the line once, however often the function tries.
    let log = REACHING.log("storms");
    let lines = log.iter().filter(|line| line.contains(&refused));
    assert_eq!(lines.count(), 1, "{log:?}");
}

/// Calls of called functions count, too.
pub fn nested_calls_at_any_depth_count_for_the_clients_request() {
    REACHING.function(
        "hello",
        "tests/fixtures/wat/hello.wasm",
        FunctionOptions::default(),
    );
    let grants = ["http://*.spin.internal", "http://self"];
    REACHING.function("deep", PROBE, granted(&grants).cpu_time(LONG));
    let calls = format!("in-turn/hello.spin.internal/{NESTED}");
    // Two calls lead to the function that makes the other calls.
    let path = format!("/deep/proxy/self/deep/proxy/self/deep/{calls}");
    let answer = REACHING.text(&path);
    let good = format!("{} good", NESTED - 2);
    assert!(
        answer.contains(&good) && answer.contains("invocations"),
        "{answer}"
    );
}

pub fn invocations_use_the_cpu_time_of_the_request_that_caused_them() {
    let options = FunctionOptions::default().cpu_time(LONG).first_byte(LONG);
    REACHING.function("spins", "tests/fixtures/wat/loop.wasm", options);
    let options = granted(&["http://*.spin.internal"]).cpu_time(Duration::from_secs(1));
    REACHING.function("spends", PROBE, options);
    // The first call uses all of it, and the second does not begin. The caller can still answer.
    let answer = REACHING.text("/spends/in-turn/spins.spin.internal/2");
    assert!(answer.starts_with("0 good"), "{answer}");
    assert!(answer.contains("have used its 1 s of CPU time"), "{answer}");
    let answer = REACHING.text("/spends/get/spins.spin.internal/");
    assert!(answer.starts_with("504 "), "{answer}");
    for (name, line) in [
        ("spins", "used more than its limit of 1 s of CPU time"),
        ("spends", "have used its 1 s of CPU time"),
    ] {
        let log = REACHING.log(name).join("\n");
        assert!(log.contains(line), "{name}: {log}");
    }
}

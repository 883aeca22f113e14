//! Functions that answer warm-up requests before their seed is frozen: every request begins with
//! the state that those left. Failures of warm-up requests are reported, and affect no other
//! function.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::{
    collections::HashSet,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use common::{give_up, time_limit};
use e2e::{Bench, bundle, limits};
use faasw::{DeployError, FreezePolicy, FunctionOptions, Node, SeedError, WarmUpRequest};

const PROBE: &str = "tests/fixtures/http-probe.wasm";

fn with_node(test: impl FnOnce(&Bench)) {
    let mut limits = limits();
    limits.instantiation = time_limit(3);
    let bench = Bench::start(Node::builder(), limits);
    test(&bench);
    bench.end();
}

fn by(requests: &[&str]) -> FunctionOptions {
    let requests = requests
        .iter()
        .map(|text| WarmUpRequest::new(*text).unwrap());
    requests.fold(FunctionOptions::default(), FunctionOptions::warm_up)
}

fn refused(bench: &Bench, module: &[u8], options: FunctionOptions) -> DeployError {
    let deployed = bench.block_on(bench.node.deploy("bad", module.to_vec(), options));
    deployed.map(|done| panic!("{done:?}")).unwrap_err()
}

/// Waits until requests find a warm instance. Instances that serve while the seed is made are not
/// warmed up.
fn assert_warm(bench: &Bench, warm: &str) {
    let begun = Instant::now();
    while bench.text("/f/count") != warm {
        assert!(begun.elapsed() < give_up());
    }
    for _ in 0..5 {
        assert_eq!(bench.text("/f/count"), warm);
    }
}

fn every_request_starts_from_the_state_after_warm_up() {
    with_node(|bench| {
        let options = by(&[
            "/count",
            "/count",
            "POST /echo\ncontent-type: text/plain\n\nabc",
        ]);
        let function = bench.function("f", PROBE, options).function;
        assert_eq!(
            function.warm_ups,
            ["GET /count", "GET /count", "POST /echo"]
        );
        assert!(function.frozen_after_init);
        for _ in 0..20 {
            assert_eq!(bench.text("/f/count"), "3\n");
        }
        bench.deploy("f", &e2e::file(PROBE), FunctionOptions::default());
        assert_eq!(bench.text("/f/count"), "1\n");
        bench.block_on(bench.node.rollback("f", None)).unwrap();
        assert_warm(bench, "3\n");
    });
}

/// A function sees a warm-up request like a client's request.
fn warm_up_requests_look_like_those_of_clients() {
    with_node(|bench| {
        let script = "local seen
            return function(r)
                if not seen then
                    seen = r.method .. ' ' .. r.path .. ' ' .. (r.query or '') .. ' ' ..
                        r.headers['x-a'] .. ' ' .. r.headers['content-length'] .. ' ' .. r.body
                    print('warmed up')
                end
                return seen
            end";
        let lua = vec![faasw::Extension::new(".lua").unwrap()];
        let engine = e2e::file("tests/fixtures/lua-engine.wasm");
        bench
            .block_on(bench.node.add_engine("lua", engine, lua))
            .unwrap();
        let script = bundle(&[("handler.lua", script)]);
        bench.deploy(
            "f",
            &script,
            by(&["PUT /a/%C3%BC?b=c\r\nX-A: 1\r\n\r\ngrüße"]),
        );
        for _ in 0..3 {
            assert_eq!(bench.text("/f/other"), "PUT /a/%C3%BC b=c 1 7 grüße");
        }
        assert_eq!(bench.log("f"), ["warmed up"]);
    });
}

/// What a warm-up request draws would be shared by all requests.
fn entropy_drawn_by_warm_up_needs_an_explicit_option() {
    with_node(|bench| {
        let module = e2e::file(PROBE);
        let error = refused(bench, &module, by(&["/hello", "/random"]));
        let DeployError::Seed(SeedError::WarmUpDrew(drawn)) = &error else {
            panic!("{error:?}");
        };
        assert!(drawn.contains("wasi:random/random"), "{drawn}");
        // Reading a clock is allowed in a warm-up request.
        bench.deploy("f", &module, by(&["/clock"]));
        let shared = by(&["/random"]).freeze(FreezePolicy::AfterInit);
        let deployed = bench.deploy("f", &module, shared);
        assert!(deployed.function.drawn.contains("wasi:random/random"));
        assert!(deployed.notice.unwrap().contains("all requests share"));
        // Each request draws its own values all the same.
        let drawn: HashSet<_> = (0..20).map(|_| bench.text("/f/random")).collect();
        assert_eq!(drawn.len(), 20);
    });
}

fn a_failed_warm_up_prevents_deployment() {
    with_node(|bench| {
        bench.probe();
        let module = e2e::file(PROBE);
        for (path, why) in [
            (
                "/status/503",
                "request GET /status/503: the function returned an error: status 503",
            ),
            ("/panic", "GET /panic: "),
            ("/exit/0", "exited with code 0"),
            ("/no-response", "the warm-up request GET /no-response: "),
            ("/alloc", "memory"),
        ] {
            let error = refused(bench, &module, by(&["/hello", path])).to_string();
            assert!(error.contains(why), "{path}: {error}");
        }
        let error = refused(bench, &module, by(&["/loop"])).to_string();
        assert!(error.contains("longer than its limit"), "{error}");
        let flood = bench.deploy("flood", &module, by(&["/log-flood/100000", "/count"]));
        assert!(flood.function.ready);
        assert_eq!(bench.text("/flood/count"), "2\n");
        let error = refused(
            bench,
            &e2e::file("tests/fixtures/cgi-probe.wasm"),
            by(&["/"]),
        );
        assert!(error.to_string().starts_with("a command ends"), "{error}");
        // This status may be intended, or a mistake.
        bench.deploy("strange", &module, by(&["/status/204", "/status/404?a"]));
        let told = "the warm-up request GET /status/404?a was answered with status 404";
        assert_eq!(bench.log("strange"), [told]);
        assert!(
            bench
                .node
                .list()
                .iter()
                .all(|function| function.name.as_str() != "bad")
        );
        assert_eq!(bench.text("/probe/count"), "1\n");
    });
}

/// A seed that is made again is warmed up again; instances that serve in the meantime are not.
fn warm_up_requests_are_repeated_for_every_new_seed() {
    let folder = tempfile::tempdir().unwrap();
    // Without images, because the test is about making seeds anew.
    let builder = || Node::builder().data_dir(folder.path()).image_disk(0);
    let start = || Bench::start(builder(), limits());
    let bench = start();
    bench.function("f", PROBE, by(&["/count", "/count"]));
    assert_eq!(bench.text("/f/count"), "3\n");
    bench.end();
    drop(bench);
    let bench = start();
    assert_warm(&bench, "3\n");
    bench.end();
    // Without memory for seeds no instance is warmed up, and all requests are served.
    let bench = Bench::start(Node::builder().seed_memory(0), limits());
    bench.function("f", PROBE, by(&["/count"]));
    for _ in 0..3 {
        let answer = bench.text("/f/count");
        assert!(answer == "1\n" || answer == "2\n", "{answer}");
    }
    bench.end();
}

/// A function that was deployed successfully is served, even if its warm-up fails later.
fn a_later_failure_of_warm_up_affects_no_request() {
    let folder = tempfile::tempdir().unwrap();
    // Without images, because the test is about making seeds anew.
    let builder = || Node::builder().data_dir(folder.path()).image_disk(0);
    let start = || Bench::start(builder(), limits());
    let bench = start();
    let lua = vec![faasw::Extension::new(".lua").unwrap()];
    let engine = e2e::file("tests/fixtures/lua-engine.wasm");
    bench
        .block_on(bench.node.add_engine("lua", engine, lua))
        .unwrap();
    let since_epoch = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let deploy = |until: Duration| {
        let script = format!(
            "local warm = 'cold'
            return function(r)
                if r.path == '/warm' then
                    if os.time() > {} then error('too late') end
                    warm = 'warm'
                end
                return warm
            end",
            until.as_secs()
        );
        bench.deploy("f", &bundle(&[("handler.lua", &script)]), by(&["/warm"]));
    };
    // Measures a deployment on this machine: the next one has three times as long, and some
    // seconds.
    let begun = Instant::now();
    deploy(since_epoch() + Duration::from_secs(3600));
    let until = since_epoch() + time_limit(3) + 3 * begun.elapsed();
    deploy(until);
    assert_eq!(bench.text("/f/"), "warm");
    bench.end();
    drop(bench);
    let over = UNIX_EPOCH + until + Duration::from_secs(2);
    while let Ok(left) = over.duration_since(SystemTime::now()) {
        std::thread::sleep(left);
    }
    let bench = start();
    assert_eq!(bench.text("/f/"), "cold");
    bench.end();
}

fn main() {
    e2e::main(tests![
        every_request_starts_from_the_state_after_warm_up,
        warm_up_requests_look_like_those_of_clients,
        entropy_drawn_by_warm_up_needs_an_explicit_option,
        a_failed_warm_up_prevents_deployment,
        warm_up_requests_are_repeated_for_every_new_seed,
        a_later_failure_of_warm_up_affects_no_request,
    ]);
}

//! Requests of functions to functions of the same node.

use faasw::{FunctionOptions, Node};

use super::{
    PROBE, REACHING, common,
    e2e::{Bench, limits},
    granted, probe, processes, until, upstream,
};

/// Deploys a function that may send requests to all others.
fn assert_answer(bench: &Bench, name: &str) {
    bench.function(name, PROBE, granted(&["http://self"]));
}

pub fn functions_call_each_other_without_another_process() {
    let bench = Bench::start(Node::builder(), limits());
    let before = ["faasw-worker", "faasw-connector"].map(processes);
    bench.probe();
    assert_answer(&bench, "asks");
    let answer = bench.text("/asks/get/self/probe/hello");
    assert!(
        answer.starts_with("200 ") && answer.ends_with("\"hello\\n\""),
        "{answer}"
    );
    // The request as the called function sees it.
    let answer = bench.get("/asks/proxy/self/probe/echo/a%2fb?c=d");
    let id = answer.header("x-request-id").unwrap();
    let body = &answer.body;
    assert!(body.starts_with("POST /echo/a%2fb?c=d\n"), "{body}");
    for line in [
        "cdn-loop: faasw".to_owned(),
        "x-probe: calls".to_owned(),
        format!("x-request-id: {id}"),
    ] {
        assert!(body.lines().any(|other| other == line), "{line}: {body}");
    }
    for hidden in ["te: ", "connection: ", "transfer-encoding: "] {
        assert!(!body.contains(hidden), "{body}");
    }
    // Each call has a fresh instance, like a request from a client.
    for _ in 0..3 {
        let answer = bench.text("/asks/get/self/probe/count");
        assert!(answer.ends_with("\"1\\n\""), "{answer}");
    }
    let answer = bench.text("/asks/at-once/self/16");
    assert_eq!(
        answer.lines().filter(|line| line.contains("404 ")).count(),
        16,
        "{answer}"
    );
    // A function may call itself, and one that is deployed later.
    let answer = bench.text("/asks/get/self/asks/get/self/probe/hello");
    assert!(answer.starts_with("200 "), "{answer}");
    let answer = bench.text("/asks/get/self/later/hello");
    assert!(answer.starts_with("404 "), "{answer}");
    bench.function(
        "later",
        "tests/fixtures/http-probe.wasm",
        FunctionOptions::default(),
    );
    let answer = bench.text("/asks/get/self/later/hello");
    assert!(answer.starts_with("200 "), "{answer}");
    // The request names no function.
    let answer = bench.text("/asks/invalid/authority");
    assert!(answer.starts_with("404 "), "{answer}");
    assert_eq!(["faasw-worker", "faasw-connector"].map(processes), before);
    let metrics = bench.node.metrics();
    let counted = r#"faasw_outbound_requests_total{function="asks",result="made"}"#;
    assert!(metrics.contains(counted), "{metrics}");
    bench.end();
}

pub fn bodies_and_failures_are_passed() {
    REACHING.probe();
    REACHING.function(
        "echo",
        "tests/fixtures/http-probe.wasm",
        FunctionOptions::default(),
    );
    let options = granted(&["http://*.spin.internal", "http://self"]);
    REACHING.function("passes", PROBE, options);
    let probe = |path: &str| REACHING.text(&format!("/passes/get/probe.spin.internal{path}"));
    for (path, begins, has) in [
        ("/trailers", "200 ", "x-trailer"),
        ("/body/5000000", "200 ", "5000000 bytes"),
        ("/status/418", "418 ", ""),
        ("/status/204", "204 ", "\"\""),
        ("/headers", "200 ", "x-multi=a x-multi=b"),
        ("/trap/unreachable", "502 ", ""),
        ("/no-response", "502 ", ""),
        (
            "/drop-body/5000000",
            "200 ",
            "then ErrorCode::HttpResponseIncomplete",
        ),
    ] {
        let answer = probe(path);
        assert!(
            answer.starts_with(begins) && answer.contains(has),
            "{path}: {answer}"
        );
    }
    let head = REACHING.text("/passes/head/probe.spin.internal/body/100");
    assert!(head.starts_with("200 ") && head.ends_with("\"\""), "{head}");
    // The called function receives the whole path.
    let seen = REACHING.get("/passes/proxy/echo.spin.internal/echo").body;
    assert!(seen.starts_with("POST /echo\n"), "{seen}");
    let upstream = upstream();
    super::probe(&REACHING, "hangs");
    let path = format!(
        "/passes/get/hangs.spin.internal/get/{}/begun",
        upstream.address
    );
    let (bench, address) = (&REACHING, REACHING.address);
    let asking = bench
        .runtime()
        .spawn(async move { common::raw::get(address, &path).await });
    until("it has begun", || upstream.held().0 > 0);
    asking.abort();
    until("all of them are ended", || {
        let (held, given_up) = upstream.held();
        held == given_up
    });
}

pub fn self_calls_need_a_grant() {
    REACHING.probe();
    for (name, grants) in [
        ("all", &["*://*:*"][..]),
        ("internal", &["http://*.internal", "http://*.alt"]),
        ("one", &["http://other.spin.internal"]),
        ("private", &["http://127.0.0.1:*"]),
    ] {
        REACHING.function(name, PROBE, granted(grants));
        for authority in ["self", "self.alt", "probe.spin.internal"] {
            let answer = REACHING.text(&format!("/{name}/get/{authority}/probe/hello"));
            assert!(
                answer.contains("HttpRequestDenied"),
                "{name} {authority}: {answer}"
            );
        }
        let answer = REACHING.text(&format!("/{name}/invalid/authority"));
        assert!(answer.contains("HttpRequestUriInvalid"), "{name}: {answer}");
        let log = REACHING.log(name).join("\n");
        assert!(
            log.contains("deploy with --allow-outbound http://self"),
            "{log}"
        );
    }
    REACHING.function("granted", PROBE, granted(&["http://self"]));
    for authority in ["self:8080", "probe.spin.internal", "spin.internal"] {
        let answer = REACHING.text(&format!("/granted/get/{authority}/probe/hello"));
        assert!(
            answer.contains("HttpRequestDenied"),
            "{authority}: {answer}"
        );
    }
    let answer = REACHING.text("/granted/https/self/probe/hello");
    assert!(answer.contains("HttpRequestDenied"), "{answer}");
}

pub fn a_call_loop_through_other_functions_ends() {
    REACHING.probe();
    assert_answer(&REACHING, "loops");
    // Each turn is a request of its own.
    let path = |turns: usize| format!("/{}probe/echo", "loops/proxy/self/".repeat(turns));
    let seen = REACHING.text(&path(8));
    let through = format!("cdn-loop: {}", ["faasw"; 8].join(", "));
    assert!(seen.contains(&through), "{seen}");
    for turns in [9, 30] {
        let seen = REACHING.text(&path(turns));
        assert!(seen.contains("LoopDetected"), "{seen}");
    }
    let log = REACHING.log("loops").join("\n");
    assert!(log.contains("may be in a loop"), "{log}");
    // The count includes turns before the request reached this node.
    let turned =
        "CDN-Loop: other;v=1, faasw, faasw\r\ncdn-loop: faasw, faasw, faasw, faasw, faasw\r\n";
    let seen = REACHING.request("POST", &path(1), turned, "").body;
    let said = "cdn-loop: other;v=1, faasw, faasw, faasw, faasw, faasw, faasw, faasw, faasw\n";
    assert!(seen.contains(said), "{seen}");
    let seen = REACHING.request("POST", &path(2), turned, "").body;
    assert!(seen.contains("LoopDetected"), "{seen}");
    // An upstream receives the field, too, even if the client's request marks it as a hop-by-hop
    // field.
    let upstream = upstream();
    probe(&REACHING, "tells");
    let through = |headers: &str| {
        let path = format!("/tells/get/{}/through", upstream.address);
        REACHING.request("GET", &path, headers, "").body
    };
    assert!(through("").ends_with("\"faasw\""), "{}", through(""));
    let answer = through("CDN-Loop: other\r\nConnection: cdn-loop\r\n");
    assert!(answer.ends_with("\"other, faasw\""), "{answer}");
    let before = upstream.requests();
    let answer = through(turned.replace("other;v=1", "faasw").as_str());
    assert!(answer.contains("LoopDetected"), "{answer}");
    assert_eq!(upstream.requests(), before);
}

pub fn a_self_call_never_waits_for_a_permit() {
    // The calling function has the only place.
    let bench = Bench::start(Node::builder().max_instances(1), limits());
    bench.probe();
    assert_answer(&bench, "asks");
    for _ in 0..3 {
        let answer = bench.text("/asks/get/self/probe/hello");
        assert!(answer.starts_with("503 "), "{answer}");
    }
    let hello = bench.text("/probe/hello");
    assert_eq!(hello, "hello\n");
    bench.end();
    // A function whose own concurrency is used up gets a 503 in the same way.
    let upstream = upstream();
    assert_answer(&REACHING, "asks-narrow");
    let options = granted(&["http://127.0.0.1:*"]).concurrency(1);
    REACHING.function("narrow", PROBE, options);
    let (address, path) = (
        REACHING.address,
        format!("/narrow/get/{}/held", upstream.address),
    );
    let holding = REACHING
        .runtime()
        .spawn(async move { common::raw::get(address, &path).await });
    until("its place is taken", || upstream.held().0 == 1);
    let answer = REACHING.text("/asks-narrow/get/self/narrow/x");
    assert!(answer.starts_with("503 "), "{answer}");
    upstream.release();
    let held = REACHING.block_on(holding).unwrap();
    assert!(held.body.starts_with("200 "), "{held:?}");
}

pub fn an_abandoned_self_call_ends_its_callee() {
    let upstream = upstream();
    super::probe(&REACHING, "hangs");
    assert_answer(&REACHING, "drops");
    let at = upstream.address;
    // The answer has begun, and is dropped when the function returns.
    for _ in 0..3 {
        let before = upstream.held();
        let answer = REACHING.text(&format!("/drops/leave/self/hangs/proxy/{at}/begun"));
        assert_eq!(answer, "left");
        assert_eq!(upstream.held().0, before.0 + 1);
        until("what answered it has ended", || {
            let (held, given_up) = upstream.held();
            held == given_up
        });
    }
}

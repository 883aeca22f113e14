//! Limits and bad input in real microVMs: each violation is answered with the right status and a
//! problem body that names the limit or the trap, appears in the log, and affects no other
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
    fmt::Write as _,
    io::{Read as _, Write as _},
    time::{Duration, Instant},
};

use common::{give_up, raw, time_limit};
use e2e::{BENCH, Bench, file, limits};
use faasw::{CompileError, DeployError, FunctionOptions, Node};
use socket2::{Domain, Socket, Type};

/// Whether this machine is so slow that a response may have begun to leave before its function
/// fails. Then the response is cut off, and cannot be a problem body.
fn is_slow() -> bool {
    time_limit(1) > Duration::from_secs(1)
}

/// Asserts that a failure has the right response and is in the function's log, and that the node
/// serves the next request.
fn fails(path: &str, status: u16, slug: &str, words: &[&str]) {
    let mut answer = BENCH.get(path);
    // A response that has begun leaves 5 ms later. A busy machine may not run its function for as
    // long, and the response is cut off. With another attempt the function fails in time.
    for _ in 0..200 {
        if answer.status != 200 || is_slow() {
            break;
        }
        assert!(!answer.is_whole, "{path}: {answer:?}");
        answer = BENCH.get(path);
    }
    let name = path.split('/').nth(1).unwrap();
    if is_slow() && answer.status == 200 {
        assert!(!answer.is_whole, "{path}: {answer:?}");
        BENCH.log_once(name, |lines| {
            let said = |word: &&str| lines.iter().any(|line| line.text.contains(*word));
            words.iter().all(said)
        });
        return is_healthy();
    }
    assert_eq!(answer.status, status, "{path}: {answer:?}");
    assert_eq!(
        answer.problem("type"),
        format!("urn:faasw:problem:{slug}"),
        "{path}"
    );
    assert_eq!(answer.problem("function"), name);
    let detail = answer.problem("detail");
    for word in words {
        assert!(detail.contains(word), "{path}: no {word:?} in {detail:?}");
    }
    let instance = answer.problem("instance");
    let number = instance.strip_prefix("urn:faasw:instance:");
    let number: u64 = number.unwrap().parse().unwrap();
    // The function's owner finds the same instance in its log.
    let first = detail.lines().next().unwrap();
    BENCH.log_once(name, |lines| {
        lines
            .iter()
            .any(|line| line.text == first && line.instance == number)
    });
    is_healthy();
}

fn is_healthy() {
    BENCH.function(
        "healthy",
        "tests/fixtures/wat/hello.wasm",
        FunctionOptions::default(),
    );
    assert_eq!(BENCH.get("/healthy/").status, 200);
}

/// Deploys a small function that ends by itself, far from its time limit.
fn fixture(name: &str) {
    let options = FunctionOptions::default()
        .first_byte(give_up())
        .cpu_time(give_up());
    BENCH.function(name, &format!("tests/fixtures/wat/{name}.wasm"), options);
}

/// Deploys a small function that never ends, with a short time limit.
fn endless(name: &str) {
    let options = FunctionOptions::default().first_byte(time_limit(1));
    BENCH.function(name, &format!("tests/fixtures/wat/{name}.wasm"), options);
}

fn every_trap_is_named() {
    BENCH.probe();
    for (trap, function) in [
        ("unreachable", "trap_unreachable"),
        ("oob", "trap_oob"),
        ("div0", "trap_div0"),
        ("indirect", "trap_indirect"),
        ("recurse", "trap_recurse"),
        ("recurse-memory", "trap_recurse_memory"),
    ] {
        fails(&format!("/probe/trap/{trap}"), 502, "trapped", &[function]);
    }
    for (fixture_name, function) in [
        ("unreachable", "trap_unreachable"),
        ("oob", "trap_oob"),
        ("div0", "trap_div0"),
        ("indirect", "trap_indirect"),
        ("null-indirect", "trap_null_indirect"),
        ("recurse", "trap_recurse"),
    ] {
        fixture(fixture_name);
        fails(&format!("/{fixture_name}/"), 502, "trapped", &[function]);
    }
    BENCH.function("c", "tests/fixtures/cgi-c.wasm", FunctionOptions::default());
    fails("/c/trap", 502, "trapped", &["trap_from_c"]);
}

fn recursion_through_the_host_ends() {
    BENCH.probe();
    fails("/probe/host-recurse", 502, "trapped", &["host_recurse"]);
}

fn a_panic_is_a_trap_with_its_message_in_the_log() {
    BENCH.probe();
    fails("/probe/panic", 502, "trapped", &[]);
    let log = BENCH.log("probe");
    assert!(
        log.iter()
            .any(|line| line.contains("the probe panics on purpose")),
        "{log:?}"
    );
}

fn an_endless_loop_is_cut_off_at_its_time_limit() {
    endless("loop");
    let limit = format!("{} s", time_limit(1).as_secs_f64());
    let begun = Instant::now();
    fails("/loop/", 504, "timed-out", &[&limit]);
    assert!(begun.elapsed() >= time_limit(1), "{:?}", begun.elapsed());
    let options = FunctionOptions::default().first_byte(time_limit(1));
    BENCH.function("probe-short", "tests/fixtures/http-probe.wasm", options);
    fails("/probe-short/loop", 504, "timed-out", &[&limit]);
    fails("/probe-short/sleep/3600000", 504, "timed-out", &[&limit]);
}

fn the_default_time_limit_is_ten_seconds() {
    assert_eq!(faasw::Limits::default().first_byte, Duration::from_secs(10));
    assert_eq!(faasw::Limits::default().memory, 128 << 20);
}

fn endless_allocation_ends_at_the_memory_limit() {
    BENCH.probe();
    fails(
        "/probe/alloc",
        502,
        "trapped",
        &["alloc_until_failure", "128 MiB"],
    );
    fixture("grow-forever");
    fails(
        "/grow-forever/",
        502,
        "trapped",
        &["grow_until_refused", "128 MiB"],
    );
    let options = FunctionOptions::default().memory(16 << 20);
    BENCH.function("small", "tests/fixtures/wat/grow-forever.wasm", options);
    fails("/small/", 502, "trapped", &["16 MiB"]);
}

fn an_exit_without_a_response_reports_its_code() {
    BENCH.probe();
    BENCH.cgi();
    fixture("exit7");
    fails("/exit7/", 502, "exited", &["code 7"]);
    fails("/cgi/exit/9", 502, "exited", &["code 9"]);
    fails("/probe/exit/1", 502, "exited", &["code 1"]);
}

fn a_response_written_before_a_failed_exit_is_sent() {
    fixture("exit-told");
    for _ in 0..2 {
        let answer = BENCH.get("/exit-told/");
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (500, "a page of the function\n")
        );
    }
    let log = BENCH.log("exit-told");
    let exits = log.iter().filter(|line| line.contains("code 3"));
    assert_eq!(exits.count(), 2, "{log:?}");
}

fn a_missing_response_has_its_own_error() {
    BENCH.probe();
    fixture("nothing");
    fails("/probe/no-response", 502, "no-response", &[]);
    fails("/nothing/", 502, "no-response", &[]);
}

fn a_truncated_response_is_not_passed_on() {
    BENCH.probe();
    fails("/probe/drop-body/100", 502, "trapped", &["trap_after_head"]);
    fails(
        "/probe/body/5?content-length=9",
        502,
        "bad-response",
        &["5 of 9 bytes"],
    );
    // A response that exceeds all buffers is cut off, and never looks complete.
    let answer = BENCH.get("/probe/drop-body/3000000");
    assert_eq!(answer.status, 200, "{}", answer.body.len());
    assert!(!answer.is_whole && answer.trailers.is_empty());
    BENCH.log_once("probe", |lines| {
        lines
            .iter()
            .any(|line| line.text.contains("trap_after_head"))
    });
    is_healthy();
}

/// A client that has received all announced bytes has not left early.
fn a_function_continues_after_its_announced_body() {
    let module = file("host/cli/tests/e2e/afterwards.wat");
    BENCH.deploy("afterwards", &module, FunctionOptions::default());
    for asked in 1..=5 {
        let answer = BENCH.get("/afterwards");
        assert_eq!((answer.status, answer.body.len()), (200, 1_000_000));
        let lines = BENCH.log_once("afterwards", |lines| lines.len() == asked);
        assert!(
            lines.iter().all(|line| line.text == "all of it done"),
            "{lines:?}"
        );
    }
    // A client that disconnects before it has all of them has left early. The kernel buffers little
    // of the body for this connection, so the rest cannot have been sent before the client
    // disconnects.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.set_tcp_mss(536).unwrap();
    socket.connect(&BENCH.address.into()).unwrap();
    let mut client = std::net::TcpStream::from(socket);
    client
        .write_all(b"GET /afterwards HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    client.read_exact(&mut [0; 1000]).unwrap();
    drop(client);
    BENCH.log_once("afterwards", |lines| {
        lines
            .iter()
            .any(|line| line.text.contains("the client disconnected"))
    });
}

fn statuses_outside_http_are_not_passed_on() {
    BENCH.probe();
    for status in [100, 199, 600, 999] {
        let answer = BENCH.get(&format!("/probe/status/{status}"));
        assert_eq!(answer.status, 502, "{status}: {answer:?}");
    }
    is_healthy();
}

fn large_requests_are_refused() {
    BENCH.probe();
    let mut small = limits();
    small.request_body = 1 << 20;
    let bench = Bench::start(Node::builder(), small);
    bench.probe();
    let large = "x".repeat((1 << 20) + 1);
    let chunked = format!(
        "POST /probe/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    let announced = bench.request("POST", "/probe/echo", "", &large);
    let chunked = bench.block_on(raw::send(bench.address, chunked.as_bytes()));
    for answer in [announced, chunked] {
        // An echo that has begun before the end of its request is cut off.
        assert!(
            answer.status == 413 || !answer.is_whole,
            "{}",
            answer.status
        );
        if answer.status == 413 {
            assert!(answer.problem("detail").contains("1048576"));
        }
    }
    bench.end();
    let field = format!("X-Long: {}\r\n", "x".repeat(40 << 10));
    let answer = BENCH.request("GET", "/probe/hello", &field, "");
    assert_eq!(answer.status, 431);
    assert_eq!(answer.problem("function"), "probe");
    is_healthy();
}

fn a_client_that_sends_too_slowly_gets_an_error() {
    let mut waiting = limits();
    waiting.idle_client = common::time_limit(1) / 2;
    // The node's own limit for slow request bodies is far longer, so it does not apply.
    waiting.request_read = common::time_limit(60);
    let bench = Bench::start(Node::builder(), waiting);
    // The function's C library buffers its output until it has read everything.
    bench.function("c", "tests/fixtures/cgi-c.wasm", FunctionOptions::default());
    let half =
        "POST /c/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 5\r\n\r\nab";
    let answer = bench.block_on(raw::send(bench.address, half.as_bytes()));
    assert_eq!(answer.status, 408, "{answer:?}");
    assert_eq!(answer.problem("type"), "urn:faasw:problem:idle-client");
    bench.end();
}

fn a_flood_of_log_lines_is_bounded() {
    endless("flood");
    let answer = BENCH.get("/flood/");
    assert_eq!(answer.status, 504, "{answer:?}");
    let lines = BENCH.node.logs("flood", usize::MAX).unwrap();
    assert!(!lines.is_empty() && lines.len() <= 1000, "{}", lines.len());
    is_healthy();
}

/// Deploys a module that must be refused, and checks that the reason contains all of `words`.
fn refused(what: &str, module: Vec<u8>, words: &[&str]) -> DeployError {
    let deploying = BENCH
        .node
        .deploy("refused", module, FunctionOptions::default());
    let error = BENCH.block_on(deploying).expect_err(what);
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{what}: no {word:?} in {text:?}");
    }
    assert_eq!(BENCH.get("/refused/").status, 404);
    error
}

fn modules_that_cannot_run_are_rejected_with_the_reason() {
    let wat = |name: &str| file(&format!("tests/fixtures/wat/{name}.wasm"));
    refused(
        "unknown import",
        wat("unknown-import"),
        &["env", "mystery_call"],
    );
    for component in ["unknown-import-component", "unknown-import-handler"] {
        refused(component, wat(component), &["acme:secret/api@1.0.0"]);
    }
    refused("no start", wat("no-start"), &["_start"]);
    refused("start trap", wat("start-trap"), &["trap_in_start"]);
    refused("data out of range", wat("data-out-of-range"), &[]);
    refused("big memory", wat("big-memory"), &["128 MiB"]);
    is_healthy();
}

fn files_that_are_no_modules_are_rejected() {
    let probe = file("tests/fixtures/http-probe.wasm");
    refused("truncated", probe[..probe.len() / 2].to_vec(), &[]);
    refused("only a header", probe[..8].to_vec(), &[]);
    refused("nothing", Vec::new(), &[]);
    refused("text", b"hello".to_vec(), &[]);
    // The bytes are the same in every run.
    let mut noise = vec![0; 100_000];
    fastrand::Rng::with_seed(1).fill(&mut noise);
    refused("noise", noise.clone(), &[]);
    refused("noise behind a header", [&probe[..8], &noise].concat(), &[]);
    let huge = refused("huge", vec![0; (64 << 20) + 1], &["67108864"]);
    assert!(matches!(huge, DeployError::TooLarge { .. }));
    is_healthy();
}

fn an_impossible_memory_limit_is_rejected() {
    let options = FunctionOptions::default().memory(64 << 30);
    let deploying = BENCH
        .node
        .deploy("refused", file("tests/fixtures/wat/hello.wasm"), options);
    let text = BENCH.block_on(deploying).unwrap_err().to_string();
    assert!(text.contains("65536 MiB"), "{text}");
}

/// Returns the text of a module that takes Cranelift long: one function of additions that all
/// depend on each other.
fn long_to_compile() -> Vec<u8> {
    let mut text = String::from(
        "(module (memory (export \"memory\") 1) (func (export \"_start\") (local i64 i64 i64 i64)",
    );
    for number in 0..400_000_u64 {
        let (to, from) = (number % 4, (number + 1) % 4);
        let _ = write!(
            text,
            "(local.set {to} (i64.rotl (i64.add (local.get {to}) (local.get {from})) (i64.const \
             {number})))"
        );
    }
    text.push_str("))");
    text.into_bytes()
}

fn compiling_has_limits() {
    let mut tight = limits();
    tight.compile_cpu = Duration::from_secs(1);
    let short = Bench::start(Node::builder(), tight.clone());
    let deploying = short
        .node
        .deploy("long", long_to_compile(), FunctionOptions::default());
    let error = short.block_on(deploying).unwrap_err();
    assert!(
        matches!(error, DeployError::Compile(CompileError::CpuLimit(_))),
        "{error}"
    );
    assert!(error.to_string().contains("1 s"), "{error}");
    short.end();

    tight.compile_cpu = limits().compile_cpu;
    tight.compile_memory = 96 << 20;
    let small = Bench::start(Node::builder(), tight);
    let deploying = small
        .node
        .deploy("large", long_to_compile(), FunctionOptions::default());
    let error = small.block_on(deploying).unwrap_err();
    assert!(
        matches!(error, DeployError::Compile(CompileError::MemoryLimit(_))),
        "{error}"
    );
    assert!(error.to_string().contains("96 MiB"), "{error}");
    small.end();
}

fn a_full_node_sends_retry_after() {
    let bench = Bench::start(Node::builder().max_instances(1), limits());
    // The loop lasts until its client disconnects.
    let hour = Duration::from_secs(3600);
    let options = FunctionOptions::default().first_byte(hour).cpu_time(hour);
    bench.function("loop", "tests/fixtures/wat/loop.wasm", options);
    bench.function(
        "hello",
        "tests/fixtures/wat/hello.wasm",
        FunctionOptions::default(),
    );
    let busy = e2e::start_request(bench.address, "GET /loop/ HTTP/1.1\r\nHost: h\r\n\r\n");
    let under_way = || {
        bench
            .block_on(bench.node.inspect("loop"))
            .unwrap()
            .under_way
    };
    e2e::until("the loop is at work", || under_way() == 1);
    let refused = bench.get("/hello/");
    assert_eq!(under_way(), 1);
    assert_eq!(refused.status, 503);
    assert_eq!(refused.problem("type"), "urn:faasw:problem:over-capacity");
    assert!(refused.header("retry-after").is_some());
    drop(busy);
    // The place is free again when the process of the ended instance has ended.
    let begun = Instant::now();
    while bench.get("/hello/").status != 200 {
        assert!(begun.elapsed() < give_up(), "still full");
    }
    bench.end();
}

fn main() {
    let tests = tests![
        every_trap_is_named,
        recursion_through_the_host_ends,
        a_panic_is_a_trap_with_its_message_in_the_log,
        an_endless_loop_is_cut_off_at_its_time_limit,
        the_default_time_limit_is_ten_seconds,
        endless_allocation_ends_at_the_memory_limit,
        an_exit_without_a_response_reports_its_code,
        a_response_written_before_a_failed_exit_is_sent,
        a_missing_response_has_its_own_error,
        a_truncated_response_is_not_passed_on,
        a_function_continues_after_its_announced_body,
        statuses_outside_http_are_not_passed_on,
        large_requests_are_refused,
        a_client_that_sends_too_slowly_gets_an_error,
        a_flood_of_log_lines_is_bounded,
        modules_that_cannot_run_are_rejected_with_the_reason,
        files_that_are_no_modules_are_rejected,
        an_impossible_memory_limit_is_rejected,
        compiling_has_limits,
        a_full_node_sends_retry_after,
    ];
    e2e::main(tests);
}

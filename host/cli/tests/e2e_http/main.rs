//! Functions in real microVMs answer HTTP: components, CGI commands, fresh
//! state, the freeze policy, logs and timing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../e2e/mod.rs"]
mod e2e;

mod bodies;
mod cgi;
mod machine;

use bodies::{
    a_stream_is_seen_chunk_by_chunk, bodies_of_every_size_arrive,
    large_bodies_pass_through_constant_memory, trailers_pass_both_ways,
};
use cgi::{
    a_command_that_writes_nothing_has_not_answered, commands_answer_in_cgi_style,
    commands_are_told_the_length_of_a_body_in_chunks, commands_come_from_c_and_from_text,
    memory_is_copied_and_filled_right,
};
use common::time_limit;
use e2e::{BENCH, Bench, limits};
use faasw::{Confinement, FunctionKind, FunctionOptions, LogLine, LogStream, Node};
use machine::{
    clocks_are_real_and_go_on, each_request_meets_a_fresh_machine,
    entropy_drawn_by_the_initialisation_is_not_shared_unless_asked,
    functions_compute_what_they_should, random_numbers_never_agree_after_the_fork,
    the_environment_is_the_functions_own, there_is_no_way_out,
};

/// Returns the value of a line `NAME VALUE`.
fn value<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn has_line(text: &str, line: &str) {
    assert!(
        text.lines().any(|other| other == line),
        "no {line:?} in {text}"
    );
}

fn the_example_answers() {
    let deployed = BENCH.function(
        "hello",
        "examples/hello/hello.wasm",
        FunctionOptions::default(),
    );
    assert_eq!(deployed.function.kind, FunctionKind::HttpComponent);
    assert!(deployed.function.frozen_after_init, "{deployed:?}");
    for (path, seen) in [
        ("/hello", "/"),
        ("/hello/", "/"),
        ("/hello/a/b?c=d", "/a/b?c=d"),
    ] {
        assert_eq!(
            BENCH.text(path),
            format!("Hello from a microVM: GET {seen}\n")
        );
    }
}

fn a_request_arrives_whole_and_comes_back_whole() {
    BENCH.probe();
    let body = "0123456789abcdef".repeat(4096);
    let answer = BENCH.request(
        "PUT",
        "/probe/echo/x?y=z",
        "X-Multi: 1\r\nX-Multi: 2\r\n",
        &body,
    );
    assert_eq!(answer.status, 200);
    let (head, echoed) = answer.body.split_once("\n\n").unwrap();
    assert_eq!(echoed, body);
    assert_eq!(head.lines().next(), Some("PUT /echo/x?y=z"));
    has_line(head, "x-multi: 1");
    has_line(head, "x-multi: 2");
    has_line(head, &format!("content-length: {}", body.len()));
}

fn responses_keep_status_and_fields() {
    BENCH.probe();
    for status in [200, 201, 204, 304, 404, 418, 500, 599] {
        assert_eq!(BENCH.get(&format!("/probe/status/{status}")).status, status);
    }
    let answer = BENCH.get("/probe/headers");
    let of = |name| {
        answer
            .headers
            .iter()
            .filter(move |(other, _)| other == name)
    };
    let multi: Vec<_> = of("x-multi").map(|(_, value)| value.as_str()).collect();
    assert_eq!(multi, ["a", "b"]);
    assert_eq!(of("x-empty").count(), 1);
}

fn head_has_no_body() {
    BENCH.probe();
    let answer = BENCH.request("HEAD", "/probe/hello", "", "");
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
}

fn functions_cannot_forge_the_framing() {
    BENCH.probe();
    BENCH.cgi();
    let forged = BENCH.get("/cgi/forged-headers");
    assert_eq!(forged.header("transfer-encoding"), None);
    assert_eq!(forged.header("keep-alive"), None);
    assert_eq!(forged.header("content-length"), Some("12"));
    assert_eq!(forged.body, "forged body\n");
    let told = BENCH.text("/probe/forbidden-header");
    for line in told
        .lines()
        .filter(|line| line.starts_with("\"transfer-encoding\""))
    {
        assert!(!line.contains("=ok"), "{line}");
    }
    // gRPC clients set this field, which frames no message.
    has_line(&told, "\"te\" append=ok set=ok from-list=ok");
    assert_eq!(BENCH.get("/probe/trailers").body, "body before trailers\n");
}

fn output_becomes_the_functions_log_line_by_line() {
    BENCH.function(
        "logs",
        "tests/fixtures/http-probe.wasm",
        FunctionOptions::default(),
    );
    BENCH.text("/logs/log");
    let last = |lines: &[LogLine]| {
        let lasts = lines
            .iter()
            .filter(|line| line.text.contains(" last, no newline"));
        lasts.count() == 2
    };
    let lines = BENCH.log_once("logs", last);
    let at = |text: &str| lines.iter().find(|line| line.text.starts_with(text));
    for (text, stream) in [
        ("stdout first", LogStream::Out),
        ("stderr first", LogStream::Err),
        ("stdout last, no newline", LogStream::Out),
        ("stderr last, no newline", LogStream::Err),
    ] {
        let line = at(text).unwrap_or_else(|| panic!("no {text} in {lines:?}"));
        assert_eq!(line.stream, stream);
        assert!(line.instance > 0);
    }
    assert!(lines.iter().any(|line| line.text == "x".repeat(10_000)));
    let bytes = at("bytes ").unwrap();
    assert!(bytes.text.ends_with("\\u{1b}[31m red"), "{bytes:?}");

    BENCH.text("/logs/log-flood/600");
    BENCH.log_once("logs", |lines| {
        let flooded = lines
            .iter()
            .filter(|line| line.text.starts_with("flood line "));
        flooded.count() == 600
    });
}

fn server_timing_tells_the_stages() {
    BENCH.probe();
    let asking = "X-Faasw-Timing: 1\r\nTE: trailers\r\n";
    let answer = BENCH.request("GET", "/probe/sleep/30", asking, "");
    // The field is a trailer if the response's head could not wait for the end of the function.
    let behind = answer
        .trailers
        .iter()
        .find(|(name, _)| name == "server-timing");
    let behind = behind.map(|(_, value)| value.as_str());
    let timing = answer.header("server-timing").or(behind).unwrap();
    let (stages, served) = timing.rsplit_once(", served;desc=").unwrap();
    let kinds = ["warm", "ready", "zygote", "ancestor", "made"];
    assert!(kinds.contains(&served.trim_matches('"')), "{timing}");
    let stages: Vec<(&str, f64)> = stages
        .split(", ")
        .map(|stage| {
            let (name, duration) = stage.split_once(";dur=").unwrap();
            let (_, decimals) = duration.split_once('.').unwrap();
            assert_eq!(decimals.len(), 3, "{timing}");
            (name, duration.parse().unwrap())
        })
        .collect();
    let names: Vec<_> = stages.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["queue", "fork", "init", "exec", "run"]);
    // The guest sleeps for 30 ms. On one processor the node may see it start a moment later.
    assert!(stages[3].1 >= 20.0, "{timing}");
    let was_forked = served.contains("zygote") || served.contains("made");
    assert!(
        stages[1].1 > 0.0 || behind.is_some() || !was_forked,
        "{timing}"
    );
}

/// A node with microVMs in process deploys, invokes, ends and removes functions as with jails, and
/// leaves no thread.
fn a_node_with_its_microvms_in_process_serves_the_same() {
    let threads = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")));
        names
            .filter(|name| matches!(name, Ok(name) if name.trim() == "faasw-sandbox"))
            .count()
    };
    // Other nodes of this program use jails.
    assert_eq!(threads(), 0);
    let builder = Node::builder().confinement(Confinement::InProcess);
    let bench = Bench::start(builder, limits());
    bench.probe();
    for _ in 0..3 {
        assert_eq!(bench.text("/probe/count").trim(), "1");
    }
    assert!(threads() > 0);
    let options = FunctionOptions::default().first_byte(time_limit(1));
    bench.function("loop", "tests/fixtures/wat/loop.wasm", options);
    assert_eq!(bench.get("/loop/").status, 504);
    assert_eq!(bench.text("/probe/count").trim(), "1");
    bench.end();
    assert_eq!(threads(), 0);
}

fn main() {
    let tests = tests![
        the_example_answers,
        a_request_arrives_whole_and_comes_back_whole,
        responses_keep_status_and_fields,
        each_request_meets_a_fresh_machine,
        bodies_of_every_size_arrive,
        a_stream_is_seen_chunk_by_chunk,
        trailers_pass_both_ways,
        large_bodies_pass_through_constant_memory,
        head_has_no_body,
        random_numbers_never_agree_after_the_fork,
        clocks_are_real_and_go_on,
        the_environment_is_the_functions_own,
        there_is_no_way_out,
        functions_compute_what_they_should,
        functions_cannot_forge_the_framing,
        commands_answer_in_cgi_style,
        commands_come_from_c_and_from_text,
        commands_are_told_the_length_of_a_body_in_chunks,
        a_command_that_writes_nothing_has_not_answered,
        memory_is_copied_and_filled_right,
        entropy_drawn_by_the_initialisation_is_not_shared_unless_asked,
        output_becomes_the_functions_log_line_by_line,
        server_timing_tells_the_stages,
        a_node_with_its_microvms_in_process_serves_the_same,
    ];
    e2e::main(tests);
}

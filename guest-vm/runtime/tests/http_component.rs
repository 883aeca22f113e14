//! A real `wasi:http` component, path by path.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::sync::LazyLock;

use faasw_abi::outcome::Outcome;
use support::{Answer, HttpComponent, compile, fixture, get, values};

static PROBE: LazyLock<Vec<u8>> =
    LazyLock::new(|| compile(HttpComponent, &fixture("tests/fixtures/http-probe.wasm")));

fn probe(path: &str) -> Answer {
    get(HttpComponent, path).run(&PROBE)
}

/// Returns the words of the line that begins with `name`.
#[track_caller]
fn line<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|words| words.first() == Some(&name))
        .unwrap_or_else(|| panic!("no line {name} in {text}"))
}

#[test]
fn a_hello_is_answered() {
    let answer = probe("/hello");
    assert_eq!(answer.text(), "hello\n");
}

#[test]
fn the_example_answers() {
    let code = compile(HttpComponent, &fixture("examples/hello/hello.wasm"));
    let answer = get(HttpComponent, "/a?b").run(&code);
    assert!(answer.text().contains("GET /a?b"), "{answer:?}");
}

#[test]
fn endless_recursion_is_reported_once() {
    let answer = probe("/trap/recurse");
    assert!(
        answer.failure(Outcome::Trap).lines().count() < 5,
        "{answer:?}"
    );
}

#[test]
fn the_request_arrives_as_it_was_sent() {
    let answer = get(HttpComponent, "/echo/a%20b?x=%20y&z")
        .method("PROPFIND")
        .header("x-one", "1")
        .header("host", "example.org")
        .header("connection", "close")
        .header("x-one", "2")
        .body(b"the body")
        .run(&PROBE);
    assert_eq!(
        answer.text(),
        "PROPFIND /echo/a%20b?x=%20y&z\nx-forwarded-prefix: /fn\nx-one: 1\nx-one: 2\n\nthe body"
    );
}

#[test]
fn a_large_body_is_echoed_byte_by_byte() {
    let body: Vec<u8> = (0..600_000u32).map(|n| (n % 251) as u8).collect();
    let answer = get(HttpComponent, "/echo")
        .method("POST")
        .body(&body)
        .run(&PROBE);
    assert_eq!(answer.head().status, 200);
    let text = b"POST /echo\nx-forwarded-prefix: /fn\n\n";
    assert_eq!(answer.body[..text.len()], *text);
    assert!(answer.body[text.len()..] == body);
}

#[test]
fn repeated_empty_and_latin1_header_values_pass() {
    let answer = probe("/headers");
    assert_eq!(answer.header("x-multi"), [b"a", b"b"]);
    assert_eq!(answer.header("x-empty"), [b""]);
    assert_eq!(answer.header("x-latin1"), [b"caf\xe9"]);
}

#[test]
fn every_final_status_passes_and_no_other() {
    for status in [200, 204, 304, 404, 418, 599, 999] {
        assert_eq!(probe(&format!("/status/{status}")).head().status, status);
    }
    let report = probe("/status/101");
    assert!(report.failure(Outcome::BadResponse).contains("101"));
    assert_eq!(probe("/status/99").head().status, 400);
}

#[test]
fn a_body_of_any_size_passes_through_a_small_ring() {
    let answer = get(HttpComponent, "/body/500000").ring(1000).run(&PROBE);
    assert_eq!(answer.head().status, 200);
    assert_eq!(answer.body.len(), 500_000);
    assert_eq!(answer.finished, Some(vec![]));
}

#[test]
fn a_request_is_echoed_while_it_arrives() {
    let answer = get(HttpComponent, "/echo")
        .method("POST")
        .body(b"here ")
        .arriving(&[b"then ", b"and at last"])
        .ring(8)
        .run(&PROBE);
    assert!(answer.text().ends_with("\n\nhere then and at last"));
}

#[test]
fn a_content_length_must_be_the_bodys() {
    let answer = probe("/body/10?content-length=10");
    assert_eq!(answer.header("content-length"), [b"10"]);
    for path in [
        "/body/10?content-length=11",
        "/body/10?content-length=9",
        "/body/0?content-length=1",
    ] {
        probe(path).failure(Outcome::BadResponse);
    }
}

#[test]
fn the_answer_to_head_declares_a_body_it_has_not() {
    let answer = get(HttpComponent, "/body/0?content-length=10")
        .method("HEAD")
        .run(&PROBE);
    assert_eq!(answer.header("content-length"), [b"10"]);
}

#[test]
fn trailers_arrive_behind_the_body() {
    let answer = probe("/trailers");
    assert_eq!(answer.text(), "body before trailers\n");
    assert_eq!(
        values(&answer.finished.unwrap(), "x-trailer"),
        [b"after the body"]
    );
}

#[test]
fn framing_headers_are_forbidden_and_malformed_ones_refused() {
    let answer = probe("/forbidden-header");
    let text = answer.text();
    for name in [
        "connection",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ] {
        let expected = format!("\"{name}\" append=forbidden set=forbidden from-list=forbidden");
        assert!(text.contains(&expected), "{name}: {text}");
    }
    for name in ["x-newline", "x space", ""] {
        let expected =
            format!("\"{name}\" append=invalid-syntax set=invalid-syntax from-list=invalid-syntax");
        assert!(text.contains(&expected), "{name}: {text}");
    }
    // The probe sets `te` to `trailers`.
    for name in ["content-length", "te", "trailer", "x-allowed"] {
        let expected = format!("\"{name}\" append=ok set=ok from-list=ok");
        assert!(text.contains(&expected), "{name}: {text}");
    }
    assert!(text.contains("request-headers append=immutable"), "{text}");
}

#[test]
fn calling_out_is_denied() {
    let answer = probe("/outgoing");
    assert!(answer.text().contains("HttpRequestDenied"), "{answer:?}");
}

#[test]
fn there_are_no_sockets_and_no_files_and_no_input() {
    let answer = probe("/sockets");
    for name in ["tcp-create", "udp-create", "resolve"] {
        assert_eq!(line(answer.text(), name).len(), 2, "{answer:?}");
        assert!(!answer.text().contains("ok"), "{answer:?}");
    }
    assert_eq!(probe("/fs").text(), "preopens 1\n/tmp\n");
    assert_eq!(probe("/stdin").text().trim(), "stdin 0");
}

#[test]
fn the_environment_and_arguments_are_the_configured_ones() {
    let answer = get(HttpComponent, "/env")
        .environment("B", "2")
        .environment("A", "1=1")
        .run(&PROBE);
    assert_eq!(answer.text(), "A=1=1\nB=2\narg fn\n");
}

#[test]
fn randomness_comes_from_the_platform_and_never_repeats() {
    let answer = probe("/random");
    let random = line(answer.text(), "random")[1].to_string();
    assert_eq!(random.len(), 64);
    assert_eq!(line(answer.text(), "insecure")[1].len(), 16);
    assert_eq!(line(answer.text(), "seed")[1].len(), 32);
    assert_ne!(random[..32], random[32..]);
}

#[test]
fn clocks_are_the_platforms() {
    let answer = probe("/clock");
    assert!(
        line(answer.text(), "wall")[1].starts_with("170000000"),
        "{answer:?}"
    );
    assert_eq!(line(answer.text(), "resolution")[1], "1");
}

#[test]
fn sleeping_waits_at_the_platform() {
    let answer = probe("/sleep/1500");
    let slept: u64 = answer.text().trim().parse().unwrap();
    assert!((1500..1600).contains(&slept), "{slept}");
    assert_eq!(answer.waits, 1);
}

#[test]
fn polling_timers_waits_for_the_earliest() {
    let answer = probe("/poll");
    assert_eq!(answer.text().trim(), "ready 1");
    assert_eq!(answer.waits, 1);
}

#[test]
fn standard_output_and_error_are_log() {
    let answer = probe("/log");
    assert_eq!(answer.head().status, 200);
    assert!(answer.out.len() > 10_000);
    assert!(answer.out.ends_with(b"stdout last, no newline"));
    assert!(answer.err.starts_with(b"stderr first\n"));
}

#[test]
fn a_missing_response_is_reported() {
    let answer = probe("/no-response");
    assert!(answer.failure(Outcome::NoResponse).contains("response"));
}

#[test]
fn exits_before_the_response_are_reported_with_their_code() {
    let answer = probe("/exit/3");
    assert_eq!(answer.failure(Outcome::Exit), "exited with code 1");
    probe("/exit/0").failure(Outcome::NoResponse);
}

#[test]
fn traps_name_their_function() {
    for (path, name, trap) in [
        ("/trap/unreachable", "trap_unreachable", "unreachable"),
        ("/trap/oob", "trap_oob", "out of bounds memory access"),
        ("/trap/div0", "trap_div0", "integer divide by zero"),
        ("/trap/indirect", "trap_indirect", "indirect call"),
        ("/trap/recurse", "trap_recurse", "call stack exhausted"),
        (
            "/trap/recurse-memory",
            "trap_recurse_memory",
            "out of bounds",
        ),
        ("/host-recurse", "host_recurse", "call stack exhausted"),
    ] {
        let answer = probe(path);
        let report = answer.failure(Outcome::Trap);
        assert!(report.contains(trap), "{path}: {report}");
        assert!(report.contains(name), "{path}: {report}");
        assert!(report.len() <= 4096);
    }
}

#[test]
fn a_trap_after_the_head_wins() {
    for path in ["/drop-body", "/drop-body/1000"] {
        let answer = probe(path);
        assert!(
            answer.failure(Outcome::Trap).contains("trap_after_head"),
            "{answer:?}"
        );
    }
}

#[test]
fn a_panic_is_a_trap_whose_message_is_logged() {
    let answer = probe("/panic");
    answer.failure(Outcome::Trap);
    let log = String::from_utf8_lossy(&answer.err).into_owned();
    assert!(log.contains("the probe panics on purpose"), "{log}");
}

#[test]
fn memory_growth_stops_at_the_limit_and_is_reported() {
    let answer = get(HttpComponent, "/alloc").memory(16 << 20).run(&PROBE);
    let report = answer.failure(Outcome::Trap);
    assert!(
        report.starts_with("memory limit of 16 MiB was reached\n"),
        "{report}"
    );
}

#[test]
fn memory_grows_on_request() {
    let answer = probe("/grow/16");
    let words = line(answer.text(), "old");
    let [old, new] = [1, 3].map(|index| words[index].trim().parse::<u32>().unwrap());
    assert_eq!(new - old, 16);
}

#[test]
fn each_instance_counts_from_one() {
    for _ in 0..2 {
        assert_eq!(probe("/count").text().trim(), "1");
    }
}

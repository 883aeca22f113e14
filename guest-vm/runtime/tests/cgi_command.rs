//! Real preview 1 commands in CGI style: Rust, C, and by hand.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::sync::LazyLock;

use faasw_abi::outcome::Outcome;
use support::{Answer, Call, CgiModule, compile, fixture, get};

static PROBE: LazyLock<Vec<u8>> =
    LazyLock::new(|| compile(CgiModule, &fixture("tests/fixtures/cgi-probe.wasm")));
static C_PROBE: LazyLock<Vec<u8>> =
    LazyLock::new(|| compile(CgiModule, &fixture("tests/fixtures/cgi-c.wasm")));

fn request(path: &str) -> Call {
    get(CgiModule, path)
}

fn probe(path: &str) -> Answer {
    request(path).run(&PROBE)
}

fn wat(name: &str) -> Answer {
    let code = compile(
        CgiModule,
        &fixture(&format!("tests/fixtures/wat/{name}.wasm")),
    );
    request("/").run(&code)
}

#[test]
fn a_hello_is_answered() {
    let answer = probe("/hello");
    assert_eq!(answer.text(), "hello\n");
    assert_eq!(answer.header("content-type"), [b"text/plain"]);
    assert_eq!(wat("hello").text(), "hello from wat\n");
}

#[test]
fn the_environment_is_the_requests_and_the_configured_one() {
    let answer = request("/env/a%20b?q=1")
        .environment("MINE", "yes")
        .environment("REQUEST_METHOD", "overridden")
        .header("x-a", "1")
        .header("x-a", "2")
        .run(&PROBE);
    for line in [
        "MINE=yes",
        "REQUEST_METHOD=GET",
        "PATH_INFO=/env/a b",
        "QUERY_STRING=q=1",
        "REQUEST_URI=/fn/env/a%20b?q=1",
        "SCRIPT_NAME=/fn",
        "SERVER_NAME=example.org",
        "SERVER_PORT=8080",
        "HTTP_X_A=1, 2",
    ] {
        let lines = answer.text().lines();
        assert_eq!(lines.filter(|other| *other == line).count(), 1, "{line}");
    }
    assert!(!answer.text().contains("overridden"));
    assert_eq!(probe("/args").text(), "arg fn\n");
}

#[test]
fn the_request_body_is_standard_input() {
    let body: Vec<u8> = (0..300_000u32).map(|n| (n % 253) as u8).collect();
    let answer = request("/echo")
        .method("POST")
        .header("content-type", "application/x-test")
        .body(&body)
        .run(&PROBE);
    assert_eq!(answer.header("content-type"), [b"application/x-test"]);
    assert!(answer.body == body);
}

#[test]
fn c_reads_and_writes_the_same() {
    let answer = request("/echo?a=b")
        .method("POST")
        .header("content-type", "text/x")
        .header("content-length", "4")
        .body(b"body")
        .run(&C_PROBE);
    assert_eq!(
        answer.text(),
        "POST /echo?a=b\nCONTENT_TYPE text/x\nCONTENT_LENGTH 4\n\nbody"
    );
    assert_eq!(request("/other").run(&C_PROBE).head().status, 404);
}

#[test]
fn output_without_a_header_block_is_plain_text() {
    let answer = probe("/no-headers");
    assert_eq!(
        answer.text(),
        "no header block here\njust text: with a colon\n"
    );
    assert_eq!(
        answer.header("content-type"),
        [b"text/plain; charset=utf-8"]
    );
    assert!(
        probe("/malformed-headers")
            .text()
            .starts_with("Content-Type")
    );
}

#[test]
fn status_and_location_set_the_status() {
    let answer = probe("/status");
    assert_eq!(answer.head().status, 418);
    assert!(answer.header("status").is_empty());
    for (path, location) in [
        ("/location", b"https://example.com/elsewhere".as_slice()),
        ("/local-location", b"/elsewhere"),
    ] {
        let answer = probe(path);
        assert_eq!(answer.head().status, 302);
        assert_eq!(answer.header("location"), [location]);
    }
}

#[test]
fn lines_may_end_in_cr_lf() {
    let answer = probe("/crlf");
    assert_eq!(answer.text(), "crlf\r\n");
    assert_eq!(answer.header("x-crlf"), [b"yes"]);
}

#[test]
fn framing_headers_are_dropped_and_other_headers_kept() {
    let answer = probe("/forged-headers");
    assert_eq!(answer.text(), "forged body\n");
    for name in ["connection", "transfer-encoding", "keep-alive"] {
        assert!(answer.header(name).is_empty(), "{name}");
    }
    assert_eq!(answer.header("x-multi"), [b"a", b"b"]);
}

#[test]
fn a_body_of_any_size_passes_through_a_small_ring() {
    let answer = request("/body/500000").ring(1000).run(&PROBE);
    assert_eq!(answer.body.len(), 500_000);
    assert_eq!(answer.head().status, 200);
    assert_eq!(answer.finished, Some(vec![]));
}

#[test]
fn an_exit_code_is_reported_and_zero_is_no_failure() {
    let answer = probe("/exit/7");
    assert_eq!(answer.failure(Outcome::Exit), "exited with code 7");
    assert_eq!(answer.result.unwrap_err().exit_code, 7);
    assert_eq!(probe("/exit/0").text(), "partial output\n");
    let answer = request("/exit/9").run(&C_PROBE);
    assert_eq!(answer.failure(Outcome::Exit), "exited with code 9");
    wat("exit7").failure(Outcome::Exit);
}

#[test]
fn any_exit_code_is_accepted_after_a_reported_failure() {
    let answer = wat("exit-told");
    assert_eq!(answer.failure(Outcome::Exit), "exited with code 3");
    assert_eq!(answer.head.as_ref().unwrap().status, 500);
    assert_eq!(answer.body, b"a page of the function\n");
    assert_eq!(answer.finished, Some(vec![]));
    // A command that exits with a code, without a reported failure, has no response.
    assert_eq!(probe("/exit/7").finished, None);
}

#[test]
fn no_output_is_no_response() {
    wat("nothing").failure(Outcome::NoResponse);
}

#[test]
fn traps_name_their_function() {
    let traps = [
        (probe("/trap"), "trap_unreachable"),
        (request("/trap").run(&C_PROBE), "trap_from_c"),
        (wat("unreachable"), "trap_unreachable"),
        (wat("oob"), "trap_oob"),
        (wat("div0"), "trap_div0"),
        (wat("indirect"), "trap_indirect"),
        (wat("null-indirect"), "trap_null_indirect"),
        (wat("recurse"), "trap_recurse"),
    ];
    for (answer, name) in traps {
        let report = answer.failure(Outcome::Trap);
        assert!(
            report.contains(&format!("in function '{name}'")),
            "{report}"
        );
    }
}

#[test]
fn a_refused_growth_is_reported_with_the_limit() {
    let answer = wat("grow-forever");
    let report = answer.failure(Outcome::Trap);
    assert!(
        report.contains("memory limit of 128 MiB was reached"),
        "{report}"
    );
    assert!(report.contains("grow_until_refused"), "{report}");
}

#[test]
fn standard_error_is_log() {
    let answer = probe("/stderr");
    assert_eq!(answer.text(), "logged\n");
    assert!(answer.err.starts_with(b"stderr first\n"));
    assert!(answer.err.ends_with(b"stderr last, no newline"));
    assert!(answer.out.is_empty());
}

#[test]
fn random_bytes_and_clocks_are_the_platforms() {
    assert_eq!(probe("/random").text().trim().len(), "random ".len() + 64);
    let answer = probe("/clock");
    assert!(answer.text().contains("wall 170000000"), "{answer:?}");
    assert!(
        answer.text().contains("monotonic-resolution 1\n"),
        "{answer:?}"
    );
}

#[test]
fn sleeping_waits_at_the_platform() {
    let answer = probe("/sleep/1500");
    let slept: u64 = answer.text().trim().parse().unwrap();
    assert!((1500..1600).contains(&slept), "{slept}");
    assert_eq!(answer.waits, 1);
}

#[test]
fn there_are_only_temporary_files() {
    let answer = probe("/fs");
    assert!(!answer.text().contains("open ok"), "{answer:?}");
    assert!(answer.text().contains("preopen yes"), "{answer:?}");
}

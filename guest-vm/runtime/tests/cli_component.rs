//! Components that export `wasi:cli/run`: a real one, and small ones by hand.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::sync::LazyLock;

use faasw_abi::outcome::Outcome;
use support::{Answer, CliComponent, compile, fixture, get};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
};
use wit_component::ComponentEncoder;

/// The CGI probe as a component, made as by `wasm-tools component new`.
static PROBE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let component = ComponentEncoder::default()
        .module(&fixture("tests/fixtures/cgi-probe.wasm"))
        .unwrap()
        .adapter(
            WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME,
            WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
        )
        .unwrap()
        .encode()
        .unwrap();
    compile(CliComponent, &component)
});

fn probe(path: &str) -> Answer {
    get(CliComponent, path).run(&PROBE)
}

/// Runs a component whose `run` has this core body; `imports` may define
/// `$import` instances, `lowers` core functions for `$host`.
fn component(imports: &str, lowers: &str, core_imports: &str, body: &str) -> Answer {
    // Nothing calls the allocator more than once, so it need not allocate.
    let wat = format!(
        r#"(component
          {imports}
          (core module $libc
            (memory (export "memory") 64)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
          (core instance $libc (instantiate $libc))
          {lowers}
          (core module $main {core_imports}
            (func (export "run") (result i32) {body}))
          (core instance $main (instantiate $main
            (with "host" (instance {with}))))
          (func $run (result (result)) (canon lift (core func $main "run")))
          (instance $exported (export "run" (func $run)))
          (export "wasi:cli/run@0.2.0" (instance $exported)))"#,
        with = if lowers.is_empty() {
            ""
        } else {
            r#"(export "call" (func $call)) (export "other" (func $other))"#
        },
    );
    get(CliComponent, "/").run(&compile(CliComponent, wat.as_bytes()))
}

#[test]
fn a_command_component_answers_in_cgi_style() {
    assert_eq!(probe("/hello").text(), "hello\n");
    assert_eq!(probe("/status").head().status, 418);
    assert_eq!(probe("/args").text(), "arg fn\n");
    assert!(probe("/env").text().contains("PATH_INFO=/env\n"));
    probe("/exit/0").text();
}

#[test]
fn its_standard_input_is_the_request_body() {
    let body = b"0123456789".repeat(20_000);
    let answer = get(CliComponent, "/echo").body(&body).run(&PROBE);
    assert_eq!(answer.head().status, 200);
    assert!(answer.body == body);
}

#[test]
fn it_sleeps_at_the_platform_and_logs_its_standard_error() {
    let answer = probe("/sleep/1500");
    let slept: u64 = answer.text().trim().parse().unwrap();
    assert!((1500..1600).contains(&slept), "{slept}");
    assert!(probe("/stderr").err.starts_with(b"stderr first\n"));
}

#[test]
fn its_traps_and_exits_are_reported() {
    assert!(
        probe("/trap")
            .failure(Outcome::Trap)
            .contains("'trap_unreachable'")
    );
    // The adapter distinguishes success and failure only.
    probe("/exit/7").failure(Outcome::Exit);
}

#[test]
fn returning_an_error_is_exit_code_1() {
    let answer = component("", "", "", "(i32.const 1)");
    assert_eq!(answer.failure(Outcome::Exit), "exited with code 1");
    component("", "", "", "(i32.const 0)").failure(Outcome::NoResponse);
}

#[test]
fn an_exit_code_of_its_own_is_kept() {
    let answer = component(
        r#"(import "wasi:cli/exit@0.2.12" (instance $exit
             (export "exit-with-code" (func (param "status-code" u8)))))"#,
        r#"(core func $call (canon lower (func $exit "exit-with-code")))
           (core func $other (canon lower (func $exit "exit-with-code")))"#,
        r#"(import "host" "call" (func $call (param i32)))"#,
        "(call $call (i32.const 42)) (i32.const 0)",
    );
    assert_eq!(answer.failure(Outcome::Exit), "exited with code 42");
    assert_eq!(answer.result.unwrap_err().exit_code, 42);
}

#[test]
fn several_versions_of_an_interface_link_side_by_side() {
    let answer = component(
        r#"(import "wasi:random/random@0.2.0" (instance $old
             (export "get-random-u64" (func (result u64)))))
           (import "wasi:random/random@0.2.9" (instance $new
             (export "get-random-u64" (func (result u64)))))"#,
        r#"(core func $call (canon lower (func $old "get-random-u64")))
           (core func $other (canon lower (func $new "get-random-u64")))"#,
        r#"(import "host" "call" (func $call (result i64)))
           (import "host" "other" (func $other (result i64)))"#,
        "(i64.eq (call $call) (call $other))",
    );
    // The numbers are unequal, so there is no error and no output.
    answer.failure(Outcome::NoResponse);
}

#[test]
fn requesting_too_many_random_bytes_traps_with_a_message() {
    let answer = component(
        r#"(import "wasi:random/random@0.2.0" (instance $random
             (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))"#,
        r#"(alias core export $libc "memory" (core memory $memory))
           (core func $call (canon lower (func $random "get-random-bytes")
             (memory $memory) (realloc (core func $libc "realloc"))))
           (core func $other (canon lower (func $random "get-random-bytes")
             (memory $memory) (realloc (core func $libc "realloc"))))"#,
        r#"(import "host" "call" (func $call (param i64 i32)))"#,
        "(call $call (i64.const 0x7fffffffffffffff) (i32.const 0)) (i32.const 0)",
    );
    let report = answer.failure(Outcome::Trap);
    assert!(report.contains("get-random-bytes"), "{report}");
    assert!(report.contains("maximum per call is 1048576"), "{report}");
}

#[test]
fn a_list_that_no_call_takes_is_refused_before_it_is_copied() {
    let answer = component(
        r#"(import "wasi:io/error@0.2.0" (instance $errors (export "error" (type (sub resource)))))
           (alias export $errors "error" (type $error))
           (import "wasi:io/streams@0.2.0" (instance $streams
             (export "output-stream" (type $stream (sub resource)))
             (alias outer 1 $error (type $outer-error))
             (export "error" (type $error (eq $outer-error)))
             (type $failure (variant (case "last-operation-failed" (own $error)) (case "closed")))
             (export "stream-error" (type $stream-error (eq $failure)))
             (export "[method]output-stream.write" (func
               (param "self" (borrow $stream)) (param "contents" (list u8))
               (result (result (error $stream-error)))))))
           (alias export $streams "output-stream" (type $stream))
           (import "wasi:cli/stderr@0.2.0" (instance $stderr
             (alias outer 1 $stream (type $outer-stream))
             (export "output-stream" (type $stream (eq $outer-stream)))
             (export "get-stderr" (func (result (own $stream))))))"#,
        r#"(alias core export $libc "memory" (core memory $memory))
           (core func $call (canon lower (func $stderr "get-stderr")))
           (core func $other (canon lower (func $streams "[method]output-stream.write")
             (memory $memory) (realloc (core func $libc "realloc"))))"#,
        r#"(import "host" "call" (func $stderr (result i32)))
           (import "host" "other" (func $write (param i32 i32 i32 i32)))"#,
        "(call $write (call $stderr) (i32.const 64) (i32.const 0x200000) (i32.const 0))
         (i32.const 0)",
    );
    let report = answer.failure(Outcome::Trap);
    assert!(report.contains("fuel"), "{report}");
    assert!(answer.err.is_empty());
}

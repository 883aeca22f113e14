//! Functions that other toolchains build, unmodified, in real microVMs: a Go command, a Go
//! component, and a component that mixes versions of WASI 0.2. `.ci/components` builds those that
//! are too large for the repository (JavaScript, Python).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use e2e::BENCH;
use faasw::{FreezePolicy, FunctionKind, FunctionOptions};

/// Returns the value of a line `NAME VALUE`.
fn value<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Checks the behaviour of all examples: they describe the request, draw a random number, count,
/// and echo.
fn behaves(name: &str) {
    let mut drawn = Vec::new();
    for _ in 0..3 {
        let path = format!("/{name}/a/b?c=d");
        let body = "0123456789".repeat(20_000);
        let answer = BENCH.request("POST", &path, "X-Echo: hi\r\n", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        let (told, echoed) = answer.body.split_once("\n\n").unwrap();
        assert!(told.starts_with("POST /a/b"), "{told}");
        assert!(told.contains("c=d"), "{told}");
        assert_eq!(value(told, "x-echo"), "hi");
        assert_eq!(value(told, "count"), "1");
        assert!(echoed == body, "{} bytes came back", echoed.len());
        drawn.push(value(told, "random").to_owned());
    }
    drawn.sort();
    drawn.dedup();
    assert_eq!(drawn.len(), 3, "{drawn:?}");
}

fn a_go_command_answers() {
    let options = FunctionOptions::default();
    let deployed = BENCH.function("go-cgi", "examples/go-cgi/cgi.wasm", options);
    assert_eq!(deployed.function.kind, FunctionKind::CgiModule);
    behaves("go-cgi");
}

fn each_go_instance_has_its_own_entropy() {
    let path = "examples/go-http/go-http.wasm";
    let deployed = BENCH.function("go-http", path, FunctionOptions::default());
    assert_eq!(deployed.function.kind, FunctionKind::HttpComponent);
    // Stock Go draws entropy while it is instantiated.
    assert!(!deployed.function.frozen_after_init);
    let notice = deployed.notice.unwrap();
    assert!(notice.contains("--freeze after-init"), "{notice}");
    behaves("go-http");
    let shared = FunctionOptions::default().freeze(FreezePolicy::AfterInit);
    let deployed = BENCH.function("go-shared", path, shared);
    assert!(deployed.function.frozen_after_init);
    behaves("go-shared");
}

fn minor_versions_of_wasi_mix_in_one_component() {
    BENCH.function(
        "two-versions",
        "tests/fixtures/wat/two-versions.wasm",
        FunctionOptions::default(),
    );
    assert_eq!(BENCH.text("/two-versions/"), "by 0.2.0\nby 0.2.10\n");
}

fn main() {
    let tests = tests![
        a_go_command_answers,
        each_go_instance_has_its_own_entropy,
        minor_versions_of_wasi_mix_in_one_component,
    ];
    e2e::main(tests);
}

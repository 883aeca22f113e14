//! Configuration, by each interface for it, and interfaces that link only to be refused.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::sync::LazyLock;

use faasw_abi::outcome::Outcome;
use support::{Call, HttpComponent, compile, fixture, get};

static PROBE: LazyLock<Vec<u8>> =
    LazyLock::new(|| compile(HttpComponent, &fixture("tests/fixtures/config-probe.wasm")));

fn configured(path: &str) -> Call {
    get(HttpComponent, path)
        .config("colour", "gr\u{fc}n")
        .config("A-b.c", "")
        .config("api_key", "x=y")
}

#[test]
fn every_interface_returns_the_same_configuration() {
    for (path, expected) in [
        ("/get/colour", "some gr\u{fc}n"),
        ("/get/A-b.c", "some "),
        ("/get/COLOUR", "none"),
        ("/drafts/api_key", "some x=y, some x=y, some x=y"),
        ("/drafts/", "none, none, none"),
        ("/all", "colour=gr\u{fc}n\nA-b.c=\napi_key=x=y\n"),
        ("/variable/api_key", "some x=y"),
        ("/variable/A-b.c", "some "),
        ("/variable/api_kez", "undefined api_kez"),
        ("/variable/api__key", "invalid name api__key"),
        ("/at-start", "some gr\u{fc}n"),
    ] {
        let answer = configured(path).run(&PROBE);
        assert_eq!(answer.text(), expected, "{path}");
    }
    let none = get(HttpComponent, "/all").run(&PROBE);
    assert_eq!(none.text(), "");
}

#[test]
fn reading_it_draws_nothing_that_requests_may_not_share() {
    let ready = configured("/").ready(&PROBE).unwrap();
    assert_eq!(ready.draws().bits(), 0);
    let told = ready.draws().to_string();
    assert_eq!(told, "wasi:config/store#get: 1 read");
}

#[test]
fn a_refusal_has_a_reason_and_the_function_continues() {
    for (what, case, name) in [
        ("sqlite", "Io", "fermyon:spin/sqlite@2.0.0"),
        ("sqlite3", "Io", "spin:sqlite/sqlite@3.1.0"),
        ("llm", "RuntimeError", "fermyon:spin/llm@2.0.0"),
        ("redis", "Other", "fermyon:spin/redis@2.0.0"),
        ("mqtt", "Other", "fermyon:spin/mqtt@2.0.0"),
        ("mysql", "Other", "fermyon:spin/mysql@2.0.0"),
        ("postgres", "Other", "fermyon:spin/postgres@2.0.0"),
        ("postgres3", "Other", "spin:postgres/postgres@3.0.0"),
        ("postgres4", "Other", "spin:postgres/postgres@4.2.0"),
    ] {
        let answer = get(HttpComponent, &format!("/refused/{what}")).run(&PROBE);
        let told = answer.text();
        let expected = format!("{case}(\"{name} is refused: ");
        assert!(told.contains(&expected), "{what}: {told}");
        assert!(told.contains("not supported\")"), "{what}: {told}");
    }
}

#[test]
fn a_refusal_without_an_error_type_traps_with_the_reason() {
    let answer = get(HttpComponent, "/refused/postgres4-builder").run(&PROBE);
    let told = answer.failure(Outcome::Trap);
    let expected = "spin:postgres/postgres@4.2.0 is refused: such connections are not supported";
    assert!(told.contains(expected), "{told}");
}

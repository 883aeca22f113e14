//! Configuration as functions in real microVMs read it, and interfaces that link but are refused
//! when they are called.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::collections::BTreeMap;

use e2e::{BENCH, Bench, limits};
use faasw::{FunctionOptions, Node};

const PROBE: &str = "tests/fixtures/config-probe.wasm";

fn colour(colour: &str) -> FunctionOptions {
    FunctionOptions::default().config("colour", colour)
}

fn every_interface_reads_the_configuration() {
    let options = colour("green")
        .config("api_url", "http://a.test/?b=c")
        .config("Empty.Key", "")
        .config("lines", "one\ntwo\u{e9}");
    let deployed = BENCH.function("config", PROBE, options);
    assert_eq!(deployed.notice, None);
    assert!(deployed.function.frozen_after_init, "{deployed:?}");
    let imports = &deployed.function.imports;
    for reader in [
        "wasi:config/store@0.2.0-draft#get",
        "wasi:config/store@0.2.0-draft-2024-09-27#get",
        "wasi:config/store@0.2.0-rc.1#get-all",
        "fermyon:spin/variables@2.0.0#get",
    ] {
        assert!(imports.iter().any(|import| import == reader), "{imports:?}");
    }
    for (path, expected) in [
        ("get/colour", "some green"),
        ("get/lines", "some one\ntwo\u{e9}"),
        ("get/Empty.Key", "some "),
        ("get/nothing", "none"),
        ("drafts/colour", "some green, some green, some green"),
        ("drafts/nothing", "none, none, none"),
        ("variable/api_url", "some http://a.test/?b=c"),
        ("variable/Empty.Key", "some "),
        ("variable/nothing", "undefined nothing"),
        ("variable/No-Name", "invalid name No-Name"),
        (
            "all",
            "Empty.Key=\napi_url=http://a.test/?b=c\ncolour=green\nlines=one\ntwo\u{e9}\n",
        ),
        ("at-start", "some green"),
    ] {
        assert_eq!(BENCH.text(&format!("/config/{path}")), expected, "{path}");
    }
}

/// The core module is as bindings leave it, before a tool makes a component of it.
fn a_core_module_with_a_component_type_is_a_component() {
    let deployed = BENCH.function(
        "core",
        "tests/fixtures/config-probe-core.wasm",
        colour("green"),
    );
    let component = BENCH.function("component", PROBE, colour("green"));
    assert_eq!(deployed.function.kind, component.function.kind);
    for path in [
        "get/colour",
        "variable/colour",
        "variable/nothing",
        "all",
        "at-start",
    ] {
        let expected = BENCH.text(&format!("/component/{path}"));
        assert_eq!(BENCH.text(&format!("/core/{path}")), expected, "{path}");
    }
}

fn no_function_sees_the_configuration_of_another() {
    for name in ["red", "blue", "none"] {
        let options = match name {
            "none" => FunctionOptions::default(),
            name => colour(name).config(name, "mine"),
        };
        BENCH.function(name, PROBE, options);
    }
    // The rounds alternate between the functions, and use reset instances, too.
    for _ in 0..5 {
        assert_eq!(BENCH.text("/red/all"), "colour=red\nred=mine\n");
        assert_eq!(BENCH.text("/blue/all"), "blue=mine\ncolour=blue\n");
        assert_eq!(BENCH.text("/none/all"), "");
        assert_eq!(BENCH.text("/red/at-start"), "some red");
        assert_eq!(BENCH.text("/blue/at-start"), "some blue");
        assert_eq!(BENCH.text("/none/at-start"), "none");
    }
}

fn configuration_belongs_to_the_version() {
    for (version, value) in [(1, "one"), (2, "two")] {
        let deployed = BENCH.deploy("versions", &e2e::file(PROBE), colour(value));
        assert_eq!(deployed.function.version, version);
        let expected = BTreeMap::from([("colour".to_owned(), value.to_owned())]);
        assert_eq!(*deployed.function.options.configuration(), expected);
        assert_eq!(BENCH.text("/versions/get/colour"), format!("some {value}"));
        assert_eq!(BENCH.text("/versions/at-start"), format!("some {value}"));
    }
    BENCH
        .block_on(BENCH.node.rollback("versions", None))
        .unwrap();
    for path in ["get/colour", "at-start", "get/colour"] {
        assert_eq!(BENCH.text(&format!("/versions/{path}")), "some one");
    }
}

/// The seed is read from its image, or made anew.
fn it_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let start = |image_bytes| {
        let builder = Node::builder().data_dir(folder.path());
        Bench::start(builder.image_disk(image_bytes), limits())
    };
    let bench = start(1 << 30);
    bench.deploy("kept", &e2e::file(PROBE), colour("green"));
    bench.end();
    // The data directory is locked until the node is dropped.
    drop(bench);
    for image_bytes in [1 << 30, 0] {
        let bench = start(image_bytes);
        assert_eq!(bench.text("/kept/get/colour"), "some green");
        assert_eq!(bench.text("/kept/at-start"), "some green");
        let details = bench.block_on(bench.node.inspect("kept")).unwrap();
        let options = details.function.options;
        assert_eq!(options.configuration()["colour"], "green");
        bench.end();
    }
}

fn refused_interfaces_explain_why() {
    BENCH.function("refused", PROBE, FunctionOptions::default());
    for (what, why) in [
        ("sqlite", "Io(\"fermyon:spin/sqlite@2.0.0 is refused"),
        ("sqlite3", "Io(\"spin:sqlite/sqlite@3.1.0 is refused"),
        (
            "llm",
            "RuntimeError(\"fermyon:spin/llm@2.0.0 is refused: language models are not \
             supported\")",
        ),
        (
            "redis",
            "Other(\"fermyon:spin/redis@2.0.0 is refused: such connections are not supported\")",
        ),
        ("mqtt", "Other(\"fermyon:spin/mqtt@2.0.0 is refused"),
        ("mysql", "Other(\"fermyon:spin/mysql@2.0.0 is refused"),
        ("postgres", "Other(\"fermyon:spin/postgres@2.0.0 is refused"),
        (
            "postgres3",
            "Other(\"spin:postgres/postgres@3.0.0 is refused",
        ),
        (
            "postgres4",
            "Other(\"spin:postgres/postgres@4.2.0 is refused",
        ),
    ] {
        let told = BENCH.text(&format!("/refused/refused/{what}"));
        assert!(told.contains(why), "{what}: {told}");
    }
    // This function has no error value to return, so it traps.
    let trapped = BENCH.get("/refused/refused/postgres4-builder");
    assert_eq!(trapped.status, 502);
    let why = "such connections are not supported";
    assert!(trapped.body.contains(why), "{trapped:?}");
    assert_eq!(BENCH.text("/refused/get/colour"), "none");
}

fn functions_that_do_not_read_configuration_get_a_notice() {
    let deployed = BENCH.deploy(
        "deaf",
        &e2e::file("tests/fixtures/http-probe.wasm"),
        colour("green"),
    );
    let notice = deployed.notice.unwrap();
    assert!(notice.contains("wasi:config/store"), "{notice}");
    assert_eq!(BENCH.text("/deaf/env"), "FAASW_BASE_PATH=/deaf\narg deaf\n");
}

fn main() {
    let tests = tests![
        every_interface_reads_the_configuration,
        a_core_module_with_a_component_type_is_a_component,
        no_function_sees_the_configuration_of_another,
        configuration_belongs_to_the_version,
        it_survives_a_restart,
        refused_interfaces_explain_why,
        functions_that_do_not_read_configuration_get_a_notice,
    ];
    e2e::main(tests);
}

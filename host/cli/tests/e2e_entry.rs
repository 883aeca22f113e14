//! Functions whose own code determines where they are frozen: all requests share what ran before
//! that, each runs what comes after it, and misuse harms no other function.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::collections::HashSet;

use e2e::{
    Bench,
    init_functions::{TABLE_SET, assert_runs_to_its_end, init_by, with_inserted, with_node},
    limits,
};
use faasw::{
    DeployError, FreezePolicy, FunctionOptions, Node, NodeBuilder, SeedError, WarmUpRequest,
    files::{Files, Kind},
};

const COMMAND: &str = "tests/fixtures/entry-c.wasm";
const COMPONENT: &str = "host/cli/tests/e2e/entered-component.wat";

fn in_mode(mode: &str) -> FunctionOptions {
    FunctionOptions::default().env("MODE", mode)
}

fn refused(bench: &Bench, module: &[u8], options: FunctionOptions) -> DeployError {
    let deployed = bench.block_on(bench.node.deploy("bad", module.to_vec(), options));
    deployed.map(|done| panic!("{done:?}")).unwrap_err()
}

/// Sends a request to the command. Returns the lines of its answer but the last, and the last,
/// which contains what it drew.
fn answer(bench: &Bench, function: &str, body: &str) -> (Vec<String>, String) {
    let path = format!("/{function}/a/b?c=d");
    let response = bench.request("POST", &path, "", body);
    assert_eq!(response.status, 200, "{response:?}");
    let mut lines: Vec<_> = response.body.lines().map(ToOwned::to_owned).collect();
    let fresh = lines.pop().unwrap();
    assert!(fresh.starts_with("fresh "), "{fresh}");
    (lines, fresh)
}

fn expected(mode: &str, body: &str) -> Vec<String> {
    vec![
        "prepared 1".to_owned(),
        "POST /a/b c=d".to_owned(),
        format!("mode {mode}"),
        format!("body {body}"),
        "drawn 0000000000000000".to_owned(),
    ]
}

fn a_command_resumes_after_its_entry_point() {
    with_node(|bench| {
        let function = bench
            .function("f", COMMAND, FunctionOptions::default())
            .function;
        assert!(function.frozen_at_entry && function.frozen_after_init);
        assert_eq!(bench.log("f"), ["preparing, without a request"]);
        let mut drawn = HashSet::new();
        for round in 0..20 {
            let body = format!("body {round}");
            let (lines, fresh) = answer(bench, "f", &body);
            assert_eq!(lines, expected("", &body));
            assert!(drawn.insert(fresh));
        }
        // The code before the entry point ran once.
        assert_eq!(bench.log("f").len(), 1);
        bench.deploy("f", &e2e::file(COMMAND), in_mode("twice"));
        assert_eq!(answer(bench, "f", "").0, expected("twice", ""));
    });
}

/// Before a seed exists, or if seeds have no memory, a request runs the whole function.
fn an_instance_without_a_seed_runs_from_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Bench::start(Node::builder().data_dir(folder.path()), limits());
    let bench = start();
    bench.function("f", COMMAND, in_mode("a"));
    assert_eq!(answer(&bench, "f", "b").0, expected("a", "b"));
    bench.end();
    drop(bench);
    let bench = start();
    for _ in 0..5 {
        assert_eq!(answer(&bench, "f", "b").0, expected("a", "b"));
    }
    bench.end();
    let bench = Bench::start(Node::builder().seed_memory(0), limits());
    bench.function("f", COMMAND, in_mode("a"));
    for _ in 0..5 {
        assert_eq!(answer(&bench, "f", "b").0, expected("a", "b"));
    }
    bench.end();
    // So does a function that is frozen before anything runs.
    let bench = Bench::start(Node::builder(), limits());
    let options = in_mode("a").freeze(FreezePolicy::BeforeInit);
    let function = bench.function("f", COMMAND, options).function;
    assert!(!function.frozen_at_entry);
    assert_eq!(answer(&bench, "f", "b").0, expected("a", "b"));
    assert_eq!(bench.log("f"), ["preparing, without a request"]);
    bench.end();
}

fn a_component_may_reach_its_entry_point_during_instantiation() {
    with_node(|bench| {
        let function = bench
            .deploy("f", &e2e::file(COMPONENT), by_nothing())
            .function;
        assert!(function.frozen_at_entry, "{function:?}");
        assert_eq!(function.drawn, "");
        for _ in 0..5 {
            assert_runs_to_its_end(bench);
        }
        // An export that initialises the function in memory may reach the entry point, too. Without
        // that export it is never reached.
        let here =
            String::from_utf8(with_inserted(COMPONENT, "(global $fresh", TABLE_SET)).unwrap();
        let later = here.replace("(call $freeze)\n      (global.set $fresh (call $draw))", "");
        assert_ne!(later, here);
        let function = bench
            .deploy("f", later.as_bytes(), init_by("prepare"))
            .function;
        assert!(function.frozen_at_entry, "{function:?}");
        assert_runs_to_its_end(bench);
        let function = bench.deploy("f", later.as_bytes(), by_nothing()).function;
        assert!(!function.frozen_at_entry, "{function:?}");
        for options in [init_by("prepare"), warmed_up()] {
            let error = refused(bench, here.as_bytes(), options);
            let is_it = matches!(error, DeployError::Seed(SeedError::EnteredBefore(_)));
            assert!(is_it, "{error}");
        }
    });
}

/// A command that reaches its entry point while it is instantiated answers from there, with a seed
/// or without.
fn a_command_may_reach_its_entry_point_during_instantiation() {
    const EARLY: &[u8] = br#"(module
        (import "faasw:function/entry@0.1.0" "freeze" (func $freeze))
        (import "wasi_snapshot_preview1" "fd_write"
            (func $write (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (data (i32.const 0) "\08\00\00\00\05\00\00\00early")
        (start $freeze)
        (func (export "_start")
            (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"#;
    for builder in [Node::builder(), Node::builder().seed_memory(0)] {
        let bench = Bench::start(builder, limits());
        let function = bench.deploy("f", EARLY, by_nothing()).function;
        assert!(function.frozen_at_entry, "{function:?}");
        for _ in 0..3 {
            assert_eq!(bench.text("/f/"), "early");
        }
        bench.end();
    }
    // With `BeforeInit` the function is not frozen at its entry point.
    with_node(|bench| {
        let before = || by_nothing().freeze(FreezePolicy::BeforeInit);
        let function = bench.deploy("f", EARLY, before()).function;
        assert!(!function.frozen_at_entry && !function.frozen_after_init);
        assert_eq!(bench.text("/f/"), "early");
        bench.deploy("f", &e2e::file(COMPONENT), before());
        assert_runs_to_its_end(bench);
    });
}

fn by_nothing() -> FunctionOptions {
    FunctionOptions::default()
}

fn warmed_up() -> FunctionOptions {
    by_nothing().warm_up(WarmUpRequest::new("/").unwrap())
}

/// For programs that cannot call the interface, such as an interpreter: its script opens the file.
fn opening_a_file_may_be_the_entry_point() {
    let mut files = Files::default();
    files.add(Kind::File, "request", b"");
    let upload = files.before(&e2e::file("tests/fixtures/wat/entry-file.wasm"));
    let at = |path: &str| by_nothing().freeze_at(path);
    let asked = |bench: &Bench| {
        for number in 0..5 {
            let body = bench.text(&format!("/f/{number}?a=b"));
            let variables: Vec<_> = body.split('\0').collect();
            let path = format!("PATH_INFO=/{number}");
            assert!(variables.contains(&path.as_str()), "{body}");
        }
    };
    with_node(|bench| {
        let function = bench.deploy("f", &upload, at("/request")).function;
        assert!(function.frozen_at_entry, "{function:?}");
        asked(bench);
        assert_eq!(bench.log("f"), ["preparing"]);
        let before = at("/request").freeze(FreezePolicy::BeforeInit);
        assert!(!bench.deploy("f", &upload, before).function.frozen_at_entry);
        asked(bench);
        let none = refused(bench, &upload, at("/none"));
        assert!(none.to_string().contains("/none"), "{none}");
        let without = refused(bench, &e2e::file(COMMAND), at("/request"));
        assert!(matches!(without, DeployError::Files(_)), "{without}");
        for path in ["request", "/", "/../request"] {
            let bad = refused(bench, &upload, at(path));
            assert!(matches!(bad, DeployError::Options(_)), "{bad}");
        }
    });
    // Without a seed each request runs the whole function. The path is stored with the version.
    let folder = tempfile::tempdir().unwrap();
    let start = |builder: NodeBuilder| Bench::start(builder.data_dir(folder.path()), limits());
    let bench = start(Node::builder().seed_memory(0));
    bench.deploy("f", &upload, at("/request"));
    asked(&bench);
    bench.end();
    drop(bench);
    let bench = start(Node::builder());
    asked(&bench);
    let details = bench.block_on(bench.node.inspect("f")).unwrap();
    let options = details.function.options;
    assert_eq!(options.own_freeze_at(), Some("/request"));
    bench.end();
}

fn entropy_drawn_before_the_entry_point_needs_an_explicit_option() {
    with_node(|bench| {
        let module = e2e::file(COMMAND);
        let error = refused(bench, &module, in_mode("draws"));
        let DeployError::Seed(SeedError::EntryDrew(drawn)) = &error else {
            panic!("{error:?}");
        };
        assert!(drawn.contains("random_get: 8 bytes"), "{drawn}");
        let shared = in_mode("draws").freeze(FreezePolicy::AfterInit);
        let deployed = bench.deploy("f", &module, shared);
        assert!(deployed.notice.unwrap().contains("all requests share"));
        let (lines, fresh) = answer(bench, "f", "");
        let (others, another) = answer(bench, "f", "");
        assert_eq!(lines, others);
        assert_ne!(lines.last().unwrap(), "drawn 0000000000000000");
        assert_ne!(fresh, another);
    });
}

fn failures_before_the_entry_point_prevent_deployment() {
    with_node(|bench| {
        bench.probe();
        let module = e2e::file(COMMAND);
        for (mode, why) in [
            ("traps", "unreachable"),
            ("exits", "exited with code 3"),
            ("loops", "longer than its limit"),
            ("never", "before its entry point"),
        ] {
            let error = refused(bench, &module, in_mode(mode)).to_string();
            assert!(error.contains(why), "{mode}: {error}");
        }
        let error = refused(bench, &module, warmed_up());
        let is_it = matches!(error, DeployError::Seed(SeedError::WarmUpOfCommand));
        assert!(is_it, "{error}");
        bench.deploy("f", &module, in_mode("traps-later"));
        let answer = bench.get("/f/");
        assert_eq!(answer.status, 502, "{answer:?}");
        assert!(answer.body.contains("unreachable"), "{answer:?}");
        assert_eq!(bench.text("/probe/count"), "1\n");
    });
}

fn main() {
    e2e::main(tests![
        a_command_resumes_after_its_entry_point,
        an_instance_without_a_seed_runs_from_the_start,
        a_component_may_reach_its_entry_point_during_instantiation,
        a_command_may_reach_its_entry_point_during_instantiation,
        opening_a_file_may_be_the_entry_point,
        entropy_drawn_before_the_entry_point_needs_an_explicit_option,
        failures_before_the_entry_point_prevent_deployment,
    ]);
}

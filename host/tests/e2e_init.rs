//! Functions that an export initialises when they are deployed: every request begins with
//! what that left, however its instance came to be, and what it must not do is refused.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;
mod e2e;

use common::time_limit;
use e2e::{Bench, limits};
use faasw::{FreezePolicy, FunctionOptions, Node};

const COMMAND: &str = "host/tests/e2e/initialised.wat";
const COMPONENT: &str = "host/tests/e2e/initialised-component.wat";

fn by(export: &str) -> FunctionOptions {
    FunctionOptions::default().init(export)
}

/// A node of one test, which it may break.
fn with_node(test: impl FnOnce(&Bench)) {
    let mut limits = limits();
    limits.instantiation = time_limit(2);
    let bench = Bench::start(Node::builder(), limits);
    test(&bench);
    bench.end();
}

/// Why a deployment is refused.
fn refused(bench: &Bench, name: &str, path: &str, options: FunctionOptions) -> String {
    let deployed = bench.block_on(bench.node.deploy(name, e2e::file(path), options));
    deployed.unwrap_err().to_string()
}

fn every_request_begins_with_what_the_export_left() {
    with_node(|bench| {
        let deployed = bench.function("f", COMMAND, by("prepare"));
        let function = deployed.function;
        assert!(function.frozen_after_init && function.drawn.is_empty());
        assert_eq!(function.init.as_deref(), Some("prepare"));
        for _ in 0..20 {
            assert_eq!(bench.text("/f/"), "11\n");
        }
        bench.function("plain", COMMAND, FunctionOptions::default());
        assert_eq!(bench.text("/plain/"), "01\n");
    });
}

fn a_components_exports_initialise_it_too() {
    with_node(|bench| {
        bench.function("own", COMPONENT, by("prepare"));
        bench.function("steps", COMPONENT, by("test:steps/steps@1.0.0#prepare"));
        bench.function("neither", COMPONENT, FunctionOptions::default());
        // It has nothing to say, which is no response; but it got there.
        for (path, is_initialised) in [("/own/", true), ("/steps/", true), ("/neither/", false)] {
            let answer = bench.get(path);
            let has_trapped = answer.body.contains("unreachable");
            assert_eq!(has_trapped, !is_initialised, "{path}: {answer:?}");
        }
        for export in ["test:steps/steps@1.0.0#other", "other:steps/steps#prepare"] {
            let why = refused(bench, "missing", COMPONENT, by(export));
            assert!(why.contains(export), "{why}");
        }
    });
}

/// Once its seed is gone, a request is served by an ancestor's instance that becomes the
/// function; then its seed is made again.
fn a_function_is_initialised_where_its_seed_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let builder = Node::builder().data_dir(folder.path());
        Bench::start(builder, limits())
    };
    let bench = start();
    bench.function("f", COMMAND, by("prepare"));
    assert_eq!(bench.text("/f/"), "11\n");
    bench.end();
    drop(bench);
    let bench = start();
    for _ in 0..5 {
        assert_eq!(bench.text("/f/"), "11\n");
    }
    let function = bench.block_on(bench.node.inspect("f")).unwrap().function;
    assert_eq!(function.init.as_deref(), Some("prepare"));
    bench.end();
}

/// With no room for seeds each request is served by what all functions share.
fn an_ancestors_instance_is_initialised_before_it_serves() {
    let bench = Bench::start(Node::builder().seed_memory(0), limits());
    bench.function("f", COMMAND, by("prepare"));
    for _ in 0..5 {
        assert_eq!(bench.text("/f/"), "11\n");
    }
    bench.end();
}

fn what_requests_would_share_is_refused_unless_asked_for() {
    with_node(|bench| {
        for (export, import) in [
            ("prepare-by-chance", "random_get"),
            ("prepare-by-clock", "clock_time_get"),
        ] {
            for policy in [FreezePolicy::Auto, FreezePolicy::AfterInit] {
                let options = by(export).freeze(policy);
                if policy == FreezePolicy::Auto {
                    let why = refused(bench, "f", COMMAND, options);
                    assert!(why.contains(export) && why.contains(import), "{why}");
                    assert!(why.contains("after-init"), "{why}");
                    continue;
                }
                let deployed = bench.function(export, COMMAND, options);
                assert!(deployed.function.drawn.contains(import), "{deployed:?}");
                let is_told = deployed.notice.is_some_and(|told| told.contains("share"));
                assert_eq!(is_told, export == "prepare-by-chance");
                assert_eq!(bench.text(&format!("/{export}/")), "11\n");
            }
        }
        assert!(bench.block_on(bench.node.inspect("f")).is_err());
    });
}

fn what_cannot_initialise_is_refused_and_harms_nobody() {
    with_node(|bench| {
        bench.function("f", COMMAND, by("prepare"));
        for (export, told) in [
            ("nothing", "nothing"),
            ("no-function", "no-function"),
            ("takes-one", "takes-one"),
            ("traps", "unreachable"),
            ("never-ends", "longer than its limit"),
        ] {
            let why = refused(bench, "f", COMMAND, by(export));
            assert!(why.contains(told), "{export}: {why}");
            assert_eq!(bench.text("/f/"), "11\n", "{export}");
        }
        for (options, told) in [
            (by(""), "1 to 1024 bytes"),
            (by(&"x".repeat(1025)), "1 to 1024 bytes"),
            (by("prepare").freeze(FreezePolicy::BeforeInit), "exclude"),
        ] {
            let why = refused(bench, "f", COMMAND, options);
            assert!(why.contains(told), "{why}");
        }
        let versions = bench.block_on(bench.node.inspect("f")).unwrap().versions;
        assert_eq!(versions.len(), 1);
    });
}

fn main() {
    e2e::main(tests![
        every_request_begins_with_what_the_export_left,
        a_components_exports_initialise_it_too,
        a_function_is_initialised_where_its_seed_is_missing,
        an_ancestors_instance_is_initialised_before_it_serves,
        what_requests_would_share_is_refused_unless_asked_for,
        what_cannot_initialise_is_refused_and_harms_nobody,
    ]);
}

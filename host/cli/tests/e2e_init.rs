//! Functions that an export initialises at deployment, by Wizer or in memory. Every request begins
//! with the initialised state, however its instance was made. Either way refuses what an
//! initialisation must not do.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use e2e::{
    Bench,
    init_functions::{
        COMPONENT, TABLE_SET, assert_runs_to_its_end, init_by, with_inserted, with_node,
    },
    limits,
};
use faasw::{FreezePolicy, FunctionOptions, Initialisation, Node};

const COMMAND: &str = "host/cli/tests/e2e/initialised.wat";

/// Returns a function that Wizer initialises, and one with the same text that Wizer refuses.
fn forms(path: &str) -> [Vec<u8>; 2] {
    let place = match path {
        COMMAND => "(func $count",
        _ => "(global $is_prepared",
    };
    [e2e::file(path), with_inserted(path, place, TABLE_SET)]
}

/// Whether a function was initialised by this export, and in the way of its form.
fn is_initialised(init: Option<&Initialisation>, form: usize, by: &str) -> bool {
    match (form, init) {
        (0, Some(Initialisation::AsModule { export, .. }))
        | (1, Some(Initialisation::InMemory { export, .. })) => export == by,
        _ => false,
    }
}

/// Returns the reason why a deployment is refused.
fn refused(bench: &Bench, name: &str, module: &[u8], options: FunctionOptions) -> String {
    let deployed = bench.block_on(bench.node.deploy(name, module.to_vec(), options));
    deployed.unwrap_err().to_string()
}

fn every_request_starts_from_the_state_that_the_export_left() {
    with_node(|bench| {
        for (form, module) in forms(COMMAND).iter().enumerate() {
            let function = bench.deploy("f", module, init_by("prepare")).function;
            assert!(function.frozen_after_init && function.drawn.is_empty());
            let init = function.init.as_ref();
            assert!(is_initialised(init, form, "prepare"), "{init:?}");
            for _ in 0..20 {
                assert_eq!(bench.text("/f/"), "11\n");
            }
        }
        bench.function("plain", COMMAND, FunctionOptions::default());
        assert_eq!(bench.text("/plain/"), "01\n");
    });
}

fn exports_of_components_initialise_them() {
    with_node(|bench| {
        for (form, module) in forms(COMPONENT).iter().enumerate() {
            for export in ["prepare", "test:steps/steps@1.0.0#prepare"] {
                let function = bench.deploy("f", module, init_by(export)).function;
                let init = function.init.as_ref();
                assert!(is_initialised(init, form, export), "{init:?}");
                assert_runs_to_its_end(bench);
            }
            bench.deploy("f", module, FunctionOptions::default());
            let answer = bench.get("/f/");
            assert!(answer.body.contains("unreachable"), "{answer:?}");
            for export in ["test:steps/steps@1.0.0#other", "other:steps/steps#prepare"] {
                let why = refused(bench, "missing", module, init_by(export));
                assert!(why.contains(export), "{why}");
            }
        }
    });
}

/// While its seed is missing, an ancestor's instance becomes the function and serves a request;
/// then the seed is made again.
fn a_function_is_initialised_where_its_seed_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let builder = Node::builder().data_dir(folder.path());
        Bench::start(builder, limits())
    };
    for (form, module) in forms(COMMAND).iter().enumerate() {
        let bench = start();
        bench.deploy("f", module, init_by("prepare"));
        assert_eq!(bench.text("/f/"), "11\n");
        bench.end();
        drop(bench);
        let bench = start();
        for _ in 0..5 {
            assert_eq!(bench.text("/f/"), "11\n");
        }
        let function = bench.block_on(bench.node.inspect("f")).unwrap().function;
        assert!(is_initialised(function.init.as_ref(), form, "prepare"));
        bench.end();
    }
}

/// Without memory for seeds, each request is served by an instance of what all functions share.
fn an_ancestors_instance_is_initialised_before_it_serves() {
    let bench = Bench::start(Node::builder().seed_memory(0), limits());
    for module in forms(COMMAND) {
        bench.deploy("f", &module, init_by("prepare"));
        for _ in 0..5 {
            assert_eq!(bench.text("/f/"), "11\n");
        }
    }
    bench.end();
}

fn shared_entropy_is_rejected_without_an_explicit_option() {
    with_node(|bench| {
        for module in forms(COMMAND) {
            for (export, import) in [
                ("prepare-by-chance", "random_get"),
                ("prepare-by-clock", "clock_time_get"),
            ] {
                let why = refused(bench, "refused", &module, init_by(export));
                assert!(why.contains(export) && why.contains(import), "{why}");
                assert!(why.contains("after-init"), "{why}");
                let options = init_by(export).freeze(FreezePolicy::AfterInit);
                let deployed = bench.deploy("f", &module, options);
                assert!(deployed.function.drawn.contains(import), "{deployed:?}");
                let is_told = deployed.notice.is_some_and(|told| told.contains("share"));
                assert_eq!(is_told, export == "prepare-by-chance");
                assert_eq!(bench.text("/f/"), "11\n");
            }
        }
        assert!(bench.block_on(bench.node.inspect("refused")).is_err());
    });
}

fn failed_initialisations_are_rejected_and_affect_no_other_function() {
    with_node(|bench| {
        for module in forms(COMMAND) {
            bench.deploy("f", &module, init_by("prepare"));
            for (export, told) in [
                ("nothing", "nothing"),
                ("no-function", "no-function"),
                ("takes-one", "takes-one"),
                ("traps", "unreachable"),
                ("never-ends", "longer than its limit"),
            ] {
                let why = refused(bench, "f", &module, init_by(export));
                assert!(why.contains(told), "{export}: {why}");
                assert_eq!(bench.text("/f/"), "11\n", "{export}");
            }
        }
        for (options, told) in [
            (init_by(""), "1 to 1024 bytes"),
            (init_by(&"x".repeat(1025)), "1 to 1024 bytes"),
            (
                init_by("prepare").freeze(FreezePolicy::BeforeInit),
                "exclude",
            ),
        ] {
            let why = refused(bench, "f", &e2e::file(COMMAND), options);
            assert!(why.contains(told), "{why}");
        }
        let versions = bench.block_on(bench.node.inspect("f")).unwrap().versions;
        assert_eq!(versions.len(), 2);
    });
}

fn main() {
    e2e::main(tests![
        every_request_starts_from_the_state_that_the_export_left,
        exports_of_components_initialise_them,
        a_function_is_initialised_where_its_seed_is_missing,
        an_ancestors_instance_is_initialised_before_it_serves,
        shared_entropy_is_rejected_without_an_explicit_option,
        failed_initialisations_are_rejected_and_affect_no_other_function,
    ]);
}

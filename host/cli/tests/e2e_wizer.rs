//! Functions that Wizer initialises at deployment. The module that serves is another one, which
//! begins in the state in which the export has left the uploaded one, as with upstream's own tool.
//! Functions that Wizer refuses are initialised in memory, and the reason is reported.

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
use faasw::{Digest, FreezePolicy, FunctionOptions, Initialisation, Node};

const FOUND: &str = "host/cli/tests/e2e/wizened.wat";
/// A component that reports its actions on standard error; its export is [`TELLING_INIT`].
const TELLING: &str = "host/cli/tests/e2e/telling-component.wat";
const TELLING_INIT: &str = "prepare";
const STATEFUL: &str = "host/cli/tests/e2e/wizened-component.wat";
const FOUND_INIT: &str = "wizer-initialize";

fn wizen(bench: &Bench, module: &[u8], options: FunctionOptions) -> Result<Vec<u8>, String> {
    let wizened = bench.block_on(bench.node.wizen(module.to_vec(), options));
    wizened
        .map(|module| module.to_vec())
        .map_err(|error| error.to_string())
}

fn a_module_that_brings_an_initialiser_is_initialised_once() {
    with_node(|bench| {
        let upload = e2e::file(FOUND);
        for version in 1..=2 {
            let deployed = bench.deploy("f", &upload, FunctionOptions::default());
            assert_eq!(deployed.notice, None);
            let function = deployed.function;
            let initialised = Initialisation::AsModule {
                export: FOUND_INIT.to_owned(),
                upload: Digest::of(&upload),
            };
            assert_eq!(function.init, Some(initialised));
            assert_ne!(function.digest, Digest::of(&upload));
            assert_eq!(
                (function.version, function.frozen_after_init),
                (version, true)
            );
        }
        for _ in 0..20 {
            assert_eq!(bench.text("/f/"), "111\n");
        }
        // The initialisation ran once for each deployment, and for no request.
        let log = bench.log_once("f", |lines| lines.len() >= 2);
        let texts: Vec<&str> = log.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["initialised"; 2]);
        assert!(log.iter().all(|line| line.instance == 0));
    });
}

/// The function's log shows this: it writes a line when it is initialised, and another when it is
/// called, which proves that lines of requests are visible.
fn initialised_modules_make_no_host_calls_in_a_request() {
    const REQUESTS: usize = 25;
    with_node(|bench| {
        let module = String::from_utf8(e2e::file(FOUND)).unwrap();
        let place = "(call $count (i32.const 66))";
        assert_eq!(module.matches(place).count(), 1);
        let tells =
            "(drop (call $fd_write (i32.const 2) (i32.const 24) (i32.const 1) (i32.const 512)))";
        let module = module.replace(place, &format!("{place} {tells}")).replace(
            "(data (i32.const 80)",
            "(data (i32.const 24) \"\\60\\00\\00\\00\\06\\00\\00\\00\") \
             (data (i32.const 96) \"asked\\n\") (data (i32.const 80)",
        );
        let forms = [
            (
                "module",
                module.into_bytes(),
                FunctionOptions::default(),
                "111\n",
            ),
            ("component", e2e::file(TELLING), init_by(TELLING_INIT), "1"),
        ];
        for (name, upload, options, answer) in forms {
            let ready = wizen(bench, &upload, options.clone()).unwrap();
            for (upload, options, initialised) in [
                (&upload, options, &[0][..]),
                // The rewritten module was initialised before its deployment.
                (&ready, FunctionOptions::default(), &[][..]),
            ] {
                let function = bench.deploy(name, upload, options).function;
                let is_now = matches!(function.init, Some(Initialisation::AsModule { .. }));
                assert_eq!(is_now, !initialised.is_empty(), "{function:?}");
                for _ in 0..REQUESTS {
                    assert_eq!(bench.text(&format!("/{name}/")), answer);
                }
                let all = REQUESTS + initialised.len();
                let log = bench.log_once(name, |lines| lines.len() >= all);
                let of = |text: &str| {
                    let lines = log.iter().filter(|line| line.text == text);
                    lines.map(|line| line.instance).collect::<Vec<_>>()
                };
                assert_eq!(of("initialised"), initialised, "{name}: {log:?}");
                assert_eq!((of("asked").len(), log.len()), (REQUESTS, all));
                bench.block_on(bench.node.remove(name)).unwrap();
            }
        }
    });
}

fn initialised_modules_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Bench::start(Node::builder().data_dir(folder.path()), limits());
    let upload = e2e::file(FOUND);
    let bench = start();
    let first = bench
        .deploy("f", &upload, FunctionOptions::default())
        .function;
    let plain = e2e::file("host/cli/tests/e2e/initialised.wat");
    bench.deploy("f", &plain, FunctionOptions::default());
    bench.end();
    drop(bench);
    let bench = start();
    assert_eq!(bench.text("/f/"), "01\n");
    let back = bench.block_on(bench.node.rollback("f", None)).unwrap();
    assert_eq!((back.digest, &back.init), (first.digest, &first.init));
    assert_eq!(bench.text("/f/"), "111\n");
    bench.end();
}

/// Upstream's output was made by the same version of Wizer with its own runner:
/// `tests/fixtures/wizened/README.md`.
fn the_result_equals_that_of_upstreams_tool() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::start(Node::builder().data_dir(folder.path()), limits());
    {
        let bench = &bench;
        for (path, init, upstream) in [
            (FOUND, None, "tests/fixtures/wizened/module.wasm"),
            (
                STATEFUL,
                Some("prepare"),
                "tests/fixtures/wizened/component.wasm",
            ),
        ] {
            let options = init.map_or_else(FunctionOptions::default, init_by);
            let wizened = wizen(bench, &e2e::file(path), options).unwrap();
            assert_eq!(wizened, e2e::file(upstream), "{path}");
        }
        // No function was deployed, and no seed stays.
        assert!(bench.node.list().is_empty());
        let left = bench
            .node
            .tree()
            .iter()
            .filter(|seed| seed.level > 1)
            .count();
        assert_eq!(left, 0);
    }
    bench.end();
    let logs = std::fs::read_dir(folder.path().join("logs"));
    assert_eq!(logs.map_or(0, Iterator::count), 0);
}

/// Like Wizer's headers for C and C++: starting the command anew would undo the initialisation.
fn a_resumed_command_does_not_start_again() {
    let resumed = |more: &str, export: &str| {
        format!(
            r#"(module
              (import "wasi_snapshot_preview1" "fd_write"
                (func $fd_write (param i32 i32 i32 i32) (result i32)))
              (memory (export "memory") 1)
              {more}
              (data (i32.const 0) "\20\00\00\00\1c\00\00\00")
              (data (i32.const 32) "Content-Type: text/plain\n\n-\n")
              (func $begin (i32.store8 (i32.const 58) (i32.const 48)))
              (func $say
                (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16))))
              (func (export "{export}")
                (call $begin) (i32.store8 (i32.const 58) (i32.const 49)))
              (func (export "wizer.resume") (call $say))
              (func (export "_start") (call $begin) (call $say)))"#
        )
    };
    with_node(|bench| {
        for (export, options, answer) in [
            (FOUND_INIT, FunctionOptions::default(), "1\n"),
            // `wizer.resume` is used only with `wizer-initialize`.
            ("prepare", init_by("prepare"), "0\n"),
        ] {
            for more in ["", TABLE_SET] {
                let module = resumed(more, export);
                bench.deploy("f", module.as_bytes(), options.clone());
                assert_eq!(bench.text("/f/"), answer, "{export} {more}");
            }
        }
    });
}

/// With a policy that shares nothing, no initialisation runs whose result requests would share.
fn before_init_does_not_run_an_initialiser() {
    with_node(|bench| {
        let options = || FunctionOptions::default().freeze(FreezePolicy::BeforeInit);
        let upload = e2e::file(FOUND);
        for (options, answer) in [
            (options(), "?01\n"),
            (FunctionOptions::default(), "111\n"),
            (options(), "?01\n"),
        ] {
            let deployed = bench.deploy("f", &upload, options);
            let is_initialised = answer == "111\n";
            assert_eq!(deployed.function.init.is_some(), is_initialised);
            assert_eq!(bench.text("/f/"), answer);
        }
    });
}

/// Changes to a module's descriptors and response are not part of the module, either.
fn a_module_that_changed_host_state_is_initialised_in_memory() {
    with_node(|bench| {
        let import = r#"(import "wasi_snapshot_preview1" "fd_renumber"
            (func $renumber (param i32 i32) (result i32)))"#;
        let text = String::from_utf8(with_inserted(FOUND, "(memory (export", import)).unwrap();
        let place = "(call $count (i32.const 64))";
        assert_eq!(text.matches(place).count(), 1);
        let renumbers = "(drop (call $renumber (i32.const 2) (i32.const 0)))";
        let module = text.replace(place, &format!("{renumbers} {place}"));
        let deployed = bench.deploy("f", module.as_bytes(), FunctionOptions::default());
        let Some(Initialisation::InMemory { reason, .. }) = &deployed.function.init else {
            panic!("{deployed:?}");
        };
        assert!(reason.contains("descriptor"), "{reason}");
        assert_eq!(bench.text("/f/"), "111\n");
        // The module writes part of the head when it is instantiated, and each response begins with
        // that.
        let place = "(func (export \"wizer-initialize\")";
        let start = "(func $early (drop (call $fd_write (i32.const 1) (i32.const 24) (i32.const 1) \
             (i32.const 512)))) (start $early) \
             (data (i32.const 24) \"\\60\\00\\00\\00\\0b\\00\\00\\00\") (data (i32.const 96) \"X-Early: 1\\n\")";
        let module = with_inserted(FOUND, place, start);
        let deployed = bench.deploy("f", &module, FunctionOptions::default());
        let Some(Initialisation::InMemory { reason, .. }) = &deployed.function.init else {
            panic!("{deployed:?}");
        };
        assert!(reason.contains("response"), "{reason}");
    });
}

/// Without memory for seeds, the function is still initialised only at its deployment.
fn a_module_is_initialised_once_without_seed_memory() {
    let bench = Bench::start(Node::builder().seed_memory(0), limits());
    let upload = e2e::file(FOUND);
    bench.deploy("f", &upload, FunctionOptions::default());
    assert_eq!(bench.text("/f/"), "111\n");
    let log = bench.log_once("f", |lines| !lines.is_empty());
    assert_eq!(log.len(), 1, "{log:?}");
    bench.end();
}

fn a_component_starts_from_its_initialised_state() {
    with_node(|bench| {
        for (path, export) in [
            (COMPONENT, "prepare"),
            (COMPONENT, "test:steps/steps@1.0.0#prepare"),
            (STATEFUL, "prepare"),
        ] {
            let wizened = wizen(bench, &e2e::file(path), init_by(export)).unwrap();
            bench.deploy("f", &wizened, FunctionOptions::default());
            assert_runs_to_its_end(bench);
        }
        bench.deploy("f", &e2e::file(STATEFUL), FunctionOptions::default());
        assert!(bench.get("/f/").body.contains("unreachable"));
    });
}

fn modules_that_wizer_rejects_are_initialised_in_memory() {
    with_node(|bench| {
        let module = with_inserted(FOUND, "(global $initialised", TABLE_SET);
        for version in 1..=2 {
            let deployed = bench.deploy("f", &module, FunctionOptions::default());
            let Some(Initialisation::InMemory { export, reason }) = &deployed.function.init else {
                panic!("{deployed:?}");
            };
            assert_eq!(export, FOUND_INIT);
            assert!(reason.contains("table.set"), "{reason}");
            assert!(deployed.notice.unwrap().contains("table.set"));
            assert_eq!(deployed.function.version, version);
            assert_eq!(bench.text("/f/"), "111\n");
        }
        let why = wizen(bench, &module, FunctionOptions::default()).unwrap_err();
        assert!(why.contains("table.set"), "{why}");
        let without = e2e::file("examples/hello-wat/hello.wat");
        let why = wizen(bench, &without, FunctionOptions::default()).unwrap_err();
        assert!(why.contains(FOUND_INIT), "{why}");
    });
}

/// A handle of the host's is not part of a component's memory.
fn a_component_with_host_resources_is_initialised_in_memory() {
    with_node(|bench| {
        let module = e2e::file("host/cli/tests/e2e/holding-component.wat");
        let deployed = bench.deploy("f", &module, init_by("prepare"));
        let Some(Initialisation::InMemory { reason, .. }) = &deployed.function.init else {
            panic!("{deployed:?}");
        };
        assert!(reason.contains("1 resources of the host"), "{reason}");
        for _ in 0..3 {
            assert_eq!(bench.text("/f/"), "held\n");
        }
    });
}

fn a_failed_initialisation_is_rejected_and_affects_no_other_function() {
    with_node(|bench| {
        bench.deploy("f", &e2e::file(FOUND), FunctionOptions::default());
        for (body, told) in [
            ("unreachable", "unreachable"),
            ("(loop $again (br $again))", "longer than its limit"),
            // Takes all the memory that there is, and then writes beyond it.
            (
                "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) \
                 (i32.store (i32.const -8) (i32.const 1))",
                "out of bounds",
            ),
        ] {
            let place = "(call $count (i32.const 64))\n    (global.set $initialised";
            let module = with_inserted(FOUND, place, body);
            let options = FunctionOptions::default().memory(16 << 20);
            let deployed = bench.block_on(bench.node.deploy("f", module, options));
            let why = deployed.unwrap_err().to_string();
            assert!(why.contains(told), "{told}: {why}");
            assert_eq!(bench.text("/f/"), "111\n");
        }
        let versions = bench.block_on(bench.node.inspect("f")).unwrap().versions;
        assert_eq!(versions.len(), 1);
    });
}

/// `examples/index-rust`: the index is in the module, and requests find it there.
fn the_example_is_initialised_once() {
    with_node(|bench| {
        let module = e2e::file("examples/index-rust/index.wasm");
        for (options, is_prepared) in [
            (init_by("prepare"), true),
            (FunctionOptions::default(), false),
        ] {
            let function = bench.deploy("f", &module, options).function;
            assert_eq!(function.init.is_some(), is_prepared, "{function:?}");
            assert_eq!(function.module_bytes > 1 << 20, is_prepared, "{function:?}");
            let answer = bench.text("/f/bananana");
            assert_eq!(answer, "bananana stands in 15 places of 360000\n");
        }
    });
}

fn main() {
    e2e::main(tests![
        the_example_is_initialised_once,
        a_module_that_brings_an_initialiser_is_initialised_once,
        initialised_modules_make_no_host_calls_in_a_request,
        initialised_modules_survive_a_restart,
        the_result_equals_that_of_upstreams_tool,
        a_resumed_command_does_not_start_again,
        before_init_does_not_run_an_initialiser,
        a_module_that_changed_host_state_is_initialised_in_memory,
        a_module_is_initialised_once_without_seed_memory,
        a_component_starts_from_its_initialised_state,
        modules_that_wizer_rejects_are_initialised_in_memory,
        a_component_with_host_resources_is_initialised_in_memory,
        a_failed_initialisation_is_rejected_and_affects_no_other_function,
    ]);
}

//! The data at the freeze points, and failures before them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use faasw_abi::mailbox::{DRAW_CLOCK, DRAW_ENTROPY};
use faasw_abi::outcome::Outcome;
use faasw_abi::trap::TrapKind;
use faasw_runtime::platform::LogStream;
use std::time::Duration;

use support::{CgiModule, CliComponent, HttpComponent, compile, fixture, get};

/// Returns the reason why the function does not become ready.
#[track_caller]
fn refusal(kind: faasw_abi::wire::FunctionKind, name: &str) -> String {
    let code = compile(kind, &fixture(name));
    match get(kind, "/").ready(&code) {
        Ok(_) => panic!("{name} is ready"),
        Err(failure) => {
            assert_eq!(failure.outcome, Outcome::LoadFailed, "{failure}");
            failure.report
        }
    }
}

#[test]
fn draws_before_the_freeze_are_counted_by_import() {
    let code = compile(HttpComponent, &fixture("tests/fixtures/init-draws.wasm"));
    let call = get(HttpComponent, "/").environment("A", "1");
    let mut ready = call.ready(&code).unwrap();
    assert_eq!(ready.draws().bits(), DRAW_ENTROPY | DRAW_CLOCK);
    let told = ready.draws().to_string();
    assert!(
        told.contains("wasi:random/random#get-random-bytes: 16 bytes"),
        "{told}"
    );
    assert!(
        told.contains("wasi:clocks/monotonic-clock#now: 1 read"),
        "{told}"
    );

    ready.handle(call.request.clone()).unwrap();
    assert_eq!(ready.draws().to_string(), told, "requests do not count");
    let body = String::from_utf8(ready.platform().response_body.clone()).unwrap();
    assert!(body.contains("init-env 1\n"), "{body}");
}

#[test]
fn a_function_that_draws_nothing_is_free_to_freeze() {
    let code = compile(CgiModule, &fixture("tests/fixtures/wat/hello.wasm"));
    let ready = get(CgiModule, "/").ready(&code).unwrap();
    assert!(ready.draws().is_empty());
    assert_eq!(ready.draws().to_string(), "");
}

/// Returns the numbers of the timers' fixture after its seed rested for an hour of wall time and
/// the instance then ran for `ran`, and the deadlines that it waited for.
fn timers_after(ran: Duration) -> ([u64; 6], Vec<u64>) {
    let code = compile(CliComponent, &fixture("tests/fixtures/wat/timers.wasm"));
    let call = get(CliComponent, "/");
    let mut ready = call.ready(&code).unwrap();
    let platform = ready.platform_mut();
    platform.rested = HOUR;
    platform.pass(ran);
    ready.handle(call.request.clone()).unwrap();
    let platform = ready.platform();
    let mut numbers = platform.response_body.chunks_exact(8);
    let told = [(); 6].map(|()| u64::from_le_bytes(numbers.next().unwrap().try_into().unwrap()));
    assert!(numbers.next().is_none());
    (told, platform.waits.clone())
}

const HOUR: Duration = Duration::from_secs(3600);
/// Duration of the fixture's short timer, in nanoseconds.
const MOMENT: u64 = 20_000_000;
/// More than all reads of the clock take together, in nanoseconds.
const LOOKS: u64 = 100_000;

#[test]
fn a_rest_after_the_freeze_fires_no_timer() {
    let (told, waits) = timers_after(Duration::ZERO);
    let [armed, armed_wall, now, now_wall, hour_is_ready, after] = told;
    assert!(armed < now && now < armed + LOOKS, "{told:?}");
    assert_eq!(now_wall, armed_wall + 3600);
    assert_eq!(hour_is_ready, 0);
    let [until] = waits[..] else {
        panic!("{waits:?}")
    };
    assert!(
        armed + MOMENT <= until && until < armed + MOMENT + LOOKS,
        "{waits:?}"
    );
    assert!(until <= after && after < until + LOOKS, "{told:?}");
}

#[test]
fn a_timer_that_was_armed_before_the_freeze_fires_when_its_time_has_passed() {
    let (told, waits) = timers_after(HOUR);
    let [armed, armed_wall, now, now_wall, hour_is_ready, _] = told;
    assert!(now - armed >= HOUR.as_nanos() as u64, "{told:?}");
    assert_eq!(now_wall, armed_wall + 7200);
    assert_eq!(hour_is_ready, 1);
    assert!(waits.is_empty(), "{waits:?}");
}

/// A command whose response is how often `init` was evaluated. `init` logs and draws.
const EVALUATED: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\10\00\00\00\07\00\00\00")
  (data (i32.const 16) "\0acount0")
  (func $say (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func (export "init")
    (drop (call $random (i32.const 64) (i32.const 4)))
    (i32.store8 (i32.const 22) (i32.add (i32.load8_u (i32.const 22)) (i32.const 1)))
    (call $say))
  (func $trap_in_init (export "trap_in_init") unreachable)
  (func (export "leave") (call $exit (i32.const 3)))
  (func (export "leave_well") (call $exit (i32.const 0)))
  (func (export "adds") (param i32) (result i32) (local.get 0))
  (func (export "_start")
    (call $say)))"#;

#[test]
fn effects_of_an_export_before_the_freeze_are_kept_and_counted() {
    let code = compile(CgiModule, EVALUATED.as_bytes());
    let call = get(CgiModule, "/");
    let mut ready = call.ready(&code).unwrap();
    assert!(ready.draws().is_empty());
    ready.evaluate("init").unwrap();
    ready.evaluate("init").unwrap();
    ready.evaluate("leave_well").unwrap();
    assert_eq!(ready.draws().bits(), DRAW_ENTROPY);
    assert_eq!(
        ready.draws().to_string(),
        "wasi_snapshot_preview1#random_get: 8 bytes"
    );
    // The output of an evaluated export is no response.
    let platform = ready.platform();
    assert!(platform.response_head.is_none() && platform.response_body.is_empty());
    assert_eq!(platform.logged(LogStream::Out), b"\ncount1\ncount2");

    ready.handle(call.request.clone()).unwrap();
    let body = &ready.platform().response_body;
    assert!(body.ends_with(b"count2"), "{body:?}");
}

#[test]
fn an_export_that_cannot_be_evaluated_reports_the_reason() {
    let code = compile(CgiModule, EVALUATED.as_bytes());
    let evaluate = |export: &str| {
        let mut ready = get(CgiModule, "/").ready(&code).unwrap();
        ready.evaluate(export).unwrap_err()
    };
    for export in ["nothing", "adds", "memory", ""] {
        let failure = evaluate(export);
        assert_eq!(failure.outcome, Outcome::LoadFailed, "{export}: {failure}");
        assert!(failure.report.contains(export), "{failure}");
    }
    let failure = evaluate("trap_in_init");
    assert_eq!(failure.outcome, Outcome::Trap);
    assert_eq!(failure.trap, Some(TrapKind::Unreachable));
    assert!(failure.report.contains("trap_in_init"), "{failure}");
    let failure = evaluate("leave");
    assert_eq!((failure.outcome, failure.exit_code), (Outcome::Exit, 3));
}

#[test]
fn a_component_evaluates_its_own_exports_and_those_of_its_interfaces() {
    const COMPONENT: &str = r#"(component
      (core module $m
        (global $count (mut i32) (i32.const 0))
        (func (export "init") (global.set $count (i32.add (global.get $count) (i32.const 1))))
        (func (export "run") (result i32)
          ;; It traps unless both were evaluated.
          (if (i32.ne (global.get $count) (i32.const 2)) (then unreachable))
          (i32.const 0)))
      (core instance $i (instantiate $m))
      (func $init (canon lift (core func $i "init")))
      (func $run (result (result)) (canon lift (core func $i "run")))
      (export "start" (func $init))
      (instance $script (export "init" (func $init)))
      (export "faasw:engine/script" (instance $script))
      (instance $cli (export "run" (func $run)))
      (export "wasi:cli/run@0.2.0" (instance $cli)))"#;
    let code = compile(CliComponent, COMPONENT.as_bytes());
    let call = get(CliComponent, "/");
    let mut ready = call.ready(&code).unwrap();
    for missing in [
        "init",
        "faasw:engine/other#init",
        "faasw:engine/script#start",
        "#start",
    ] {
        let failure = ready.evaluate(missing).unwrap_err();
        assert_eq!(failure.outcome, Outcome::LoadFailed, "{missing}");
    }
    ready.evaluate("start").unwrap();
    ready.evaluate("faasw:engine/script#init").unwrap();
    // The command ran to its end, and has no response.
    let failure = ready.handle(call.request.clone()).unwrap_err();
    assert_eq!(failure.outcome, Outcome::NoResponse, "{failure}");
}

#[test]
fn too_much_memory_at_the_start_names_both_sizes() {
    let report = refusal(CgiModule, "tests/fixtures/wat/big-memory.wasm");
    assert_eq!(
        report,
        "the function needs 256 MiB at start; its memory limit is 128 MiB"
    );
}

#[test]
fn a_trap_at_the_start_names_its_function() {
    let report = refusal(CgiModule, "tests/fixtures/wat/start-trap.wasm");
    assert!(report.contains("unreachable"), "{report}");
    assert!(report.contains("trap_in_start"), "{report}");
    let report = refusal(CgiModule, "tests/fixtures/wat/data-out-of-range.wasm");
    assert!(report.contains("out of bounds"), "{report}");
}

#[test]
fn an_unknown_import_is_named() {
    for (kind, name, import) in [
        (CgiModule, "unknown-import", "env::mystery_call"),
        (HttpComponent, "unknown-import-component", "acme:secret/api"),
        (HttpComponent, "unknown-import-handler", "acme:secret/api"),
    ] {
        let report = refusal(kind, &format!("tests/fixtures/wat/{name}.wasm"));
        assert!(report.contains(import), "{report}");
    }
}

#[test]
fn a_missing_entry_is_named() {
    let report = refusal(CgiModule, "tests/fixtures/wat/no-start.wasm");
    assert!(report.contains("_start"), "{report}");
    let code = compile(HttpComponent, b"(component)");
    let report = get(HttpComponent, "/").ready(&code).err().unwrap().report;
    assert!(report.contains("wasi:http/incoming-handler"), "{report}");
}

#[test]
fn invalid_compiled_code_is_refused() {
    let failure = support::load(CgiModule, &[0; 64]).err().unwrap();
    assert_eq!(failure.outcome, Outcome::LoadFailed);
    let component = compile(HttpComponent, b"(component)");
    assert!(support::load(CgiModule, &component).is_err());
}

#[test]
fn the_platform_is_returned_after_a_failure() {
    use faasw_runtime::function::{Linkers, Prepared};
    use faasw_runtime::testing::MemoryPlatform;
    let code = compile(CgiModule, &fixture("tests/fixtures/wat/start-trap.wasm"));
    let mut platform = MemoryPlatform::new(1);
    platform.request_body = b"mine".to_vec();
    let loaded = support::load(CgiModule, &code).unwrap();
    let config = get(CgiModule, "/").config;
    let mut prepared = Prepared::new(
        &Linkers::new(&support::ENGINE).unwrap(),
        loaded,
        config,
        None,
        platform,
    )
    .unwrap();
    prepared.platform_mut().ring = 7;
    let unready = prepared.instantiate().err().unwrap();
    assert_eq!(unready.platform.request_body, b"mine");
    assert_eq!(unready.platform.ring, 7);
}

#[test]
fn code_for_the_higher_instruction_set_runs_where_the_processor_has_it() {
    use faasw_abi::isa::Isa;
    use faasw_runtime::engine::compile_config;
    let compiler = wasmtime::Engine::new(&compile_config(Isa::V3).unwrap()).unwrap();
    let hello = fixture("tests/fixtures/wat/hello.wasm");
    let code = support::compile_with(&compiler, CgiModule, &hello);
    let has = std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("lzcnt");
    match support::load(CgiModule, &code) {
        Ok(_) => assert!(has),
        Err(failure) => {
            assert!(!has, "{failure}");
            assert!(failure.report.contains("not available"), "{failure}");
        }
    }
}

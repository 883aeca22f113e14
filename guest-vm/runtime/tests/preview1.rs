//! WASI preview 1, call by call: error numbers and limits.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use faasw_abi::outcome::Outcome;
use faasw_runtime::supported::{PREVIEW1, PREVIEW1_MODULE};
use support::{Answer, CgiModule, compile, get};

/// Runs a command that imports `name` with `parameters`, runs `before`, calls the import, and
/// writes its result as two digits.
fn call(name: &str, parameters: &str, before: &str, arguments: &str) -> Answer {
    let write = if name == "fd_write" {
        ("", "$call")
    } else {
        (
            "(import \"wasi_snapshot_preview1\" \"fd_write\"
               (func $write (param i32 i32 i32 i32) (result i32)))",
            "$write",
        )
    };
    let wat = format!(
        "(module
           (import \"{PREVIEW1_MODULE}\" \"{name}\" (func $call (param {parameters}) (result i32)))
           {import}
           (memory (export \"memory\") 1)
           (func (export \"_start\") (local $errno i32)
             {before}
             (local.set $errno (call $call {arguments}))
             ;; Two digits at 60000, a buffer that names them at 60008.
             (i32.store8 (i32.const 60000)
               (i32.add (i32.const 48) (i32.div_u (local.get $errno) (i32.const 10))))
             (i32.store8 (i32.const 60001)
               (i32.add (i32.const 48) (i32.rem_u (local.get $errno) (i32.const 10))))
             (i32.store (i32.const 60008) (i32.const 60000))
             (i32.store (i32.const 60012) (i32.const 2))
             (drop (call {write} (i32.const 1) (i32.const 60008) (i32.const 1) \
                 (i32.const 60016)))))",
        import = write.0,
        write = write.1,
    );
    get(CgiModule, "/")
        .environment("A", "1")
        .body(b"input")
        .run(&compile(CgiModule, wat.as_bytes()))
}

#[track_caller]
fn errno(name: &str, parameters: &str, before: &str, arguments: &str) -> u32 {
    call(name, parameters, before, arguments)
        .text()
        .parse()
        .unwrap()
}

/// Returns `(i32.const …)` for each value.
fn constants(values: &[i64]) -> String {
    values.iter().map(|n| format!("(i32.const {n})")).collect()
}

const BADF: u32 = 8;
const FAULT: u32 = 21;
const INVAL: u32 = 28;
const NOTDIR: u32 = 54;
const NOTSOCK: u32 = 57;
const SPIPE: u32 = 70;

/// The end of the last page.
const END: i64 = 65536;

#[test]
fn every_function_of_the_list_is_there_once() {
    let mut names = PREVIEW1.map(|(name, _)| name).to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 46);
    assert!(!names.contains(&"fd_nonsense"));
}

#[test]
fn pointers_outside_of_memory_are_faults() {
    for (name, arguments) in [
        ("args_sizes_get", vec![END, 0]),
        ("args_sizes_get", vec![0, END - 3]),
        ("args_get", vec![END, 0]),
        ("args_get", vec![0, END]),
        ("environ_get", vec![-1, 0]),
        ("environ_sizes_get", vec![0, -1]),
        ("random_get", vec![0, -1]),
        ("random_get", vec![END, 1]),
        ("fd_fdstat_get", vec![1, END - 23]),
        ("fd_filestat_get", vec![1, END - 63]),
        ("fd_read", vec![0, END, 1, 0]),
        ("fd_read", vec![0, 0, 0, END]),
        ("fd_write", vec![2, END - 7, 1, 0]),
        ("fd_write", vec![2, -8, 1024, 0]),
        ("clock_res_get", vec![0, END - 7]),
        ("poll_oneoff", vec![END - 47, 0, 1, 0]),
    ] {
        let parameters = "i32 ".repeat(arguments.len());
        assert_eq!(
            errno(name, &parameters, "", &constants(&arguments)),
            FAULT,
            "{name} {arguments:?}"
        );
    }
}

#[test]
fn a_buffer_outside_of_memory_is_a_fault() {
    let before = "(i32.store (i32.const 0) (i32.const 65530))
                  (i32.store (i32.const 4) (i32.const 7))";
    for name in ["fd_read", "fd_write"] {
        let descriptor = i64::from(name == "fd_write") * 2;
        let arguments = constants(&[descriptor, 0, 1, 16]);
        assert_eq!(errno(name, "i32 i32 i32 i32", before, &arguments), FAULT);
    }
}

#[test]
fn too_many_buffers_or_subscriptions_are_invalid() {
    let arguments = constants(&[2, 0, 1025, 0]);
    assert_eq!(errno("fd_write", "i32 i32 i32 i32", "", &arguments), INVAL);
    for count in [0, 1025, -1] {
        let arguments = constants(&[0, 4096, count, 0]);
        assert_eq!(
            errno("poll_oneoff", "i32 i32 i32 i32", "", &arguments),
            INVAL
        );
    }
}

#[test]
fn overlapping_buffers_end_in_a_short_write() {
    // 1024 buffers of a whole page each would be 64 MiB.
    let before = "(local $at i32)
       (loop $next
         (i32.store offset=0 (local.get $at) (i32.const 0))
         (i32.store offset=4 (local.get $at) (i32.const 65536))
         (br_if $next (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 8)))
                                (i32.const 8192))))";
    let before = before.replace("(local $at i32)", "");
    let wat = format!(
        "(module
           (import \"{PREVIEW1_MODULE}\" \"fd_write\"
             (func $write (param i32 i32 i32 i32) (result i32)))
           (memory (export \"memory\") 1)
           (func (export \"_start\") (local $at i32)
             {before}
             (if (call $write (i32.const 2) (i32.const 0) (i32.const 1024) (i32.const 9000))
               (then unreachable))
             (if (i32.ne (i32.load (i32.const 9000)) (i32.const 1048576))
               (then unreachable))))"
    );
    let answer = get(CgiModule, "/").run(&compile(CgiModule, wat.as_bytes()));
    answer.failure(Outcome::NoResponse);
    assert_eq!(answer.err.len(), 1 << 20);
}

#[test]
fn descriptors_have_their_types() {
    let i = |count: usize| "i32 ".repeat(count);
    for (name, parameters, arguments, expected) in [
        (
            "fd_seek",
            "i32 i64 i32 i32".into(),
            "(i32.const 1)(i64.const 0)(i32.const 0)(i32.const 0)".into(),
            SPIPE,
        ),
        ("fd_tell", i(2), constants(&[0, 0]), SPIPE),
        ("fd_tell", i(2), constants(&[3, 0]), BADF),
        ("fd_prestat_get", i(2), constants(&[3, 0]), 0),
        ("fd_prestat_get", i(2), constants(&[4, 0]), BADF),
        ("fd_prestat_get", i(2), constants(&[0, 0]), BADF),
        ("fd_read", i(4), constants(&[1, 0, 0, 0]), BADF),
        ("fd_close", i(1), constants(&[9]), BADF),
        ("fd_close", i(1), constants(&[0]), 0),
        ("fd_renumber", i(2), constants(&[0, 5]), BADF),
        ("fd_fdstat_set_flags", i(2), constants(&[0, 4]), 0),
        ("fd_sync", i(1), constants(&[1]), INVAL),
        ("path_unlink_file", i(3), constants(&[0, 0, 0]), NOTDIR),
        ("path_unlink_file", i(3), constants(&[4, 0, 0]), BADF),
        ("path_symlink", i(5), constants(&[0, 0, 4, 0, 0]), BADF),
        ("path_symlink", i(5), constants(&[9, 0, 1, 0, 0]), NOTDIR),
        ("sock_shutdown", i(2), constants(&[0, 0]), NOTSOCK),
        ("sock_shutdown", i(2), constants(&[4, 0]), BADF),
        ("clock_res_get", i(2), constants(&[0, 0]), 0),
        ("clock_res_get", i(2), constants(&[2, 0]), INVAL),
    ] {
        assert_eq!(
            errno(name, &parameters, "", &arguments),
            expected,
            "{name} {arguments}"
        );
    }
}

/// Returns code that stores a clock subscription at address 0.
fn clock_subscription(id: u32, timeout: &str, flags: u32) -> String {
    format!(
        "(i64.store (i32.const 0) (i64.const 77))
         (i32.store8 (i32.const 8) (i32.const 0))
         (i32.store (i32.const 16) (i32.const {id}))
         (i64.store (i32.const 24) {timeout})
         (i32.store16 (i32.const 40) (i32.const {flags}))"
    )
}

#[test]
fn polling_a_clock_waits_for_it() {
    let before = clock_subscription(1, "(i64.const 5000000)", 0);
    let arguments = constants(&[0, 4096, 1, 8192]);
    let answer = call("poll_oneoff", "i32 i32 i32 i32", &before, &arguments);
    assert_eq!(answer.text(), "00");
    assert_eq!(answer.waits, 1);
}

#[test]
fn a_time_that_has_passed_is_not_waited_for() {
    let before = clock_subscription(0, "(i64.const 1000)", 1);
    let arguments = constants(&[0, 4096, 1, 8192]);
    let answer = call("poll_oneoff", "i32 i32 i32 i32", &before, &arguments);
    assert_eq!(answer.text(), "00");
    assert_eq!(answer.waits, 0);
}

#[test]
fn standard_input_is_ready_at_once_even_beside_a_clock() {
    let before = clock_subscription(1, "(i64.const 5000000)", 0)
        + "(i32.store8 (i32.const 56) (i32.const 1)) (i32.store (i32.const 64) (i32.const 0))";
    let arguments = constants(&[0, 4096, 2, 8192]);
    let answer = call("poll_oneoff", "i32 i32 i32 i32", &before, &arguments);
    assert_eq!(answer.text(), "00");
    assert_eq!(answer.waits, 0);
}

#[test]
fn a_module_without_memory_traps_instead_of_reading_another() {
    let wat = format!(
        "(module
           (import \"{PREVIEW1_MODULE}\" \"random_get\" (func $call (param i32 i32) (result i32)))
           (func (export \"_start\") (drop (call $call (i32.const 0) (i32.const 1)))))"
    );
    let answer = get(CgiModule, "/").run(&compile(CgiModule, wat.as_bytes()));
    assert!(answer.failure(Outcome::Trap).contains("exports no memory"));
}

#[test]
fn refused_functions_need_no_memory() {
    let wat = format!(
        "(module
           (import \"{PREVIEW1_MODULE}\" \"sock_shutdown\"
             (func $call (param i32 i32) (result i32)))
           (func (export \"_start\")
             (if (i32.ne (call $call (i32.const 0) (i32.const 0)) (i32.const {NOTSOCK}))
               (then (unreachable)))))"
    );
    let answer = get(CgiModule, "/").run(&compile(CgiModule, wat.as_bytes()));
    answer.failure(Outcome::NoResponse);
}

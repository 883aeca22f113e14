//! Files of commands: wasi-testsuite's programs, and a command's view of its folder.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::path::Path;
use std::sync::LazyLock;

use faasw_abi::outcome::Outcome;
use faasw_abi::wire::FunctionKind;
use support::{Call, CgiModule, CliComponent, Kind, compile, fixture, get};

/// Returns the files that wasi-testsuite's programs expect below `/`.
fn suite_files() -> Vec<(Kind, &'static str, Vec<u8>)> {
    let folder = "tests/fixtures/wasi-testsuite/fs-tests.dir";
    let file = |path: &'static str| {
        (
            Kind::File,
            path,
            support::fixture(&format!("{folder}/{path}")),
        )
    };
    vec![
        file("file"),
        file("lseek.txt"),
        file("pread.txt"),
        file("fopendir.dir/file-0"),
        file("fopendir.dir/file-1"),
        file("writeable/.keep"),
    ]
}

#[test]
fn programs_of_wasi_testsuite_that_need_files_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/wasi-testsuite");
    let files = suite_files();
    let files: Vec<(Kind, &str, &[u8])> = files
        .iter()
        .map(|(kind, path, content)| (*kind, *path, content.as_slice()))
        .collect();
    let (mut programs, mut failed) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "wasm") {
            continue;
        }
        programs += 1;
        let code = compile(CgiModule, &std::fs::read(&path).unwrap());
        let answer = get(CgiModule, "/").files("/", &files).run(&code);
        // Most programs write nothing, which counts as no response. Only a good end matters.
        match &answer.result {
            Ok(()) => {}
            Err(failure) if failure.outcome == Outcome::NoResponse => {}
            Err(failure) => {
                let error = String::from_utf8_lossy(&answer.err);
                failed.push(format!("{}: {failure}\n{error}", path.display()));
            }
        }
    }
    assert!(programs >= 40, "{programs} programs");
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

/// The probe's kinds and code: one program, for preview 1 and for 0.2.
static PROBES: LazyLock<[(FunctionKind, Vec<u8>); 2]> = LazyLock::new(|| {
    [
        (CgiModule, "tests/fixtures/files-probe.wasm"),
        (CliComponent, "tests/fixtures/files-probe-p2.wasm"),
    ]
    .map(|(kind, path)| (kind, compile(kind, &fixture(path))))
});

/// Asserts the responses of both programs to these paths.
#[track_caller]
fn both_answer(with: impl Fn(Call) -> Call, all: &[(&str, &str)]) {
    for (kind, code) in PROBES.iter() {
        for (path, expected) in all {
            let answer = with(get(*kind, path)).run(code);
            assert_eq!(answer.text(), *expected, "{kind:?} {path}");
        }
    }
}

const SOME: [(Kind, &str, &[u8]); 4] = [
    (Kind::File, "greeting.txt", b"hello"),
    (Kind::File, "lib/deep/er", b"deep"),
    (Kind::Link, "lib/up", b"../greeting.txt"),
    (Kind::Link, "round", b"round"),
];

#[test]
fn both_interfaces_have_the_same_files() {
    both_answer(
        |call| call.files("/", &SOME),
        &[
            ("/read/greeting.txt", "hello"),
            ("/read/lib/up", "hello"),
            ("/read/nothing", "NotFound"),
            ("/read/greeting.txt/x", "NotADirectory"),
            ("/list/", "greeting.txt lib/ round@ tmp/"),
            ("/list/lib", "deep/ up@"),
            ("/size/lib/deep/er", "4 4"),
            ("/write/lib/new?some", "NotFound -> some"),
            ("/write/lib/up?some", "hello -> some"),
            ("/append/greeting.txt?-more", "hello-more"),
            ("/rewrite/greeting.txt?LL", "eLLo"),
            ("/change/folder?x", "x three"),
            ("/remove/lib/deep/er", "removed"),
            ("/remove/lib", "IsADirectory"),
        ],
    );
}

#[test]
fn files_are_at_their_declared_paths() {
    both_answer(
        |call| call.files("/srv/data", &SOME),
        &[
            ("/read/srv/data/greeting.txt", "hello"),
            ("/read/srv/data/lib/../greeting.txt", "hello"),
            ("/list/srv/data/lib", "deep/ up@"),
        ],
    );
    for (kind, code) in PROBES.iter() {
        for path in [
            "/read/srv/data/../data/greeting.txt",
            "/read/greeting.txt",
            "/read/srv",
        ] {
            let answer = get(*kind, path).files("/srv/data", &SOME).run(code);
            assert_ne!(answer.text(), "hello", "{kind:?} {path}");
        }
    }
}

#[test]
fn every_function_has_a_folder_for_temporary_files() {
    let all = [
        ("/list/tmp", ""),
        ("/write/tmp/new?some", "NotFound -> some"),
        ("/change/tmp/folder?x", "x three"),
        ("/read/tmp/../greeting.txt", "hello"),
    ];
    both_answer(|call| call.files("/", &SOME), &all);
    both_answer(|call| call.files("/srv", &SOME), &all[..3]);
    both_answer(|call| call, &all[..3]);
    // The folder of a deployment is writable, too.
    let own: [(Kind, &str, &[u8]); 1] = [(Kind::File, "tmp/deployed", b"x")];
    both_answer(
        |call| call.files("/", &own),
        &[("/list/tmp", "deployed"), all[1]],
    );
    // Without files there is nothing else.
    for (kind, code) in PROBES.iter() {
        for path in ["/list/", "/write/new?x", "/write/tmp/../new?x"] {
            let answer = get(*kind, path).run(code);
            assert!(!answer.text().contains("->"), "{kind:?} {answer:?}");
        }
    }
}

#[test]
fn temporary_files_count_against_the_functions_memory() {
    for (kind, code) in PROBES.iter() {
        let answer = get(*kind, "/fill/tmp/large").memory(16 << 20).run(code);
        let (written, _) = answer.text().split_once(' ').unwrap();
        let written: u32 = written.parse().unwrap();
        assert!((8..16).contains(&written), "{kind:?} {written}");
    }
}

#[test]
fn written_files_count_against_the_functions_memory() {
    for (kind, code) in PROBES.iter() {
        let answer = get(*kind, "/fill/large")
            .files("/", &SOME)
            .memory(16 << 20)
            .run(code);
        let (written, error) = answer.text().split_once(' ').unwrap();
        let written: u32 = written.parse().unwrap();
        assert!((8..16).contains(&written), "{kind:?} {written}");
        // The C library of 0.2 does not query the error of a stream (`filesystem-error-code`, which
        // would report insufficient space). It reports any failure as an input/output error.
        let expected = match kind {
            CgiModule => "StorageFull",
            _ => "Uncategorized",
        };
        assert_eq!(error, expected, "{kind:?}");
    }
}

/// Opens a new file with a pointer outside of memory, with flags that do not exist, and correctly.
/// The file must not be there before the last call. Writes the digits of the three results.
const OPENS_WRONGLY: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "new")
  (func $digits (param $at i32) (param $flags i32) (param $to i32)
    (local $errno i32)
    ;; Created, and only if it does not exist.
    (local.set $errno
      (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 3) (i32.const 5)
        (i64.const 66) (i64.const 0) (local.get $flags) (local.get $to)))
    (i32.store8 (local.get $at)
      (i32.add (i32.const 48) (i32.div_u (local.get $errno) (i32.const 10))))
    (i32.store8 offset=1 (local.get $at)
      (i32.add (i32.const 48) (i32.rem_u (local.get $errno) (i32.const 10)))))
  (func (export "_start")
    (call $digits (i32.const 32) (i32.const 0) (i32.const 65533))
    (call $digits (i32.const 34) (i32.const 65536) (i32.const 8))
    (call $digits (i32.const 36) (i32.const 0) (i32.const 8))
    (i32.store (i32.const 16) (i32.const 32))
    (i32.store (i32.const 20) (i32.const 6))
    (drop (call $write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 24)))))"#;

#[test]
fn a_call_with_wrong_arguments_opens_no_file() {
    let code = compile(CgiModule, OPENS_WRONGLY.as_bytes());
    let answer = get(CgiModule, "/").files("/", &SOME).run(&code);
    // A fault, an invalid argument, and success.
    assert_eq!(answer.text(), "212800");
}

#[test]
fn arguments_come_behind_the_name() {
    both_answer(
        |call| call.argument("-d").argument("a=b c"),
        &[("/arguments", "fn|-d|a=b c")],
    );
}

#[test]
fn a_bundle_that_is_none_is_no_function() {
    for (kind, code) in PROBES.iter() {
        let mut call = get(*kind, "/").files("/", &SOME);
        call.files = call.files.map(|bundle| &bundle[..bundle.len() / 2]);
        let failure = call.ready(code).err().unwrap();
        assert_eq!(failure.outcome, Outcome::LoadFailed, "{failure}");
    }
}

//! The helper as a process: its inputs, its outputs, and how it ends.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

#[path = "support/mod.rs"]
mod support;

use faasw_compiler::protocol::{
    FunctionKind, RefusalKind,
    contract::{EXIT_MEMORY, EXIT_USAGE, OUTPUT_FD, REPORT_FD},
};
use support::{
    fixtures::{example, fixture},
    generate,
    helper::{self, Start},
    random::seeded,
};

/// A command as text that needs nothing from its host.
const COMMAND: &str = r#"(module $small (memory (export "memory") 2) (func (export "_start")))"#;

#[test]
fn an_http_component_becomes_an_artifact_and_a_report() {
    let run = helper::compile(&example("hello/hello.wasm"));
    let compiled = run.result().unwrap();
    assert_eq!(compiled.kind, FunctionKind::HttpComponent);
    assert_eq!(
        usize::try_from(compiled.code_bytes).unwrap(),
        run.artifact.len()
    );
    assert!(run.artifact.starts_with(b"\x7fELF"));
    assert!(compiled.initial_memory_bytes >= 65536);
    assert!(!compiled.from_text);
    assert!(
        compiled
            .imports
            .iter()
            .any(|name| name.starts_with("wasi:http/types@0.2")),
        "{:?}",
        compiled.imports
    );
}

#[test]
fn text_is_accepted() {
    let run = helper::compile(COMMAND.as_bytes());
    let compiled = run.result().unwrap();
    assert_eq!(compiled.kind, FunctionKind::CgiModule);
    assert_eq!(compiled.name_hint.as_deref(), Some("small"));
    assert_eq!(compiled.initial_memory_bytes, 2 * 65536);
    assert!(compiled.from_text);
    assert!(compiled.imports.is_empty());
}

/// If packages depend on each other in a cycle, the library that makes the component recurses
/// without end (wit-parser 0.254). That ends the helper, and nothing else.
#[test]
fn a_core_module_with_an_invalid_component_description_ends_only_the_helper() {
    let core = fixture("config-probe-core.wasm");
    let told = core.windows(14).position(|it| it == b"component-type");
    let told = told.expect("it tells of its component");
    let mut random = seeded();
    let (mut refused, mut ended) = (0, 0);
    for _ in 0..100 {
        let mut damaged = core.clone();
        for _ in 0..random.usize(1..4) {
            let place = random.usize(told..damaged.len());
            damaged[place] = random.u8(..);
        }
        let run = helper::compile(&damaged);
        if run.status.success() {
            if let Err(refusal) = run.result() {
                assert_ne!(refusal.kind, RefusalKind::Internal, "{refusal}");
                refused += 1;
            }
        } else {
            let overflow = [-libc::SIGABRT, -libc::SIGSEGV];
            assert!(overflow.contains(&run.end_without_report()), "{run:?}");
            ended += 1;
        }
    }
    println!("{refused} refused, {ended} ended the helper");
    assert!(refused > 0);
}

#[test]
fn the_same_bytes_give_the_same_artifact() {
    let upload = fixture("http-probe.wasm");
    let first = helper::compile(&upload);
    let second = helper::compile(&upload);
    first.result().unwrap();
    assert!(
        first.artifact == second.artifact,
        "two artifacts of one upload differ"
    );
}

#[test]
fn a_lower_instruction_set_gives_another_artifact() {
    let upload = generate::laborious(1, 64);
    let lower = Start {
        arguments: vec![
            "--isa".to_owned(),
            "x86-64-v2".to_owned(),
            "--unconfined".to_owned(),
        ],
        ..Start::default()
    };
    let lower = helper::start(&upload, &lower);
    lower.result().unwrap();
    assert!(lower.artifact != helper::compile(&upload).artifact);
}

#[test]
fn empty_files_and_text_are_named_in_the_refusal() {
    for (upload, word) in [(&b""[..], "empty"), (b"Dear node,\n", "this is text")] {
        let refusal = helper::compile(upload).refusal();
        assert_eq!(refusal.kind, RefusalKind::Malformed);
        assert!(refusal.message.contains(word), "{refusal}");
        assert!(refusal.message.contains("not WebAssembly"), "{refusal}");
    }
}

#[test]
fn a_file_that_is_cut_short_is_refused_wherever_the_cut_is() {
    let whole = example("hello/hello.wasm");
    for tenths in 1..10 {
        let cut = &whole[..whole.len() * tenths / 10];
        let refusal = helper::compile(cut).refusal();
        assert_eq!(refusal.kind, RefusalKind::Malformed);
        assert!(refusal.message.contains("offset"), "{refusal}");
    }
}

#[test]
fn random_bytes_are_refused() {
    let mut random = seeded();
    for _ in 0..8 {
        let mut upload = vec![0; random.usize(1..=4096)];
        random.fill(&mut upload);
        assert_eq!(
            helper::compile(&upload).refusal().kind,
            RefusalKind::Malformed
        );
        upload.splice(0..0, *b"\0asm\x01\0\0\0");
        assert_eq!(
            helper::compile(&upload).refusal().kind,
            RefusalKind::Malformed
        );
    }
}

#[test]
fn unknown_imports_are_all_named() {
    for (file, name) in [
        ("wat/unknown-import.wasm", "env.mystery_call"),
        ("wat/unknown-import.wat", "env.mystery_call"),
        (
            "wat/unknown-import-component.wasm",
            "acme:secret/api@1.0.0#peek",
        ),
        (
            "wat/unknown-import-handler.wasm",
            "acme:secret/api@1.0.0#peek",
        ),
    ] {
        let refusal = helper::compile(&fixture(file)).refusal();
        assert_eq!(refusal.kind, RefusalKind::UnknownImports);
        assert!(
            refusal.imports.iter().any(|import| import == name),
            "{refusal}"
        );
        let beginning = "imports outside the supported set: ";
        assert!(refusal.message.starts_with(beginning), "{refusal}");
        assert!(refusal.message.contains(name), "{refusal}");
    }
}

#[test]
fn the_fixtures_are_of_their_kinds() {
    for (file, kind) in [
        ("http-probe.wasm", FunctionKind::HttpComponent),
        ("cgi-c.wasm", FunctionKind::CgiModule),
        ("wat/hello.wasm", FunctionKind::CgiModule),
        ("wat/start-trap.wasm", FunctionKind::CgiModule),
    ] {
        assert_eq!(
            helper::compile(&fixture(file)).result().unwrap().kind,
            kind,
            "{file}"
        );
    }
    let library = helper::compile(&fixture("wat/no-start.wasm")).refusal();
    assert_eq!(library.kind, RefusalKind::Unsupported);
    assert!(library.message.contains("_start"), "{library}");
}

#[test]
fn processor_time_beyond_the_limit_ends_it_without_a_report() {
    let limited = Start {
        cpu_seconds: Some(1),
        ..Start::default()
    };
    let run = helper::start(&generate::laborious(4000, 800), &limited);
    let end = run.end_without_report();
    assert!(
        [-libc::SIGXCPU, -libc::SIGKILL].contains(&end),
        "ended with {end}"
    );
}

#[test]
fn memory_beyond_the_limit_ends_it_without_a_report() {
    let limited = Start {
        address_space: Some(512 << 20),
        ..Start::default()
    };
    helper::start(COMMAND.as_bytes(), &limited)
        .result()
        .unwrap();
    let run = helper::start(&generate::laborious(1, 300_000), &limited);
    assert_eq!(run.end_without_report(), EXIT_MEMORY, "{}", run.diagnostics);
    assert!(run.diagnostics.is_empty(), "{}", run.diagnostics);
}

#[test]
fn a_start_that_breaks_the_contract_is_rejected() {
    let no_isa = Start {
        arguments: vec![],
        ..Start::default()
    };
    let other_isa = Start {
        arguments: vec![
            "--isa".to_owned(),
            "native".to_owned(),
            "--unconfined".to_owned(),
        ],
        ..Start::default()
    };
    let no_input = Start {
        descriptors: vec![OUTPUT_FD, REPORT_FD],
        ..Start::default()
    };
    for (start, word) in [
        (no_isa, "usage"),
        (other_isa, "x86-64-v2"),
        (no_input, "descriptor 3"),
    ] {
        let run = helper::start(COMMAND.as_bytes(), &start);
        assert_eq!(run.end_without_report(), EXIT_USAGE);
        assert!(run.diagnostics.contains(word), "{}", run.diagnostics);
    }
}

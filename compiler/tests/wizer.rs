//! The helper's result for a state that a guest reports, which is untrusted: a module that starts
//! from it, or a refusal, but never an invalid artifact.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "support/helper.rs"]
mod helper;
#[path = "support/random.rs"]
mod random;

use faasw_abi::isa::Isa;
use faasw_abi::memory_map::RAM_MAX;
use faasw_abi::state::{self, Value, ValueType};
use faasw_compiler::perform;
use faasw_compiler::protocol::{Input, RefusalKind, Task, Wizer, contract::EXIT_MEMORY};
use helper::Start;
use random::seeded;
use wasmparser::{Parser, Payload, Validator};

const EXPORT: &str = "prepare";

/// A command with a global of each kind that can change, one that cannot, and a memory.
const COMMAND: &str = r#"(module
  (global (mut i32) (i32.const 1)) (global i32 (i32.const 2))
  (global (mut v128) (v128.const i64x2 3 4))
  (memory (export "memory") 1 4)
  (func (export "prepare")) (func (export "_start")))"#;

/// A command that is a component of one module.
const COMPONENT: &str = r#"(component
  (core module $code
    (global (mut i64) (i64.const 1)) (memory 1)
    (func (export "prepare")) (func (export "run") (result i32) (i32.const 0)))
  (core instance $code (instantiate $code))
  (func $run (result (result)) (canon lift (core func $code "run")))
  (instance $run (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $run)))"#;

fn value(ty: ValueType, bits: u128) -> Value {
    Value { ty, bits }
}

/// Encodes a memory of `bytes` bytes with some content at an offset.
fn memory(name: &str, bytes: u64, offset: u64, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap();
    let run = state::run(offset, length);
    let memory = state::memory(name, bytes);
    [&memory[..], &run, content, &state::run(0, 0)].concat()
}

fn told(records: &[Vec<u8>]) -> Vec<u8> {
    [records.concat(), state::end().to_vec()].concat()
}

fn globals() -> [Vec<u8>; 2] {
    [
        state::global("__wizer_global_0", value(ValueType::I32, 77)),
        state::global("__wizer_global_2", value(ValueType::V128, u128::MAX)),
    ]
}

/// The state of [`COMMAND`], which has grown to three pages.
fn honest() -> Vec<u8> {
    let [first, second] = globals();
    let memory = memory("__wizer_memory_0", 3 << 16, 70_000, b"made");
    told(&[first, second, memory])
}

fn rewrite(upload: &str, state: &[u8]) -> helper::Run {
    let task = Task::Rewrite(EXPORT.to_owned());
    helper::perform(&task, upload.as_bytes(), state, &Start::default())
}

#[test]
fn a_module_starts_with_the_reported_state() {
    let run = rewrite(COMMAND, &honest());
    let compiled = run.result().unwrap();
    assert_eq!(compiled.initial_memory_bytes, 3 << 16);
    assert_eq!(compiled.code_bytes, run.artifact.len() as u64);
    Validator::new().validate_all(&run.artifact).unwrap();
    let mut exports = Vec::new();
    let mut data = Vec::new();
    for payload in Parser::new(0).parse_all(&run.artifact) {
        match payload.unwrap() {
            Payload::ExportSection(section) => {
                exports.extend(section.into_iter().map(|export| export.unwrap().name));
            }
            Payload::DataSection(section) => {
                data.extend(section.into_iter().map(|data| data.unwrap().data));
            }
            _ => {}
        }
    }
    // The initialising export is gone, and so are those that show the state.
    assert_eq!(exports, ["memory", "_start"]);
    assert_eq!(data, [b"made"]);
    assert_eq!(rewrite(COMMAND, &honest()).artifact, run.artifact);
    let component = told(&[
        state::global("global0", value(ValueType::I64, 5)),
        memory("memory1", 1 << 16, 9, b"made"),
    ]);
    rewrite(COMPONENT, &component).result().unwrap();
}

#[test]
fn a_state_that_is_not_the_functions_is_refused() {
    let [first, second] = globals();
    let whole = || memory("__wizer_memory_0", 1 << 16, 0, b"x");
    let wide = state::global("__wizer_global_0", value(ValueType::I64, 77));
    for (upload, lie) in [
        (COMMAND, told(&[])),
        (COMMAND, told(&[first.clone(), whole()])),
        (COMMAND, told(&[first.clone(), second.clone()])),
        (COMMAND, told(&[wide, second.clone(), whole()])),
        // More pages than its own maximum.
        (
            COMMAND,
            told(&[
                first.clone(),
                second.clone(),
                memory("__wizer_memory_0", 5 << 16, 0, b"x"),
            ]),
        ),
        (COMMAND, honest()[..honest().len() - 1].to_vec()),
        (COMMAND, vec![0xff; 100]),
        (COMPONENT, honest()),
    ] {
        let refusal = rewrite(upload, &lie).refusal();
        assert_eq!(refusal.kind, RefusalKind::Unsupported, "{refusal}");
    }
}

#[test]
fn an_unallocatable_memory_ends_only_the_helper() {
    let [first, second] = globals();
    let limited = Start {
        address_space: Some(1 << 30),
        ..Start::default()
    };
    let task = Task::Rewrite(EXPORT.to_owned());
    let huge = memory("__wizer_memory_0", RAM_MAX, 0, b"x");
    let state = told(&[first, second, huge]);
    let run = helper::perform(&task, COMMAND.as_bytes(), &state, &limited);
    assert_eq!(run.end_without_report(), EXIT_MEMORY);
    for bytes in [RAM_MAX + 1, 1 << 40, u64::MAX] {
        let [first, second] = globals();
        let beyond = memory("__wizer_memory_0", bytes, 0, b"x");
        let refusal = rewrite(COMMAND, &told(&[first, second, beyond])).refusal();
        assert_eq!(refusal.kind, RefusalKind::Unsupported, "{refusal}");
        assert!(
            refusal.to_string().contains("no possible memory"),
            "{refusal}"
        );
    }
}

#[test]
fn damaged_states_make_sound_modules_or_none() {
    let mut random = seeded();
    let mut made = 0;
    for _ in 0..2000 {
        let mut state = honest();
        for _ in 0..random.usize(1..=3) {
            let at = random.usize(..state.len());
            state[at] = random.u8(..);
        }
        // A state that claims gigabytes of memory would be allocated.
        let claims = state::State::decode(&state).ok();
        let claims = claims.iter().flat_map(|state| state.memories.values());
        if claims
            .map(|memory| memory.bytes)
            .any(|bytes| bytes > 1 << 24)
        {
            continue;
        }
        let input = Input {
            task: Task::Rewrite(EXPORT.to_owned()),
            keeps_cache: false,
            upload: COMMAND.as_bytes(),
            beside: &state,
        };
        match perform(&input, Isa::V2) {
            Ok(artifact) => {
                Validator::new().validate_all(&artifact.code).unwrap();
                made += 1;
            }
            Err(refusal) => assert_eq!(refusal.kind, RefusalKind::Unsupported, "{refusal}"),
        }
    }
    assert!(made > 0);
}

#[test]
fn a_module_that_wizer_refuses_is_compiled_unchanged() {
    let by = |export: &str| Task::CompileToInitialiseBy(export.to_owned());
    let made = |task: &Task, upload: &str| {
        let run = helper::perform(task, upload.as_bytes(), &[], &Start::default());
        (run.result().unwrap().wizer, run.artifact)
    };
    let with = |more: &str| COMMAND.replacen("(memory", &format!("{more} (memory"), 1);
    let plain = |upload: &str| helper::compile(upload.as_bytes()).artifact;
    for (more, reason) in [
        (
            "(table 1 funcref) (func (drop (table.grow (ref.null func) (i32.const 1))))",
            "table.grow",
        ),
        ("(global (mut funcref) (ref.null func))", "reference"),
        ("(func (export \"__wizer_x\"))", "__wizer_"),
    ] {
        let upload = with(more);
        let (wizer, artifact) = made(&by(EXPORT), &upload);
        assert!(
            matches!(&wizer, Some(Wizer::Refused(why)) if why.contains(reason)),
            "{wizer:?}"
        );
        assert_eq!(artifact, plain(&upload));
    }
    let twice = COMPONENT.replacen(
        "(func $run",
        "(core instance (instantiate $code)) (func $run",
        1,
    );
    let (wizer, artifact) = made(&by(EXPORT), &twice);
    assert!(
        matches!(&wizer, Some(Wizer::Refused(why)) if why.contains("at most once")),
        "{wizer:?}"
    );
    assert_eq!(artifact, plain(&twice));
    // Only modules are recognised, by the export's name and type alone.
    for (upload, found) in [
        (COMMAND.to_owned(), false),
        (COMMAND.replace(EXPORT, "wizer-initialize"), true),
        (
            COMMAND.replace("\"prepare\")", "\"wizer-initialize\") (param i32)"),
            false,
        ),
        (COMPONENT.replace(EXPORT, "wizer-initialize"), false),
    ] {
        let (wizer, artifact) = made(&Task::CompileToInitialise, &upload);
        assert_eq!(wizer, found.then_some(Wizer::Instrumented), "{upload}");
        assert_eq!(artifact == plain(&upload), !found);
    }
}

//! Which uploads are functions, and how the others are refused. The tests run in process: no code
//! is run, so the helper's confinement is not needed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the helper process is for other tests")]
mod support;

use faasw_abi::isa::Isa;
use faasw_compiler::protocol::{FunctionKind, Input, Refusal, RefusalKind, Task};
use faasw_compiler::{Artifact, perform};
use support::{fixtures::fixture, random::seeded};

fn compile(upload: &[u8], isa: Isa) -> Result<Artifact, Refusal> {
    let input = Input {
        task: Task::Compile,
        keeps_cache: false,
        upload,
        beside: &[],
    };
    perform(&input, isa)
}

fn kind(upload: &[u8]) -> FunctionKind {
    compile(upload, Isa::V3).unwrap().compiled.kind
}

fn refusal(upload: &[u8]) -> Refusal {
    compile(upload, Isa::V3).expect_err("the upload was compiled")
}

/// A component that imports `imports` and exports an instance with `function` as `name`.
fn component(imports: &str, name: &str, function: &str) -> String {
    format!(
        r#"(component {imports}
            (core module $m (func (export "f") (result i32) i32.const 0))
            (core instance $i (instantiate $m))
            (func $f (result (result)) (canon lift (core func $i "f")))
            (instance $e (export "{function}" (func $f)))
            (export "{name}" (instance $e)))"#
    )
}

fn command(imports: &str) -> String {
    component(imports, "wasi:cli/run@0.2.3", "run")
}

/// A module that would be a command without `fields`.
fn module(fields: &str) -> String {
    format!("(module {fields})")
}

#[test]
fn an_engine_takes_requests_and_scripts() {
    let is_engine = |upload: &[u8]| compile(upload, Isa::V3).unwrap().compiled.is_engine;
    assert!(is_engine(&fixture("lua-engine.wasm")));
    assert!(!is_engine(&fixture("http-probe.wasm")));
    assert!(!is_engine(&fixture("cgi-probe.wasm")));
    // A component that accepts scripts but no requests is not an engine.
    let script = r#"(instance $s (export "init" (func $f)))
        (export "faasw:engine/script@0.1.0" (instance $s)) (instance $e"#;
    let both = command("").replacen("(instance $e", script, 1);
    assert_eq!(kind(both.as_bytes()), FunctionKind::CliComponent);
    assert!(!is_engine(both.as_bytes()));
}

#[test]
fn every_release_of_wasi_0_2_makes_a_function() {
    for version in ["0.2.0", "0.2.3", "0.2.99"] {
        let run = format!("wasi:cli/run@{version}");
        let text = component("", &run, "run");
        assert_eq!(kind(text.as_bytes()), FunctionKind::CliComponent);
        let handler = format!("wasi:http/incoming-handler@{version}");
        let text = component("", &handler, "handle");
        assert_eq!(kind(text.as_bytes()), FunctionKind::HttpComponent);
    }
}

#[test]
fn interfaces_of_sdks_are_accepted() {
    let compiled = compile(&fixture("config-probe.wasm"), Isa::V3)
        .unwrap()
        .compiled;
    assert_eq!(compiled.kind, FunctionKind::HttpComponent);
    for import in [
        "wasi:config/store@0.2.0-rc.1#get-all",
        "fermyon:spin/variables@2.0.0#get",
        "spin:postgres/postgres@4.1.0#[static]connection.open",
    ] {
        let mut imports = compiled.imports.iter();
        assert!(imports.any(|other| other == import), "{import}");
    }
}

#[test]
fn an_interface_of_an_sdk_that_is_not_known_is_refused_by_name() {
    for name in [
        "wasi:config/store@0.2.0-draft-2030-01-01",
        "fermyon:spin/variables@3.0.0",
        "fermyon:spin/config",
    ] {
        let imports = format!(r#"(import "{name}" (instance (export "get" (func))))"#);
        let refusal = refusal(command(&imports).as_bytes());
        assert_eq!(refusal.kind, RefusalKind::UnknownImports);
        assert!(refusal.message.contains(name), "{refusal}");
    }
    // Also unsupported is a function that a known interface does not have.
    let name = "wasi:config/store@0.2.0-rc.1";
    let imports = format!(r#"(import "{name}" (instance (export "set" (func))))"#);
    let refusal = refusal(command(&imports).as_bytes());
    assert!(
        refusal.message.contains(&format!("{name}#set")),
        "{refusal}"
    );
}

#[test]
fn another_wasi_is_refused_by_name() {
    for name in [
        "wasi:http/handler@0.3.0",
        "wasi:http/incoming-handler@0.3.0",
        "wasi:cli/run@0.2.0-rc-2023-11-10",
        "wasi:cli/run@0.3.0",
    ] {
        let refusal = refusal(component("", name, "run").as_bytes());
        assert_eq!(refusal.kind, RefusalKind::Unsupported);
        assert!(refusal.message.contains(name), "{refusal}");
        assert!(
            refusal.message.contains("wasi:http/incoming-handler@0.2"),
            "{refusal}"
        );
        // The target wasm32-wasip2 can produce either: the SDK decides.
        let names_sdks = refusal.message.contains("spin-sdk 5 (6 and later");
        assert_eq!(names_sdks, name.ends_with("@0.3.0"), "{refusal}");
    }
}

#[test]
fn an_import_of_another_wasi_has_advice_of_its_own() {
    for (name, words) in [
        ("wasi:clocks/monotonic-clock@0.3.0", "spin-sdk 5"),
        ("wasi:logging/logging@0.1.0-draft", "standard error"),
        (
            "wasi:nn/graph@0.2.0-rc-2024-10-28",
            "not an interface of WASI 0.2",
        ),
    ] {
        let imports = format!(r#"(import "{name}" (instance (export "get" (func))))"#);
        let refusal = refusal(command(&imports).as_bytes());
        assert_eq!(refusal.kind, RefusalKind::UnknownImports);
        assert!(refusal.message.contains(words), "{refusal}");
    }
}

#[test]
fn a_library_component_is_refused_with_its_exports() {
    let refusal = refusal(component("", "acme:tools/hash@1.0.0", "digest").as_bytes());
    assert_eq!(refusal.kind, RefusalKind::Unsupported);
    assert!(
        refusal.message.contains("acme:tools/hash@1.0.0"),
        "{refusal}"
    );
    assert!(refusal.message.contains("wasm32-wasip2"), "{refusal}");
}

#[test]
fn an_entry_point_without_its_function_is_refused() {
    let refusal = refusal(component("", "wasi:cli/run@0.2.0", "walk").as_bytes());
    assert_eq!(refusal.kind, RefusalKind::Unsupported);
    assert!(
        refusal.message.contains("without the function `run`"),
        "{refusal}"
    );
}

#[test]
fn unknown_interfaces_and_functions_of_components_are_all_named() {
    let imports = r#"
        (import "acme:secret/api@1.0.0" (instance (export "peek" (func)) (export "poke" (func))))
        (import "wasi:random/random@0.2.3" (instance
            (export "get-random-u64" (func (result u64)))
            (export "get-dice" (func (result u8)))))
        (import "wasi:random/random@0.3.0" (instance (export "get-random-u64" (func (result u64)))))
        (import "lone" (func))
        (import "wasi:io/poll@0.2.0" (instance
            (export "pollable" (type (sub resource)))
            (export "barrel" (type (sub resource)))))"#;
    let refusal = refusal(command(imports).as_bytes());
    assert_eq!(refusal.kind, RefusalKind::UnknownImports);
    assert_eq!(
        refusal.imports,
        [
            "acme:secret/api@1.0.0",
            "acme:secret/api@1.0.0#peek",
            "acme:secret/api@1.0.0#poke",
            "wasi:random/random@0.2.3#get-dice",
            "wasi:random/random@0.3.0",
            "wasi:random/random@0.3.0#get-random-u64",
            "lone",
            "wasi:io/poll@0.2.0#barrel (resource)",
        ]
    );
    for name in &refusal.imports {
        assert!(refusal.message.contains(name.as_str()), "{refusal}");
    }
}

#[test]
fn supported_functions_are_reported_with_their_interface() {
    let imports = r#"(import "wasi:random/random@0.2.1" (instance
        (export "get-random-u64" (func (result u64)))))"#;
    let artifact = compile(command(imports).as_bytes(), Isa::V3).unwrap();
    assert_eq!(
        artifact.compiled.imports,
        ["wasi:random/random@0.2.1#get-random-u64"]
    );
}

#[test]
fn imports_of_a_wrong_kind_or_type_are_named_with_it() {
    let upload = module(
        r#"(import "env" "memory" (memory 1))
           (import "env" "table" (table 1 funcref))
           (import "env" "base" (global i32))
           (import "wasi_snapshot_preview1" "fd_write" (func (param i64)))
           (export "memory" (memory 0))
           (func (export "_start"))"#,
    );
    let refusal = refusal(upload.as_bytes());
    assert_eq!(
        refusal.imports,
        [
            "env.memory (memory)",
            "env.table (table)",
            "env.base (global)",
            "wasi_snapshot_preview1.fd_write (as (i64) -> (), but it is (i32, i32, i32, i32) -> \
             (i32))",
        ]
    );
}

#[test]
fn modules_that_are_no_commands_are_refused_with_a_reason() {
    const MEMORY: &str = r#"(memory (export "memory") 1)"#;
    const START: &str = r#"(func (export "_start"))"#;
    for (fields, words) in [
        (
            format!(r#"{MEMORY} (func (export "_initialize"))"#),
            "reactor",
        ),
        (
            format!(r#"{MEMORY} (func (export "add"))"#),
            "exports memory, add",
        ),
        (String::new(), "exports nothing"),
        (START.to_owned(), "no memory named `memory`"),
        (
            format!(r#"{START} (memory (export "memory") i64 1)"#),
            "64-bit",
        ),
        (
            format!(r#"{MEMORY} (func (export "_start") (param i32))"#),
            "takes parameters",
        ),
        (
            format!(r#"{MEMORY} (global (export "_start") i32 (i32.const 0))"#),
            "not a function",
        ),
    ] {
        let refusal = refusal(module(&fields).as_bytes());
        assert_eq!(refusal.kind, RefusalKind::Unsupported, "{refusal}");
        assert!(refusal.message.contains(words), "{refusal}");
        assert!(refusal.message.contains("wasm32-wasip2"), "{refusal}");
    }
}

#[test]
fn a_core_module_with_a_component_description_becomes_that_component() {
    let core = fixture("config-probe-core.wasm");
    let made = compile(&core, Isa::V3).unwrap();
    assert_eq!(made.compiled.kind, FunctionKind::HttpComponent);
    let whole = compile(&fixture("config-probe.wasm"), Isa::V3).unwrap();
    // The imports of the code itself; those that preview 1 results in come from the adapters.
    let of_bindings = |imports: &[String]| -> Vec<String> {
        let names = imports.iter().filter(|name| !name.starts_with("wasi:"));
        let mut names: Vec<_> = names.cloned().collect();
        names.sort();
        names
    };
    let spins = of_bindings(&whole.compiled.imports);
    assert!(
        spins
            .iter()
            .any(|name| name.starts_with("fermyon:spin/variables@")),
        "{spins:?}"
    );
    assert_eq!(of_bindings(&made.compiled.imports), spins);
    // Every compilation gives the same code.
    assert_eq!(compile(&core, Isa::V3).unwrap().code, made.code);
}

#[test]
fn a_wrong_component_description_is_refused() {
    for (fields, words) in [
        (
            r#"(memory (export "memory") 1) (func (export "_start"))
               (@custom "component-type:x" "")"#
                .to_owned(),
            "no component can be made of it",
        ),
        (
            r#"(@custom "component-type" "\00asm\0d\00\01\00")"#.to_owned(),
            "no component can be made of it",
        ),
    ] {
        let refusal = refusal(module(&fields).as_bytes());
        assert_eq!(refusal.kind, RefusalKind::Unsupported, "{refusal}");
        assert!(refusal.message.contains(words), "{refusal}");
    }
    // If the module imports more than its component type declares, the refusal names it.
    let core = fixture("config-probe-core.wasm");
    let at = core
        .windows(14)
        .position(|bytes| bytes == b"component-type")
        .expect("it tells of its component");
    let name = b"fermyon:spin/variables@2.0.0";
    let mut other = core.clone();
    let places: Vec<_> = (0..at)
        .filter(|place| core[*place..].starts_with(name))
        .collect();
    assert!(!places.is_empty());
    for place in places {
        other[place..place + 7].copy_from_slice(b"nobody.");
    }
    let refusal = refusal(&other);
    assert!(refusal.message.contains("nobody."), "{refusal}");
}

#[test]
fn shared_memory_is_refused_as_threads() {
    for fields in [
        r#"(memory (export "memory") 1 2 shared) (func (export "_start"))"#,
        r#"(import "env" "memory" (memory 1 2 shared)) (func (export "_start"))"#,
    ] {
        let refusal = refusal(module(fields).as_bytes());
        assert_eq!(refusal.kind, RefusalKind::Unsupported);
        assert!(refusal.message.contains("threads"), "{refusal}");
    }
}

#[test]
fn a_proposal_that_the_engine_lacks_is_no_malformed_upload() {
    let upload = module(
        r#"(memory (export "memory") 1)
           (func (export "_start"))
           (func (param i64 i64 i64 i64) (result i64 i64)
             (i64.add128 (local.get 0) (local.get 1) (local.get 2) (local.get 3)))"#,
    );
    let refusal = refusal(upload.as_bytes());
    assert_eq!(refusal.kind, RefusalKind::Unsupported);
    assert!(refusal.message.contains("valid WebAssembly"), "{refusal}");
}

#[test]
fn invalid_code_is_malformed_with_its_offset() {
    let upload = module(r#"(memory (export "memory") 1) (func (export "_start") (i32.const 1))"#);
    let refusal = refusal(upload.as_bytes());
    assert_eq!(refusal.kind, RefusalKind::Malformed);
    assert!(refusal.message.contains("at offset 0x"), "{refusal}");
}

#[test]
fn damaged_uploads_are_compiled_or_refused_but_never_panic() {
    let whole = fixture("http-probe.wasm");
    let mut random = seeded();
    for _ in 0..200 {
        let mut upload = whole.clone();
        for _ in 0..random.usize(1..=4) {
            let at = random.usize(..upload.len());
            upload[at] = random.u8(..);
        }
        if random.bool() {
            upload.truncate(random.usize(..upload.len()));
        }
        if let Err(refusal) = compile(&upload, Isa::V2) {
            assert_ne!(refusal.kind, RefusalKind::Internal, "{refusal}");
        }
    }
}

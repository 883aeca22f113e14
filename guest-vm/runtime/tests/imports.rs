//! Every import that is listed as supported can be linked.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::path::Path;

use faasw_runtime::supported::{OTHERS, PREVIEW1, PREVIEW1_MODULE, WASI_VERSION, wit_files};
use support::{CgiModule, CliComponent, HttpComponent, compile, get};
use wit_component::ComponentEncoder;
use wit_parser::{ManglingAndAbi, Resolve, UnresolvedPackageGroup};

/// Returns the packages of the WIT files, with WASI in `version`, each after its dependencies.
fn wasi(version: &str) -> Vec<UnresolvedPackageGroup> {
    let mut groups: Vec<UnresolvedPackageGroup> = wit_files()
        .iter()
        .map(|(name, text)| {
            let text = text.replace(WASI_VERSION, version);
            UnresolvedPackageGroup::parse(name, &text).unwrap()
        })
        .collect();
    groups.rotate_left(1);
    groups
}

/// Returns a component that imports everything of the WIT in `version` and exports `export`.
fn component(version: &str, export: &str) -> Vec<u8> {
    let text = format!(
        "package test:all;
         world all {{
           include faasw:runtime/implemented;
           include faasw:runtime/refused;
           export {export}@{version};
         }}"
    );
    of_world(wasi(version), &text)
}

/// Returns a component that imports all interfaces that worlds of SDKs name besides WASI.
fn sdk_component() -> Vec<u8> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/config-probe/wit");
    let files = std::fs::read_dir(folder.join("deps")).unwrap();
    let mut groups = wasi(WASI_VERSION);
    let files = files.map(|file| file.unwrap().path());
    for file in files.chain([folder.join("world.wit")]) {
        let text = std::fs::read_to_string(&file).unwrap();
        groups.push(UnresolvedPackageGroup::parse(&file, &text).unwrap());
    }
    let text = format!(
        "package test:all;
         world all {{
           include test:sdk/imports;
           export wasi:http/incoming-handler@{WASI_VERSION};
         }}"
    );
    of_world(groups, &text)
}

/// Returns a component of the only world in `text`, which uses `groups`.
fn of_world(groups: Vec<UnresolvedPackageGroup>, text: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let main = UnresolvedPackageGroup::parse("all.wit", text).unwrap();
    for group in groups {
        resolve.push_group(group).unwrap();
    }
    let package = resolve.push_group(main).unwrap();
    let world = resolve.select_world(&[package], None).unwrap();
    let mut module = wit_component::dummy_module(&resolve, world, ManglingAndAbi::Standard32);
    wit_component::embed_component_metadata(
        &mut module,
        &resolve,
        world,
        wit_component::StringEncoding::UTF8,
    )
    .unwrap();
    ComponentEncoder::default()
        .module(&module)
        .unwrap()
        .validate(true)
        .encode()
        .unwrap()
}

#[test]
fn components_that_import_all_of_wasi_link_in_any_compatible_version() {
    for version in [WASI_VERSION, "0.2.10", "0.2.3"] {
        for (kind, export) in [
            (HttpComponent, "wasi:http/incoming-handler"),
            (CliComponent, "wasi:cli/run"),
        ] {
            let code = compile(kind, &component(version, export));
            if let Err(failure) = get(kind, "/").ready(&code) {
                panic!("{export}@{version}: {failure}");
            }
        }
    }
}

#[test]
fn a_component_that_imports_all_that_sdks_name_links() {
    let component = sdk_component();
    let code = compile(HttpComponent, &component);
    if let Err(failure) = get(HttpComponent, "/").ready(&code) {
        panic!("{failure}");
    }
    // Each listed interface was imported, except the releases that an equivalent one stands for.
    let names: Vec<_> = OTHERS.iter().map(|other| other.name).collect();
    let is_there = |name: &&str| {
        let mut windows = component.windows(name.len());
        windows.any(|window| window == name.as_bytes())
    };
    let missing: Vec<_> = names.into_iter().filter(|name| !is_there(name)).collect();
    assert_eq!(
        missing,
        ["spin:sqlite/sqlite@3.1.0", "spin:postgres/postgres@4.2.0"]
    );
}

#[test]
fn a_release_candidate_is_another_version() {
    let wat = r#"(component (import "wasi:io/poll@0.2.0-rc-2023-11-10" (instance
        (export "pollable" (type (sub resource))))))"#;
    let code = compile(HttpComponent, wat.as_bytes());
    let report = get(HttpComponent, "/").ready(&code).err().unwrap().report;
    assert!(
        report.contains("wasi:io/poll@0.2.0-rc-2023-11-10"),
        "{report}"
    );
}

#[test]
fn a_module_that_imports_all_of_preview_1_links() {
    let mut wat = String::from("(module\n");
    for (name, parameters) in PREVIEW1 {
        let parameters: String = parameters
            .chars()
            .map(|letter| if letter == 'I' { "i64 " } else { "i32 " })
            .collect();
        let result = if name == "proc_exit" {
            ""
        } else {
            "(result i32)"
        };
        wat += &format!(
            "(import \"{PREVIEW1_MODULE}\" \"{name}\" (func (param {parameters}) {result}))\n"
        );
    }
    wat += "(memory (export \"memory\") 1) (func (export \"_start\")))";
    let code = compile(CgiModule, wat.as_bytes());
    if let Err(failure) = get(CgiModule, "/").ready(&code) {
        panic!("{failure}");
    }
}

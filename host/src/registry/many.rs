//! Measurements with many functions in one data directory: writes them all at once, and measures
//! what opening and changing the directory costs then. Both tests run only on request:
//!
//! ```text
//! FAASW_MANY_DIR=DATA_DIR FAASW_MANY=10000 \
//!     cargo test -p faasw --lib registry::many -- --ignored --nocapture
//! ```

use std::{
    env,
    path::Path,
    time::{Duration, Instant},
};

use faasw_client::FunctionOptions;

use super::{tables::*, *};

/// Adds `count` functions to a registry that are like its first one, each with an environment of
/// its own.
fn multiply(registry: &Registry, count: u32) {
    let (_, _, like) = registry.functions().unwrap().swap_remove(0);
    let added = registry.store.change(|change| {
        let mut versions = change.open_table(VERSIONS)?;
        let mut functions = change.open_table(FUNCTIONS)?;
        for number in 0..count {
            let name = format!("many-{number:05}");
            let record = VersionRecord {
                options: FunctionOptions::default().env("NUMBER", &name),
                deployed: like.deployed + Duration::from_nanos(number.into()),
                ..like.clone()
            };
            versions.insert((name.as_str(), 1), write_record(&name, &record)?.as_slice())?;
            let function = FunctionRecord {
                current: 1,
                newest: 1,
            };
            functions.insert(name.as_str(), write_record(&name, &function)?.as_slice())?;
        }
        Ok(())
    });
    added.unwrap();
}

#[test]
#[ignore = "writes to the data directory that FAASW_MANY_DIR names"]
fn a_data_directory_gets_many_functions() {
    let folder = env::var("FAASW_MANY_DIR").unwrap();
    let count: u32 = env::var("FAASW_MANY").unwrap().parse().unwrap();
    let directory = DataDir::open(Path::new(&folder)).unwrap();
    let registry = Registry::open(&directory).unwrap();
    multiply(&registry, count);
    assert!(registry.functions().unwrap().len() > count as usize);
}

#[test]
#[ignore = "measures"]
fn opening_reads_each_record_and_changes_read_few() {
    for count in [10, 1_000, 10_000] {
        let folder = tempfile::tempdir().unwrap();
        let directory = DataDir::open(folder.path()).unwrap();
        let registry = Registry::open(&directory).unwrap();
        store(&registry, "first", b"module");
        multiply(&registry, count);
        drop(registry);
        let begun = Instant::now();
        let registry = Registry::open(&directory).unwrap();
        let opened = begun.elapsed();
        let functions = registry.functions().unwrap();
        let read = begun.elapsed() - opened;
        assert_eq!(functions.len(), count as usize + 1);
        // Each change drops what the one before has added.
        let mut changes: Vec<_> = (0..40)
            .map(|number| {
                let module = format!("module {number}");
                let begun = Instant::now();
                store(&registry, "first", module.as_bytes());
                begun.elapsed()
            })
            .collect();
        changes.sort();
        println!(
            "{count} functions: opened in {opened:?}, read in {read:?}, a deployment stored in \
             {:?}",
            changes[20]
        );
    }
}

/// Stores a version whose code no other version shares.
fn store(registry: &Registry, function: &str, module: &[u8]) {
    let name = FunctionName::new(function).unwrap();
    let code = Artifact {
        kind: faasw_abi::wire::FunctionKind::CgiModule,
        imports: Vec::new(),
        has_initialiser: false,
        only_for: None,
        code: module.to_vec(),
        proof: CodeProof::of(module),
    };
    let record = VersionRecord {
        digest: Digest::of(module),
        engine: None,
        files: None,
        initialised: None,
        kind: code.kind,
        options: FunctionOptions::default(),
        deployed: std::time::SystemTime::now(),
        imaged: None,
        freeze: FreezeRecord::default(),
        imports: ["fd_write", "proc_exit", "environ_get"]
            .map(|import| format!("wasi_snapshot_preview1::{import}"))
            .into(),
        module_bytes: module.len() as u64,
        code_bytes: module.len() as u64,
    };
    let new = NewArtifact {
        generation: "test",
        artifact: &code,
    };
    registry
        .store_version(&name, &record, only(module), Some(new))
        .unwrap();
}

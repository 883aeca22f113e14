//! The registry survives what disks and crashes do to it.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::SystemTime};

use faasw_abi::wire::FunctionKind;

use super::*;
use crate::options::FunctionOptions;

const GENERATION: &str = "x86-64-v3-test";

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn open(&self) -> (DataDir, Registry) {
        let directory = DataDir::open(self.path()).unwrap();
        let registry = Registry::open(&directory).unwrap();
        (directory, registry)
    }

    fn count(&self, folder: &str) -> usize {
        fs::read_dir(self.path().join(folder)).unwrap().count()
    }
}

fn name(name: &str) -> FunctionName {
    FunctionName::new(name).unwrap()
}

fn record(module: &[u8]) -> FunctionRecord {
    FunctionRecord {
        digest: Digest::of(module),
        kind: FunctionKind::HttpComponent,
        options: FunctionOptions::default().env("A", "b"),
        deployed: SystemTime::now(),
        freeze: FreezeRecord {
            after_init: true,
            drew_entropy: false,
            drawn: String::new(),
            instantiation: std::time::Duration::from_micros(70),
            layer_bytes: 4096,
        },
    }
}

fn artifact(code: &[u8]) -> Artifact {
    Artifact {
        kind: FunctionKind::HttpComponent,
        code: code.into(),
    }
}

fn store(registry: &Registry, function: &str, module: &[u8]) {
    registry
        .store_artifact(Digest::of(module), GENERATION, &artifact(b"code"))
        .unwrap();
    registry
        .store_function(&name(function), &record(module), module)
        .unwrap();
}

#[test]
fn functions_modules_and_artifacts_survive_a_restart() {
    let fixture = Fixture::new();
    let (directory, registry) = fixture.open();
    store(&registry, "a", b"module a");
    store(&registry, "b", b"module b");
    drop((directory, registry));

    let (_directory, registry) = fixture.open();
    let functions = registry.functions().unwrap();
    let names: Vec<_> = functions.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let digest = functions[0].1.digest;
    assert_eq!(registry.module(digest).unwrap(), b"module a");
    let found = registry.artifact(digest, GENERATION).unwrap();
    assert_eq!(found, Some(artifact(b"code")));
    assert_eq!(registry.artifact(digest, "other").unwrap(), None);
}

#[test]
fn what_no_function_uses_is_swept() {
    let fixture = Fixture::new();
    let (_directory, registry) = fixture.open();
    store(&registry, "a", b"shared");
    store(&registry, "b", b"shared");
    store(&registry, "b", b"new");
    assert_eq!(
        (fixture.count("modules"), fixture.count("artifacts")),
        (2, 2)
    );
    registry.remove_function(&name("a")).unwrap();
    assert_eq!(
        (fixture.count("modules"), fixture.count("artifacts")),
        (1, 1)
    );
    let gone = registry
        .artifact(Digest::of(b"shared"), GENERATION)
        .unwrap();
    assert_eq!(gone, None);
}

#[test]
fn an_interrupted_write_leaves_no_trace() {
    let fixture = Fixture::new();
    let (directory, registry) = fixture.open();
    store(&registry, "a", b"module");
    drop((directory, registry));
    // A crash between the file and its record, and one within a file.
    let orphan = Digest::of(b"orphan").to_string();
    fs::write(fixture.path().join("modules").join(orphan), "orphan").unwrap();
    fs::write(fixture.path().join("modules/.unfinished"), "half").unwrap();

    let (_directory, registry) = fixture.open();
    assert_eq!(registry.functions().unwrap().len(), 1);
    assert_eq!(fixture.count("modules"), 1);
}

#[test]
fn damaged_code_is_not_used_and_a_damaged_module_is_an_error() {
    let fixture = Fixture::new();
    let (_directory, registry) = fixture.open();
    store(&registry, "a", b"module");
    let digest = Digest::of(b"module");
    let file = artifact_file(digest, GENERATION);
    fs::write(fixture.path().join("artifacts").join(&file), "codf").unwrap();
    assert_eq!(registry.artifact(digest, GENERATION).unwrap(), None);
    fs::remove_file(fixture.path().join("artifacts").join(&file)).unwrap();
    assert_eq!(registry.artifact(digest, GENERATION).unwrap(), None);
    fs::write(
        fixture.path().join("modules").join(digest.to_string()),
        "mod",
    )
    .unwrap();
    assert!(matches!(
        registry.module(digest),
        Err(RegistryError::Module(_))
    ));
}

#[test]
fn another_format_is_refused_with_the_way_out() {
    let fixture = Fixture::new();
    let (directory, registry) = fixture.open();
    let change = registry.database.begin_write().unwrap();
    change
        .open_table(META)
        .unwrap()
        .insert("format", FORMAT + 1)
        .unwrap();
    change.commit().unwrap();
    drop(registry);
    let refused = Registry::open(&directory).unwrap_err().to_string();
    assert!(
        refused.contains("format 2") && refused.contains("data directory"),
        "{refused}"
    );
}

#[test]
fn files_are_the_users_own() {
    let fixture = Fixture::new();
    let (_directory, registry) = fixture.open();
    store(&registry, "a", b"module");
    for file in [
        "registry.redb".into(),
        format!("modules/{}", Digest::of(b"module")),
    ] {
        let mode = fs::metadata(fixture.path().join(&file))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

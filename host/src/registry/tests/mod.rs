//! The registry survives faults of disks and crashes.

mod code;
mod engines;
mod secrets;

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::SystemTime};

use faasw_abi::wire::FunctionKind;
use faasw_client::{EngineUse, Extension, FunctionOptions};
use faasw_pool::LoadedCode;

use super::{tables::*, *};

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

fn record(module: &[u8]) -> VersionRecord {
    VersionRecord {
        digest: Digest::of(module),
        engine: None,
        files: None,
        initialised: None,
        kind: FunctionKind::HttpComponent,
        options: FunctionOptions::default().env("A", "b"),
        deployed: SystemTime::now(),
        imaged: None,
        freeze: FreezeRecord {
            at_entry: false,
            after_init: true,
            drew_entropy: false,
            drawn: String::new(),
            instantiation: std::time::Duration::from_micros(70),
            layer_bytes: 4096,
        },
        imports: vec!["wasi:cli/environment@0.2.0".into()],
        module_bytes: module.len() as u64,
        code_bytes: 4,
    }
}

fn artifact(code: &[u8]) -> Artifact {
    Artifact {
        only_for: None,
        kind: FunctionKind::HttpComponent,
        imports: vec!["wasi:cli/environment@0.2.0".into()],
        has_initialiser: true,
        code: code.into(),
        proof: CodeProof::of(code),
    }
}

fn new(artifact: &Artifact) -> Option<NewArtifact<'_>> {
    Some(NewArtifact {
        generation: GENERATION,
        artifact,
    })
}

fn store(registry: &Registry, function: &str, module: &[u8]) -> u64 {
    let code = artifact(b"code");
    let (name, record) = (name(function), record(module));
    registry
        .store_version(&name, &record, only(module), new(&code))
        .unwrap()
}

fn numbers(registry: &Registry, function: &str) -> Vec<u64> {
    let versions = registry.versions(&name(function)).unwrap();
    versions.into_keys().collect()
}

/// Returns the code of a module in memory, if this function may use it.
fn code_of(
    registry: &Registry,
    module: Digest,
    generation: &str,
    function: Option<&FunctionName>,
) -> Option<Vec<u8>> {
    let known = registry.artifact(module, generation, function).unwrap();
    let LoadedCode { code, .. } = registry.code(module, generation, function, None).unwrap()?;
    let known = known.unwrap();
    assert_eq!(known.bytes, code.bytes());
    assert_eq!(known.digest, code.digest().unwrap());
    assert_eq!(known.imports, artifact(b"").imports);
    Some(code.read().unwrap())
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
    let names: Vec<_> = functions
        .iter()
        .map(|(name, version, _)| (name.as_str(), *version))
        .collect();
    assert_eq!(names, [("a", 1), ("b", 1)]);
    let digest = functions[0].2.digest;
    assert_eq!(registry.module(digest).unwrap(), b"module a");
    let found = code_of(&registry, digest, GENERATION, None);
    assert_eq!(found, Some(b"code".into()));
    assert_eq!(registry.artifact(digest, "other", None).unwrap(), None);
}

#[test]
fn versions_count_up_and_the_newest_are_kept() {
    let fixture = Fixture::new();
    let (directory, registry) = fixture.open();
    for number in 1..=12 {
        let module = format!("module {number}");
        assert_eq!(store(&registry, "a", module.as_bytes()), number);
    }
    assert_eq!(numbers(&registry, "a"), (3..=12).collect::<Vec<_>>());
    assert_eq!(
        (fixture.count("modules"), fixture.count("artifacts")),
        (10, 10)
    );
    assert_eq!(store(&registry, "b", b"module 12"), 1);
    drop((directory, registry));

    let (_directory, registry) = fixture.open();
    assert_eq!(numbers(&registry, "a"), (3..=12).collect::<Vec<_>>());
    registry.remove_function(&name("a")).unwrap();
    assert_eq!(numbers(&registry, "a"), [0; 0]);
    // The files of another function stay.
    assert_eq!(
        (fixture.count("modules"), fixture.count("artifacts")),
        (1, 1)
    );
    assert_eq!(store(&registry, "a", b"module"), 1);
}

#[test]
fn a_rollback_moves_the_pointer_and_numbering_continues() {
    let fixture = Fixture::new();
    let (directory, registry) = fixture.open();
    for number in 1..=3 {
        store(&registry, "a", format!("module {number}").as_bytes());
    }
    let (a, one) = (
        name("a"),
        registry.versions(&name("a")).unwrap()[&1].clone(),
    );
    assert!(registry.roll_back(&a, 1, &one).unwrap());
    assert!(!registry.roll_back(&a, 4, &one).unwrap());
    // The version under that number is another one: the function was removed and deployed again.
    assert!(!registry.roll_back(&a, 2, &one).unwrap());
    assert!(!registry.roll_back(&name("b"), 1, &one).unwrap());
    drop((directory, registry));

    let (_directory, registry) = fixture.open();
    let (_, current, record) = registry.functions().unwrap().remove(0);
    assert_eq!((current, record.digest), (1, Digest::of(b"module 1")));
    assert_eq!(store(&registry, "a", b"module 4"), 4);
    assert_eq!(numbers(&registry, "a"), [1, 2, 3, 4]);
}

#[test]
fn the_same_bytes_are_stored_once_and_other_options_are_another_version() {
    let fixture = Fixture::new();
    let (_directory, registry) = fixture.open();
    store(&registry, "a", b"module");
    let mut other = record(b"module");
    other.options = FunctionOptions::default().env("A", "other");
    let number = registry.store_version(&name("a"), &other, only(b"module"), None);
    assert_eq!(number.unwrap(), 2);
    let versions = registry.versions(&name("a")).unwrap();
    assert_ne!(versions[&1].options, versions[&2].options);
    assert_eq!(
        (fixture.count("modules"), fixture.count("artifacts")),
        (1, 1)
    );
}

#[test]
fn a_compile_cache_is_removed_with_its_function() {
    let fixture = Fixture::new();
    let (directory, registry) = fixture.open();
    for function in ["a", "b"] {
        store(&registry, function, b"module");
        registry.store_compile_cache(&name(function), GENERATION, b"kept");
    }
    registry.remove_function(&name("a")).unwrap();
    assert_eq!(registry.compile_cache(&name("a"), GENERATION), None);
    registry.store_compile_cache(&name("stray"), GENERATION, b"kept");
    drop((directory, registry));
    let (_directory, registry) = fixture.open();
    assert_eq!(registry.compile_cache(&name("stray"), GENERATION), None);
    let kept = registry.compile_cache(&name("b"), GENERATION);
    assert_eq!(kept.unwrap(), b"kept");
    assert_eq!(fixture.count("compiled"), 1);
}

#[test]
fn a_registry_in_memory_can_roll_back() {
    let registry = Registry::in_memory(None).unwrap();
    for number in 1..=3 {
        store(&registry, "a", format!("module {number}").as_bytes());
    }
    assert_eq!(numbers(&registry, "a"), [2, 3]);
    let gone = registry.module(Digest::of(b"module 1"));
    assert!(matches!(gone, Err(RegistryError::Module(_))));
    let kept = registry.module(Digest::of(b"module 2")).unwrap();
    assert_eq!(kept, b"module 2");
}

#[test]
fn a_change_that_fails_changes_nothing() {
    let fixture = Fixture::new();
    let (_directory, registry) = fixture.open();
    store(&registry, "a", b"module");
    // A folder is in the place of the module's file.
    let path = fixture.path().join("modules");
    fs::create_dir(path.join(Digest::of(b"other").to_string())).unwrap();
    let failed = registry.store_version(&name("a"), &record(b"other"), only(b"other"), None);
    assert!(
        matches!(failed, Err(RegistryError::File { .. })),
        "{failed:?}"
    );
    assert_eq!(numbers(&registry, "a"), [1]);
    let unfinished = path.join(".unfinished");
    assert!(!unfinished.exists());
    assert_eq!(store(&registry, "a", b"third"), 2);
}

#[test]
fn an_interrupted_write_leaves_no_trace() {
    let fixture = Fixture::new();
    let (directory, registry) = fixture.open();
    store(&registry, "a", b"module");
    drop((directory, registry));
    // A crash between a file and its record, and a crash within a file.
    let orphan = Digest::of(b"orphan").to_string();
    fs::write(fixture.path().join("modules").join(orphan), "orphan").unwrap();
    fs::write(fixture.path().join("modules/.unfinished"), "half").unwrap();

    let (_directory, registry) = fixture.open();
    assert_eq!(registry.functions().unwrap().len(), 1);
    assert_eq!(fixture.count("modules"), 1);
}

#[test]
fn an_incompletely_created_registry_is_created_again() {
    let fixture = Fixture::new();
    let unfinished = fixture.path().join("registry.unfinished");
    for left in [&b""[..], b"half a database"] {
        fs::create_dir_all(fixture.path()).unwrap();
        fs::write(&unfinished, left).unwrap();
        let (directory, registry) = fixture.open();
        assert!(!unfinished.exists());
        store(&registry, "a", b"module");
        drop((directory, registry));
        let (_directory, registry) = fixture.open();
        assert_eq!(numbers(&registry, "a"), [1]);
        fs::remove_file(fixture.path().join("registry.redb")).unwrap();
    }
}

#[test]
fn damaged_code_is_not_used_and_a_damaged_module_is_an_error() {
    let fixture = Fixture::new();
    let (_directory, registry) = fixture.open();
    store(&registry, "a", b"module");
    let digest = Digest::of(b"module");
    let file = artifact_file(digest, GENERATION);
    fs::write(fixture.path().join("artifacts").join(&file), "codf").unwrap();
    assert_eq!(code_of(&registry, digest, GENERATION, None), None);
    fs::remove_file(fixture.path().join("artifacts").join(&file)).unwrap();
    assert_eq!(code_of(&registry, digest, GENERATION, None), None);
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
fn an_unknown_format_is_rejected_with_a_remedy() {
    let fixture = Fixture::new();
    let (directory, registry) = fixture.open();
    let newer = registry.store.change(|change| {
        change
            .open_table(META)?
            .insert(FORMAT_KEY, FORMAT_WITH_FILES + 1)?;
        Ok(())
    });
    newer.unwrap();
    drop(registry);
    let refused = Registry::open(&directory).unwrap_err().to_string();
    assert!(
        refused.contains("format 6") && refused.contains("data directory"),
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

/// Files are stored as modules are, shared, and removed with the last version that uses them.
#[test]
fn the_files_of_a_version_stay_as_long_as_a_version_has_them() {
    let fixture = Fixture::new();
    let (directory, registry) = fixture.open();
    let bundle = b"a bundle";
    let with_files = VersionRecord {
        files: Some(FilesRecord {
            digest: Digest::of(bundle),
            bundle_bytes: bundle.len() as u64,
            entries: 1,
            bytes: 2,
        }),
        ..record(b"module")
    };
    let sent = NewVersion {
        module: b"module",
        files: Some(bundle),
    };
    for function in ["a", "b"] {
        let number = registry.store_version(&name(function), &with_files, sent, None);
        assert_eq!(number.unwrap(), 1);
    }
    assert_eq!(fixture.count("modules"), 2);
    drop((directory, registry));
    // The sweep at a start keeps the files of a version.
    let (_directory, registry) = fixture.open();
    let digest = Digest::of(bundle);
    assert_eq!(registry.module(digest).unwrap(), bundle);
    let (bytes, mut both) = registry
        .open_version(with_files.digest, Some(digest))
        .unwrap();
    let mut all = Vec::new();
    std::io::Read::read_to_end(&mut both, &mut all).unwrap();
    assert_eq!((bytes, &all[..]), (14, &b"modulea bundle"[..]));
    registry.remove_function(&name("a")).unwrap();
    assert_eq!(registry.module(digest).unwrap(), bundle);
    registry.remove_function(&name("b")).unwrap();
    assert!(registry.module(digest).is_err());
    assert_eq!(fixture.count("modules"), 0);
}

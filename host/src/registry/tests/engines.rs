//! Language engines, and the scripts that use them.

use super::*;

fn engine(module: &[u8]) -> EngineRecord {
    EngineRecord {
        digest: Digest::of(module),
        extensions: vec![Extension::new("lua").unwrap()],
        added: SystemTime::UNIX_EPOCH,
        module_bytes: module.len() as u64,
        is_carried: false,
    }
}

fn add_engine(registry: &Registry, text: &str, module: &[u8]) {
    let code = artifact(b"engine code");
    registry
        .store_engine(&name(text), &engine(module), module, new(&code))
        .unwrap();
}

/// Stores a version whose script is for the engine that was made of `module`.
fn store_script(registry: &Registry, function: &str, module: &[u8]) -> Result<u64, RegistryError> {
    let record = VersionRecord {
        engine: Some(EngineUse {
            name: name("lua"),
            digest: Digest::of(module),
        }),
        ..record(b"a script")
    };
    registry.store_version(&name(function), &record, only(b"a script"), None)
}

#[test]
fn an_engines_files_stay_while_the_engine_or_a_script_uses_them() {
    let fixture = Fixture::new();
    let (directory, registry) = fixture.open();
    assert!(registry.engines().unwrap().is_empty());
    assert!(!registry.remove_engine(&name("lua")).unwrap());
    add_engine(&registry, "lua", b"one");
    store_script(&registry, "f", b"one").unwrap();
    // A new engine replaces the first one; the script keeps the first one.
    add_engine(&registry, "lua", b"two");
    assert_eq!(registry.engines().unwrap()[&name("lua")], engine(b"two"));
    assert_eq!(
        (fixture.count("modules"), fixture.count("artifacts")),
        (3, 2)
    );
    drop((directory, registry));

    let (_directory, registry) = fixture.open();
    assert_eq!(registry.engines().unwrap()[&name("lua")], engine(b"two"));
    for module in [&b"one"[..], b"two"] {
        assert_eq!(registry.module(Digest::of(module)).unwrap(), module);
        let code = code_of(&registry, Digest::of(module), GENERATION, None);
        assert_eq!(code, Some(b"engine code".into()));
    }
    assert!(registry.remove_engine(&name("lua")).unwrap());
    assert_eq!(
        (fixture.count("modules"), fixture.count("artifacts")),
        (2, 1)
    );
    registry.remove_function(&name("f")).unwrap();
    assert_eq!(
        (fixture.count("modules"), fixture.count("artifacts")),
        (0, 0)
    );
}

#[test]
fn a_script_is_not_stored_without_its_engine() {
    let fixture = Fixture::new();
    let (_directory, registry) = fixture.open();
    add_engine(&registry, "lua", b"one");
    assert!(registry.remove_engine(&name("lua")).unwrap());
    let stored = store_script(&registry, "f", b"one");
    assert!(
        matches!(stored, Err(RegistryError::EngineGone(_))),
        "{stored:?}"
    );
    assert_eq!(
        (fixture.count("modules"), fixture.count("artifacts")),
        (0, 0)
    );
    assert!(registry.functions().unwrap().is_empty());
}

/// Versions of faasw without engines would remove an engine's files as garbage.
#[test]
fn adding_an_engine_raises_the_registry_format() {
    let fixture = Fixture::new();
    let (directory, registry) = fixture.open();
    store(&registry, "a", b"module a");
    let format = |registry: &Registry| {
        let read = |state: &redb::ReadTransaction| {
            let meta = state.open_table(META)?;
            Ok(meta.get(FORMAT_KEY)?.map(|format| format.value()))
        };
        registry.store.read(read).unwrap()
    };
    assert_eq!(format(&registry), Some(2));
    add_engine(&registry, "lua", b"one");
    assert_eq!(format(&registry), Some(3));
    drop((directory, registry));
    let (_directory, registry) = fixture.open();
    assert_eq!(registry.functions().unwrap().len(), 1);
}

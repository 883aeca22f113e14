//! Compiled code: its generation, its owner, and the pieces by which it is verified.

use super::*;
use crate::registry::record::{ArtifactRecord, PiecesRecord};

#[test]
fn code_of_another_generation_is_replaced() {
    let fixture = Fixture::new();
    let (_directory, registry) = fixture.open();
    store(&registry, "a", b"module");
    let newer = NewArtifact {
        generation: "newer",
        artifact: &artifact(b"newer code"),
    };
    let digest = Digest::of(b"module");
    registry.store_artifact(digest, newer).unwrap();
    assert_eq!(registry.artifact(digest, GENERATION, None).unwrap(), None);
    let found = code_of(&registry, digest, "newer", None);
    assert_eq!(found, Some(b"newer code".into()));
    assert_eq!(fixture.count("artifacts"), 1);
}

/// Makes the record as a version of faasw from before pieces wrote it.
fn forget_pieces(registry: &Registry, file: &str) {
    let forgotten = registry.store.change(|change| {
        let mut artifacts = change.open_table(ARTIFACTS)?;
        let mut record: serde_json::Value =
            read_record(file, artifacts.get(file)?.unwrap().value())?;
        assert!(record.as_object_mut().unwrap().remove("pieces").is_some());
        artifacts.insert(file, write_record(file, &record)?.as_slice())?;
        Ok(())
    });
    forgotten.unwrap();
}

#[test]
fn code_that_was_stored_without_pieces_is_used_and_gets_them() {
    let fixture = Fixture::new();
    let (_directory, registry) = fixture.open();
    store(&registry, "a", b"module");
    let digest = Digest::of(b"module");
    let file = artifact_file(digest, GENERATION);
    forget_pieces(&registry, &file);
    let known = registry.artifact(digest, GENERATION, None).unwrap();
    let record = registry.artifact_record(&file, None).unwrap().unwrap();
    assert!(known.is_some() && record.pieces.is_some());
    assert_eq!(registry.artifact(digest, GENERATION, None).unwrap(), known);
    forget_pieces(&registry, &file);
    assert_eq!(
        code_of(&registry, digest, GENERATION, None),
        Some(b"code".into())
    );
    forget_pieces(&registry, &file);
    fs::write(fixture.path().join("artifacts").join(&file), "codf").unwrap();
    assert_eq!(registry.artifact(digest, GENERATION, None).unwrap(), None);
    assert!(
        registry
            .code(digest, GENERATION, None, None)
            .unwrap()
            .is_none()
    );
}

#[test]
fn code_with_larger_pieces_is_used_and_gets_current_ones() {
    let fixture = Fixture::new();
    let (_directory, registry) = fixture.open();
    store(&registry, "a", b"module");
    let digest = Digest::of(b"module");
    let file = artifact_file(digest, GENERATION);
    let code: Vec<u8> = (0..300_000_u32).map(|at| (at / 4096) as u8).collect();
    let proof = CodeProof::of(&code);
    let large = PiecesRecord {
        bytes: code.len() as u64,
        digests: vec![Digest::of(&code)],
    };
    assert!(!large.has_all() && proof.pieces.has_all());
    fs::write(fixture.path().join("artifacts").join(&file), &code).unwrap();
    let written = registry.store.change(|change| {
        let mut artifacts = change.open_table(ARTIFACTS)?;
        let record: ArtifactRecord =
            read_record(&file, artifacts.get(file.as_str())?.unwrap().value())?;
        let record = ArtifactRecord {
            digest: proof.whole,
            pieces: Some(large.clone()),
            ..record
        };
        artifacts.insert(file.as_str(), write_record(&file, &record)?.as_slice())?;
        Ok(())
    });
    written.unwrap();
    let known = registry
        .artifact(digest, GENERATION, None)
        .unwrap()
        .unwrap();
    assert_eq!(known.digest, proof.digest());
    let record = registry.artifact_record(&file, None).unwrap().unwrap();
    assert_eq!(record.pieces.unwrap(), proof.pieces);
    assert_eq!(code_of(&registry, digest, GENERATION, None), Some(code));
}

#[test]
fn unused_code_is_removed_and_shared_code_stays() {
    let fixture = Fixture::new();
    let (directory, registry) = fixture.open();
    for number in 1..=KEPT + 2 {
        let module = format!("module {}", number % 4);
        assert_eq!(store(&registry, "a", module.as_bytes()), number);
    }
    store(&registry, "b", b"module 1");
    let count = || (fixture.count("modules"), fixture.count("artifacts"));
    assert_eq!(count(), (4, 4));
    drop((directory, registry));
    let (_directory, registry) = fixture.open();
    registry.remove_function(&name("a")).unwrap();
    assert_eq!(count(), (1, 1));
    registry.remove_function(&name("b")).unwrap();
    assert_eq!(count(), (0, 0));
    // A digest is counted correctly, however often a name is removed.
    registry.remove_function(&name("b")).unwrap();
    store(&registry, "c", b"module 1");
    assert_eq!(count(), (1, 1));
}

#[test]
fn private_code_is_used_by_its_function_only() {
    let fixture = Fixture::new();
    let (_directory, registry) = fixture.open();
    let code = Artifact {
        only_for: Some(name("a")),
        ..artifact(b"code")
    };
    let digest = Digest::of(b"module");
    let put = |function: &str| {
        let (name, record) = (name(function), record(b"module"));
        let stored = registry.store_version(&name, &record, only(b"module"), new(&code));
        stored.unwrap();
    };
    let found = |function: Option<&str>| {
        let function = function.map(name);
        code_of(&registry, digest, GENERATION, function.as_ref())
    };
    put("a");
    put("b");
    assert_eq!(found(Some("a")), Some(b"code".into()));
    assert_eq!((found(Some("b")), found(None)), (None, None));
    // A later function has the name, and `b` still has the module.
    registry.remove_function(&name("a")).unwrap();
    assert_eq!(found(Some("a")), None);
    let anybodys = artifact(b"anybody's code");
    let newer = NewArtifact {
        generation: GENERATION,
        artifact: &anybodys,
    };
    registry.store_artifact(digest, newer).unwrap();
    assert_eq!(found(Some("a")), Some(b"anybody's code".into()));
    assert_eq!(found(None), Some(b"anybody's code".into()));
}

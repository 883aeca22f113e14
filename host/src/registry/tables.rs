//! The store's tables, and the functions that read and write them within a transaction.

use std::collections::{BTreeMap, BTreeSet};

use faasw_client::{Digest, FunctionName};
use redb::{
    AccessGuard, ReadTransaction, ReadableTable, Table, TableDefinition, TableError,
    WriteTransaction,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    Artifact, EngineRecord, RegistryError, VersionRecord,
    record::{ArtifactRecord, FORMAT_WITH_ENGINES},
};

pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// In [`META`]: the version of tables and records.
pub(super) const FORMAT_KEY: &str = "format";
/// In [`META`]: the short digest of the base that all functions' images are made over.
pub(super) const IMAGES_KEY: &str = "images";
/// Function name → [`FunctionRecord`] as JSON.
pub(super) const FUNCTIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("functions");
/// Function name and number → [`VersionRecord`] as JSON.
pub(super) const VERSIONS: TableDefinition<'_, (&str, u64), &[u8]> =
    TableDefinition::new("versions");
/// File name below `artifacts/` → [`ArtifactRecord`] as JSON.
pub(super) const ARTIFACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("artifacts");

/// Engine name → [`EngineRecord`] as JSON. The table exists once there is an engine.
pub(super) const ENGINES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("engines");

/// Versions by number, oldest first.
pub(crate) type Versions = BTreeMap<u64, VersionRecord>;

/// Makes the tables that do not exist yet.
pub(super) fn make_tables(change: &WriteTransaction) -> Result<(), RegistryError> {
    change.open_table(FUNCTIONS)?;
    change.open_table(VERSIONS)?;
    change.open_table(ARTIFACTS)?;
    Ok(())
}

/// Adds the record of code. Returns the names of files that have no record any more.
pub(super) fn put_artifact(
    change: &WriteTransaction,
    file: &str,
    artifact: &Artifact,
) -> Result<Vec<String>, RegistryError> {
    let record = ArtifactRecord {
        kind: artifact.kind,
        imports: artifact.imports.clone(),
        has_initialiser: artifact.has_initialiser,
        only_for: artifact.only_for.clone(),
        digest: artifact.proof.whole,
        pieces: Some(artifact.proof.pieces.clone()),
    };
    let record = write_record(file, &record)?;
    let mut artifacts = change.open_table(ARTIFACTS)?;
    artifacts.insert(file, record.as_slice())?;
    // Code of the same module from a different generation is never used again.
    let mut others = Vec::new();
    if let Some(module) = digest_part(file) {
        retain_files(&mut artifacts, module, |other| {
            if other != file {
                others.push(other.to_owned());
            }
            other == file
        })?;
    }
    Ok(others)
}

/// Removes the records of those files with code of a module for which `keep` returns false.
fn retain_files(
    artifacts: &mut Table<'_, &'static str, &'static [u8]>,
    module: &str,
    mut keep: impl FnMut(&str) -> bool,
) -> Result<(), RegistryError> {
    // `.` is the character after `-`, which separates digest and generation.
    let (from, to) = (format!("{module}-"), format!("{module}."));
    artifacts.retain_in(from.as_str()..to.as_str(), |file, _| keep(file))?;
    Ok(())
}

/// Replaces the record of a file by one with more details of the same code.
pub(super) fn update_artifact(
    change: &WriteTransaction,
    file: &str,
    record: &ArtifactRecord,
) -> Result<(), RegistryError> {
    let text = write_record(file, record)?;
    let mut artifacts = change.open_table(ARTIFACTS)?;
    let before: Option<ArtifactRecord> = read_at(file, artifacts.get(file)?)?;
    // The record may have been removed meanwhile.
    if before.is_some_and(|before| before.digest == record.digest) {
        artifacts.insert(file, text.as_slice())?;
    }
    Ok(())
}

/// The part of an [`ArtifactRecord`] that is read in a search through all of them.
#[derive(Deserialize)]
struct Ownership {
    #[serde(default)]
    only_for: Option<FunctionName>,
}

/// Removes the records of code that only this function may use. Returns the names of its files.
pub(super) fn drop_artifacts_of(
    change: &WriteTransaction,
    name: &FunctionName,
) -> Result<Vec<String>, RegistryError> {
    let mut artifacts = change.open_table(ARTIFACTS)?;
    let mut dropped = Vec::new();
    for entry in artifacts.iter()? {
        let (file, record) = entry?;
        let record: Ownership = read_record(file.value(), record.value())?;
        if record.only_for.as_ref() == Some(name) {
            dropped.push(file.value().to_owned());
        }
    }
    for file in &dropped {
        artifacts.remove(file.as_str())?;
    }
    Ok(dropped)
}

/// Removes the records of the code of these modules. Returns the names of their files.
pub(super) fn drop_artifacts(
    change: &WriteTransaction,
    unused: &BTreeSet<Digest>,
) -> Result<Vec<String>, RegistryError> {
    let mut files = Vec::new();
    if unused.is_empty() {
        return Ok(files);
    }
    let mut artifacts = change.open_table(ARTIFACTS)?;
    for module in unused {
        retain_files(&mut artifacts, &module.to_string(), |file| {
            files.push(file.to_owned());
            false
        })?;
    }
    Ok(files)
}

pub(super) fn versions_of(
    versions: &impl ReadableTable<(&'static str, u64), &'static [u8]>,
    name: &FunctionName,
) -> Result<Versions, RegistryError> {
    let mut found = Versions::new();
    for entry in versions.range((name.as_str(), 0)..=(name.as_str(), u64::MAX))? {
        let (key, value) = entry?;
        found.insert(key.value().1, read_record(name.as_str(), value.value())?);
    }
    Ok(found)
}

/// Engines by name.
pub(crate) type EnginesByName = BTreeMap<FunctionName, EngineRecord>;

/// Returns all engines in a state of the store.
pub(super) fn engines_in(state: &ReadTransaction) -> Result<EnginesByName, RegistryError> {
    let mut found = EnginesByName::new();
    let engines = match state.open_table(ENGINES) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(found),
        opened => opened?,
    };
    for entry in engines.iter()? {
        let (key, value) = entry?;
        let name = key.value();
        found.insert(read_name(name)?, read_record(name, value.value())?);
    }
    Ok(found)
}

/// Whether there ever was an engine. Opening the table would create it.
pub(super) fn has_engines(change: &WriteTransaction) -> Result<bool, RegistryError> {
    Ok(format(change)? >= Some(FORMAT_WITH_ENGINES))
}

fn format(change: &WriteTransaction) -> Result<Option<u64>, RegistryError> {
    let meta = change.open_table(META)?;
    let format = meta.get(FORMAT_KEY)?;
    Ok(format.map(|format| format.value()))
}

/// Raises the format, so that earlier versions of faasw reject the registry.
pub(super) fn raise_format(change: &WriteTransaction, to: u64) -> Result<(), RegistryError> {
    if format(change)? < Some(to) {
        change.open_table(META)?.insert(FORMAT_KEY, to)?;
    }
    Ok(())
}

pub(super) fn read_name(text: &str) -> Result<FunctionName, RegistryError> {
    serde_json::from_value(text.into()).map_err(|error| RegistryError::record(text, error))
}

/// Returns the name of a file of code. The digest is first, because a sweep finds unused files by
/// it.
pub(super) fn artifact_file(module: Digest, generation: &str) -> String {
    format!("{module}-{generation}")
}

/// Returns the digest at the beginning of a file's name.
pub(super) fn digest_part(file: &str) -> Option<&str> {
    file.get(..64)
}

pub(super) fn read_record<T: DeserializeOwned>(
    key: &str,
    bytes: &[u8],
) -> Result<T, RegistryError> {
    serde_json::from_slice(bytes).map_err(|error| RegistryError::record(key, error))
}

/// Reads the record that a table has at a key, if it has one.
pub(super) fn read_at<T: DeserializeOwned>(
    key: &str,
    found: Option<AccessGuard<'_, &'static [u8]>>,
) -> Result<Option<T>, RegistryError> {
    let found = found.map(|found| read_record(key, found.value()));
    found.transpose()
}

pub(super) fn write_record(key: &str, record: &impl Serialize) -> Result<Vec<u8>, RegistryError> {
    serde_json::to_vec(record).map_err(|error| RegistryError::record(key, error))
}

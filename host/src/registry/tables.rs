//! The store's tables, and what is read from and written to them within a
//! transaction.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use faasw_control::{Digest, FunctionName};
use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Artifact, EngineRecord, RegistryError, VersionRecord,
    record::{ArtifactRecord, FORMAT_WITH_ENGINES},
};

pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// In [`META`]: the version of the rest.
pub(super) const FORMAT_KEY: &str = "format";
/// Function name → [`FunctionRecord`] as JSON.
pub(super) const FUNCTIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("functions");
/// Function name and number → [`VersionRecord`] as JSON.
pub(super) const VERSIONS: TableDefinition<'_, (&str, u64), &[u8]> =
    TableDefinition::new("versions");
/// File name below `artifacts/` → [`ArtifactRecord`] as JSON.
pub(super) const ARTIFACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("artifacts");

/// Engine name → [`EngineRecord`] as JSON; there once there is an engine.
pub(super) const ENGINES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("engines");

/// Versions by number, oldest first.
pub(crate) type Versions = BTreeMap<u64, VersionRecord>;

/// Makes the tables that are not there yet.
pub(super) fn make_tables(change: &WriteTransaction) -> Result<(), RegistryError> {
    change.open_table(FUNCTIONS)?;
    change.open_table(VERSIONS)?;
    change.open_table(ARTIFACTS)?;
    Ok(())
}

pub(super) fn put_artifact(
    change: &WriteTransaction,
    file: &str,
    artifact: &Artifact,
) -> Result<(), RegistryError> {
    let record = ArtifactRecord {
        kind: artifact.kind,
        imports: artifact.imports.clone(),
        has_initialiser: artifact.has_initialiser,
        only_for: artifact.only_for.clone(),
        digest: Digest::of(&artifact.code),
    };
    let record = write_record(file, &record)?;
    let mut artifacts = change.open_table(ARTIFACTS)?;
    artifacts.insert(file, record.as_slice())?;
    // Another generation's code of the same module is never used again.
    let of_module = digest_part(file).unwrap_or(file);
    artifacts.retain(|other, _| other == file || digest_part(other) != Some(of_module))?;
    Ok(())
}

/// The records go of code that may be this function's only.
pub(super) fn drop_artifacts_of(
    change: &WriteTransaction,
    name: &FunctionName,
) -> Result<(), RegistryError> {
    let mut artifacts = change.open_table(ARTIFACTS)?;
    let mut dropped = Vec::new();
    for entry in artifacts.iter()? {
        let (file, record) = entry?;
        let record: ArtifactRecord = read_record(file.value(), record.value())?;
        if record.only_for.as_ref() == Some(name) {
            dropped.push(file.value().to_owned());
        }
    }
    for file in dropped {
        artifacts.remove(file.as_str())?;
    }
    Ok(())
}

/// Of the digests of what went, those that no version and no engine has; the
/// records of their code go.
pub(super) fn drop_artifacts(
    change: &WriteTransaction,
    versions: &impl ReadableTable<(&'static str, u64), &'static [u8]>,
    dropped: BTreeSet<String>,
) -> Result<HashSet<String>, RegistryError> {
    if dropped.is_empty() {
        return Ok(HashSet::new());
    }
    let mut used = digests_of(versions)?;
    if has_engines(change)? {
        used.extend(digests_of_engines(&change.open_table(ENGINES)?)?);
    }
    let unused: HashSet<_> = dropped
        .into_iter()
        .filter(|digest| !used.contains(digest))
        .collect();
    change
        .open_table(ARTIFACTS)?
        .retain(|file, _| digest_part(file).is_some_and(|digest| !unused.contains(digest)))?;
    Ok(unused)
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

/// The digests of all modules that versions have.
pub(super) fn digests_of(
    versions: &impl ReadableTable<(&'static str, u64), &'static [u8]>,
) -> Result<HashSet<String>, RegistryError> {
    let mut used = HashSet::new();
    for entry in versions.iter()? {
        let (key, value) = entry?;
        let record: VersionRecord = read_record(key.value().0, value.value())?;
        used.extend(record.digests().map(|digest| digest.to_string()));
    }
    Ok(used)
}

/// Engines by name.
pub(crate) type Engines = BTreeMap<FunctionName, EngineRecord>;

/// All engines of a table.
pub(super) fn engines_of(
    engines: &impl ReadableTable<&'static str, &'static [u8]>,
) -> Result<Engines, RegistryError> {
    let mut found = Engines::new();
    for entry in engines.iter()? {
        let (key, value) = entry?;
        found.insert(
            read_name(key.value())?,
            read_record(key.value(), value.value())?,
        );
    }
    Ok(found)
}

/// The digests of all engines' components.
pub(super) fn digests_of_engines(
    engines: &impl ReadableTable<&'static str, &'static [u8]>,
) -> Result<HashSet<String>, RegistryError> {
    let engines = engines_of(engines)?;
    Ok(engines
        .values()
        .map(|record| record.digest.to_string())
        .collect())
}

/// All engines that a state of the store has.
pub(super) fn engines_in(state: &ReadTransaction) -> Result<Engines, RegistryError> {
    match state.open_table(ENGINES) {
        Ok(engines) => engines_of(&engines),
        Err(TableError::TableDoesNotExist(_)) => Ok(Engines::new()),
        Err(error) => Err(error.into()),
    }
}

/// Whether there ever was an engine. Asking for the table would make it.
pub(super) fn has_engines(change: &WriteTransaction) -> Result<bool, RegistryError> {
    let format = change
        .open_table(META)?
        .get(FORMAT_KEY)?
        .map(|format| format.value());
    Ok(format == Some(FORMAT_WITH_ENGINES))
}

/// From now on there are engines.
pub(super) fn begin_engines(change: &WriteTransaction) -> Result<(), RegistryError> {
    change
        .open_table(META)?
        .insert(FORMAT_KEY, FORMAT_WITH_ENGINES)?;
    Ok(())
}

/// Whether a version or an engine has this digest.
pub(super) fn is_used(
    change: &WriteTransaction,
    versions: &impl ReadableTable<(&'static str, u64), &'static [u8]>,
    digest: Digest,
) -> Result<bool, RegistryError> {
    let digest = digest.to_string();
    let of_engines =
        has_engines(change)? && digests_of_engines(&change.open_table(ENGINES)?)?.contains(&digest);
    Ok(of_engines || digests_of(versions)?.contains(&digest))
}

pub(super) fn read_name(text: &str) -> Result<FunctionName, RegistryError> {
    serde_json::from_value(text.into()).map_err(|error| RegistryError::record(text, error))
}

/// Digest first: garbage is told by it.
pub(super) fn artifact_file(module: Digest, generation: &str) -> String {
    format!("{module}-{generation}")
}

/// The digest that a file's name begins with.
pub(super) fn digest_part(file: &str) -> Option<&str> {
    file.get(..64)
}

pub(super) fn read_record<T: DeserializeOwned>(
    key: &str,
    bytes: &[u8],
) -> Result<T, RegistryError> {
    serde_json::from_slice(bytes).map_err(|error| RegistryError::record(key, error))
}

pub(super) fn write_record(key: &str, record: &impl Serialize) -> Result<Vec<u8>, RegistryError> {
    serde_json::to_vec(record).map_err(|error| RegistryError::record(key, error))
}

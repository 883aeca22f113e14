//! The store's tables, and what is read from and written to them within a
//! transaction.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use faasw_control::{Digest, FunctionName};
use redb::{ReadableTable, TableDefinition, WriteTransaction};
use serde::{Serialize, de::DeserializeOwned};

use super::{Artifact, RegistryError, VersionRecord, record::ArtifactRecord};

pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Function name → [`FunctionRecord`] as JSON.
pub(super) const FUNCTIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("functions");
/// Function name and number → [`VersionRecord`] as JSON.
pub(super) const VERSIONS: TableDefinition<'_, (&str, u64), &[u8]> =
    TableDefinition::new("versions");
/// File name below `artifacts/` → [`ArtifactRecord`] as JSON.
pub(super) const ARTIFACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("artifacts");

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

/// Of the digests of versions that went, those that no other version has; the
/// records of their code go.
pub(super) fn drop_artifacts(
    change: &WriteTransaction,
    versions: &impl ReadableTable<(&'static str, u64), &'static [u8]>,
    dropped: BTreeSet<String>,
) -> Result<HashSet<String>, RegistryError> {
    if dropped.is_empty() {
        return Ok(HashSet::new());
    }
    let used = digests_of(versions)?;
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
        used.insert(record.digest.to_string());
    }
    Ok(used)
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

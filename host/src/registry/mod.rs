//! The registry: functions and their artifacts, kept across restarts.
//!
//! An embedded, crash-safe store (redb) holds the records; modules and
//! compiled code are files beside it, written whole before a record names
//! them. So a crash at any moment leaves the registry as it was before or after
//! the change, plus at worst files that nothing names, which the next sweep
//! removes. Calls block; the node makes them off its async threads.

mod blobs;
mod record;

use std::{
    collections::HashSet,
    fs::File,
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use thiserror::Error;

pub(crate) use record::{FreezeRecord, FunctionRecord};

use crate::{data_dir::DataDir, digest::Digest, name::FunctionName};
use blobs::Blobs;
use record::ArtifactRecord;

/// Version of tables and records. Another one is refused, never guessed at.
const FORMAT: u64 = 1;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Function name → [`FunctionRecord`] as JSON.
const FUNCTIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("functions");
/// File name below `artifacts/` → [`ArtifactRecord`] as JSON.
const ARTIFACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("artifacts");

/// redb's page cache, in bytes. The registry is small and rarely read; the
/// default of 1 GiB is meant for databases.
const CACHE: usize = 1 << 20;

/// Why the registry failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The store failed.
    #[error("the registry's store failed: {0}")]
    Store(#[source] Box<redb::Error>),
    /// A file beside the store failed.
    #[error("the registry's file {path:?} failed: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// It was written by another version of faasw.
    #[error(
        "the registry has format {found}, this version of faasw has format {FORMAT}: use the version that wrote it, or another data directory"
    )]
    Format {
        /// The format found.
        found: u64,
    },
    /// A record makes no sense.
    #[error("the registry's record of {key:?} cannot be read: {error}")]
    Record {
        /// Its key.
        key: String,
        /// Why.
        error: serde_json::Error,
    },
    /// A module is missing or damaged.
    #[error("the stored module {0} is missing or damaged: deploy the function again")]
    Module(Digest),
    /// The registry's own thread died.
    #[error("the registry's work was interrupted")]
    Interrupted,
}

impl<E: Into<redb::Error>> From<E> for RegistryError {
    fn from(error: E) -> Self {
        Self::Store(Box::new(error.into()))
    }
}

/// Functions and artifacts of one data directory.
#[derive(Debug)]
pub(crate) struct Registry {
    database: Database,
    modules: Blobs,
    artifacts: Blobs,
    /// Held from the first file of a change to the sweep after it, so that no
    /// sweep takes a file whose record is still to come.
    changing: Mutex<()>,
}

/// Compiled code, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Artifact {
    pub(crate) kind: faasw_abi::wire::FunctionKind,
    pub(crate) code: Vec<u8>,
}

impl Registry {
    /// Opens the registry of a data directory, or begins it.
    pub(crate) fn open(directory: &DataDir) -> Result<Self, RegistryError> {
        let path = directory.database();
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| RegistryError::File { path, error })?;
        let database = Database::builder()
            .set_cache_size(CACHE)
            .create_file(file)?;
        let registry = Self {
            database,
            modules: Blobs::new(directory.modules()),
            artifacts: Blobs::new(directory.artifacts()),
            changing: Mutex::new(()),
        };
        registry.check_format()?;
        registry.sweep()?;
        Ok(registry)
    }

    fn check_format(&self) -> Result<(), RegistryError> {
        let change = self.database.begin_write()?;
        {
            let mut meta = change.open_table(META)?;
            let found = meta.get("format")?.map(|format| format.value());
            match found {
                None => {
                    meta.insert("format", FORMAT)?;
                }
                Some(FORMAT) => {}
                Some(found) => return Err(RegistryError::Format { found }),
            }
            // Readers find all tables from now on.
            change.open_table(FUNCTIONS)?;
            change.open_table(ARTIFACTS)?;
        }
        Ok(change.commit()?)
    }

    /// All functions, by name.
    pub(crate) fn functions(&self) -> Result<Vec<(FunctionName, FunctionRecord)>, RegistryError> {
        let table = self.database.begin_read()?.open_table(FUNCTIONS)?;
        let mut functions = Vec::new();
        for entry in table.iter()? {
            let (key, value) = entry?;
            let read = serde_json::from_slice(value.value())
                .and_then(|record| Ok((serde_json::from_value(key.value().into())?, record)));
            functions.push(read.map_err(|error| RegistryError::Record {
                key: key.value().into(),
                error,
            })?);
        }
        Ok(functions)
    }

    /// The module with a digest, proven to have it.
    pub(crate) fn module(&self, digest: Digest) -> Result<Vec<u8>, RegistryError> {
        self.modules
            .read(&digest.to_string())?
            .filter(|module| Digest::of(module) == digest)
            .ok_or(RegistryError::Module(digest))
    }

    /// What a module was compiled to by this generation of engine, if it is
    /// there and undamaged: anything else can be compiled again.
    pub(crate) fn artifact(
        &self,
        module: Digest,
        generation: &str,
    ) -> Result<Option<Artifact>, RegistryError> {
        let file = artifact_file(module, generation);
        let table = self.database.begin_read()?.open_table(ARTIFACTS)?;
        let Some(record) = table.get(file.as_str())? else {
            return Ok(None);
        };
        let record: ArtifactRecord = read_record(&file, record.value())?;
        let code = self.artifacts.read(&file)?;
        let sound = code.filter(|code| Digest::of(code) == record.digest);
        if sound.is_none() {
            tracing::warn!(
                file,
                "stored code is missing or damaged; it is compiled again"
            );
        }
        Ok(sound.map(|code| Artifact {
            kind: record.kind,
            code,
        }))
    }

    /// Stores compiled code. It stays while a function has the module; the
    /// next sweep removes it if none gets it.
    pub(crate) fn store_artifact(
        &self,
        module: Digest,
        generation: &str,
        artifact: &Artifact,
    ) -> Result<(), RegistryError> {
        let _changing = self.changing();
        let file = artifact_file(module, generation);
        let record = ArtifactRecord {
            kind: artifact.kind,
            digest: Digest::of(&artifact.code),
        };
        self.artifacts.write(&file, &artifact.code)?;
        let record = write_record(&file, &record)?;
        let change = self.database.begin_write()?;
        change
            .open_table(ARTIFACTS)?
            .insert(file.as_str(), record.as_slice())?;
        Ok(change.commit()?)
    }

    /// Makes `record` the function of that name, in place of any other.
    pub(crate) fn store_function(
        &self,
        name: &FunctionName,
        record: &FunctionRecord,
        module: &[u8],
    ) -> Result<(), RegistryError> {
        let _changing = self.changing();
        self.modules.write(&record.digest.to_string(), module)?;
        let bytes = write_record(name.as_str(), record)?;
        let change = self.database.begin_write()?;
        change
            .open_table(FUNCTIONS)?
            .insert(name.as_str(), bytes.as_slice())?;
        change.commit()?;
        self.sweep_if_possible();
        Ok(())
    }

    /// Forgets a function.
    pub(crate) fn remove_function(&self, name: &FunctionName) -> Result<(), RegistryError> {
        let _changing = self.changing();
        let change = self.database.begin_write()?;
        change.open_table(FUNCTIONS)?.remove(name.as_str())?;
        change.commit()?;
        self.sweep_if_possible();
        Ok(())
    }

    /// A change is done when it is committed; what cannot be swept after it
    /// waits for the next sweep.
    fn sweep_if_possible(&self) {
        if let Err(error) = self.sweep() {
            tracing::warn!(%error, "unused files of the registry stay for now");
        }
    }

    /// Removes modules and artifacts that no function uses.
    fn sweep(&self) -> Result<(), RegistryError> {
        let used: HashSet<String> = self
            .functions()?
            .into_iter()
            .map(|(_, record)| record.digest.to_string())
            .collect();
        let is_used = |file: &str| file.get(..64).is_some_and(|digest| used.contains(digest));
        let change = self.database.begin_write()?;
        change
            .open_table(ARTIFACTS)?
            .retain(|file, _| is_used(file))?;
        change.commit()?;
        // Records first: a record without its file is harmless, but a file
        // without a record would never be looked for again.
        self.modules.retain(is_used)?;
        self.artifacts.retain(is_used)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        // It guards no data: a panic elsewhere leaves nothing half done here.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Digest first: the sweep goes by it.
fn artifact_file(module: Digest, generation: &str) -> String {
    format!("{module}-{generation}")
}

fn read_record<T: serde::de::DeserializeOwned>(
    key: &str,
    bytes: &[u8],
) -> Result<T, RegistryError> {
    serde_json::from_slice(bytes).map_err(|error| record_error(key, error))
}

fn write_record(key: &str, record: &impl serde::Serialize) -> Result<Vec<u8>, RegistryError> {
    serde_json::to_vec(record).map_err(|error| record_error(key, error))
}

fn record_error(key: &str, error: serde_json::Error) -> RegistryError {
    RegistryError::Record {
        key: key.into(),
        error,
    }
}

#[cfg(test)]
mod tests;

//! The registry: functions, their versions and artifacts, kept across restarts.
//!
//! An embedded, crash-safe store (redb) holds the records. Modules and compiled code are files
//! beside it, and each is complete before a record names it. Each change is one transaction. So a
//! crash at any moment leaves the registry as it was before or after the change, plus at worst
//! files without a record. The next start removes these (docs/decisions/0010). Calls block; the
//! node makes them off its async threads.

mod artifacts;
mod blobs;
mod caches;
mod engines;
mod error;
mod modules;
mod record;
mod reserve;
mod secrets;
mod store;
mod tables;
mod uses;

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redb::ReadableTable as _;

pub use error::RegistryError;
pub(crate) use record::{
    Artifact, ArtifactRecord, CodeProof, EngineRecord, FilesRecord, FreezeRecord, NewArtifact,
    NewVersion, StoredArtifact, VersionRecord,
};

use faasw_client::{Digest, FunctionName};
use faasw_pool::{ImageId, TrustedFolder};

use crate::data_dir::DataDir;
use blobs::{Blobs, InMemory};
use caches::Caches;
use record::{FORMAT_WITH_FILES, FunctionRecord};
use reserve::DiskReserve;
use secrets::drop_secrets;
use store::Store;
use tables::{
    ARTIFACTS, FUNCTIONS, IMAGES_KEY, META, VERSIONS, digest_part, drop_artifacts,
    drop_artifacts_of, put_artifact, raise_format, read_at, read_name, read_record, versions_of,
    write_record,
};
pub(crate) use tables::{EnginesByName, Versions};
use uses::{DigestUses, UseChange};

/// The number of versions of a function that are kept, the current one included.
const KEPT: u64 = 10;

/// The number of versions that a node without a data directory keeps. There each version occupies
/// memory for a module and its code.
const KEPT_IN_MEMORY: u64 = 2;

/// Functions and artifacts of one data directory.
#[derive(Debug)]
pub(crate) struct Registry {
    store: Store,
    modules: Blobs,
    artifacts: Blobs,
    caches: Caches,
    reserve: DiskReserve,
    kept: u64,
    /// Changes together with the store, while `changing` is held.
    uses: Mutex<DigestUses>,
    /// Held from the first file of a change until its garbage is removed, so that no other change
    /// removes a file whose record is not written yet.
    changing: Mutex<()>,
}

impl Registry {
    /// Opens the registry of a data directory, or creates it.
    pub(crate) fn open(directory: &DataDir) -> Result<Self, RegistryError> {
        let registry = Self {
            store: Store::open(directory.database())?,
            modules: Blobs::Folder(directory.modules()),
            artifacts: Blobs::Folder(directory.artifacts()),
            caches: Caches::in_folder(directory.compiled()),
            reserve: DiskReserve::new(directory.reserve()),
            kept: KEPT,
            uses: Mutex::default(),
            changing: Mutex::new(()),
        };
        registry.sweep()?;
        let names = registry.names()?;
        registry.caches.retain(|cached| names.contains(cached));
        Ok(registry)
    }

    /// Creates a registry that ends with the process. If there is a `given` folder with code,
    /// [`Registry::register_given_code`] makes code in it known.
    pub(crate) fn in_memory(given: Option<Arc<TrustedFolder>>) -> Result<Self, RegistryError> {
        Ok(Self {
            store: Store::in_memory()?,
            modules: Blobs::Memory(InMemory::default()),
            artifacts: Blobs::Memory(InMemory::with(given)),
            caches: Caches::in_memory(),
            reserve: DiskReserve::none(),
            kept: KEPT_IN_MEMORY,
            uses: Mutex::default(),
            changing: Mutex::new(()),
        })
    }

    fn names(&self) -> Result<HashSet<String>, RegistryError> {
        self.store.read(|state| {
            let mut names = HashSet::new();
            for entry in state.open_table(FUNCTIONS)?.iter()? {
                names.insert(entry?.0.value().to_owned());
            }
            Ok(names)
        })
    }

    /// Returns all functions by name, each with the number and the record of its current version.
    pub(crate) fn functions(
        &self,
    ) -> Result<Vec<(FunctionName, u64, VersionRecord)>, RegistryError> {
        self.store.read(|state| {
            let functions = state.open_table(FUNCTIONS)?;
            let versions = state.open_table(VERSIONS)?;
            let mut all = Vec::new();
            for entry in functions.iter()? {
                let (key, value) = entry?;
                let text = key.value();
                let name = read_name(text)?;
                let FunctionRecord { current, .. } = read_record(text, value.value())?;
                let missing = || RegistryError::VersionMissing {
                    name: text.into(),
                    version: current,
                };
                let record = versions.get((text, current))?.ok_or_else(missing)?;
                let record = read_record(text, record.value())?;
                all.push((name, current, record));
            }
            Ok(all)
        })
    }

    /// Returns the stored versions of a function, or none if it is unknown.
    pub(crate) fn versions(&self, name: &FunctionName) -> Result<Versions, RegistryError> {
        self.store.read(|state| {
            let versions = state.open_table(VERSIONS)?;
            versions_of(&versions, name)
        })
    }

    /// Returns the module with a digest, after checking the digest.
    pub(crate) fn module(&self, digest: Digest) -> Result<Vec<u8>, RegistryError> {
        self.sound_module(digest)?
            .ok_or(RegistryError::Module(digest))
    }

    fn sound_module(&self, digest: Digest) -> Result<Option<Vec<u8>>, RegistryError> {
        let module = self.modules.read(&digest.to_string())?;
        Ok(module.filter(|module| Digest::of(module) == digest))
    }

    /// Returns the short digest of the base that all functions' images are made over, if all are
    /// known to be.
    pub(crate) fn image_base(&self) -> Result<Option<u64>, RegistryError> {
        self.store.read(|state| {
            let over = state.open_table(META)?.get(IMAGES_KEY)?;
            Ok(over.map(|over| over.value()))
        })
    }

    /// Records that all functions' images are made over this base.
    pub(crate) fn record_image_base(&self, over: u64) -> Result<(), RegistryError> {
        let _changing = self.changing();
        self.store.change(|change| {
            change.open_table(META)?.insert(IMAGES_KEY, over)?;
            Ok(())
        })
    }

    /// Adds a version to a function, makes it the current one and returns its number. The oldest
    /// versions beyond the number of kept ones are removed.
    pub(crate) fn store_version(
        &self,
        name: &FunctionName,
        record: &VersionRecord,
        sent: NewVersion<'_>,
        new: Option<NewArtifact<'_>>,
    ) -> Result<u64, RegistryError> {
        let _changing = self.changing();
        let mut stored = self.add_version(name, record, sent, new);
        if matches!(stored, Err(RegistryError::NoSpace)) && self.caches.clear() {
            stored = self.add_version(name, record, sent, new);
        }
        stored.inspect_err(|_| self.sweep_after_failure())
    }

    /// Removes files that were written for a record that was not stored.
    fn sweep_after_failure(&self) {
        if let Err(error) = self.sweep() {
            tracing::warn!(%error, "files that no record names stay until the next start");
        }
    }

    fn add_version(
        &self,
        name: &FunctionName,
        record: &VersionRecord,
        sent: NewVersion<'_>,
        new: Option<NewArtifact<'_>>,
    ) -> Result<u64, RegistryError> {
        let files = record.files.as_ref().map(|files| files.digest);
        let blobs = [(record.digest, sent.module)].into_iter();
        for (digest, content) in blobs.chain(files.zip(sent.files)) {
            if self.sound_module(digest)?.is_none() {
                self.modules.write(&digest.to_string(), content)?;
            }
        }
        let artifact = new.map(|new| self.write_artifact(record.digest, new));
        let artifact = artifact.transpose()?;
        let uses = self.uses();
        let (number, unused, code, use_change) = self.store.change(|change| {
            let mut code = match &artifact {
                Some((file, artifact)) => put_artifact(change, file, artifact)?,
                None => Vec::new(),
            };
            if files.is_some() {
                raise_format(change, FORMAT_WITH_FILES)?;
            }
            let mut versions = change.open_table(VERSIONS)?;
            let mut functions = change.open_table(FUNCTIONS)?;
            let before: Option<FunctionRecord> =
                read_at(name.as_str(), functions.get(name.as_str())?)?;
            if let Some(engine) = &record.engine
                && !uses.has(engine.digest)
            {
                return Err(RegistryError::EngineGone(engine.name.clone()));
            }
            let number = before.map_or(1, |before| before.newest + 1);
            let text = write_record(name.as_str(), record)?;
            versions.insert((name.as_str(), number), text.as_slice())?;
            let function = FunctionRecord {
                current: number,
                newest: number,
            };
            let function = write_record(name.as_str(), &function)?;
            functions.insert(name.as_str(), function.as_slice())?;
            drop(functions);

            let kept = versions_of(&versions, name)?;
            let mut use_change = UseChange {
                added: record.digests().collect(),
                ..UseChange::default()
            };
            let beyond = kept
                .len()
                .saturating_sub(usize::try_from(self.kept).unwrap_or(usize::MAX));
            for (old, record) in kept.into_iter().take(beyond) {
                versions.remove((name.as_str(), old))?;
                use_change.dropped.extend(record.digests());
            }
            let unused = uses.unused_after(&use_change);
            code.extend(drop_artifacts(change, &unused)?);
            Ok((number, unused, code, use_change))
        })?;
        self.finish_change(uses, use_change, unused, code);
        Ok(number)
    }

    /// Makes a stored version the current one. Returns false if that version does not exist (any
    /// more) with exactly this `record`.
    pub(crate) fn roll_back(
        &self,
        name: &FunctionName,
        version: u64,
        record: &VersionRecord,
    ) -> Result<bool, RegistryError> {
        let _changing = self.changing();
        self.reserve
            .with_space_released(|| self.move_pointer(name, version, record))
    }

    fn move_pointer(
        &self,
        name: &FunctionName,
        version: u64,
        record: &VersionRecord,
    ) -> Result<bool, RegistryError> {
        self.store.change(|change| {
            let versions = change.open_table(VERSIONS)?;
            let mut functions = change.open_table(FUNCTIONS)?;
            let before = read_at(name.as_str(), functions.get(name.as_str())?)?;
            let Some(FunctionRecord { newest, .. }) = before else {
                return Ok(false);
            };
            let found = versions.get((name.as_str(), version))?;
            let found: Option<VersionRecord> = read_at(name.as_str(), found)?;
            if found.as_ref() != Some(record) {
                return Ok(false);
            }
            let function = FunctionRecord {
                current: version,
                newest,
            };
            let function = write_record(name.as_str(), &function)?;
            functions.insert(name.as_str(), function.as_slice())?;
            Ok(true)
        })
    }

    /// Removes a function and all its versions.
    pub(crate) fn remove_function(&self, name: &FunctionName) -> Result<(), RegistryError> {
        let _changing = self.changing();
        self.reserve
            .with_space_released(|| self.drop_function(name))?;
        self.caches.forget(name);
        Ok(())
    }

    /// Returns the compile cache of a function by this generation of the engine.
    pub(crate) fn compile_cache(&self, name: &FunctionName, generation: &str) -> Option<Vec<u8>> {
        self.caches.read(name, generation)
    }

    /// Stores a compile cache for the next compilation of the same function, which must exist. If
    /// storing fails, the next compilation takes longer.
    pub(crate) fn store_compile_cache(&self, name: &FunctionName, generation: &str, cache: &[u8]) {
        let _changing = self.changing();
        self.caches.write(name, generation, cache);
    }

    /// Returns the identifiers of the func-images of all versions of a function.
    pub(crate) fn images_of(&self, name: &FunctionName) -> Result<Vec<ImageId>, RegistryError> {
        let versions = self.versions(name)?;
        Ok(versions.values().map(|record| record.image(name)).collect())
    }

    /// Removes the compile cache of a function.
    pub(crate) fn forget_compile_cache(&self, name: &FunctionName) {
        let _changing = self.changing();
        self.caches.forget(name);
    }

    fn drop_function(&self, name: &FunctionName) -> Result<(), RegistryError> {
        let uses = self.uses();
        let (unused, files, use_change) = self.store.change(|change| {
            change.open_table(FUNCTIONS)?.remove(name.as_str())?;
            let mut versions = change.open_table(VERSIONS)?;
            let mut use_change = UseChange::default();
            for (number, record) in versions_of(&versions, name)? {
                versions.remove((name.as_str(), number))?;
                use_change.dropped.extend(record.digests());
            }
            // A later function of the same name may have another owner.
            drop_secrets(change, name)?;
            let mut files = drop_artifacts_of(change, name)?;
            let unused = uses.unused_after(&use_change);
            files.extend(drop_artifacts(change, &unused)?);
            Ok((unused, files, use_change))
        })?;
        self.finish_change(uses, use_change, unused, files);
        Ok(())
    }

    /// Counts the digests of a committed change, and removes the files that it leaves unused.
    fn finish_change(
        &self,
        mut uses: MutexGuard<'_, DigestUses>,
        change: UseChange,
        unused: BTreeSet<Digest>,
        code: Vec<String>,
    ) {
        uses.apply(change);
        drop(uses);
        self.collect(unused, code);
    }

    /// Removes modules and files of code that are unused after a committed change. Files that
    /// cannot be removed now are removed at the next start.
    fn collect(&self, modules: impl IntoIterator<Item = Digest>, code: Vec<String>) {
        let modules = modules.into_iter();
        let modules = modules.map(|module| self.modules.remove(&module.to_string()));
        let code = code.iter().map(|file| self.artifacts.remove(file));
        for removed in modules.chain(code) {
            if let Err(error) = removed {
                tracing::warn!(%error, "an unused file of the registry stays until the next start");
            }
        }
    }

    /// Removes modules and artifacts that no version and no engine uses.
    fn sweep(&self) -> Result<(), RegistryError> {
        let (uses, unused, artifacts) = self.store.read(|state| {
            let uses = DigestUses::of(state)?;
            let mut unused = Vec::new();
            let mut artifacts = HashSet::new();
            for entry in state.open_table(ARTIFACTS)?.iter()? {
                let (file, _) = entry?;
                let file = file.value();
                let module = digest_part(file).and_then(|digest| digest.parse().ok());
                if module.is_some_and(|module| uses.has(module)) {
                    artifacts.insert(file.to_owned());
                } else {
                    unused.push(file.to_owned());
                }
            }
            Ok((uses, unused, artifacts))
        })?;
        // Records first: a record without its file is harmless, but a file without a record would
        // never be found again.
        if !unused.is_empty() {
            self.store.change(|change| {
                let mut table = change.open_table(ARTIFACTS)?;
                for file in &unused {
                    table.remove(file.as_str())?;
                }
                Ok(())
            })?;
        }
        let is_used = |file: &str| file.parse().is_ok_and(|module| uses.has(module));
        self.modules.retain(is_used)?;
        self.artifacts.retain(|file| artifacts.contains(file))?;
        *self.uses() = uses;
        Ok(())
    }

    fn uses(&self) -> MutexGuard<'_, DigestUses> {
        // The lock's holders do not panic while they change the data.
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        // The lock guards no data, so a panic elsewhere leaves no partial change.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a module without files.
#[cfg(test)]
fn only(module: &[u8]) -> NewVersion<'_> {
    NewVersion {
        module,
        files: None,
    }
}

#[cfg(test)]
mod many;
#[cfg(test)]
mod tests;

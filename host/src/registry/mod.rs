//! The registry: functions, their versions and artifacts, kept across restarts.
//!
//! An embedded, crash-safe store (redb) holds the records; modules and
//! compiled code are files beside it, written whole before a record names
//! them. Each change is one transaction, so a crash at any moment leaves the
//! registry as it was before or after it, plus at worst files that nothing
//! names, which the next start removes (docs/decisions/0010). Calls block; the
//! node makes them off its async threads.

mod blobs;
mod caches;
mod engines;
mod error;
mod record;
mod reserve;
mod store;
mod tables;

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use redb::ReadableTable as _;

pub use error::RegistryError;
pub(crate) use record::{Artifact, EngineRecord, FreezeRecord, NewArtifact, VersionRecord};

use faasw_control::{Digest, FunctionName};
use faasw_pool::ImageId;

use crate::data_dir::DataDir;
use blobs::Blobs;
use caches::Caches;
use record::{ArtifactRecord, FunctionRecord};
use reserve::Reserve;
use store::Store;
use tables::{
    ARTIFACTS, FUNCTIONS, VERSIONS, artifact_file, digest_part, digests_of, drop_artifacts,
    drop_artifacts_of, engines_in, is_used, put_artifact, read_name, read_record, versions_of,
    write_record,
};
pub(crate) use tables::{Engines, Versions};

/// Versions of a function that are kept, the current one included.
const KEPT: u64 = 10;

/// The same in memory, where each costs a module and its code.
const KEPT_IN_MEMORY: u64 = 2;

/// Functions and artifacts of one data directory.
#[derive(Debug)]
pub(crate) struct Registry {
    store: Store,
    modules: Blobs,
    artifacts: Blobs,
    caches: Caches,
    reserve: Reserve,
    kept: u64,
    /// Held from the first file of a change to the end of its garbage, so that
    /// nothing takes a file whose record is still to come.
    changing: Mutex<()>,
}

impl Registry {
    /// Opens the registry of a data directory, or begins it.
    pub(crate) fn open(directory: &DataDir) -> Result<Self, RegistryError> {
        let registry = Self {
            store: Store::open(directory.database())?,
            modules: Blobs::Folder(directory.modules()),
            artifacts: Blobs::Folder(directory.artifacts()),
            caches: Caches::in_folder(directory.compiled()),
            reserve: Reserve::new(directory.reserve()),
            kept: KEPT,
            changing: Mutex::new(()),
        };
        registry.sweep()?;
        let functions = registry.functions()?;
        registry.caches.retain(|cached| {
            let mut names = functions.iter().map(|(name, _, _)| name.as_str());
            names.any(|name| name == cached)
        });
        Ok(registry)
    }

    /// Begins a registry that ends with the process.
    pub(crate) fn in_memory() -> Result<Self, RegistryError> {
        Ok(Self {
            store: Store::in_memory()?,
            modules: Blobs::Memory(Mutex::default()),
            artifacts: Blobs::Memory(Mutex::default()),
            caches: Caches::in_memory(),
            reserve: Reserve::none(),
            kept: KEPT_IN_MEMORY,
            changing: Mutex::new(()),
        })
    }

    /// All functions, by name, each with its current version's number and record.
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

    /// The versions of a function that are kept; none of an unknown one.
    pub(crate) fn versions(&self, name: &FunctionName) -> Result<Versions, RegistryError> {
        self.store.read(|state| {
            let versions = state.open_table(VERSIONS)?;
            versions_of(&versions, name)
        })
    }

    /// The module with a digest, proven to have it.
    pub(crate) fn module(&self, digest: Digest) -> Result<Vec<u8>, RegistryError> {
        self.sound_module(digest)?
            .ok_or(RegistryError::Module(digest))
    }

    fn sound_module(&self, digest: Digest) -> Result<Option<Vec<u8>>, RegistryError> {
        let module = self.modules.read(&digest.to_string())?;
        Ok(module.filter(|module| Digest::of(module) == digest))
    }

    /// What a module was compiled to by this generation of engine, if it is there, undamaged,
    /// and may be this function's code, or any engine's where none is named: anything else can
    /// be compiled again.
    pub(crate) fn artifact(
        &self,
        module: Digest,
        generation: &str,
        function: Option<&FunctionName>,
    ) -> Result<Option<Artifact>, RegistryError> {
        let file = artifact_file(module, generation);
        let record = self.store.read(|state| {
            let artifacts = state.open_table(ARTIFACTS)?;
            let Some(record) = artifacts.get(file.as_str())? else {
                return Ok(None);
            };
            read_record::<ArtifactRecord>(&file, record.value()).map(Some)
        })?;
        let is_for = |record: &ArtifactRecord| {
            record.only_for.is_none() || record.only_for.as_ref() == function
        };
        let Some(record) = record.filter(is_for) else {
            return Ok(None);
        };
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
            imports: record.imports,
            has_initialiser: record.has_initialiser,
            only_for: record.only_for,
            code,
        }))
    }

    /// Stores what a version's module was compiled to anew, in place of what
    /// other generations made of it.
    pub(crate) fn store_artifact(
        &self,
        module: Digest,
        new: NewArtifact<'_>,
    ) -> Result<(), RegistryError> {
        let _changing = self.changing();
        let file = self.write_artifact(module, new)?;
        self.store
            .change(|change| put_artifact(change, &file, new.artifact))?;
        let of_module = format!("{module}-");
        self.collect(|other| other == file || !other.starts_with(&of_module));
        Ok(())
    }

    /// Adds a version to a name and makes it the current one. Returns its
    /// number. What is beyond the versions that are kept goes.
    pub(crate) fn store_version(
        &self,
        name: &FunctionName,
        record: &VersionRecord,
        module: &[u8],
        new: Option<NewArtifact<'_>>,
    ) -> Result<u64, RegistryError> {
        let _changing = self.changing();
        let mut stored = self.add_version(name, record, module, new);
        if matches!(stored, Err(RegistryError::NoSpace)) && self.caches.clear() {
            stored = self.add_version(name, record, module, new);
        }
        match &stored {
            Ok((_, unused)) => self.collect_digests(unused),
            // Files that were written for a record that did not come.
            Err(_) => {
                if let Err(error) = self.sweep() {
                    tracing::warn!(%error, "files of a failed deployment stay until the next start");
                }
            }
        }
        stored.map(|(number, _)| number)
    }

    fn add_version(
        &self,
        name: &FunctionName,
        record: &VersionRecord,
        module: &[u8],
        new: Option<NewArtifact<'_>>,
    ) -> Result<(u64, HashSet<String>), RegistryError> {
        if self.sound_module(record.digest)?.is_none() {
            self.modules.write(&record.digest.to_string(), module)?;
        }
        let artifact = match new {
            Some(new) => Some((self.write_artifact(record.digest, new)?, new.artifact)),
            None => None,
        };
        self.store.change(|change| {
            if let Some((file, artifact)) = &artifact {
                put_artifact(change, file, artifact)?;
            }
            let mut versions = change.open_table(VERSIONS)?;
            let mut functions = change.open_table(FUNCTIONS)?;
            let before = functions
                .get(name.as_str())?
                .map(|before| read_record::<FunctionRecord>(name.as_str(), before.value()))
                .transpose()?;
            if let Some(engine) = &record.engine
                && !is_used(change, &versions, engine.digest)?
            {
                return Err(RegistryError::EngineGone(engine.name.clone()));
            }
            let number = before.map_or(1, |before| before.newest + 1);
            let record = write_record(name.as_str(), record)?;
            versions.insert((name.as_str(), number), record.as_slice())?;
            let function = FunctionRecord {
                current: number,
                newest: number,
            };
            let function = write_record(name.as_str(), &function)?;
            functions.insert(name.as_str(), function.as_slice())?;
            drop(functions);

            let kept = versions_of(&versions, name)?;
            let mut dropped = BTreeSet::new();
            let beyond = kept
                .len()
                .saturating_sub(usize::try_from(self.kept).unwrap_or(usize::MAX));
            for (old, record) in kept.into_iter().take(beyond) {
                versions.remove((name.as_str(), old))?;
                dropped.extend(record.digests().map(|digest| digest.to_string()));
            }
            let unused = drop_artifacts(change, &versions, dropped)?;
            Ok((number, unused))
        })
    }

    /// Makes a kept version the current one. Returns false when it is not
    /// there (any more) as `record` has it.
    pub(crate) fn roll_back(
        &self,
        name: &FunctionName,
        version: u64,
        record: &VersionRecord,
    ) -> Result<bool, RegistryError> {
        let _changing = self.changing();
        self.reserve
            .spend(|| self.move_pointer(name, version, record))
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
            let before = functions
                .get(name.as_str())?
                .map(|before| read_record::<FunctionRecord>(name.as_str(), before.value()))
                .transpose()?;
            let Some(before) = before else {
                return Ok(false);
            };
            let found = versions
                .get((name.as_str(), version))?
                .map(|found| read_record::<VersionRecord>(name.as_str(), found.value()))
                .transpose()?;
            if found.as_ref() != Some(record) {
                return Ok(false);
            }
            let function = FunctionRecord {
                current: version,
                ..before
            };
            let function = write_record(name.as_str(), &function)?;
            functions.insert(name.as_str(), function.as_slice())?;
            Ok(true)
        })
    }

    /// Forgets a function and all its versions.
    pub(crate) fn remove_function(&self, name: &FunctionName) -> Result<(), RegistryError> {
        let _changing = self.changing();
        let unused = self.reserve.spend(|| self.drop_function(name))?;
        self.collect_digests(&unused);
        self.caches.forget(name);
        Ok(())
    }

    /// What was kept of the last compilation of a function by this generation of engine.
    pub(crate) fn compile_cache(&self, name: &FunctionName, generation: &str) -> Option<Vec<u8>> {
        self.caches.read(name, generation)
    }

    /// Keeps something of a compilation for the next one of the same function, which must be
    /// there; where that fails, the next one takes longer.
    pub(crate) fn keep_compile_cache(&self, name: &FunctionName, generation: &str, cache: &[u8]) {
        let _changing = self.changing();
        self.caches.write(name, generation, cache);
    }

    /// What the func-images of the versions that serve are named by.
    pub(crate) fn images(&self) -> Result<Vec<ImageId>, RegistryError> {
        let functions = self.functions()?.into_iter();
        Ok(functions
            .map(|(name, _, record)| record.image(&name))
            .collect())
    }

    /// The same of all of one function's versions.
    pub(crate) fn images_of(&self, name: &FunctionName) -> Result<Vec<ImageId>, RegistryError> {
        let versions = self.versions(name)?;
        Ok(versions.values().map(|record| record.image(name)).collect())
    }

    /// Removes that.
    pub(crate) fn forget_compile_cache(&self, name: &FunctionName) {
        let _changing = self.changing();
        self.caches.forget(name);
    }

    fn drop_function(&self, name: &FunctionName) -> Result<HashSet<String>, RegistryError> {
        self.store.change(|change| {
            change.open_table(FUNCTIONS)?.remove(name.as_str())?;
            let mut versions = change.open_table(VERSIONS)?;
            let mut dropped = BTreeSet::new();
            for (number, record) in versions_of(&versions, name)? {
                versions.remove((name.as_str(), number))?;
                dropped.extend(record.digests().map(|digest| digest.to_string()));
            }
            // Whoever has the name next is somebody else.
            drop_artifacts_of(change, name)?;
            drop_artifacts(change, &versions, dropped)
        })
    }

    fn write_artifact(
        &self,
        module: Digest,
        new: NewArtifact<'_>,
    ) -> Result<String, RegistryError> {
        let file = artifact_file(module, new.generation);
        self.artifacts.write(&file, &new.artifact.code)?;
        Ok(file)
    }

    /// Removes what belongs to modules that nothing uses any more.
    fn collect_digests(&self, unused: &HashSet<String>) {
        if !unused.is_empty() {
            self.collect(|file| digest_part(file).is_some_and(|digest| !unused.contains(digest)));
        }
    }

    /// Removes files. A change is done when it is committed; what cannot be
    /// removed after it waits for the next start.
    fn collect(&self, keep: impl Fn(&str) -> bool) {
        let removed = self
            .modules
            .retain(&keep)
            .and_then(|()| self.artifacts.retain(&keep));
        if let Err(error) = removed {
            tracing::warn!(%error, "unused files of the registry stay until the next start");
        }
    }

    /// Removes modules and artifacts that no version and no engine uses.
    fn sweep(&self) -> Result<(), RegistryError> {
        let (used, unused, artifacts) = self.store.read(|state| {
            let mut used = digests_of(&state.open_table(VERSIONS)?)?;
            let engines = engines_in(state)?;
            used.extend(engines.values().map(|record| record.digest.to_string()));
            let mut unused = Vec::new();
            let mut artifacts = HashSet::new();
            for entry in state.open_table(ARTIFACTS)?.iter()? {
                let (file, _) = entry?;
                let file = file.value();
                if digest_part(file).is_some_and(|digest| used.contains(digest)) {
                    artifacts.insert(file.to_owned());
                } else {
                    unused.push(file.to_owned());
                }
            }
            Ok((used, unused, artifacts))
        })?;
        // Records first: a record without its file is harmless, but a file
        // without a record would never be looked for again.
        if !unused.is_empty() {
            self.store.change(|change| {
                let mut table = change.open_table(ARTIFACTS)?;
                for file in &unused {
                    table.remove(file.as_str())?;
                }
                Ok(())
            })?;
        }
        self.modules.retain(|file| used.contains(file))?;
        self.artifacts.retain(|file| artifacts.contains(file))
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        // It guards no data: a panic elsewhere leaves nothing half done here.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

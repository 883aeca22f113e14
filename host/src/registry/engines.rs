//! Language engines in the registry. Their components and code are files like those of
//! functions, and stay as long as an engine or a script's version has them.

use std::collections::{BTreeSet, HashSet};

use faasw_control::FunctionName;

use super::{
    EngineRecord, Engines, NewArtifact, Registry, RegistryError,
    tables::{
        ENGINES, VERSIONS, begin_engines, drop_artifacts, engines_in, has_engines, put_artifact,
        read_record, write_record,
    },
};

impl Registry {
    /// All engines, by name.
    pub(crate) fn engines(&self) -> Result<Engines, RegistryError> {
        self.store.read(engines_in)
    }

    /// Adds an engine, in place of the one of its name.
    pub(crate) fn store_engine(
        &self,
        name: &FunctionName,
        record: &EngineRecord,
        module: &[u8],
        new: Option<NewArtifact<'_>>,
    ) -> Result<(), RegistryError> {
        let _changing = self.changing();
        let stored = self.add_engine(name, record, module, new);
        match &stored {
            Ok(unused) => self.collect_digests(unused),
            // Files that were written for a record that did not come.
            Err(_) => {
                if let Err(error) = self.sweep() {
                    tracing::warn!(%error, "files of an engine that was not added stay until the next start");
                }
            }
        }
        stored.map(drop)
    }

    fn add_engine(
        &self,
        name: &FunctionName,
        record: &EngineRecord,
        module: &[u8],
        new: Option<NewArtifact<'_>>,
    ) -> Result<HashSet<String>, RegistryError> {
        if self.sound_module(record.digest)?.is_none() {
            self.modules.write(&record.digest.to_string(), module)?;
        }
        let artifact = match new {
            Some(new) => Some((self.write_artifact(record.digest, new)?, new.artifact)),
            None => None,
        };
        self.store.change(|change| {
            begin_engines(change)?;
            if let Some((file, artifact)) = &artifact {
                put_artifact(change, file, artifact)?;
            }
            let text = write_record(name.as_str(), record)?;
            let before: Option<EngineRecord> = change
                .open_table(ENGINES)?
                .insert(name.as_str(), text.as_slice())?
                .map(|before| read_record(name.as_str(), before.value()))
                .transpose()?;
            let dropped = before.map(|before| before.digest.to_string());
            let dropped = BTreeSet::from_iter(dropped);
            drop_artifacts(change, &change.open_table(VERSIONS)?, dropped)
        })
    }

    /// Forgets an engine; says whether there was one. What scripts need of it stays.
    pub(crate) fn remove_engine(&self, name: &FunctionName) -> Result<bool, RegistryError> {
        let _changing = self.changing();
        let removed = self.reserve.spend(|| self.drop_engine(name))?;
        if let Some(unused) = &removed {
            self.collect_digests(unused);
        }
        Ok(removed.is_some())
    }

    fn drop_engine(&self, name: &FunctionName) -> Result<Option<HashSet<String>>, RegistryError> {
        self.store.change(|change| {
            if !has_engines(change)? {
                return Ok(None);
            }
            let before: Option<EngineRecord> = change
                .open_table(ENGINES)?
                .remove(name.as_str())?
                .map(|before| read_record(name.as_str(), before.value()))
                .transpose()?;
            let Some(before) = before else {
                return Ok(None);
            };
            let dropped = BTreeSet::from([before.digest.to_string()]);
            drop_artifacts(change, &change.open_table(VERSIONS)?, dropped).map(Some)
        })
    }
}

//! Language engines in the registry. Their components and code are stored like those of functions,
//! and stay as long as an engine or a script's version uses them.

use faasw_client::FunctionName;

use super::{
    EngineRecord, EnginesByName, NewArtifact, Registry, RegistryError,
    tables::{
        ENGINES, begin_engines, drop_artifacts, engines_in, has_engines, put_artifact, read_record,
        write_record,
    },
    uses::UseChange,
};

impl Registry {
    /// Returns all engines by name.
    pub(crate) fn engines(&self) -> Result<EnginesByName, RegistryError> {
        self.store.read(engines_in)
    }

    /// Adds an engine, in place of the one of the same name.
    pub(crate) fn store_engine(
        &self,
        name: &FunctionName,
        record: &EngineRecord,
        module: &[u8],
        new: Option<NewArtifact<'_>>,
    ) -> Result<(), RegistryError> {
        let _changing = self.changing();
        let stored = self.add_engine(name, record, Some(module), new);
        // Removes files that were written for a record that was not stored.
        if stored.is_err()
            && let Err(error) = self.sweep()
        {
            tracing::warn!(%error, "files of an engine that was not added stay until the next \
                 start");
        }
        stored
    }

    /// Adds an engine whose component is not stored, because the node has it from elsewhere when it
    /// compiles it.
    pub(crate) fn register_engine(
        &self,
        name: &FunctionName,
        record: &EngineRecord,
    ) -> Result<(), RegistryError> {
        let _changing = self.changing();
        self.add_engine(name, record, None, None)
    }

    fn add_engine(
        &self,
        name: &FunctionName,
        record: &EngineRecord,
        module: Option<&[u8]>,
        new: Option<NewArtifact<'_>>,
    ) -> Result<(), RegistryError> {
        if let Some(module) = module
            && self.sound_module(record.digest)?.is_none()
        {
            self.modules.write(&record.digest.to_string(), module)?;
        }
        let artifact = match new {
            Some(new) => Some((self.write_artifact(record.digest, new)?, new.artifact)),
            None => None,
        };
        let mut uses = self.uses();
        let (unused, files, use_change) = self.store.change(|change| {
            begin_engines(change)?;
            let mut files = match &artifact {
                Some((file, artifact)) => put_artifact(change, file, artifact)?,
                None => Vec::new(),
            };
            let text = write_record(name.as_str(), record)?;
            let before: Option<EngineRecord> = change
                .open_table(ENGINES)?
                .insert(name.as_str(), text.as_slice())?
                .map(|before| read_record(name.as_str(), before.value()))
                .transpose()?;
            let use_change = UseChange {
                added: vec![record.digest],
                dropped: before.map(|before| before.digest).into_iter().collect(),
            };
            let unused = uses.unused_after(&use_change);
            files.extend(drop_artifacts(change, &unused)?);
            Ok((unused, files, use_change))
        })?;
        uses.apply(use_change);
        drop(uses);
        self.collect(unused, files);
        Ok(())
    }

    /// Removes an engine. Returns whether there was one. Its code stays as long as scripts use it.
    pub(crate) fn remove_engine(&self, name: &FunctionName) -> Result<bool, RegistryError> {
        let _changing = self.changing();
        self.reserve.with_space_released(|| self.drop_engine(name))
    }

    fn drop_engine(&self, name: &FunctionName) -> Result<bool, RegistryError> {
        let mut uses = self.uses();
        let dropped = self.store.change(|change| {
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
            let use_change = UseChange {
                added: Vec::new(),
                dropped: vec![before.digest],
            };
            let unused = uses.unused_after(&use_change);
            let files = drop_artifacts(change, &unused)?;
            Ok(Some((unused, files, use_change)))
        })?;
        let Some((unused, files, use_change)) = dropped else {
            return Ok(false);
        };
        uses.apply(use_change);
        drop(uses);
        self.collect(unused, files);
        Ok(true)
    }
}

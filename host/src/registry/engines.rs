//! Language engines in the registry. Their components and code are stored like those of functions,
//! and stay as long as an engine or a script's version uses them.

use faasw_client::FunctionName;

use super::{
    EngineRecord, EnginesByName, NewArtifact, Registry, RegistryError,
    record::FORMAT_WITH_ENGINES,
    tables::{
        ENGINES, drop_artifacts, engines_in, has_engines, put_artifact, raise_format, read_at,
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
        stored.inspect_err(|_| self.sweep_after_failure())
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
        let artifact = new.map(|new| self.write_artifact(record.digest, new));
        let artifact = artifact.transpose()?;
        let uses = self.uses();
        let (unused, files, use_change) = self.store.change(|change| {
            raise_format(change, FORMAT_WITH_ENGINES)?;
            let mut files = match &artifact {
                Some((file, artifact)) => put_artifact(change, file, artifact)?,
                None => Vec::new(),
            };
            let text = write_record(name.as_str(), record)?;
            let mut engines = change.open_table(ENGINES)?;
            let before = engines.insert(name.as_str(), text.as_slice())?;
            let before: Option<EngineRecord> = read_at(name.as_str(), before)?;
            let use_change = UseChange {
                added: vec![record.digest],
                dropped: before.map(|before| before.digest).into_iter().collect(),
            };
            let unused = uses.unused_after(&use_change);
            files.extend(drop_artifacts(change, &unused)?);
            Ok((unused, files, use_change))
        })?;
        self.finish_change(uses, use_change, unused, files);
        Ok(())
    }

    /// Removes an engine. Returns whether there was one. Its code stays as long as scripts use it.
    pub(crate) fn remove_engine(&self, name: &FunctionName) -> Result<bool, RegistryError> {
        let _changing = self.changing();
        self.reserve.with_space_released(|| self.drop_engine(name))
    }

    fn drop_engine(&self, name: &FunctionName) -> Result<bool, RegistryError> {
        let uses = self.uses();
        let dropped = self.store.change(|change| {
            if !has_engines(change)? {
                return Ok(None);
            }
            let mut engines = change.open_table(ENGINES)?;
            let before = read_at(name.as_str(), engines.remove(name.as_str())?)?;
            let Some(EngineRecord { digest, .. }) = before else {
                return Ok(None);
            };
            let use_change = UseChange {
                added: Vec::new(),
                dropped: vec![digest],
            };
            let unused = uses.unused_after(&use_change);
            let files = drop_artifacts(change, &unused)?;
            Ok(Some((unused, files, use_change)))
        })?;
        let Some((unused, files, use_change)) = dropped else {
            return Ok(false);
        };
        self.finish_change(uses, use_change, unused, files);
        Ok(true)
    }
}

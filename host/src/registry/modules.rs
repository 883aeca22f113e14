//! Modules that are read as they go out, and not brought into memory.

use std::io::{Read, Seek as _};

use faasw_client::Digest;

use super::{Registry, RegistryError};

impl Registry {
    /// The same of a module and of the files of its version behind it, if that has some.
    pub(crate) fn open_version(
        &self,
        module: Digest,
        files: Option<Digest>,
    ) -> Result<(u64, Box<dyn Read + Send + Sync>), RegistryError> {
        let (bytes, module) = self.open_module(module)?;
        let Some(files) = files else {
            return Ok((bytes, module));
        };
        let (more, files) = self.open_module(files)?;
        Ok((bytes.saturating_add(more), Box::new(module.chain(files))))
    }

    /// How many bytes the module with a digest has, and what reads them. All of it was read before,
    /// and has that digest.
    pub(crate) fn open_module(
        &self,
        digest: Digest,
    ) -> Result<(u64, Box<dyn Read + Send + Sync>), RegistryError> {
        let missing = || RegistryError::Module(digest);
        let name = digest.to_string();
        let mut module = self.modules.open(&name)?.ok_or_else(missing)?;
        let file = |error| RegistryError::file(name.as_ref(), error);
        if Digest::read(&mut module).map_err(file)? != digest {
            return Err(missing());
        }
        let bytes = module.stream_position().map_err(file)?;
        module.rewind().map_err(file)?;
        Ok((bytes, Box::new(module)))
    }
}

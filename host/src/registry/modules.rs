//! Modules that are streamed without being loaded into memory.

use std::io::{Read, Seek as _};

use faasw_client::Digest;

use super::{Registry, RegistryError};

impl Registry {
    /// Opens a module, followed by the files of its version if there are any. Returns the number of
    /// bytes and a reader, see [`Registry::open_module`].
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

    /// Opens the module with a digest. Returns its number of bytes and a reader. The whole module
    /// is read once before, to check its digest.
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

//! Collects everything that a node has made of a function, for other nodes of its host
//! (`crate::shared`).

use faasw_client::Initialisation;

use super::{
    Node,
    core::{Core, blocking},
};
use crate::{error::FunctionError, registry::RegistryError, shared::SharedVersion};

impl Node {
    /// Returns the current version of a function, once its images are written.
    ///
    /// # Errors
    /// Returns an error if there is no such function, or if it cannot be read.
    pub(crate) async fn shared_version(&self, name: &str) -> Result<SharedVersion, FunctionError> {
        self.core.shared_version(name).await
    }
}

impl Core {
    async fn shared_version(&self, name: &str) -> Result<SharedVersion, FunctionError> {
        let function = self.require_function(name)?;
        if let Some(made) = function.version_cell.get() {
            made.ensure_image().await;
        }
        let record = function.record.clone();
        let engine = match &record.engine {
            Some(engine) => self.engines.table().get(&engine.name).cloned(),
            None => None,
        };
        let (storage, generation) = (self.storage.clone(), self.backend.generation());
        let version = blocking(move || {
            let registry = &storage.registry;
            let of = record
                .engine
                .as_ref()
                .map_or(record.digest, |engine| engine.digest);
            let code = registry.code_record(of, &generation)?;
            let bundle = match &record.files {
                Some(files) => registry.module(files.digest)?,
                None => Vec::new(),
            };
            let is_as_sent = !matches!(record.initialised, Some(Initialisation::AsModule { .. }));
            let module = if is_as_sent {
                Vec::new()
            } else {
                registry.module(record.digest)?
            };
            Ok(SharedVersion {
                code: code.ok_or(RegistryError::Module(of))?,
                record,
                engine,
                generation,
                module,
                bundle,
            })
        });
        Ok(version.await?)
    }
}

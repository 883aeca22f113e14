//! The first stage: checks whether an upload can be a function here at all.

use bytes::Bytes;
use faasw_client::{EngineUse, FreezePolicy, FunctionName, FunctionOptions};
use faasw_pool::Initialiser;

use super::files::{PackedFiles, check_files};
use crate::{
    error::DeployError,
    node::{core::Core, deployments::DeploymentProgress},
};

/// A module or a script within the node's limits, with valid options. The compile helper parses
/// modules; of a script the node reads only the paths of its files.
pub(super) struct DetectedUpload {
    pub(super) name: FunctionName,
    pub(super) module: Bytes,
    /// The engine, if this is a script.
    pub(super) engine: Option<EngineUse>,
    pub(super) options: FunctionOptions,
    /// Its files, packed, if it has any.
    pub(super) files: Option<PackedFiles>,
    pub(super) progress: DeploymentProgress,
}

impl DetectedUpload {
    /// Returns the initialiser of the module, if it is to be initialised.
    pub(super) fn initialiser(&self) -> Option<Initialiser> {
        match (self.options.init_export(), self.options.freeze_policy()) {
            (Some(export), _) => Some(Initialiser::Named(export.to_owned())),
            // The policy forbids sharing anything that the function does before a request.
            (None, FreezePolicy::BeforeInit) => None,
            (None, _) => Some(Initialiser::Found),
        }
    }
}

impl Core {
    /// Makes the checks that cost next to nothing.
    pub(super) fn detect(
        &self,
        name: &FunctionName,
        module: Bytes,
        options: FunctionOptions,
        has_files: bool,
    ) -> Result<DetectedUpload, DeployError> {
        options.check()?;
        self.check_hosts(name, &options)?;
        let (size, limit) = (module.len(), self.limits.module);
        if size > limit {
            return Err(DeployError::TooLarge { size, limit });
        }
        let engine = self.engine_of(&module, &options)?;
        check_files(has_files, &options, engine.is_some())?;
        Ok(DetectedUpload {
            name: name.clone(),
            module,
            engine,
            options,
            files: None,
            progress: DeploymentProgress::default(),
        })
    }
}

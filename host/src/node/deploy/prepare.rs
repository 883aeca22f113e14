//! The second stage: packs the files of an input, and computes its digest.

use std::sync::Arc;

use bytes::Bytes;
use faasw_client::{DeployStage, Digest, EngineUse, FreezePolicy, FunctionName, FunctionOptions};
use faasw_pool::Initialiser;

use super::{
    Deployer,
    input::{DeploymentInput, EarlierVersion, InputFiles},
};
use crate::{
    error::DeployError,
    node::{content::PackedFiles, deployments::DeploymentSlot, storage::digest_of},
};

/// An input with its digest, its files and its engine.
pub(super) struct PreparedInput {
    pub(super) name: FunctionName,
    pub(super) module: Bytes,
    pub(super) digest: Digest,
    /// The engine, if this is a script.
    pub(super) engine: Option<EngineUse>,
    pub(super) options: FunctionOptions,
    /// The function's files, if it has any.
    pub(super) files: Option<PackedFiles>,
    pub(super) earlier: Option<EarlierVersion>,
    pub(super) slot: Arc<DeploymentSlot>,
}

impl PreparedInput {
    /// Returns the initialiser of the module, if it is to be initialised.
    pub(super) fn initialiser(&self) -> Option<Initialiser> {
        match (self.options.init_export(), self.options.freeze_policy()) {
            // An initialisation that rewrote the module is part of it already.
            _ if self.earlier.is_some() => None,
            (Some(export), _) => Some(Initialiser::Named(export.to_owned())),
            // The policy forbids sharing anything that the function does before a request.
            (None, FreezePolicy::BeforeInit) => None,
            (None, _) => Some(Initialiser::Found),
        }
    }

    /// Returns the same input with another module, which is not to be initialised again.
    pub(super) async fn with_module(&self, module: Bytes) -> Result<Self, DeployError> {
        Ok(Self {
            name: self.name.clone(),
            digest: digest_of(&module).await?,
            module,
            engine: None,
            options: self.options.clone(),
            files: self.files.clone(),
            earlier: None,
            slot: self.slot.clone(),
        })
    }
}

impl Deployer {
    /// Packs the files of an input, and computes its digest unless that is known.
    pub(super) async fn prepare(
        &self,
        input: DeploymentInput,
        engine: Option<EngineUse>,
        slot: DeploymentSlot,
    ) -> Result<PreparedInput, DeployError> {
        slot.enter(DeployStage::Compiling);
        let files = match input.files {
            Some(InputFiles::Sent(files)) => Some(self.code.pack(&input.name, files).await?),
            Some(InputFiles::Packed(files)) => Some(files),
            None => None,
        };
        let digest = match &input.earlier {
            Some(earlier) => earlier.record.digest,
            None => digest_of(&input.module).await?,
        };
        let engine = match engine {
            // The engine may have been replaced while this deployment waited for its slot.
            Some(_) => self.engines.engine_for(&input.module, &input.options)?,
            None => None,
        };
        Ok(PreparedInput {
            name: input.name,
            module: input.module,
            digest,
            engine,
            options: input.options,
            files,
            earlier: input.earlier,
            slot: Arc::new(slot),
        })
    }
}

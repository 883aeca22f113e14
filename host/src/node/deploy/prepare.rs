//! The second stage: computes the digest of a module and looks for its stored code.

use std::sync::Arc;

use faasw_client::Digest;
use faasw_pool::{CompiledFunction, Initialiser, LoadedCode, SealedCode};

use super::{
    code::{CodeOwner, DeployableCode},
    detect::DetectedUpload,
};
use crate::{
    error::DeployError,
    node::core::{Core, blocking},
    registry::{RegistryError, StoredArtifact},
};

/// A module with its digest and its stored code, if there is any.
pub(super) struct PreparedModule {
    pub(super) detected: DetectedUpload,
    pub(super) digest: Digest,
    /// Its code, if it was compiled before.
    pub(super) stored: Option<DeployableCode>,
}

impl Core {
    /// Looks for code of the same module that the same engine compiled.
    pub(super) async fn prepare(
        &self,
        mut detected: DetectedUpload,
    ) -> Result<PreparedModule, DeployError> {
        let digest = {
            let module = detected.module.clone();
            blocking(move || Ok(Digest::of(&module))).await?
        };
        if detected.engine.is_some() {
            // The engine may have been replaced while this deployment waited for its slot.
            detected.engine = self.engine_of(&detected.module, &detected.options)?;
        }
        if let Some(engine) = &detected.engine {
            return Ok(PreparedModule {
                stored: Some(self.engine_code(engine).await?),
                detected,
                digest,
            });
        }
        let owner = CodeOwner::Function(detected.name.clone());
        // If the module is to be initialised, its code has to be compiled for that.
        let stored = match detected.initialiser() {
            Some(Initialiser::Named(_)) => None,
            Some(Initialiser::Found) => {
                let stored = self.usable_stored_code(digest, owner).await?;
                stored.filter(|ready| !ready.has_initialiser)
            }
            None => self.usable_stored_code(digest, owner).await?,
        };
        Ok(PreparedModule {
            stored,
            detected,
            digest,
        })
    }

    /// Returns the stored code of a module, if the registry has some that this owner may use. The
    /// code is read and checked now, so that damaged code is compiled again from the upload.
    pub(super) async fn usable_stored_code(
        &self,
        digest: Digest,
        owner: CodeOwner,
    ) -> Result<Option<DeployableCode>, DeployError> {
        let Some(artifact) = self.artifact(digest, &owner).await? else {
            return Ok(None);
        };
        let read = self.read_code(digest, owner.function(), None).await?;
        let Some(LoadedCode { code, .. }) = read else {
            return Ok(None);
        };
        let held = Arc::new(code);
        Ok(Some(self.loaded(digest, artifact, &owner, Some(held))))
    }

    /// Returns the stored code of a module, if the registry has some that this owner may use. The
    /// code is read when it is needed.
    pub(in crate::node) async fn stored_code(
        &self,
        digest: Digest,
        owner: CodeOwner,
    ) -> Result<Option<DeployableCode>, DeployError> {
        let artifact = self.artifact(digest, &owner).await?;
        Ok(artifact.map(|artifact| self.loaded(digest, artifact, &owner, None)))
    }

    async fn artifact(
        &self,
        digest: Digest,
        owner: &CodeOwner,
    ) -> Result<Option<StoredArtifact>, RegistryError> {
        let (storage, generation) = (self.storage.clone(), self.backend.generation());
        let function = owner.function().cloned();
        let stored = blocking(move || {
            let registry = &storage.registry;
            registry.artifact(digest, &generation, function.as_ref())
        });
        stored.await
    }

    fn loaded(
        &self,
        digest: Digest,
        artifact: StoredArtifact,
        owner: &CodeOwner,
        held: Option<Arc<SealedCode>>,
    ) -> DeployableCode {
        let source = Arc::new(self.source(digest, owner));
        let (kind, bytes) = (artifact.kind, artifact.bytes);
        let here = held.as_ref();
        let code = CompiledFunction::stored(kind, source, bytes, artifact.digest, here);
        DeployableCode::stored(code, artifact, held)
    }
}

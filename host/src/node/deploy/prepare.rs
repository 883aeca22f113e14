//! The second stage: computes the digest of a module and looks for its stored code.

use std::sync::Arc;

use faasw_client::Digest;
use faasw_common::text::Line;
use faasw_pool::{Initialiser, LoadedCode, SealedCode};

use super::{
    code::{Ready, Whose},
    detect::Detected,
};
use crate::{
    backend::Stored,
    error::DeployError,
    node::core::{Core, blocking},
    registry::{RegistryError, StoredArtifact},
};

/// A module with its digest and its stored code, if there is any.
pub(super) struct Prepared {
    pub(super) detected: Detected,
    pub(super) digest: Digest,
    /// Its code, if it was compiled before.
    pub(super) stored: Option<Ready>,
}

impl Core {
    /// Looks for code of the same module that the same engine compiled.
    pub(super) async fn prepare(&self, mut detected: Detected) -> Result<Prepared, DeployError> {
        let digest = {
            let module = detected.module.clone();
            blocking(move || Ok(Digest::of(&module))).await?
        };
        if detected.engine.is_some() {
            // Another engine may have taken its place while this deployment waited for its slot.
            detected.engine = self.engine_of(&detected.module, &detected.options)?;
        }
        if let Some(engine) = &detected.engine {
            return Ok(Prepared {
                stored: Some(self.engine_code(engine).await?),
                detected,
                digest,
            });
        }
        let whose = Whose::Function(detected.name.clone());
        // If the module is to be initialised, its code has to be compiled for that.
        let stored = match detected.initialiser() {
            Some(Initialiser::Named(_)) => None,
            Some(Initialiser::Found) => {
                let stored = self.sound_code(digest, whose).await?;
                stored.filter(|ready| !ready.has_initialiser)
            }
            None => self.sound_code(digest, whose).await?,
        };
        Ok(Prepared {
            stored,
            detected,
            digest,
        })
    }

    /// Returns the stored code of a module, if the registry has some that this owner may use. The
    /// code is read and checked now, so that damaged code is compiled again from the upload.
    pub(super) async fn sound_code(
        &self,
        digest: Digest,
        whose: Whose,
    ) -> Result<Option<Ready>, DeployError> {
        let Some(artifact) = self.artifact(digest, &whose).await? else {
            return Ok(None);
        };
        let read = self.read_code(digest, whose.function(), None).await?;
        let Some(LoadedCode { code, .. }) = read else {
            return Ok(None);
        };
        let held = Arc::new(code);
        self.loaded(digest, artifact, &whose, Some(held)).await
    }

    /// Returns the stored code of a module, if the registry has some that this owner may use. The
    /// code is read when it is needed.
    pub(in crate::node) async fn stored_code(
        &self,
        digest: Digest,
        whose: Whose,
    ) -> Result<Option<Ready>, DeployError> {
        match self.artifact(digest, &whose).await? {
            Some(artifact) => self.loaded(digest, artifact, &whose, None).await,
            None => Ok(None),
        }
    }

    async fn artifact(
        &self,
        digest: Digest,
        whose: &Whose,
    ) -> Result<Option<StoredArtifact>, RegistryError> {
        let (storage, generation) = (self.storage.clone(), self.backend.generation());
        let function = whose.function().cloned();
        let stored = blocking(move || {
            let registry = &storage.registry;
            registry.artifact(digest, &generation, function.as_ref())
        });
        stored.await
    }

    async fn loaded(
        &self,
        digest: Digest,
        artifact: StoredArtifact,
        whose: &Whose,
        held: Option<Arc<SealedCode>>,
    ) -> Result<Option<Ready>, DeployError> {
        let stored = Stored {
            kind: artifact.kind,
            bytes: artifact.bytes,
            digest: artifact.digest,
            source: Arc::new(self.source(digest, whose)),
            here: held.clone(),
        };
        match self.backend.load(stored).await {
            Ok(code) => Ok(code.map(|code| Ready::stored(code, artifact, held))),
            Err(error) => {
                tracing::warn!(%digest, error = %Line(error), "stored code was not taken; it is \
                     compiled again");
                Ok(None)
            }
        }
    }
}

//! The second stage: what a module is known by, and whether its code is there.

use faasw_control::{Digest, FunctionName};
use faasw_pool::Initialiser;
use faasw_text::Line;

use super::{code::Ready, detect::Detected};
use crate::{
    error::DeployError,
    node::core::{Core, blocking},
};

/// A module of which is known whether it has to be compiled.
pub(super) struct Prepared {
    pub(super) detected: Detected,
    pub(super) digest: Digest,
    /// Its code, if it was compiled before.
    pub(super) stored: Option<Ready>,
}

impl Core {
    /// Looks for code of the same module that the same engine made.
    pub(super) async fn prepare(&self, mut detected: Detected) -> Result<Prepared, DeployError> {
        let digest = {
            let module = detected.module.clone();
            blocking(move || Ok(Digest::of(&module))).await?
        };
        if detected.engine.is_some() {
            // Another may have taken its place while this waited for its turn.
            detected.engine = self.engine_of(&detected.module, &detected.options)?;
        }
        if let Some(engine) = &detected.engine {
            return Ok(Prepared {
                stored: Some(self.engine_code(engine).await?),
                detected,
                digest,
            });
        }
        // Code of what is to be initialised is made for that.
        let stored = match detected.initialiser() {
            Some(Initialiser::Named(_)) => None,
            Some(Initialiser::Found) => {
                let stored = self.stored_code(digest, Some(&detected.name)).await?;
                stored.filter(|ready| !ready.artifact.has_initialiser)
            }
            None => self.stored_code(digest, Some(&detected.name)).await?,
        };
        Ok(Prepared {
            stored,
            detected,
            digest,
        })
    }

    /// The code of a module, if the registry has some that the engine takes and that may be
    /// this function's, or a language engine's where none is named.
    pub(in crate::node) async fn stored_code(
        &self,
        digest: Digest,
        function: Option<&FunctionName>,
    ) -> Result<Option<Ready>, DeployError> {
        let (storage, generation) = (self.storage.clone(), self.engine.generation());
        let function = function.cloned();
        let stored = blocking(move || {
            let registry = &storage.registry;
            registry.artifact(digest, &generation, function.as_ref())
        });
        let stored = stored.await?;
        let Some(artifact) = stored else {
            return Ok(None);
        };
        match self.engine.load(artifact.kind, &artifact.code).await {
            Ok(code) => Ok(Some(Ready::new(code, artifact, None))),
            Err(error) => {
                tracing::warn!(%digest, error = %Line(error), "stored code was not taken; it is compiled again");
                Ok(None)
            }
        }
    }
}

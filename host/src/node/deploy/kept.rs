//! Versions that the registry has: made ready again, without being deployed.

use std::sync::Arc;

use bytes::Bytes;
use faasw_control::{Digest, FunctionName};
use faasw_pool::Known;
use faasw_text::Line;

use super::code::Ready;
use crate::{
    engine::Seed,
    error::DeployError,
    log::{Event, FunctionLog},
    node::{
        core::{Core, blocking},
        function::Function,
    },
    registry::{Artifact, NewArtifact, VersionRecord},
};

impl Core {
    /// The code of a version that the registry has.
    async fn code_again(
        &self,
        name: &FunctionName,
        record: &VersionRecord,
    ) -> Result<Ready, DeployError> {
        if let Some(engine) = &record.engine {
            return self.engine_code(engine).await;
        }
        let digest = record.digest;
        if let Some(ready) = self.stored_code(digest, Some(name)).await? {
            return Ok(ready);
        }
        // Another version of faasw compiled it, or the code is damaged.
        let storage = self.storage.clone();
        let module = blocking(move || storage.registry.module(digest)).await?;
        let ready = self.compile_module(name, module.into(), None, None).await?;
        self.store_code(digest, ready.artifact.clone()).await;
        Ok(ready)
    }

    /// The script of a version that is one.
    async fn script_again(&self, record: &VersionRecord) -> Result<Option<Bytes>, DeployError> {
        if record.engine.is_none() {
            return Ok(None);
        }
        let (storage, digest) = (self.storage.clone(), record.digest);
        let script = blocking(move || storage.registry.module(digest)).await?;
        Ok(Some(script.into()))
    }

    /// Makes the seed of a version that the registry has.
    pub(in crate::node) async fn stored_seed(
        &self,
        name: &FunctionName,
        record: &VersionRecord,
        log: &Arc<FunctionLog>,
    ) -> Result<Arc<dyn Seed>, DeployError> {
        let ready = self.code_again(name, record).await?;
        self.observer.tell(Event::MakingSeed { function: name });
        let script = self.script_again(record).await?;
        let spec = self.spec(name, record, script, log);
        let (seed, _) = ready.code.seed(&spec).await?;
        Ok(seed)
    }

    /// Keeps code for the next start. Without it, that compiles again: no
    /// reason not to serve.
    pub(in crate::node) async fn store_code(&self, digest: Digest, artifact: Arc<Artifact>) {
        let (storage, generation) = (self.storage.clone(), self.engine.generation());
        let stored = blocking(move || {
            let new = NewArtifact {
                generation: &generation,
                artifact: &artifact,
            };
            storage.registry.store_artifact(digest, new)
        });
        if let Err(error) = stored.await {
            tracing::warn!(%digest, %error, "compiled code was not kept");
        }
    }

    /// Makes a function serve that the registry had at the start: its code is there
    /// then, its seed when the engine has made it.
    pub(in crate::node) async fn wake(
        &self,
        function: &Function,
    ) -> Result<Arc<dyn Seed>, DeployError> {
        if self.has_ended() {
            return Err(DeployError::ShuttingDown);
        }
        let Function {
            name, record, log, ..
        } = function;
        let ready = self.code_again(name, record).await?;
        self.observer.tell(Event::MakingSeed { function: name });
        let known = Known {
            after_init: record.freeze.after_init,
            instantiation: record.freeze.instantiation,
        };
        let script = self.script_again(record).await?;
        let spec = self.spec(name, record, script, log);
        Ok(ready.code.adopt(&spec, known).await?)
    }

    /// Makes all functions serve, one after the other: a request does not wait for its
    /// function's turn.
    pub(crate) async fn wake_all(&self) {
        for function in self.all() {
            let woken = function.seed.get_or_try_init(|| self.wake(&function)).await;
            if let Err(error) = woken {
                tracing::error!(
                    function = %function.name, error = %Line(error),
                    "it was not made ready; the next request for it tries again"
                );
            }
        }
    }
}

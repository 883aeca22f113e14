//! The last stage: the version is stored and starts to serve.
//!
//! The version is stored in the registry first and entered in the table of functions second. So
//! everything that serves has been stored.

use std::sync::Arc;

use bytes::Bytes;
use faasw_client::{DeployOutcome, DeployStage};
use faasw_pool::Images;

use super::{
    code::{CodeOwner, DeployableCode},
    files::PackedFiles,
    seed::SeededFunction,
};
use crate::{
    error::DeployError,
    node::{
        core::{Core, blocking},
        deployments::DeploymentSlot,
        function::Function,
        info::notice,
        replace::OF_A_DEPLOYMENT,
    },
    registry::{NewArtifact, NewVersion, RegistryError},
};

impl Core {
    /// Commits a function, which then serves under its name. The deployment keeps its slot until
    /// its module, files and code have left memory.
    pub(super) async fn commit(
        self: &Arc<Self>,
        seeded: SeededFunction,
        slot: DeploymentSlot,
    ) -> Result<DeployOutcome, DeployError> {
        let SeededFunction {
            function,
            module,
            files,
            ready,
            seed_time,
        } = seeded;
        let compile_time = ready.compile_time;
        // A task, so that dropping this future does not interrupt it. An image may be in its place
        // already, and the registry's thread would go on without the table.
        let commit = {
            let core = Arc::clone(self);
            tokio::spawn(async move {
                slot.progress().enter(DeployStage::Storing);
                core.prepare_instances(&function, OF_A_DEPLOYMENT).await;
                let committed = core.commit_version(function, module, files, ready).await;
                drop(slot);
                committed
            })
        };
        let function = commit.await.map_err(|_| RegistryError::Interrupted)??;
        let unset = self.unset_secrets(&function).await;
        Ok(DeployOutcome {
            notice: notice(&function.record, &unset),
            function: self.info(&function),
            compile_time,
            seed_time,
        })
    }

    /// Makes a new version the current one of its function.
    async fn commit_version(
        &self,
        mut function: Function,
        module: Bytes,
        files: Option<PackedFiles>,
        ready: DeployableCode,
    ) -> Result<Arc<Function>, DeployError> {
        let _committing = self.committing.lock().await;
        let image = function.record.image(&function.name);
        if self.has_ended() {
            // The client would not learn about a version that is stored now.
            self.remove_unused_image(&function.name, image).await;
            return Err(DeployError::ShuttingDown);
        }
        let (storage, generation) = (self.storage.clone(), self.backend.generation());
        let (name, record) = (function.name.clone(), function.record.clone());
        // Checked again, because another deployment may have taken the hosts meanwhile.
        self.check_hosts(&name, &record.options)?;
        let cache = (!ready.cache.is_empty()).then(|| ready.cache.clone());
        let artifact = ready.artifact.clone();
        let stored = blocking(move || {
            let new = artifact.as_ref().map(|artifact| NewArtifact {
                generation: &generation,
                artifact,
            });
            let files = files.as_ref().map(|files| &files.bundle[..]);
            let sent = NewVersion {
                module: &module,
                files,
            };
            let store = || storage.registry.store_version(&name, &record, sent, new);
            let images = storage.images.as_deref();
            let version = match store() {
                // Images can be made again; the upload cannot.
                Err(RegistryError::NoSpace) if images.is_some_and(Images::clear) => store()?,
                stored => stored?,
            };
            if let Some(cache) = cache {
                storage
                    .registry
                    .store_compile_cache(&name, &generation, &cache);
            }
            Ok(version)
        });
        function.version = match stored.await {
            Ok(version) => version,
            Err(error) => {
                self.remove_unused_image(&function.name, image).await;
                return Err(error.into());
            }
        };
        let owner = CodeOwner::Function(function.name.clone());
        ready.is_stored_at(self.source(function.record.digest, &owner));
        drop(ready);
        // The code may leave memory from now on, so the function's memory use is counted again.
        if let Some(made) = function.version_cell.get() {
            made.shrink_to_budget();
        }
        Ok(self.make_current(function).await)
    }
}

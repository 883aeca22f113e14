//! The last stage: the version is stored and starts to serve.
//!
//! The version is stored in the registry first and entered in the table of functions second. So
//! everything that serves has been stored.

use std::sync::Arc;

use faasw_client::{DeployOutcome, DeployStage};
use faasw_pool::Images;

use super::{
    Deployer, compile::CompiledModule, current::OF_A_DEPLOYMENT, prepare::PreparedInput,
    seed::SeededFunction,
};
use crate::{
    error::DeployError,
    node::{code::CodeOwner, functions::Function, info::notice, storage::uninterrupted},
    registry::{NewArtifact, NewVersion, RegistryError},
};

impl Deployer {
    /// Commits a function, which then serves under its name. The deployment keeps its slot until
    /// its module, files and code have left memory.
    pub(super) async fn commit(
        self: &Arc<Self>,
        seeded: SeededFunction,
    ) -> Result<DeployOutcome, DeployError> {
        let (compile_time, seed_time) = (seeded.compiled.ready.compile_time, seeded.seed_time);
        let deployer = self.clone();
        let committing = uninterrupted(async move {
            seeded.compiled.input.slot.enter(DeployStage::Storing);
            deployer
                .prepare_instances(&seeded.function, OF_A_DEPLOYMENT)
                .await;
            deployer.commit_version(seeded).await
        });
        let function = committing.await?;
        let unset = self.secrets.unset(&function).await;
        Ok(DeployOutcome {
            notice: notice(&function.record, &unset),
            function: self.inspector.info(&function),
            compile_time,
            seed_time,
        })
    }

    /// Makes a new version the current one of its function.
    async fn commit_version(&self, seeded: SeededFunction) -> Result<Arc<Function>, DeployError> {
        let _changing = self.functions.lock_changes().await;
        let number = match self.store(&seeded).await {
            Ok(number) => number,
            Err(error) => {
                // An image may be in its place already.
                let function = &seeded.function;
                self.remove_unused_image(&function.name, function.image())
                    .await;
                return Err(error);
            }
        };
        let SeededFunction {
            mut function,
            compiled,
            ..
        } = seeded;
        let CompiledModule { input, ready, .. } = compiled;
        // The slot stays taken until the version serves.
        let PreparedInput {
            slot: _slot,
            module,
            files,
            ..
        } = input;
        function.version = number;
        let owner = CodeOwner::Function(function.name.clone());
        let digest = function.record.digest;
        self.code.note_stored(digest, &ready, &owner);
        drop((ready, module, files));
        // The code may leave memory from now on, so the function's memory use is counted again.
        if let Some(version) = function.version_cell.get() {
            version.shrink_to_budget();
        }
        Ok(self.make_current(function).await)
    }

    /// Stores a version in the registry, and returns its number.
    async fn store(&self, seeded: &SeededFunction) -> Result<u64, DeployError> {
        // The client would not learn about a version that is stored after the node has ended.
        self.state.check_running()?;
        let Function { name, record, .. } = &seeded.function;
        // Checked again, because another deployment may have taken the hosts meanwhile.
        self.functions.check_hosts(name, &record.options)?;
        let (name, record) = (name.clone(), record.clone());
        let CompiledModule { input, ready, .. } = &seeded.compiled;
        let (module, files) = (input.module.clone(), input.files.clone());
        let (artifact, cache) = (ready.artifact.clone(), ready.cache.clone());
        let (generation, images) = (self.code.generation(), self.storage.images.clone());
        let storing = self.storage.run(move |registry| {
            let new = artifact.as_ref().map(|artifact| NewArtifact {
                generation: &generation,
                artifact,
            });
            let sent = NewVersion {
                module: &module,
                files: files.as_ref().map(|files| &files.bundle[..]),
            };
            let store = || registry.store_version(&name, &record, sent, new);
            let number = match store() {
                // Images can be made again; the upload cannot.
                Err(RegistryError::NoSpace) if images.as_deref().is_some_and(Images::clear) => {
                    store()?
                }
                stored => stored?,
            };
            if !cache.is_empty() {
                registry.store_compile_cache(&name, &generation, &cache);
            }
            Ok(number)
        });
        Ok(storing.await?)
    }
}

//! Makes stored versions ready again without a deployment.

use std::sync::Arc;

use faasw_abi::pages::PageSet;
use faasw_client::{Digest, FunctionName};
use faasw_pool::{EarlierBuild, LoadedCode, ScriptFiles};

use super::code::{CodeOwner, DeployableCode, StoredCode, StoredScript};
use crate::{
    backend::ServableVersion,
    error::DeployError,
    log::{Event, FunctionLog},
    node::{
        core::{Core, blocking},
        function::Function,
    },
    registry::{NewArtifact, RegistryError, VersionRecord},
};

impl Core {
    /// Returns the code of a stored version, compiled again if needed.
    async fn load_or_compile_code(
        &self,
        name: &FunctionName,
        record: &VersionRecord,
    ) -> Result<DeployableCode, DeployError> {
        if let Some(engine) = &record.engine {
            return self.engine_code(engine).await;
        }
        let (digest, owner) = (record.digest, CodeOwner::Function(name.clone()));
        if let Some(ready) = self.stored_code(digest, owner.clone()).await? {
            return Ok(ready);
        }
        // Another version of faasw compiled it.
        Ok(self.compile_stored(digest, &owner).await?.without_bytes())
    }

    /// Compiles a stored module and stores its code.
    pub(in crate::node) async fn compile_stored(
        &self,
        digest: Digest,
        owner: &CodeOwner,
    ) -> Result<DeployableCode, DeployError> {
        let storage = self.storage.clone();
        let module = blocking(move || storage.registry.module(digest)).await;
        let ready = match owner {
            CodeOwner::Function(name) => {
                let module = module?.into();
                self.compile_module(name, module, None, None).await?
            }
            CodeOwner::Engine(name) => {
                let module = match module {
                    // An engine whose code was taken over without its component.
                    Err(RegistryError::Module(_)) => self.carried_component(name, digest).await?,
                    module => module?,
                };
                self.compile_engine(name, module.into()).await?
            }
        };
        self.store_code(digest, &ready, owner).await;
        Ok(ready)
    }

    /// Returns stored code in memory, if it exists and is undamaged. If `first` names the pages
    /// that are used first, the other pages may still be loading.
    pub(super) async fn read_code(
        &self,
        module: Digest,
        function: Option<&FunctionName>,
        first: Option<PageSet>,
    ) -> Result<Option<LoadedCode>, RegistryError> {
        let _turn = self.reading.acquire().await;
        let (storage, generation) = (self.storage.clone(), self.backend.generation());
        let function = function.cloned();
        let read = blocking(move || {
            let registry = &storage.registry;
            registry.code(module, &generation, function.as_ref(), first.as_ref())
        });
        read.await
    }

    /// Returns the source of this code in the registry.
    pub(in crate::node) fn source(&self, module: Digest, owner: &CodeOwner) -> StoredCode {
        StoredCode {
            core: self.me.clone(),
            module,
            owner: owner.clone(),
        }
    }

    /// Returns the script of a stored version, if it is one. The script is read when its seed has
    /// to be made.
    fn load_stored_script(&self, record: &VersionRecord) -> Option<ScriptFiles> {
        record.engine.as_ref().map(|_| {
            ScriptFiles::Stored(Arc::new(StoredScript {
                storage: Arc::downgrade(&self.storage),
                digest: record.digest,
            }))
        })
    }

    /// Makes the seed of a stored version.
    pub(in crate::node) async fn stored_seed(
        &self,
        name: &FunctionName,
        record: &VersionRecord,
        log: &Arc<FunctionLog>,
    ) -> Result<Arc<dyn ServableVersion>, DeployError> {
        let ready = self.load_or_compile_code(name, record).await?;
        self.observer.notify(Event::MakingSeed { function: name });
        let files = self.stored_files(record);
        let spec = self.spec(name, record, self.load_stored_script(record), files, log);
        let seeded = self.backend.make_seed(&spec, &ready.code).await?;
        Ok(seeded.version)
    }

    /// Stores code for the next start and lets it leave memory. If storing fails, the next start
    /// compiles the code again, so the function serves nevertheless.
    pub(in crate::node) async fn store_code(
        &self,
        digest: Digest,
        ready: &DeployableCode,
        owner: &CodeOwner,
    ) {
        let Some(artifact) = ready.artifact.clone() else {
            return;
        };
        let (storage, generation) = (self.storage.clone(), self.backend.generation());
        let stored = blocking(move || {
            let new = NewArtifact {
                generation: &generation,
                artifact: &artifact,
            };
            storage.registry.store_artifact(digest, new)
        });
        match stored.await {
            Ok(()) => ready.is_stored_at(self.source(digest, owner)),
            Err(error) => tracing::warn!(%digest, %error, "compiled code could not be stored"),
        }
    }

    /// Makes a function ready that the registry had at the start, so that it accepts requests. Its
    /// code and its seed are not loaded before a request needs them.
    pub(in crate::node) async fn wake(
        &self,
        function: &Function,
    ) -> Result<Arc<dyn ServableVersion>, DeployError> {
        if self.has_ended() {
            return Err(DeployError::ShuttingDown);
        }
        let Function {
            name, record, log, ..
        } = function;
        let ready = self.load_or_compile_code(name, record).await?;
        self.observer.notify(Event::MakingSeed { function: name });
        let known = EarlierBuild {
            after_init: record.freeze.after_init,
            instantiation: record.freeze.instantiation,
            layer_bytes: record.freeze.layer_bytes,
        };
        let files = self.stored_files(record);
        let spec = self.spec(name, record, self.load_stored_script(record), files, log);
        let registering = self.backend.register_existing(&spec, &ready.code, known);
        Ok(registering.await?)
    }
}

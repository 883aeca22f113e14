//! Deployments: from a module's bytes to a function that serves requests.
//!
//! Check, compile (or take the code from the registry), make the seed, then
//! commit: registry first, table second. Until the commit nothing has changed,
//! so a deployment that fails leaves what was there.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use tokio::sync::OnceCell;

use super::{
    Deployed, Event,
    core::{Core, Function, blocking},
    info::freeze_notice,
};
use crate::{
    digest::Digest,
    engine::{Code, Seed},
    error::DeployError,
    log::FunctionLog,
    name::FunctionName,
    options::FunctionOptions,
    registry::{Artifact, FreezeRecord, FunctionRecord, RegistryError},
};

impl Core {
    pub(super) async fn deploy(
        self: &Arc<Self>,
        name: &str,
        module: Bytes,
        options: FunctionOptions,
    ) -> Result<Deployed, DeployError> {
        let name = FunctionName::new(name)?;
        let log = self.log_of(&name);
        let deployed = self.try_deploy(&name, module, options, log.clone()).await;
        match &deployed {
            Ok(deployed) => {
                tracing::info!(function = %name, digest = %deployed.function.digest, "deployed");
            }
            Err(error) => {
                tracing::warn!(function = %name, %error, "deployment failed");
                if self.function(name.as_str()).is_none() {
                    log.delete_files();
                }
            }
        }
        deployed
    }

    async fn try_deploy(
        self: &Arc<Self>,
        name: &FunctionName,
        module: Bytes,
        options: FunctionOptions,
        log: Arc<FunctionLog>,
    ) -> Result<Deployed, DeployError> {
        options.check()?;
        let (size, limit) = (module.len(), self.limits.module);
        if size > limit {
            return Err(DeployError::TooLarge { size, limit });
        }
        let _turn = self.deployments.acquire().await;
        if self.has_ended() {
            return Err(DeployError::ShuttingDown);
        }

        let digest = {
            let module = module.clone();
            blocking(move || Ok(Digest::of(&module))).await?
        };
        let (code, compile_time) = match self.stored_code(digest).await? {
            Some(code) => (code, None),
            None => {
                let begun = Instant::now();
                let code = self.compile(name, digest, module.clone()).await?;
                (code, Some(begun.elapsed()))
            }
        };

        let begun = Instant::now();
        self.observer.tell(Event::MakingSeed { function: name });
        let mut record = FunctionRecord {
            digest,
            kind: code.kind(),
            options,
            deployed: SystemTime::now(),
            freeze: FreezeRecord::default(),
        };
        let (seed, report) = code.seed(&self.spec(name, &record, &log)).await?;
        record.freeze = FreezeRecord::from(&report);
        let seed_time = begun.elapsed();

        let function = Function {
            name: name.clone(),
            record,
            log,
            seed: OnceCell::new_with(Some(seed)),
        };
        // Not dropped with this future: the registry's thread would go on, and
        // the table would be behind it.
        let commit = {
            let core = Arc::clone(self);
            tokio::spawn(async move { core.commit(function, module).await })
        };
        let function = commit.await.map_err(|_| RegistryError::Interrupted)??;
        Ok(Deployed {
            notice: freeze_notice(&function.record),
            function: self.info(&function),
            compile_time,
            seed_time,
        })
    }

    /// Makes a new version the function of its name.
    async fn commit(
        &self,
        mut function: Function,
        module: Bytes,
    ) -> Result<Arc<Function>, DeployError> {
        let _committing = self.committing.lock().await;
        if let Some(disk) = self.disk.clone() {
            let (name, record) = (function.name.clone(), function.record.clone());
            blocking(move || disk.registry.store_function(&name, &record, &module)).await?;
        }
        // Another deployment of the same name may have been faster: one log a name.
        if let Some(other) = self.function(function.name.as_str()) {
            function.log = other.log.clone();
        }
        let function = Arc::new(function);
        self.put(function.clone());
        Ok(function)
    }

    /// Compiles a module and keeps the code for the next time.
    async fn compile(
        &self,
        name: &FunctionName,
        digest: Digest,
        module: Bytes,
    ) -> Result<Arc<dyn Code>, DeployError> {
        self.observer.tell(Event::Compiling {
            function: name,
            module_bytes: module.len(),
        });
        let code = self.engine.compile(module).await?;
        self.store_code(digest, code.clone()).await?;
        Ok(code)
    }

    async fn stored_code(&self, digest: Digest) -> Result<Option<Arc<dyn Code>>, DeployError> {
        let Some(disk) = self.disk.clone() else {
            return Ok(None);
        };
        let generation = self.engine.generation();
        let stored = blocking(move || disk.registry.artifact(digest, &generation)).await?;
        let Some(artifact) = stored else {
            return Ok(None);
        };
        match self.engine.load(artifact.kind, &artifact.code).await {
            Ok(code) => Ok(Some(code)),
            Err(error) => {
                tracing::warn!(%digest, %error, "stored code was not taken; it is compiled again");
                Ok(None)
            }
        }
    }

    async fn store_code(&self, digest: Digest, code: Arc<dyn Code>) -> Result<(), DeployError> {
        let Some(disk) = self.disk.clone() else {
            return Ok(());
        };
        let generation = self.engine.generation();
        let stored = blocking(move || {
            let kind = code.kind();
            let code = code.bytes().map_err(|error| RegistryError::File {
                path: disk.directory.artifacts(),
                error,
            })?;
            disk.registry
                .store_artifact(digest, &generation, &Artifact { kind, code })
        });
        Ok(stored.await?)
    }

    /// Makes the seed of a function that the registry had at the start.
    pub(super) async fn wake(&self, function: &Function) -> Result<Arc<dyn Seed>, DeployError> {
        let _turn = self.waking.acquire().await;
        if self.has_ended() {
            return Err(DeployError::ShuttingDown);
        }
        let (name, digest) = (&function.name, function.record.digest);
        let code = match self.stored_code(digest).await? {
            Some(code) => code,
            // Another version of faasw compiled it, or the code is damaged.
            None => {
                let module = self.stored_module(digest).await?;
                self.compile(name, digest, module).await?
            }
        };
        self.observer.tell(Event::MakingSeed { function: name });
        let (seed, _) = code
            .seed(&self.spec(name, &function.record, &function.log))
            .await?;
        Ok(seed)
    }

    async fn stored_module(&self, digest: Digest) -> Result<Bytes, RegistryError> {
        let disk = self.disk.clone().ok_or(RegistryError::Module(digest))?;
        let module = blocking(move || disk.registry.module(digest)).await?;
        Ok(module.into())
    }

    /// Makes the seeds that are missing, one after the other.
    pub(super) async fn wake_all(&self) {
        for function in self.all() {
            let woken = function.seed.get_or_try_init(|| self.wake(&function)).await;
            if let Err(error) = woken {
                tracing::error!(
                    function = %function.name, %error,
                    "no seed; the next request for it tries again"
                );
            }
        }
    }
}

//! Deployments: from a module's bytes to a function that serves requests.
//!
//! Check, compile (or take the code from the registry), make the seed, then
//! commit: registry first, table second. Until the commit nothing has changed,
//! so a deployment that fails leaves what was there.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use faasw_pool::Known;
use faasw_text::Line;
use tokio::sync::OnceCell;

use super::{
    Deployed, Event,
    core::{Core, blocking},
    function::Function,
    info::freeze_notice,
};
use crate::{
    digest::Digest,
    engine::{Code, Seed},
    error::DeployError,
    log::FunctionLog,
    name::FunctionName,
    options::FunctionOptions,
    registry::{Artifact, FreezeRecord, NewArtifact, RegistryError, VersionRecord},
};

/// Code that seeds can be made of, and what the registry keeps of it.
pub(super) struct Ready {
    pub(super) code: Arc<dyn Code>,
    artifact: Arc<Artifact>,
    /// What compiling took; nothing when the registry had it.
    compile_time: Option<Duration>,
}

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
        self.metrics.deployed(deployed.is_ok());
        match &deployed {
            Ok(Deployed { function, .. }) => {
                let (version, digest) = (function.version, function.digest);
                tracing::info!(function = %name, version, %digest, "deployed");
            }
            Err(error) => {
                tracing::warn!(function = %name, error = %Line(error), "deployment failed");
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
        self.check_hosts(name, &options)?;
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
        let ready = match self.stored_code(digest).await? {
            Some(ready) => ready,
            None => self.compile(name, module.clone()).await?,
        };

        let begun = Instant::now();
        self.observer.tell(Event::MakingSeed { function: name });
        let mut record = VersionRecord {
            digest,
            kind: ready.code.kind(),
            options,
            deployed: SystemTime::now(),
            freeze: FreezeRecord::default(),
            imports: ready.artifact.imports.clone(),
            module_bytes: module.len() as u64,
            code_bytes: ready.artifact.code.len() as u64,
        };
        let (seed, report) = ready.code.seed(&self.spec(name, &record, &log)).await?;
        record.freeze = FreezeRecord::from(&report);
        let seed_time = begun.elapsed();

        let compile_time = ready.compile_time;
        let function = Function {
            name: name.clone(),
            // The registry gives the number.
            version: 0,
            record,
            log,
            under_way: Arc::default(),
            backlog: self.backlog.function(),
            seed: OnceCell::new_with(Some(seed)),
        };
        // Not dropped with this future: the registry's thread would go on, and
        // the table would be behind it.
        let commit = {
            let core = Arc::clone(self);
            tokio::spawn(async move { core.commit(function, module, ready).await })
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
        ready: Ready,
    ) -> Result<Arc<Function>, DeployError> {
        let _committing = self.committing.lock().await;
        let (storage, generation) = (self.storage.clone(), self.engine.generation());
        let (name, record) = (function.name.clone(), function.record.clone());
        // Once more: another deployment may have got the hosts since.
        self.check_hosts(&name, &record.options)?;
        let stored = blocking(move || {
            let new = NewArtifact {
                generation: &generation,
                artifact: &ready.artifact,
            };
            let new = ready.compile_time.is_some().then_some(new);
            storage.registry.store_version(&name, &record, &module, new)
        });
        function.version = stored.await?;
        Ok(self.replace(function))
    }

    async fn compile(&self, name: &FunctionName, module: Bytes) -> Result<Ready, DeployError> {
        let begun = Instant::now();
        self.observer.tell(Event::Compiling {
            function: name,
            module_bytes: module.len(),
        });
        let code = self.engine.compile(module).await?;
        let compile_time = Some(begun.elapsed());
        let artifact = {
            let code = code.clone();
            blocking(move || {
                let bytes = code.bytes();
                Ok(Artifact {
                    kind: code.kind(),
                    imports: code.imports().to_vec(),
                    code: bytes.map_err(|error| RegistryError::file("its code".as_ref(), error))?,
                })
            })
            .await?
        };
        Ok(Ready {
            code,
            artifact: Arc::new(artifact),
            compile_time,
        })
    }

    async fn stored_code(&self, digest: Digest) -> Result<Option<Ready>, DeployError> {
        let (storage, generation) = (self.storage.clone(), self.engine.generation());
        let stored = blocking(move || storage.registry.artifact(digest, &generation)).await?;
        let Some(artifact) = stored else {
            return Ok(None);
        };
        match self.engine.load(artifact.kind, &artifact.code).await {
            Ok(code) => Ok(Some(Ready {
                code,
                artifact: Arc::new(artifact),
                compile_time: None,
            })),
            Err(error) => {
                tracing::warn!(%digest, error = %Line(error), "stored code was not taken; it is compiled again");
                Ok(None)
            }
        }
    }

    /// The code of a version that the registry has.
    async fn code_again(
        &self,
        name: &FunctionName,
        record: &VersionRecord,
    ) -> Result<Ready, DeployError> {
        let digest = record.digest;
        if let Some(ready) = self.stored_code(digest).await? {
            return Ok(ready);
        }
        // Another version of faasw compiled it, or the code is damaged.
        let storage = self.storage.clone();
        let module = blocking(move || storage.registry.module(digest)).await?;
        let ready = self.compile(name, module.into()).await?;
        self.store_code(digest, ready.artifact.clone()).await;
        Ok(ready)
    }

    /// Makes the seed of a version that the registry has.
    pub(super) async fn stored_seed(
        &self,
        name: &FunctionName,
        record: &VersionRecord,
        log: &Arc<FunctionLog>,
    ) -> Result<Arc<dyn Seed>, DeployError> {
        let ready = self.code_again(name, record).await?;
        self.observer.tell(Event::MakingSeed { function: name });
        let (seed, _) = ready.code.seed(&self.spec(name, record, log)).await?;
        Ok(seed)
    }

    /// Keeps code for the next start. Without it, that compiles again: no
    /// reason not to serve.
    async fn store_code(&self, digest: Digest, artifact: Arc<Artifact>) {
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
    pub(super) async fn wake(&self, function: &Function) -> Result<Arc<dyn Seed>, DeployError> {
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
        let spec = self.spec(name, record, log);
        Ok(ready.code.adopt(&spec, known).await?)
    }

    /// Makes all functions serve, one after the other: a request does not wait for its
    /// function's turn.
    pub(super) async fn wake_all(&self) {
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

//! The node's language engines and their code.
//!
//! An engine is a component that the operator adds. Its code is compiled when a script first needs
//! it, or ahead of that. All scripts of one engine share one code and one seed. The version of a
//! script names its engine by digest. So if an engine is replaced or removed, existing scripts keep
//! theirs.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use faasw_abi::script;
use faasw_client::{
    Digest, EXTENSIONS_MAX, EngineInfo, EngineUse, Extension, FreezePolicy, FunctionName,
    FunctionOptions, OptionsError,
};
use faasw_pool::Compilation;

use super::{
    core::{Core, blocking},
    deploy::{CodeOwner, DeployableCode},
    function::Function,
};
use crate::{
    error::{DeployError, EngineError},
    log::Event,
    registry::{EngineRecord, NewArtifact, RegistryError},
};

/// Returns the path of a script's first file, whose extension selects the engine. Returns `None`
/// for a module.
pub(super) fn first_file(module: &[u8]) -> Result<Option<&str>, DeployError> {
    if !script::is_script(module) {
        return Ok(None);
    }
    let files = script::read(module).map_err(DeployError::Script)?;
    Ok(Some(files.first().map_or("", |(path, _)| path)))
}

impl Core {
    /// Returns the engine for a script, or `None` for a module.
    pub(super) fn engine_of(
        &self,
        module: &[u8],
        options: &FunctionOptions,
    ) -> Result<Option<EngineUse>, DeployError> {
        let Some(first) = first_file(module)? else {
            return Ok(None);
        };
        let engine = Extension::of_path(first).and_then(|extension| self.engines.of(&extension));
        let Some(engine) = engine else {
            return Err(DeployError::NoEngine {
                file: first.to_owned(),
                extensions: self.known_extensions(),
            });
        };
        if options.init_export().is_some() {
            return Err(
                OptionsError::Init("a script has no --init: its engine initialises it").into(),
            );
        }
        if options.freeze_policy() == FreezePolicy::BeforeInit {
            let why = "a script is always frozen after initialisation: --freeze before-init needs \
                 a module";
            return Err(OptionsError::Init(why).into());
        }
        Ok(Some(engine))
    }

    /// Returns an engine's code, compiled if needed.
    pub(super) async fn engine_code(
        &self,
        engine: &EngineUse,
    ) -> Result<DeployableCode, DeployError> {
        let EngineUse { name, digest } = engine;
        let cell = self.engines.cell(*digest);
        let ready = cell.get_or_try_init(|| async {
            let owner = CodeOwner::Engine(name.clone());
            let ready = match self.stored_code(*digest, owner.clone()).await? {
                Some(ready) => ready,
                None => self.compile_stored(*digest, &owner).await?,
            };
            Ok::<_, DeployError>(ready.without_bytes())
        });
        Ok(ready.await?.clone())
    }

    pub(super) async fn compile_engine(
        &self,
        name: &FunctionName,
        module: Bytes,
    ) -> Result<DeployableCode, DeployError> {
        self.observer.notify(Event::CompilingEngine {
            engine: name,
            module_bytes: module.len(),
        });
        let work = Compilation {
            owner: name.to_string(),
            upload: module,
            ..Compilation::default()
        };
        self.compile_code(work, None).await
    }

    /// Adds an engine. It replaces the engine of the same name.
    pub(super) async fn add_engine(
        self: &Arc<Self>,
        name: &str,
        module: Bytes,
        extensions: Vec<Extension>,
        is_carried: bool,
    ) -> Result<EngineInfo, EngineError> {
        let name = FunctionName::new(name).map_err(DeployError::from)?;
        if !(1..=EXTENSIONS_MAX).contains(&extensions.len()) {
            return Err(EngineError::Extensions(extensions.len()));
        }
        let (size, limit) = (module.len(), self.limits.module);
        if size > limit && !is_carried {
            return Err(DeployError::TooLarge { size, limit }.into());
        }
        if let Some((extension, engine)) =
            self.engines
                .conflicting_engine(&name, &extensions, is_carried)
        {
            return Err(EngineError::Taken { extension, engine });
        }
        let _slot = self.deployments.begin(&name, module.len()).await;
        if self.has_ended() {
            return Err(DeployError::ShuttingDown.into());
        }
        let digest = {
            let module = module.clone();
            blocking(move || Ok(Digest::of(&module))).await?
        };
        let ready = self.compile_engine(&name, module.clone()).await?;
        if !ready.code.is_engine {
            return Err(EngineError::NotAnEngine);
        }
        // The seed that all scripts of the engine share is made now, so that an engine that fails
        // is rejected.
        let warming = self.backend.warm_engine(name.as_str(), &ready.code);
        warming.await.map_err(DeployError::from)?;
        let record = EngineRecord {
            digest,
            extensions,
            added: SystemTime::now(),
            module_bytes: module.len() as u64,
            is_carried,
        };
        // A task, so that dropping this future does not interrupt it: the registry's thread would
        // go on.
        let core = Arc::clone(self);
        let commit = {
            let name = name.clone();
            tokio::spawn(async move { core.commit_engine(name, record, module, ready).await })
        };
        commit.await.map_err(|_| RegistryError::Interrupted)??;
        // The code may exist already, or another task may be making it now.
        self.ensure_warm(EngineUse { name, digest }).await
    }

    async fn ensure_warm(&self, engine: EngineUse) -> Result<EngineInfo, EngineError> {
        let ready = self.engine_code(&engine).await?;
        let warming = self.backend.warm_engine(engine.name.as_str(), &ready.code);
        warming.await.map_err(DeployError::from)?;
        self.engine_info(&engine.name)
    }

    /// Removes the code of engines that no function uses any more.
    pub(super) fn prune_engines(&self) {
        let digest = |function: &Function| Some(function.record.engine.as_ref()?.digest);
        self.engines.prune(&self.map_functions(digest));
    }

    async fn commit_engine(
        &self,
        name: FunctionName,
        record: EngineRecord,
        module: Bytes,
        ready: DeployableCode,
    ) -> Result<(), EngineError> {
        let _committing = self.committing.lock().await;
        // Checked again, because another engine may have taken the extensions meanwhile.
        let taken = self
            .engines
            .conflicting_engine(&name, &record.extensions, record.is_carried);
        if let Some((extension, engine)) = taken {
            return Err(EngineError::Taken { extension, engine });
        }
        for displaced in self.engines.carried_beside(&name, &record) {
            let storage = self.storage.clone();
            let of_it = displaced.clone();
            blocking(move || storage.registry.remove_engine(&of_it)).await?;
            self.engines.change(|table| {
                table.remove(&displaced);
            });
        }
        let (storage, generation) = (self.storage.clone(), self.backend.generation());
        {
            let (name, record, artifact) = (name.clone(), record.clone(), ready.artifact.clone());
            blocking(move || {
                let new = artifact.as_ref().map(|artifact| NewArtifact {
                    generation: &generation,
                    artifact,
                });
                storage.registry.store_engine(&name, &record, &module, new)
            })
            .await?;
        }
        ready.is_stored_at(self.source(record.digest, &CodeOwner::Engine(name.clone())));
        let digest = record.digest;
        self.engines.change(|table| {
            table.insert(name.clone(), record);
        });
        // Scripts that are deployed from now on share this code.
        let _ = self.engines.cell(digest).set(ready.without_bytes());
        self.prune_engines();
        tracing::info!(engine = %name, %digest, "language engine added");
        Ok(())
    }

    /// Makes an engine's code and seed unless they exist.
    pub(super) async fn warm_engine(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<EngineInfo, EngineError> {
        self.add_carried_engine_named(name).await?;
        let (name, digest) = {
            let table = self.engines.table();
            let found = table.get_key_value(name);
            let (name, record) = found.ok_or_else(|| EngineError::Unknown(name.into()))?;
            (name.clone(), record.digest)
        };
        let _slot = self.deployments.begin(&name, 0).await;
        if self.has_ended() {
            return Err(DeployError::ShuttingDown.into());
        }
        self.ensure_warm(EngineUse { name, digest }).await
    }

    /// Removes an engine from registry and table.
    pub(super) async fn remove_engine(self: &Arc<Self>, name: &str) -> Result<(), EngineError> {
        let unknown = || EngineError::Unknown(name.into());
        let name = FunctionName::new(name).map_err(|_| unknown())?;
        let core = Arc::clone(self);
        // A task, so that dropping this future does not interrupt it: table and registry would
        // disagree.
        let removing = tokio::spawn(async move {
            let _committing = core.committing.lock().await;
            let (storage, of_it) = (core.storage.clone(), name.clone());
            let was_there = blocking(move || storage.registry.remove_engine(&of_it)).await?;
            core.engines.change(|table| {
                table.remove(&name);
            });
            core.prune_engines();
            Ok::<_, RegistryError>(was_there)
        });
        if removing.await.map_err(|_| RegistryError::Interrupted)?? {
            Ok(())
        } else {
            Err(unknown())
        }
    }

    /// Lists all engines by name.
    pub(super) fn engine_infos(&self) -> Vec<EngineInfo> {
        let names: Vec<_> = self.engines.table().keys().cloned().collect();
        let infos = names.iter().map(|name| self.engine_info(name));
        // An engine that was removed meanwhile is left out.
        let mut infos: Vec<_> = infos.filter_map(Result::ok).collect();
        infos.extend(self.carried_infos());
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        infos
    }

    fn engine_info(&self, name: &FunctionName) -> Result<EngineInfo, EngineError> {
        let record = self.engines.table().get(name).cloned();
        let record = record.ok_or_else(|| EngineError::Unknown(name.to_string()))?;
        let cell = self.engines.code().get(&record.digest).cloned();
        let ready = cell.as_ref().and_then(|cell| cell.get());
        let functions = self.all();
        let uses = functions.iter().filter(|function| {
            let engine = function.record.engine.as_ref();
            engine.is_some_and(|engine| engine.digest == record.digest)
        });
        Ok(EngineInfo {
            name: name.clone(),
            extensions: record.extensions,
            digest: record.digest,
            added: Some(record.added),
            is_carried: record.is_carried,
            module_bytes: record.module_bytes,
            functions: uses.count(),
            is_warm: ready.is_some_and(|ready| ready.code.is_engine_warm()),
        })
    }
}

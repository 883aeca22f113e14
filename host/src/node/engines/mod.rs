//! The node's language engines and their code.
//!
//! [`Engines`] adds, warms and removes them; the [`EngineTable`] lists them. An engine is a
//! component that the operator adds. Its code is compiled when a script first needs it, or ahead of
//! that. All scripts of one engine share one code and one seed. The version of a script names its
//! engine by digest. So if an engine is replaced or removed, existing scripts keep theirs.

mod carried;
mod table;

use std::{collections::HashSet, sync::Arc, time::SystemTime};

use bytes::Bytes;
use faasw_abi::script;
use faasw_client::{
    Digest, EXTENSIONS_MAX, EngineInfo, EngineUse, Extension, FreezePolicy, FunctionName,
    FunctionOptions, OptionsError,
};

use self::table::EngineTable;
use super::{
    code::{CodeOwner, CodeStore, DeployableCode},
    deployments::Deployments,
    functions::{Function, FunctionTable},
    storage::{Storage, digest_of, uninterrupted},
};
use crate::{
    error::{DeployError, EngineError},
    registry::{EngineRecord, EnginesByName, NewArtifact, RegistryError},
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

/// Extensions of scripts that the built-in engine runs only after a preparation.
const PREPARED_EXTENSIONS: [&str; 5] = ["ts", "tsx", "mts", "cts", "jsx"];

/// The file that a preparation adds to a script.
const MODULE_TABLE: &str = ".faasw/modules.json";

/// Returns whether a script begins with TypeScript or JSX that was not prepared.
fn is_unprepared(module: &[u8], first: &str) -> Result<bool, DeployError> {
    let extension = Extension::of_path(first);
    if extension.is_none_or(|extension| !PREPARED_EXTENSIONS.contains(&extension.as_str())) {
        return Ok(false);
    }
    let files = script::read(module).map_err(DeployError::Script)?;
    Ok(files.iter().all(|(path, _)| *path != MODULE_TABLE))
}

/// The language engines of a node, with their code.
#[derive(Debug)]
pub(crate) struct Engines {
    table: EngineTable,
    code: Arc<CodeStore>,
    storage: Arc<Storage>,
    functions: Arc<FunctionTable>,
    deployments: Arc<Deployments>,
    /// The limit of a component in bytes.
    largest: usize,
}

impl Engines {
    /// Creates the owner of these engines, without any code. `largest` is the limit of a component
    /// in bytes.
    pub(super) fn new(
        engines: EnginesByName,
        code: Arc<CodeStore>,
        storage: Arc<Storage>,
        functions: Arc<FunctionTable>,
        deployments: Arc<Deployments>,
        largest: usize,
    ) -> Self {
        Self {
            table: EngineTable::new(engines),
            code,
            storage,
            functions,
            deployments,
            largest,
        }
    }

    /// Returns the record of an engine.
    pub(super) fn record(&self, name: &FunctionName) -> Option<EngineRecord> {
        self.table.by_name().get(name).cloned()
    }

    /// Enters an engine that the registry has.
    pub(super) fn insert(&self, name: FunctionName, record: EngineRecord) {
        self.table.change(|table| {
            table.insert(name, record);
        });
    }

    /// Returns the engine for a script, or `None` for a module.
    pub(super) fn engine_for(
        &self,
        module: &[u8],
        options: &FunctionOptions,
    ) -> Result<Option<EngineUse>, DeployError> {
        let Some(first) = first_file(module)? else {
            return Ok(None);
        };
        let engine = Extension::of_path(first).and_then(|extension| self.table.of(&extension));
        let Some(engine) = engine else {
            return Err(DeployError::NoEngine {
                file: first.to_owned(),
                extensions: self.known_extensions(),
            });
        };
        let is_carried = self
            .record(&engine.name)
            .is_some_and(|record| record.is_carried);
        if is_carried && is_unprepared(module, first)? {
            return Err(DeployError::Unprepared {
                file: first.to_owned(),
            });
        }
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
    pub(super) async fn code_of(&self, engine: &EngineUse) -> Result<DeployableCode, DeployError> {
        let EngineUse { name, digest } = engine;
        let cell = self.table.cell(*digest);
        let ready = cell.get_or_try_init(|| async {
            let owner = CodeOwner::Engine(name.clone());
            let ready = match self.code.find(*digest, &owner).await? {
                Some(ready) => ready,
                None => self.code.compile_stored(*digest, &owner).await?,
            };
            Ok::<_, DeployError>(ready.without_bytes())
        });
        Ok(ready.await?.clone())
    }

    /// Adds an engine. It replaces the engine of the same name.
    pub(super) async fn add(
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
        let (size, limit) = (module.len(), self.largest);
        if size > limit && !is_carried {
            return Err(DeployError::TooLarge { size, limit }.into());
        }
        self.check_extensions(&name, &extensions, is_carried)?;
        let _slot = self.deployments.begin(&name, module.len()).await?;
        let digest = digest_of(&module).await?;
        let ready = self.code.compile_engine(&name, module.clone()).await?;
        if !ready.code.is_engine {
            return Err(EngineError::NotAnEngine);
        }
        // The seed that all scripts of the engine share is made now, so that an engine that fails
        // is rejected.
        let warming = self.code.warm_engine(&name, &ready);
        warming.await.map_err(DeployError::from)?;
        let record = EngineRecord {
            digest,
            extensions,
            added: SystemTime::now(),
            module_bytes: module.len() as u64,
            is_carried,
        };
        let (engines, added) = (self.clone(), name.clone());
        uninterrupted(async move { engines.commit(added, record, module, ready).await }).await?;
        // The code may exist already, or another task may be making it now.
        self.ensure_warm(EngineUse { name, digest }).await
    }

    /// Checks that no engine of the operator has the name or an extension of this engine.
    fn check_extensions(
        &self,
        name: &FunctionName,
        extensions: &[Extension],
        is_carried: bool,
    ) -> Result<(), EngineError> {
        let table = &self.table;
        match table.conflicting_engine(name, extensions, is_carried) {
            Some((extension, engine)) => Err(EngineError::Taken { extension, engine }),
            None => Ok(()),
        }
    }

    async fn ensure_warm(&self, engine: EngineUse) -> Result<EngineInfo, EngineError> {
        let ready = self.code_of(&engine).await?;
        let warming = self.code.warm_engine(&engine.name, &ready);
        warming.await.map_err(DeployError::from)?;
        let unknown = || EngineError::Unknown(engine.name.to_string());
        let record = self.record(&engine.name).ok_or_else(unknown)?;
        Ok(self.describe(engine.name.clone(), record))
    }

    /// Removes the code of engines that no function uses any more.
    pub(super) fn prune(&self) {
        let digest = |function: &Function| Some(function.record.engine.as_ref()?.digest);
        let used: HashSet<Digest> = self.functions.filter_map(digest);
        self.table.prune(&used);
    }

    async fn commit(
        self: &Arc<Self>,
        name: FunctionName,
        record: EngineRecord,
        module: Bytes,
        ready: DeployableCode,
    ) -> Result<(), EngineError> {
        let _changing = self.functions.lock_changes().await;
        // Checked again, because another engine may have taken the extensions meanwhile.
        self.check_extensions(&name, &record.extensions, record.is_carried)?;
        for displaced in self.table.carried_beside(&name, &record) {
            self.remove_committed(displaced).await?;
        }
        let generation = self.code.generation();
        let artifact = ready.artifact.clone();
        let (stored_name, stored_record) = (name.clone(), record.clone());
        let storing = self.storage.run(move |registry| {
            let new = artifact.as_ref().map(|artifact| NewArtifact {
                generation: &generation,
                artifact,
            });
            registry.store_engine(&stored_name, &stored_record, &module, new)
        });
        storing.await?;
        let (digest, owner) = (record.digest, CodeOwner::Engine(name.clone()));
        self.code.note_stored(digest, &ready, &owner);
        self.insert(name.clone(), record);
        // Scripts that are deployed from now on share this code.
        let _ = self.table.cell(digest).set(ready.without_bytes());
        self.prune();
        tracing::info!(engine = %name, %digest, "language engine added");
        Ok(())
    }

    /// Makes an engine's code and seed unless they exist.
    pub(super) async fn warm(self: &Arc<Self>, name: &str) -> Result<EngineInfo, EngineError> {
        self.add_carried(|carried| carried.name.as_str() == name)
            .await?;
        let (name, digest) = {
            let table = self.table.by_name();
            let found = table.get_key_value(name);
            let (name, record) = found.ok_or_else(|| EngineError::Unknown(name.into()))?;
            (name.clone(), record.digest)
        };
        let _slot = self.deployments.begin(&name, 0).await?;
        self.ensure_warm(EngineUse { name, digest }).await
    }

    /// Removes an engine from registry and table.
    pub(super) async fn remove(self: &Arc<Self>, name: &str) -> Result<(), EngineError> {
        let unknown = || EngineError::Unknown(name.into());
        let name = FunctionName::new(name).map_err(|_| unknown())?;
        let engines = self.clone();
        let removing = uninterrupted(async move {
            let _changing = engines.functions.lock_changes().await;
            let was_there = engines.remove_committed(name).await?;
            engines.prune();
            Ok::<_, RegistryError>(was_there)
        });
        if removing.await? {
            Ok(())
        } else {
            Err(unknown())
        }
    }

    /// Removes an engine from registry and table, and returns whether there was one. The caller
    /// holds the lock of [`FunctionTable::lock_changes`].
    async fn remove_committed(&self, name: FunctionName) -> Result<bool, RegistryError> {
        let removed = name.clone();
        let was_there = self
            .storage
            .run(move |registry| registry.remove_engine(&removed))
            .await?;
        self.table.change(|table| {
            table.remove(&name);
        });
        Ok(was_there)
    }

    /// Lists all engines by name.
    pub(super) fn infos(&self) -> Vec<EngineInfo> {
        let engines = self.table.by_name().clone().into_iter();
        let mut infos: Vec<_> = engines
            .map(|(name, record)| self.describe(name, record))
            .collect();
        // The table may have changed since it was read, so the names in the list decide.
        let carried = self.carried_infos(&infos);
        infos.extend(carried);
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        infos
    }

    fn describe(&self, name: FunctionName, record: EngineRecord) -> EngineInfo {
        let cell = self.table.code().get(&record.digest).cloned();
        let ready = cell.as_ref().and_then(|cell| cell.get());
        let functions = self.functions.all();
        let uses = functions.iter().filter(|function| {
            let engine = function.record.engine.as_ref();
            engine.is_some_and(|engine| engine.digest == record.digest)
        });
        EngineInfo {
            name,
            extensions: record.extensions,
            digest: record.digest,
            added: Some(record.added),
            is_carried: record.is_carried,
            module_bytes: record.module_bytes,
            functions: uses.count(),
            is_warm: ready.is_some_and(|ready| ready.code.is_engine_warm()),
        }
    }
}

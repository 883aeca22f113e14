//! What all parts of a node share: its functions and the engine that runs them.
//!
//! The table is the truth while the node runs; the registry follows it. A
//! function is replaced by putting another in its place: requests under way
//! keep the one they began with.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use faasw_pool::FunctionSpec;
use tokio::sync::{Mutex, OnceCell, Semaphore};

use super::{FunctionInfo, Observer};
use crate::{
    data_dir::DataDir,
    engine::{Engine, Seed},
    error::FunctionError,
    limits::Limits,
    log::{FunctionLog, LogLine},
    name::FunctionName,
    registry::{FunctionRecord, Registry, RegistryError},
};

/// Deployments that compile at once. Each may take gigabytes by its limits.
const DEPLOYMENTS: usize = 2;

/// What a node with a data directory has on disk.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(super) directory: DataDir,
    pub(super) registry: Registry,
}

pub(crate) struct Core {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) limits: Limits,
    pub(super) observer: Observer,
    /// Nothing for a node that lives in memory only.
    pub(super) disk: Option<Arc<Disk>>,
    functions: RwLock<BTreeMap<FunctionName, Arc<Function>>>,
    /// Held while registry and table change together.
    pub(super) committing: Mutex<()>,
    pub(super) deployments: Semaphore,
    /// One seed at a time after a restart: requests that wait for theirs
    /// should not wait for everybody's at once.
    pub(super) waking: Semaphore,
    ended: AtomicBool,
}

/// A function's current version.
pub(super) struct Function {
    pub(super) name: FunctionName,
    pub(super) record: FunctionRecord,
    pub(super) log: Arc<FunctionLog>,
    /// Empty after a restart, until somebody makes it; others wait.
    pub(super) seed: OnceCell<Arc<dyn Seed>>,
}

impl Core {
    pub(super) fn new(
        engine: Arc<dyn Engine>,
        limits: Limits,
        observer: Observer,
        disk: Option<Disk>,
    ) -> Result<Self, RegistryError> {
        let core = Self {
            engine,
            limits,
            observer,
            disk: disk.map(Arc::new),
            functions: RwLock::default(),
            committing: Mutex::new(()),
            deployments: Semaphore::new(DEPLOYMENTS),
            waking: Semaphore::new(1),
            ended: AtomicBool::new(false),
        };
        core.read_registry()?;
        Ok(core)
    }

    fn read_registry(&self) -> Result<(), RegistryError> {
        let Some(disk) = &self.disk else {
            return Ok(());
        };
        for (name, record) in disk.registry.functions()? {
            let log = self.log_of(&name);
            self.put(Arc::new(Function {
                name,
                record,
                log,
                seed: OnceCell::new(),
            }));
        }
        Ok(())
    }

    /// The log of a function: the one its version so far has, or a new one.
    pub(super) fn log_of(&self, name: &FunctionName) -> Arc<FunctionLog> {
        if let Some(function) = self.function(name.as_str()) {
            return function.log.clone();
        }
        let folder = self.disk.as_ref().map(|disk| disk.directory.logs());
        let log = FunctionLog::new(name.clone(), folder.as_deref(), self.observer.clone());
        Arc::new(log)
    }

    pub(super) fn function(&self, name: &str) -> Option<Arc<Function>> {
        let functions = self.functions.read();
        // A panic cannot leave the table half changed: it changes by one call.
        let functions = functions.unwrap_or_else(PoisonError::into_inner);
        functions.get(name).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Function>> {
        let functions = self.functions.read();
        let functions = functions.unwrap_or_else(PoisonError::into_inner);
        functions.values().cloned().collect()
    }

    pub(super) fn put(&self, function: Arc<Function>) {
        let functions = self.functions.write();
        let mut functions = functions.unwrap_or_else(PoisonError::into_inner);
        functions.insert(function.name.clone(), function);
    }

    pub(super) fn list(&self) -> Vec<FunctionInfo> {
        let functions = self.all();
        functions
            .iter()
            .map(|function| self.info(function))
            .collect()
    }

    pub(super) fn info(&self, function: &Function) -> FunctionInfo {
        let ready = function.seed.initialized();
        FunctionInfo::of(&function.name, &function.record, &self.limits, ready)
    }

    pub(super) fn logs(&self, name: &str, newest: usize) -> Result<Vec<LogLine>, FunctionError> {
        self.function(name)
            .map(|function| function.log.newest(newest))
            .ok_or_else(|| FunctionError::Unknown(name.into()))
    }

    /// Takes a function out of registry and table.
    pub(super) async fn remove(&self, name: &str) -> Result<(), FunctionError> {
        let _committing = self.committing.lock().await;
        let function = self
            .function(name)
            .ok_or_else(|| FunctionError::Unknown(name.into()))?;
        if let Some(disk) = self.disk.clone() {
            let name = function.name.clone();
            blocking(move || disk.registry.remove_function(&name)).await?;
        }
        self.functions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
        function.log.delete_files();
        tracing::info!(function = %function.name, "function removed");
        Ok(())
    }

    /// What a function's seed is made by.
    pub(super) fn spec(
        &self,
        name: &FunctionName,
        record: &FunctionRecord,
        log: &Arc<FunctionLog>,
    ) -> FunctionSpec {
        let options = &record.options;
        FunctionSpec {
            name: name.as_str().into(),
            memory_limit: options.memory_or(self.limits.memory),
            environment: options
                .environment()
                .iter()
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .collect(),
            freeze: options.freeze_policy(),
            log: log.clone(),
        }
    }

    /// From now on requests and deployments are refused.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// Does the registry's work where it may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RegistryError> + Send + 'static,
) -> Result<T, RegistryError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or(Err(RegistryError::Interrupted))
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("engine", &self.engine)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

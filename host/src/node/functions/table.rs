//! The functions of a node: by name, and by the hosts that they own.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use faasw_client::{FunctionName, FunctionOptions, HostName};
use tokio::sync::{Mutex, MutexGuard};

use super::Function;
use crate::{
    backend::Backend,
    error::{DeployError, FunctionError},
    limits::Limits,
    log::{FunctionLog, Observer},
};

/// The current version of each function, and the functions' logs.
#[derive(Debug)]
pub(crate) struct FunctionTable {
    entries: RwLock<FunctionEntries>,
    /// Held while registry and table change together.
    changing: Mutex<()>,
    backend: Arc<dyn Backend>,
    limits: Arc<Limits>,
    /// A request for the host `NAME.domain` is for the function `NAME`.
    domain: Option<HostName>,
    /// The folder of the logs. `None` if they stay in memory.
    logs: Option<PathBuf>,
    /// Receives the lines of all logs.
    observer: Observer,
}

/// The functions and their hosts. Both change together, one complete function at a time.
#[derive(Debug, Default)]
struct FunctionEntries {
    functions: BTreeMap<FunctionName, Arc<Function>>,
    hosts: HashMap<HostName, FunctionName>,
}

impl FunctionEntries {
    /// Enters a function in place of another of the same name, and returns the replaced one.
    /// Dropping that one may free much, so the caller drops it after releasing the lock. A host
    /// that another function owns stays with that function.
    fn put(&mut self, function: Arc<Function>) -> Option<Arc<Function>> {
        let replaced = self.remove(&function.name);
        for host in function.record.options.hosts() {
            let owner = self.hosts.entry(host.clone());
            owner.or_insert_with(|| function.name.clone());
        }
        self.functions.insert(function.name.clone(), function);
        replaced
    }

    /// Removes a function and returns it, to be dropped as after [`FunctionEntries::put`].
    fn remove(&mut self, name: &FunctionName) -> Option<Arc<Function>> {
        let removed = self.functions.remove(name)?;
        for host in removed.record.options.hosts() {
            if self.hosts.get(host) == Some(name) {
                self.hosts.remove(host);
            }
        }
        Some(removed)
    }
}

impl FunctionTable {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        limits: Arc<Limits>,
        domain: Option<HostName>,
        logs: Option<PathBuf>,
        observer: Observer,
    ) -> Self {
        Self {
            entries: RwLock::default(),
            changing: Mutex::new(()),
            backend,
            limits,
            domain,
            logs,
            observer,
        }
    }

    fn entries(&self) -> RwLockReadGuard<'_, FunctionEntries> {
        // The lock's holders do not panic while they change the data.
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries_mut(&self) -> RwLockWriteGuard<'_, FunctionEntries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the right to change registry and tables together. A change that is under way
    /// removes a function's files before it changes the table.
    pub(crate) async fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().await
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Function>> {
        self.entries().functions.get(name).cloned()
    }

    pub(crate) fn require(&self, name: &str) -> Result<Arc<Function>, FunctionError> {
        self.get(name)
            .ok_or_else(|| FunctionError::Unknown(name.into()))
    }

    /// Whether this is the current version of its function.
    pub(crate) fn is_current(&self, function: &Arc<Function>) -> bool {
        let current = self.get(function.name.as_str());
        current.is_some_and(|current| Arc::ptr_eq(&current, function))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Function>> {
        self.entries().functions.values().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.entries().functions.len()
    }

    /// Collects what `take` returns for each function. The table is locked for reading meanwhile.
    pub(crate) fn filter_map<T, All>(&self, take: impl Fn(&Function) -> Option<T>) -> All
    where
        All: FromIterator<T>,
    {
        let entries = self.entries();
        let functions = entries.functions.values();
        functions.filter_map(|function| take(function)).collect()
    }

    /// Returns the function that owns this host, which is in lower case.
    pub(crate) fn of_host(&self, host: &str) -> Option<FunctionName> {
        self.entries().hosts.get(host).cloned()
    }

    /// Checks that a function may have the hosts that its options request.
    pub(crate) fn check_hosts(
        &self,
        name: &FunctionName,
        options: &FunctionOptions,
    ) -> Result<(), DeployError> {
        let mut hosts = options.hosts().iter();
        if let Some(domain) = &self.domain
            && let Some(host) = hosts.find(|host| domain.part_below(host.as_str()).is_some())
        {
            let (host, domain) = (host.clone(), domain.clone());
            return Err(DeployError::HostOfDomain { host, domain });
        }
        let owners = &self.entries().hosts;
        let taken = options.hosts().iter().find_map(|host| {
            let owner = owners.get(host).filter(|owner| *owner != name)?;
            Some((host.clone(), owner.clone()))
        });
        match taken {
            Some((host, function)) => Err(DeployError::HostTaken { host, function }),
            None => Ok(()),
        }
    }

    /// Returns the log of a function: that of its current version, or a new one.
    pub(crate) fn log_of(&self, name: &FunctionName) -> Arc<FunctionLog> {
        match self.get(name.as_str()) {
            Some(function) => function.log.clone(),
            None => self.new_log(name),
        }
    }

    pub(crate) fn new_log(&self, name: &FunctionName) -> Arc<FunctionLog> {
        let (folder, observer) = (self.logs.as_deref(), self.observer.clone());
        Arc::new(FunctionLog::new(name.clone(), folder, observer))
    }

    /// Enters a function, in place of another of the same name.
    pub(crate) fn put(&self, function: Arc<Function>) {
        let added = self.memory_limit(&function);
        let replaced = self.entries_mut().put(function);
        self.backend.note_function_added(added);
        if let Some(replaced) = &replaced {
            self.backend
                .note_function_removed(self.memory_limit(replaced));
        }
        // Instances and seeds may end with it. Requests that wait for the table do not wait for
        // that.
        drop(replaced);
    }

    /// Makes a version the current one of its function. The function keeps its log and its count of
    /// requests. The caller holds the lock of [`FunctionTable::lock_changes`].
    pub(crate) fn replace(&self, mut function: Function) -> Arc<Function> {
        if let Some(other) = self.get(function.name.as_str()) {
            function.log = other.log.clone();
            function.under_way = other.under_way.clone();
            function.backlog = other.backlog.clone();
            if let (Some(grants), Some(before)) =
                (&mut function.outbound_grants, &other.outbound_grants)
            {
                grants.share_limits(before);
            }
        } else if function.is_removed() {
            // Meanwhile the function was removed together with its log.
            function.log = self.new_log(&function.name);
        }
        let function = Arc::new(function);
        self.put(function.clone());
        function
    }

    /// Removes a function. The caller holds the lock of [`FunctionTable::lock_changes`].
    pub(crate) fn remove(&self, name: &FunctionName) {
        let removed = self.entries_mut().remove(name);
        if let Some(removed) = removed {
            self.backend
                .note_function_removed(self.memory_limit(&removed));
        }
    }

    fn memory_limit(&self, function: &Function) -> u64 {
        function.record.options.memory_or(self.limits.memory)
    }
}

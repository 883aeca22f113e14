//! The state that all parts of a node share: its functions and the engine that runs them.
//!
//! While the node runs, the table is authoritative, and the registry follows it. A function is
//! replaced by another entry in the table. Requests under way keep the version that they started
//! with.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak},
};

use faasw_client::{
    DeploymentInfo, FunctionBrief, FunctionDetails, FunctionInfo, FunctionName, FunctionOptions,
    HostName, LogLine, LogPage, ShortfallCause, WarmShortfall,
};
use faasw_pool::{Backlog, BacklogLimits, ImageId, Images};
use tokio::sync::{Mutex, Semaphore, watch};

use super::{
    deployments::Deployments,
    engine_table::EngineTable,
    function::{Function, RequestCounter, VersionCell},
    images::TransferPermits,
    info::{SeedState, function_brief, function_info},
    secrets::VersionSecrets,
    table::FunctionTable,
};
use crate::{
    backend::Backend,
    data_dir::DataDir,
    error::{DeployError, FunctionError},
    limits::Limits,
    log::{FunctionLog, Observer},
    message::RequestCallback,
    metrics::{CurrentValues, Metrics, NodeSummary},
    readiness::ReadinessState,
    registry::{Registry, RegistryError, VersionRecord},
    services::{key_value::KeyValue, outbound::OutboundMaker, secrets::Vault},
    shared::Entry,
};

/// Artifacts that are read at the same time: with more, each read takes longer, and all of them are
/// in memory.
const READINGS: usize = 8;

/// The registry's functions when a node starts: each with the number and the record of its current
/// version.
pub(crate) type RegisteredFunctions = Vec<(FunctionName, u64, VersionRecord)>;

/// A node's storage: its registry, key-value store, secrets, directory and func-images.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) registry: Registry,
    pub(crate) key_value: Arc<KeyValue>,
    pub(crate) secrets: Vault,
    /// `None` if the node lives in memory only. It is declared after the registry, so that the
    /// directory's lock is held as long as the registry is open.
    pub(crate) directory: Option<DataDir>,
    /// The func-images of seeds that are not in memory.
    pub(crate) images: Option<Arc<Images>>,
    /// The host's entry for a function that is to be deployed, until a deployment takes it.
    pub(crate) shared: std::sync::Mutex<Option<Arc<Entry>>>,
}

impl Storage {
    /// Takes the host's entry; only the first deployment gets it.
    pub(super) fn take_shared(&self) -> Option<Arc<Entry>> {
        // The lock's holders do not panic while they change the data.
        let shared = self.shared.lock();
        shared.unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The backend and the maker of outbound calls.
#[derive(Debug)]
pub(crate) struct Machinery {
    /// Runs functions.
    pub(crate) backend: Arc<dyn Backend>,
    /// Makes the outbound calls of functions.
    pub(crate) outbound: OutboundMaker,
}

/// Which reports clients and the observer receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReportOptions {
    /// Clients may request the timing of their requests.
    pub(crate) timing: bool,
    /// Clients receive the complete reason of a function's failure.
    pub(crate) verbose_errors: bool,
    /// The observer receives an event for each request.
    pub(crate) requests: bool,
}

pub(crate) struct Core {
    /// A weak reference to the core itself: code sources that the pool holds do not keep the node
    /// alive.
    pub(super) me: Weak<Self>,
    pub(super) backend: Arc<dyn Backend>,
    pub(crate) limits: Limits,
    pub(super) observer: Observer,
    /// Receives reports about requests.
    pub(super) tell_request: Option<Arc<RequestCallback>>,
    pub(super) storage: Arc<Storage>,
    pub(super) metrics: Arc<Metrics>,
    table: RwLock<FunctionTable>,
    pub(super) engines: EngineTable,
    /// A request for the host `NAME.domain` is for the function `NAME`.
    domain: Option<HostName>,
    /// Clients may request the timing of their requests.
    pub(super) timing: bool,
    /// Clients receive the complete reason of a function's failure.
    pub(super) verbose_errors: bool,
    /// Response bytes that clients have not read yet.
    pub(crate) backlog: Arc<Backlog>,
    /// Makes the outbound calls of functions.
    pub(super) outbound: OutboundMaker,
    /// Held while registry and table change together.
    pub(super) committing: Mutex<()>,
    pub(super) deployments: Arc<Deployments>,
    pub(super) transfer_permits: TransferPermits,
    /// Permits to read code from the registry.
    pub(super) reading: Semaphore,
    ended: watch::Sender<bool>,
    pub(crate) readiness: ReadinessState,
    /// Becomes true when the program that started the node has dropped its last handle. The
    /// handles of the node's own servers do not count.
    gone: watch::Sender<bool>,
}

/// Reports when dropped that the node is gone.
#[derive(Debug)]
pub(crate) struct AliveGuard(watch::Sender<bool>);

impl Drop for AliveGuard {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl Core {
    pub(crate) fn new(
        machinery: Machinery,
        limits: Limits,
        observer: Observer,
        storage: Storage,
        functions: RegisteredFunctions,
        domain: Option<HostName>,
        report_options: ReportOptions,
    ) -> Result<Arc<Self>, RegistryError> {
        let backlog = Backlog::new(BacklogLimits {
            node: limits.undelivered,
            function: limits.undelivered_function,
            connection: limits.undelivered_connection,
        });
        let Machinery { backend, outbound } = machinery;
        let engines = EngineTable::new(storage.registry.engines()?);
        let core = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            engines,
            backend,
            deployments: Deployments::new(limits.module),
            limits,
            backlog,
            tell_request: if report_options.requests {
                observer.of_requests()
            } else {
                None
            },
            observer,
            storage: Arc::new(storage),
            metrics: Arc::default(),
            table: RwLock::default(),
            domain,
            timing: report_options.timing,
            verbose_errors: report_options.verbose_errors,
            outbound,
            committing: Mutex::new(()),
            transfer_permits: TransferPermits::default(),
            reading: Semaphore::new(READINGS),
            ended: watch::Sender::new(false),
            readiness: ReadinessState::default(),
            gone: watch::Sender::new(false),
        });
        core.load_registered(functions);
        Ok(core)
    }

    fn load_registered(&self, functions: RegisteredFunctions) {
        for (name, version, record) in functions {
            let log = self.new_log(&name);
            if let Err(error) = self.check_hosts(&name, &record.options) {
                tracing::warn!(function = %name, %error, "a host of the function belongs to \
                     another function");
            }
            let stores = self.stores(&name, &record);
            let outbound_grants = self.outbound_grants(&record);
            let secrets = VersionSecrets::of(&record);
            self.put(Arc::new(Function {
                name,
                stores,
                secrets,
                outbound_grants,
                version,
                record,
                log,
                under_way: Arc::default(),
                backlog: self.backlog.function(),
                version_cell: VersionCell::default(),
            }));
        }
    }

    /// Returns the log of a function: that of its current version, or a new one.
    pub(super) fn log_of(&self, name: &FunctionName) -> Arc<FunctionLog> {
        if let Some(function) = self.function(name.as_str()) {
            return function.log.clone();
        }
        self.new_log(name)
    }

    fn new_log(&self, name: &FunctionName) -> Arc<FunctionLog> {
        let folder = self.storage.directory.as_ref().map(DataDir::logs);
        let log = FunctionLog::new(name.clone(), folder.as_deref(), self.observer.clone());
        Arc::new(log)
    }

    pub(super) fn function(&self, name: &str) -> Option<Arc<Function>> {
        self.table().get(name).cloned()
    }

    /// Returns the function that owns this host.
    pub(super) fn function_of_host(&self, host: &str) -> Option<FunctionName> {
        self.table().of_host(host).cloned()
    }

    /// Checks that a function may have the hosts that its options request.
    pub(super) fn check_hosts(
        &self,
        name: &FunctionName,
        options: &FunctionOptions,
    ) -> Result<(), DeployError> {
        if let Some(domain) = &self.domain {
            let mut hosts = options.hosts().iter();
            let inside = hosts.find(|host| domain.part_below(host.as_str()).is_some());
            if let Some(host) = inside.cloned() {
                let domain = domain.clone();
                return Err(DeployError::HostOfDomain { host, domain });
            }
        }
        match self.table().conflicting_host(name, options) {
            Some((host, function)) => Err(DeployError::HostTaken { host, function }),
            None => Ok(()),
        }
    }

    fn table(&self) -> RwLockReadGuard<'_, FunctionTable> {
        // The lock's holders do not panic while they change the data.
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, FunctionTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn all(&self) -> Vec<Arc<Function>> {
        self.table().all().cloned().collect()
    }

    pub(super) fn put(&self, function: Arc<Function>) {
        let added = self.memory_limit(&function);
        let replaced = self.table_mut().put(function);
        self.backend.note_function_added(added);
        if let Some(replaced) = &replaced {
            let removed = self.memory_limit(replaced);
            self.backend.note_function_removed(removed);
        }
        // Instances and seeds may end with it. Requests that wait for the table do not wait for
        // that.
        drop(replaced);
    }

    fn memory_limit(&self, function: &Function) -> u64 {
        function.record.options.memory_or(self.limits.memory)
    }

    pub(super) fn count(&self) -> usize {
        self.table().count()
    }

    /// Collects what `take` returns for each function. The table is locked for reading meanwhile.
    pub(super) fn map_functions<T, All>(&self, take: impl Fn(&Function) -> Option<T>) -> All
    where
        All: FromIterator<T>,
    {
        let table = self.table();
        table.all().filter_map(|function| take(function)).collect()
    }

    pub(super) fn list(&self) -> Vec<FunctionBrief> {
        let functions = self.all();
        let brief = |function: &Arc<Function>| {
            let (name, version) = (&function.name, function.version);
            let is_in_memory = function
                .version_cell
                .get()
                .is_some_and(|made| made.is_in_memory());
            function_brief(name, version, &function.record, &self.limits, is_in_memory)
        };
        functions.iter().map(brief).collect()
    }

    pub(super) fn info(&self, function: &Function) -> FunctionInfo {
        let (name, version) = (&function.name, function.version);
        let state = self.state_of(function);
        function_info(name, version, &function.record, &self.limits, state)
    }

    /// Returns where a function's seed is.
    pub(super) fn state_of(&self, function: &Function) -> SeedState {
        match function.version_cell.get() {
            Some(made) => SeedState {
                is_in_memory: made.is_in_memory(),
                image_bytes: made.image_bytes(),
            },
            None => self.state_on_disk(&function.name, &function.record),
        }
    }

    /// Returns how many of a function's instances warm ahead of requests are missing, and why.
    fn shortfall(&self, function: &Function) -> Option<WarmShortfall> {
        match function.version_cell.get() {
            Some(made) => made.shortfall(),
            None => self.shortfall_at_rest(),
        }
    }

    /// Returns what a function that rests lacks of its warm instances. A start provides instances
    /// only for as many functions as there is capacity for.
    fn shortfall_at_rest(&self) -> Option<WarmShortfall> {
        let instances = self.backend.min_warm();
        let is_too_many = self.count() > self.backend.provided_functions();
        let why = ShortfallCause::MaxWarm;
        (instances > 0 && is_too_many).then_some(WarmShortfall { instances, why })
    }

    /// Returns where the seed of a version is that is not in memory.
    fn state_on_disk(&self, name: &FunctionName, record: &VersionRecord) -> SeedState {
        let images = self.storage.images.as_ref();
        SeedState {
            is_in_memory: false,
            image_bytes: images.and_then(|images| images.known_bytes_of(&record.image(name))),
        }
    }

    /// Returns a function and the versions of it that are kept.
    pub(super) async fn inspect(&self, name: &str) -> Result<FunctionDetails, FunctionError> {
        let unknown = || FunctionError::Unknown(name.into());
        let name = self.function(name).ok_or_else(unknown)?.name.clone();
        let storage = self.storage.clone();
        let (name, versions) = blocking(move || {
            let versions = storage.registry.versions(&name)?;
            Ok((name, versions))
        })
        .await?;
        // Looked up again, because the function may have changed while the registry was read.
        let function = self.function(name.as_str()).ok_or_else(unknown)?;
        let of = |(number, record): (&u64, &VersionRecord)| {
            let state = if *number == function.version {
                self.state_of(&function)
            } else {
                self.state_on_disk(&name, record)
            };
            function_info(&name, *number, record, &self.limits, state)
        };
        Ok(FunctionDetails {
            function: self.info(&function),
            under_way: function.under_way.count(),
            lacking: self.shortfall(&function),
            versions: versions.iter().rev().map(of).collect(),
        })
    }

    pub(super) fn logs(&self, name: &str, newest: usize) -> Result<Vec<LogLine>, FunctionError> {
        Ok(self.require_function(name)?.log.newest(newest).lines)
    }

    /// Returns the newest lines of a log, or the lines after the position `after`. If there are
    /// none after it, waits until there is a line or the node ends.
    pub(super) async fn log_page(
        &self,
        name: &str,
        newest: usize,
        after: Option<u64>,
    ) -> Result<LogPage, FunctionError> {
        let log = self.require_function(name)?.log.clone();
        let Some(after) = after else {
            return Ok(log.newest(newest));
        };
        let mut ended = self.ended.subscribe();
        tokio::select! {
            page = log.after(after) => Ok(page),
            _ = ended.wait_for(|ended| *ended) => Ok(LogPage::empty(after)),
        }
    }

    pub(super) fn require_function(&self, name: &str) -> Result<Arc<Function>, FunctionError> {
        self.function(name)
            .ok_or_else(|| FunctionError::Unknown(name.into()))
    }

    /// Makes a version the current one of its function. The function keeps its log and its count of
    /// requests. The caller holds `committing`.
    pub(super) fn replace(&self, mut function: Function) -> Arc<Function> {
        if let Some(other) = self.function(function.name.as_str()) {
            function.log = other.log.clone();
            function.under_way = other.under_way.clone();
            function.backlog = other.backlog.clone();
            if let (Some(outbound_grants), Some(before)) =
                (&mut function.outbound_grants, &other.outbound_grants)
            {
                outbound_grants.share_limits(before);
            }
        } else {
            // Meanwhile the function may have been removed together with its log.
            if function.is_removed() {
                function.log = self.new_log(&function.name);
            }
            function.under_way = Arc::<RequestCounter>::default();
        }
        let function = Arc::new(function);
        self.put(function.clone());
        self.prune_engines();
        function
    }

    /// Removes a function from registry and table.
    pub(super) async fn remove(self: &Arc<Self>, name: &str) -> Result<(), FunctionError> {
        let name = self.require_function(name)?.name.clone();
        // A task, so that dropping this future does not interrupt it: table and registry would
        // disagree.
        let core = Arc::clone(self);
        let removing = tokio::spawn(async move { core.commit_removal(name).await });
        removing
            .await
            .unwrap_or(Err(RegistryError::Interrupted.into()))
    }

    async fn commit_removal(&self, name: FunctionName) -> Result<(), FunctionError> {
        let _committing = self.committing.lock().await;
        let function = self.require_function(name.as_str())?;
        let storage = self.storage.clone();
        let (name, images) = blocking(move || {
            let images = storage.registry.images_of(&name).unwrap_or_default();
            storage.registry.remove_function(&name)?;
            Ok((name, images))
        })
        .await?;
        let removed = self.table_mut().remove(&name);
        if let Some(removed) = &removed {
            let memory = self.memory_limit(removed);
            self.backend.note_function_removed(memory);
        }
        drop(removed);
        self.keep_serving_image(None, images).await;
        self.prune_engines();
        function.log.delete_files();
        self.metrics.remove_function(&name);
        tracing::info!(function = %name, "function removed");
        Ok(())
    }

    /// Returns the current metrics as OpenMetrics text.
    pub(super) fn metrics_text(&self) -> String {
        self.measured(|now| self.metrics.encode_text(now))
    }

    /// Returns a summary of the current metrics for people.
    pub(super) fn stats(&self) -> NodeSummary {
        self.measured(|now| self.metrics.summary(now))
    }

    /// Passes values that only the node knows to `read`, which reads its metrics.
    fn measured<T>(&self, read: impl FnOnce(&CurrentValues<'_>) -> T) -> T {
        let functions = self.all();
        let under_way = functions
            .iter()
            .map(|function| function.under_way.count())
            .sum();
        let mut vms = self.backend.stats();
        if let Some(shortfall) = self.shortfall_at_rest() {
            let resting = functions
                .iter()
                .filter(|function| function.version_cell.get().is_none());
            resting.for_each(|_| vms.shortfall.add(shortfall));
        }
        let functions: Vec<_> = functions
            .iter()
            .map(|function| function.name.clone())
            .collect();
        read(&CurrentValues {
            functions: &functions,
            under_way,
            vms,
            backlog: &self.backlog,
        })
    }

    /// Keeps the image of the version `now`, which serves from now on, and removes the images
    /// `gone`.
    pub(super) async fn keep_serving_image(&self, now: Option<&Function>, gone: Vec<ImageId>) {
        let Some(images) = self.storage.images.clone() else {
            return;
        };
        let now = now.map(|function| function.record.image(&function.name));
        let _ = blocking(move || {
            images.serve(now, &gone);
            Ok(())
        })
        .await;
    }

    /// Removes this image, which no version has, unless it is the image of the current version.
    pub(super) async fn remove_unused_image(&self, name: &FunctionName, image: ImageId) {
        let serving = self.function(name.as_str());
        let is_its = |serving: Arc<Function>| serving.record.image(name) == image;
        if !serving.is_some_and(is_its) {
            self.keep_serving_image(None, vec![image]).await;
        }
    }

    /// Returns the deployments under way, each with its stage and its position in the queue.
    pub(super) fn deployments_under_way(&self) -> Vec<DeploymentInfo> {
        let backend = &self.backend;
        self.deployments
            .list(|function| backend.queued_behind(function.as_str()))
    }

    /// Makes the node reject requests and deployments from now on.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Returns a guard that reports the end of the node when it is dropped.
    pub(crate) fn alive_guard(&self) -> AliveGuard {
        AliveGuard(self.gone.clone())
    }

    /// Waits until the program that started the node has dropped its last handle.
    pub(super) fn wait_until_dropped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut gone = self.gone.subscribe();
        async move {
            // The sender sends the value before it is dropped, so an error means the same.
            let _ = gone.wait_for(|gone| *gone).await;
        }
    }

    /// Waits until the node rejects requests and deployments.
    pub(super) async fn wait_until_ended(&self) {
        let mut ended = self.ended.subscribe();
        // `self` owns the sender, so the wait does not fail.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }
}

/// Runs work of the registry on a thread that may block.
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
            .field("engine", &self.backend)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

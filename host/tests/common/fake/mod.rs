//! A backend whose functions behave by path, without a VM: it compiles nothing and makes no seeds.
//! `version` has the functions.

mod version;

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use faasw::backend::{Backend, BackendFuture, EgressProcesses, RestoreResult, ServableVersion};
use faasw::{FunctionKind, LogStream};
use faasw_abi::files::upload;
use faasw_abi::wire::RequestHead;
use faasw_pool::{
    Compilation, CompileError, CompileOutput, CompiledFunction, EarlierBuild, FreezeReport,
    FunctionSpec, ImageError, InitialiseError, InitialisedModule, PoolStats, SealedCode, SeedError,
    SeedInfo, SeededVersion, StoreService,
};
use tokio::sync::Notify;

use self::version::{FakeVersion, trap};

/// A backend that counts compilations and seeds.
#[derive(Clone, Debug, Default)]
pub struct FakeBackend {
    pub compiled: Arc<AtomicUsize>,
    /// The cache of earlier compilations that each compilation received.
    pub begun_with: Arc<Mutex<Vec<Option<Vec<u8>>>>>,
    pub seeds: Arc<AtomicUsize>,
    /// The requests that functions received whole, in the order in which they ended.
    pub seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// Part of its generation.
    pub version: usize,
    /// Called while a seed is dropped.
    pub when_dropped: WhenDropped,
    /// Lets one request of `/held` be answered.
    pub held: Arc<Notify>,
}

/// An action that is set later, at most once.
#[derive(Clone, Default)]
pub struct WhenDropped(Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>);

impl WhenDropped {
    pub fn set(&self, done: impl Fn() + Send + Sync + 'static) {
        assert!(self.0.set(Box::new(done)).is_ok());
    }
}

impl fmt::Debug for WhenDropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WhenDropped").finish_non_exhaustive()
    }
}

/// A request as its function received it.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub head: RequestHead,
    pub body: Bytes,
    /// The service on the channel of the function's store, if it has a store.
    pub store: Option<Arc<dyn StoreService>>,
}

impl ReceivedRequest {
    /// Returns the method and the path.
    pub fn line(&self) -> String {
        let text = |bytes| String::from_utf8_lossy(bytes);
        format!(
            "{} {}",
            text(&self.head.method),
            text(&self.head.path_and_query)
        )
    }
}

impl FakeBackend {
    /// Takes what the compilations since the last call got as their caches.
    pub fn take_begun_with(&self) -> Vec<Option<Vec<u8>>> {
        std::mem::take(&mut self.begun_with.lock().unwrap())
    }

    /// Takes the requests that were seen since the last call.
    pub fn take_seen(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl Backend for FakeBackend {
    fn generation(&self) -> String {
        format!("fake-{}", self.version)
    }

    fn pack<'a>(
        &'a self,
        _owner: &'a str,
        files: Bytes,
    ) -> BackendFuture<'a, Result<Bytes, CompileError>> {
        let packed = upload::pack(&files).map(Bytes::from);
        let packed = packed.map_err(|error| CompileError::Unsupported(error.to_string()));
        Box::pin(async { packed })
    }

    /// Refuses modules that begin with `bad`. Modules with `slow` take long, those with `lacks`
    /// never get their instances, and those with `keeps` import a store.
    fn compile(&self, work: Compilation) -> BackendFuture<'_, Result<CompileOutput, CompileError>> {
        Box::pin(async move {
            let module = work.upload;
            self.compiled.fetch_add(1, Ordering::Relaxed);
            let earlier = work.cache.as_ref().map(|cache| cache.to_vec());
            self.begun_with.lock().unwrap().push(earlier);
            if module.starts_with(b"slow") {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            if module.starts_with(b"bad import") {
                return Err(CompileError::UnknownImports {
                    message: "the import env::mystery is not supported".into(),
                    imports: vec!["env::mystery".into()],
                });
            }
            if module.starts_with(b"bad helper") {
                return Err(CompileError::Helper("killed".into()));
            }
            if module.starts_with(b"bad") {
                return Err(CompileError::Malformed("not WebAssembly".into()));
            }
            let kept = work.cache.map(|_| Bytes::from_static(b"kept"));
            let code = SealedCode::copy_of(&module).unwrap();
            let mut function =
                CompiledFunction::unstored(FunctionKind::HttpComponent, Arc::new(code));
            if module.starts_with(b"keeps") {
                function.imports = vec!["wasi:keyvalue/store@0.2.0-draft#open".to_owned()];
            }
            let cache = kept.unwrap_or_default();
            Ok(CompileOutput { function, cache })
        })
    }

    fn initialise<'a>(
        &'a self,
        _: &'a FunctionSpec,
        _: &'a CompiledFunction,
        _: &'a [u8],
        _: usize,
    ) -> BackendFuture<'a, Result<InitialisedModule, InitialiseError>> {
        let refused = InitialiseError::Refused("there is nothing that initialises it".to_owned());
        Box::pin(async { Err(refused) })
    }

    fn warm_engine<'a>(
        &'a self,
        _: &'a str,
        _: &'a CompiledFunction,
    ) -> BackendFuture<'a, Result<(), SeedError>> {
        Box::pin(async { Ok(()) })
    }

    fn make_seed<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        code: &'a CompiledFunction,
    ) -> BackendFuture<'a, Result<SeededVersion<Arc<dyn ServableVersion>>, SeedError>> {
        Box::pin(async {
            let module = code.load().await?.read().unwrap();
            self.seeds.fetch_add(1, Ordering::Relaxed);
            spec.log.line(0, LogStream::Err, b"initialising");
            if module.starts_with(b"trap") {
                return Err(SeedError::Function(trap()));
            }
            let drew_entropy = module.starts_with(b"draws");
            let report = FreezeReport {
                at_entry: false,
                after_init: !drew_entropy,
                drew_entropy,
                drawn: "wasi:random/random get-random-bytes: 16 bytes".into(),
                instantiation: Duration::from_micros(70),
                layer_bytes: 1 << 20,
            };
            let version: Arc<dyn ServableVersion> = Arc::new(FakeVersion {
                module: String::from_utf8_lossy(&module).into_owned(),
                spec: spec.clone(),
                backend: self.clone(),
            });
            Ok(SeededVersion { version, report })
        })
    }

    /// Makes a seed as for a deployment.
    fn register_existing<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        code: &'a CompiledFunction,
        _: EarlierBuild,
    ) -> BackendFuture<'a, Result<Arc<dyn ServableVersion>, SeedError>> {
        Box::pin(async { Ok(self.make_seed(spec, code).await?.version) })
    }

    fn restore<'a>(
        &'a self,
        _: &'a FunctionSpec,
        _: &'a CompiledFunction,
        _: EarlierBuild,
    ) -> BackendFuture<'a, RestoreResult> {
        Box::pin(async { Ok(Err(ImageError::Foreign)) })
    }

    fn shared_content(&self) -> BackendFuture<'_, Option<String>> {
        Box::pin(async { None })
    }

    fn note_function_added(&self, _: u64) {}

    fn note_function_removed(&self, _: u64) {}

    fn stats(&self) -> PoolStats {
        PoolStats::default()
    }

    fn tree(&self) -> Vec<SeedInfo> {
        Vec::new()
    }

    fn queued_behind(&self, _: &str) -> Option<usize> {
        None
    }

    fn provided_functions(&self) -> usize {
        0
    }

    fn min_warm(&self) -> usize {
        0
    }

    fn egress(&self) -> Option<Arc<dyn EgressProcesses>> {
        None
    }

    fn shutdown(&self) -> BackendFuture<'_, ()> {
        Box::pin(async {})
    }
}

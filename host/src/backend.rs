//! The seam between the node and what runs functions.
//!
//! A node knows a [`Backend`] and what it hands out: [`Code`] from compiling,
//! a [`FunctionVersion`] from making code ready. The pool is the backend of every real
//! node; tests put a fake in its place, because the pool needs `/dev/kvm` and
//! the rules of names, requests, storage and limits do not.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use faasw_abi::wire::FunctionKind;
use faasw_pool::{
    Call, CodeDigest, CodeSource, Compilation, CompileError, Compiled, FreezeReport, FunctionSpec,
    ImageError, ImageInfo, InitialiseError, Initialising, InvokeError, Known, Lacking,
    LanguageEngine, PlatformError, Pool, PoolStats, Reply, SealedCode, SeedError, SeedInfo, Share,
};

use crate::services::outbound::{NameFiles, NewConnector, NewWorker, Processes};

/// A boxed future: what a backend's calls return.
pub type Running<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What making a seed comes to.
pub type SeedResult = Result<(Arc<dyn FunctionVersion>, FreezeReport), SeedError>;

/// What reading a seed from an image comes to: why it was not read, where that is not good.
pub type RestoreResult = Result<Result<Arc<dyn FunctionVersion>, ImageError>, SeedError>;

/// What compiling comes to.
pub type CompileResult = Result<(Arc<dyn Code>, Bytes), CompileError>;

/// Compiles functions.
pub trait Backend: fmt::Debug + Send + Sync {
    /// What compiled code depends on beside its module, as part of a file
    /// name: code of another generation is never loaded.
    fn generation(&self) -> String;

    /// Compiles a module; what came of having it made so that it can be initialised is
    /// [`Code::initialising`]. What is kept of it for the next one of the same function comes
    /// beside the code; empty where nothing is. Dropping the future ends the work.
    fn compile(&self, work: Compilation) -> Running<'_, CompileResult>;

    /// Packs the files of `owner`, a function, to a bundle. The node does not parse them. Dropping
    /// the future ends the work.
    fn pack<'a>(&'a self, owner: &'a str, files: Bytes)
    -> Running<'a, Result<Bytes, CompileError>>;

    /// Takes code that is stored: it need not be read before it is needed. Nothing where it is
    /// read now and is not there.
    fn load(&self, stored: Stored) -> Running<'_, Result<Option<Arc<dyn Code>>, PlatformError>>;

    /// Waits until there is what all functions are made over, and tells it from any other:
    /// their images are good with that only. Nothing where there are no images.
    fn shared(&self) -> Running<'_, Option<String>> {
        Box::pin(async { None })
    }

    /// Notes that requests may come for a function with this memory limit.
    fn note_function_added(&self, memory_limit: u64) {
        let _ = memory_limit;
    }

    /// Notes that no more requests come for a function that was added with this memory limit.
    fn note_function_removed(&self, memory_limit: u64) {
        let _ = memory_limit;
    }

    /// How many microVMs there are now, by what they do.
    fn stats(&self) -> PoolStats {
        PoolStats::default()
    }

    /// The seeds that it has, parents before children.
    fn tree(&self) -> Vec<SeedInfo> {
        Vec::new()
    }

    /// How many compilations, or makings of seeds, come before that of this function; nothing where
    /// none of its own is queued.
    fn queued_behind(&self, function: &str) -> Option<usize> {
        let _ = function;
        None
    }

    /// Of how many functions instances can be parked ahead of requests; 0 where none are.
    fn provided_functions(&self) -> usize {
        0
    }

    /// Instances that each function is to have at all times.
    fn min_parked(&self) -> usize {
        0
    }

    /// What starts the processes that make functions' requests, if anything does.
    fn processes(&self) -> Option<Arc<dyn Processes>> {
        None
    }

    /// Ends everything the engine started.
    fn shutdown(&self) -> Running<'_, ()>;
}

/// Code that is stored, and what is known of it.
#[derive(Debug)]
pub struct Stored {
    /// What the function is.
    pub kind: FunctionKind,
    /// Size of the code.
    pub bytes: u64,
    /// What it is known by.
    pub digest: CodeDigest,
    /// Where it is.
    pub source: Arc<dyn CodeSource>,
    /// The code itself, where somebody has it in memory.
    pub here: Option<Arc<SealedCode>>,
}

/// A compiled function.
pub trait Code: fmt::Debug + Send + Sync {
    /// What the function is.
    fn kind(&self) -> FunctionKind;

    /// Full names of the module's imports; empty for loaded code.
    fn imports(&self) -> &[String] {
        &[]
    }

    /// Whether the module has what initialises it though nobody has named it; `false` for
    /// loaded code.
    fn has_initialiser(&self) -> bool {
        false
    }

    /// Whether it is a component that takes scripts; `false` for loaded code.
    fn is_engine(&self) -> bool {
        false
    }

    /// Has what all scripts of this engine share made and kept, for as long as the code is.
    fn warm<'a>(&'a self, name: &'a str) -> Running<'a, Result<(), SeedError>> {
        let _ = name;
        Box::pin(async { Ok(()) })
    }

    /// Whether that is in memory.
    fn is_warm(&self) -> bool {
        false
    }

    /// What came of having it made so that it can be initialised, if it was.
    fn initialising(&self) -> Option<&Initialising> {
        None
    }

    /// Whether it tells what it has become, and serves no requests.
    fn tells_state(&self) -> bool {
        matches!(self.initialising(), Some(Initialising::By(_)))
    }

    /// Initialises the module that it was compiled from: another of at most `most_bytes`,
    /// which begins there, and what initialising it drew.
    fn initialise<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        module: &'a [u8],
        most_bytes: usize,
    ) -> Running<'a, Result<(Bytes, FreezeReport), InitialiseError>> {
        let _ = (spec, module, most_bytes);
        let refused = InitialiseError::Refused("there is nothing that initialises it".to_owned());
        Box::pin(async { Err(refused) })
    }

    /// The code as bytes, for storing.
    ///
    /// # Errors
    /// When the memory that holds it cannot be read, or it is not in memory.
    fn bytes(&self) -> io::Result<Vec<u8>>;

    /// The code in memory, where it is code of the pool's.
    fn sealed(&self) -> Option<Arc<SealedCode>> {
        None
    }

    /// It is stored: from now on it may leave memory, and come back from there.
    fn is_stored_at(&self, source: Arc<dyn CodeSource>, digest: CodeDigest) {
        let _ = (source, digest);
    }

    /// Makes the code ready to serve requests.
    fn seed<'a>(&'a self, spec: &'a FunctionSpec) -> Running<'a, SeedResult>;

    /// Takes the code up as ready, of which a seed was made before: this one's is made when a
    /// request comes, which may be at once, or by [`FunctionVersion::make_ahead`].
    fn adopt<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        known: Known,
    ) -> Running<'a, Result<Arc<dyn FunctionVersion>, SeedError>> {
        let _ = known;
        Box::pin(async move { Ok(self.seed(spec).await?.0) })
    }

    /// Takes the code up as ready by the image that was put in its seed's place, from elsewhere,
    /// without initialising anything; why not, where that is not good here.
    fn restore<'a>(&'a self, spec: &'a FunctionSpec, known: Known) -> Running<'a, RestoreResult> {
        let _ = (spec, known);
        Box::pin(async { Ok(Err(ImageError::Foreign)) })
    }
}

/// A function that is ready to serve requests.
pub trait FunctionVersion: fmt::Debug + Send + Sync {
    /// Runs one request in an instance of its own.
    fn invoke(&self, call: Call) -> Running<'_, Result<Reply, InvokeError>>;

    /// Whether it is in memory. It may not be made yet, or have been evicted.
    fn is_in_memory(&self) -> bool {
        true
    }

    /// Bytes of its image on disk, as they were noted when it was written or read; nothing where
    /// there is none.
    fn image_bytes(&self) -> Option<u64> {
        None
    }

    /// What its image has, if there is one.
    fn describe_image(&self) -> Running<'_, Result<Option<ImageInfo>, ImageError>> {
        Box::pin(async { Ok(None) })
    }

    /// Has it in memory, read from its image or made; says whether it was read.
    fn have(&self) -> Running<'_, Result<bool, SeedError>> {
        Box::pin(async { Ok(false) })
    }

    /// Has it made when nothing else is, unless a request asks for it before, as far as less than
    /// half of the memory for seeds is taken.
    fn make_ahead(&self) {}

    /// It serves: instances of it are parked ahead of requests from now on, as many as there are
    /// to be, as far as they fit. It is made for that, as far as it fits the memory for seeds.
    fn provide(&self) {}

    /// The same, and waits until they are there, as far as they can be.
    fn provided(&self) -> Running<'_, ()> {
        Box::pin(async {})
    }

    /// What it lacks of them, and what keeps them from being made; nothing where it has all, or
    /// they are being made.
    fn lacking(&self) -> Option<Lacking> {
        None
    }

    /// Counts again what its function holds in memory, and has that fit what it may.
    fn fit(&self) {}

    /// Has an image of it written where there is none that is good, when nothing else is to be
    /// done; it need not be in memory then.
    fn have_image(&self) -> Running<'_, ()> {
        Box::pin(async {})
    }

    /// Whether a request would have a place now.
    fn has_room(&self) -> bool {
        true
    }

    /// Whose places its requests take, where they are counted.
    fn share(&self) -> Option<Share> {
        None
    }

    /// Cuts the request that has waited longest for its client, if one has waited at all;
    /// says whether it did.
    fn evict(&self) -> bool {
        false
    }
}

impl Processes for faasw_pool::Egress {
    fn names(&self) -> Running<'_, io::Result<NameFiles>> {
        Box::pin(async {
            let [hosts, servers] = Self::names(self).await?;
            Ok(NameFiles { hosts, servers })
        })
    }

    fn connector(&self) -> Running<'_, io::Result<NewConnector>> {
        Box::pin(async {
            let made = Self::connector(self).await.map_err(io::Error::other)?;
            Ok(NewConnector {
                process: Box::new(made.process),
                socket: made.socket,
            })
        })
    }

    fn worker(&self) -> Running<'_, io::Result<NewWorker>> {
        Box::pin(async {
            let made = Self::worker(self).await.map_err(io::Error::other)?;
            Ok(NewWorker {
                process: Box::new(made.process),
                socket: made.socket,
                passing: made.passing,
            })
        })
    }
}

impl Backend for Pool {
    fn generation(&self) -> String {
        Self::generation(self)
    }

    fn compile(&self, work: Compilation) -> Running<'_, CompileResult> {
        Box::pin(async {
            let (compiled, kept) = self.compile_for(work).await?;
            Ok((code_of(self, compiled), kept))
        })
    }

    fn pack<'a>(
        &'a self,
        owner: &'a str,
        files: Bytes,
    ) -> Running<'a, Result<Bytes, CompileError>> {
        Box::pin(async move { Self::pack(self, owner, &files).await })
    }

    fn queued_behind(&self, function: &str) -> Option<usize> {
        Self::queued_behind(self, function)
    }

    fn load(&self, stored: Stored) -> Running<'_, Result<Option<Arc<dyn Code>>, PlatformError>> {
        let Stored {
            kind,
            bytes,
            digest,
            source,
            here,
        } = stored;
        let compiled = Compiled::stored(kind, source, bytes, digest, here.as_ref());
        let code = code_of(self, compiled);
        Box::pin(async { Ok(Some(code)) })
    }

    fn shared(&self) -> Running<'_, Option<String>> {
        // Why there is none is told where it was to be made.
        Box::pin(async { self.shared_content().await.ok().flatten() })
    }

    fn note_function_added(&self, memory_limit: u64) {
        Self::note_function_added(self, memory_limit);
    }

    fn note_function_removed(&self, memory_limit: u64) {
        Self::note_function_removed(self, memory_limit);
    }

    fn stats(&self) -> PoolStats {
        Self::stats(self)
    }

    fn tree(&self) -> Vec<SeedInfo> {
        Self::tree(self)
    }

    fn provided_functions(&self) -> usize {
        Self::provided_functions(self)
    }

    fn min_parked(&self) -> usize {
        Self::min_parked(self)
    }

    fn processes(&self) -> Option<Arc<dyn Processes>> {
        Some(Arc::new(self.egress()))
    }

    fn shutdown(&self) -> Running<'_, ()> {
        Box::pin(Self::shutdown(self))
    }
}

/// The seam's view of the pool's code.
fn code_of(pool: &Pool, compiled: Compiled) -> Arc<dyn Code> {
    Arc::new(PoolCode {
        pool: pool.clone(),
        compiled,
        engine: OnceLock::new(),
    })
}

struct PoolCode {
    pool: Pool,
    compiled: Compiled,
    /// What its scripts share, where it is an engine that has some.
    engine: OnceLock<Arc<LanguageEngine>>,
}

impl PoolCode {
    /// The seam's view of the pool's seed.
    fn ready(&self, version: faasw_pool::FunctionVersion) -> Arc<dyn FunctionVersion> {
        Arc::new(PoolVersion {
            pool: self.pool.clone(),
            version,
        })
    }
}

impl Code for PoolCode {
    fn kind(&self) -> FunctionKind {
        self.compiled.kind
    }

    fn imports(&self) -> &[String] {
        &self.compiled.imports
    }

    fn has_initialiser(&self) -> bool {
        self.compiled.has_initialiser
    }

    fn is_engine(&self) -> bool {
        self.compiled.is_engine
    }

    fn warm<'a>(&'a self, name: &'a str) -> Running<'a, Result<(), SeedError>> {
        Box::pin(async {
            let engine = self.pool.warm(name, &self.compiled).await?;
            // Whoever came first has set the same.
            self.engine.get_or_init(|| engine);
            Ok(())
        })
    }

    fn is_warm(&self) -> bool {
        self.engine
            .get()
            .is_some_and(|engine| engine.is_in_memory())
    }

    fn initialising(&self) -> Option<&Initialising> {
        self.compiled.initialising.as_ref()
    }

    fn initialise<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        module: &'a [u8],
        most_bytes: usize,
    ) -> Running<'a, Result<(Bytes, FreezeReport), InitialiseError>> {
        Box::pin(
            self.pool
                .initialise(spec, &self.compiled, module, most_bytes),
        )
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        self.compiled.bytes()
    }

    fn sealed(&self) -> Option<Arc<SealedCode>> {
        self.compiled.code()
    }

    fn is_stored_at(&self, source: Arc<dyn CodeSource>, digest: CodeDigest) {
        self.compiled.is_stored_at(source, digest);
    }

    fn seed<'a>(&'a self, spec: &'a FunctionSpec) -> Running<'a, SeedResult> {
        Box::pin(async move {
            if let Some(script) = &spec.script {
                // The next script is not to wait for it.
                self.warm(&script.engine).await?;
            }
            let (version, report) = self.pool.make_seed(spec, &self.compiled).await?;
            Ok((self.ready(version), report))
        })
    }

    fn adopt<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        known: Known,
    ) -> Running<'a, Result<Arc<dyn FunctionVersion>, SeedError>> {
        Box::pin(async move {
            if let Some(script) = &spec.script {
                let engine = self.pool.engine(&script.engine, &self.compiled)?;
                self.engine.get_or_init(|| engine);
            }
            let version = self.pool.adopt(spec, &self.compiled, known)?;
            Ok(self.ready(version))
        })
    }

    fn restore<'a>(&'a self, spec: &'a FunctionSpec, known: Known) -> Running<'a, RestoreResult> {
        Box::pin(async move {
            if let Some(script) = &spec.script {
                self.warm(&script.engine).await?;
            }
            let restored = self.pool.restore(spec, &self.compiled, known).await?;
            Ok(restored.map(|version| self.ready(version)))
        })
    }
}

impl fmt::Debug for PoolCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolCode").finish_non_exhaustive()
    }
}

struct PoolVersion {
    pool: Pool,
    version: faasw_pool::FunctionVersion,
}

impl FunctionVersion for PoolVersion {
    fn invoke(&self, call: Call) -> Running<'_, Result<Reply, InvokeError>> {
        Box::pin(self.pool.invoke(&self.version, call))
    }

    fn is_in_memory(&self) -> bool {
        self.pool.has_frozen(&self.version)
    }

    fn image_bytes(&self) -> Option<u64> {
        self.pool.image_bytes(&self.version)
    }

    fn describe_image(&self) -> Running<'_, Result<Option<ImageInfo>, ImageError>> {
        Box::pin(self.pool.describe_image(&self.version))
    }

    fn have(&self) -> Running<'_, Result<bool, SeedError>> {
        Box::pin(self.pool.have(&self.version))
    }

    fn make_ahead(&self) {
        self.pool.make_in_the_background(&self.version);
    }

    fn provide(&self) {
        self.pool.provide(&self.version);
    }

    fn provided(&self) -> Running<'_, ()> {
        Box::pin(self.pool.provided(&self.version))
    }

    fn lacking(&self) -> Option<Lacking> {
        self.pool.lacking(&self.version)
    }

    fn fit(&self) {
        self.pool.fit(&self.version);
    }

    fn have_image(&self) -> Running<'_, ()> {
        Box::pin(self.pool.have_image(&self.version))
    }

    fn has_room(&self) -> bool {
        self.pool.has_room(&self.version)
    }

    fn share(&self) -> Option<Share> {
        Some(Share::of(&self.version))
    }

    fn evict(&self) -> bool {
        self.pool.evict(&self.version)
    }
}

impl fmt::Debug for PoolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolSeed").finish_non_exhaustive()
    }
}

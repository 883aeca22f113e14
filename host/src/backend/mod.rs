//! The seam between the node and the component that runs functions.
//!
//! A node uses a [`Backend`] and the objects that it returns: [`Code`] from compiling, and a
//! [`ServableVersion`] from making code ready. The pool is the backend of every real node. Tests
//! use a fake instead, because the pool needs `/dev/kvm` and the rules for names, requests, storage
//! and limits do not.

mod pool;

use std::{fmt, future::Future, io, pin::Pin, sync::Arc};

use bytes::Bytes;
use faasw_abi::wire::FunctionKind;
use faasw_pool::{
    CodeDigest, CodeSource, Compilation, CompileError, EarlierBuild, FreezeReport, FunctionSpec,
    ImageError, ImageInfo, InitialisationPlan, InitialiseError, InvocationRequest, InvokeError,
    PermitShare, PlatformError, PoolStats, Reply, SealedCode, SeedError, SeedInfo, WarmShortfall,
};

use crate::services::outbound::EgressProcesses;

/// A boxed future, as a backend's methods return it.
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of making a seed.
pub type SeedResult = Result<(Arc<dyn ServableVersion>, FreezeReport), SeedError>;

/// The result of reading a seed from an image. The inner error says why the image was not used.
pub type RestoreResult = Result<Result<Arc<dyn ServableVersion>, ImageError>, SeedError>;

/// The result of compiling: the code, and the bytes to keep for the next compilation.
pub type CompileResult = Result<(Arc<dyn Code>, Bytes), CompileError>;

/// Compiles functions.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Returns an identifier of everything that compiled code depends on besides its module. It is
    /// part of file names. Code of another generation is never loaded.
    fn generation(&self) -> String;

    /// Compiles a module. [`Code::initialising`] has the outcome of preparing the module for
    /// initialisation. Also returns the bytes to keep for the next compilation of the same
    /// function, which may be empty. Dropping the future stops the work.
    fn compile(&self, work: Compilation) -> BackendFuture<'_, CompileResult>;

    /// Packs the files of the function `owner` into a bundle. The node does not parse the files.
    /// Dropping the future stops the work.
    fn pack<'a>(
        &'a self,
        owner: &'a str,
        files: Bytes,
    ) -> BackendFuture<'a, Result<Bytes, CompileError>>;

    /// Loads stored code, which need not be read before it is needed. Returns `None` if the backend
    /// reads the code now and it is missing.
    fn load(
        &self,
        stored: StoredCodeInfo,
    ) -> BackendFuture<'_, Result<Option<Arc<dyn Code>>, PlatformError>>;

    /// Waits until the base that all functions share exists, and returns an identifier of it.
    /// Images of functions are valid with that base only. Returns `None` if there are no images.
    fn shared(&self) -> BackendFuture<'_, Option<String>> {
        Box::pin(async { None })
    }

    /// Notes that requests may arrive for a function with this memory limit.
    fn note_function_added(&self, memory_limit: u64) {
        let _ = memory_limit;
    }

    /// Notes that no more requests arrive for a function that was added with this memory limit.
    fn note_function_removed(&self, memory_limit: u64) {
        let _ = memory_limit;
    }

    /// Returns statistics, for example the number of microVMs by state.
    fn stats(&self) -> PoolStats {
        PoolStats::default()
    }

    /// Returns all seeds, parents before children.
    fn tree(&self) -> Vec<SeedInfo> {
        Vec::new()
    }

    /// Returns how many compilations or seeds are queued before the one of this function, or `None`
    /// if the function has nothing queued.
    fn queued_behind(&self, function: &str) -> Option<usize> {
        let _ = function;
        None
    }

    /// Returns for how many functions instances can be warm ahead of requests; 0 if for none.
    fn provided_functions(&self) -> usize {
        0
    }

    /// Returns the number of instances that each function has at all times.
    fn min_warm(&self) -> usize {
        0
    }

    /// Returns the component that starts the processes for outbound calls, if there is one.
    fn processes(&self) -> Option<Arc<dyn EgressProcesses>> {
        None
    }

    /// Ends everything that the backend started.
    fn shutdown(&self) -> BackendFuture<'_, ()>;
}

/// Stored code and what is known about it.
#[derive(Debug)]
pub struct StoredCodeInfo {
    /// The kind of the function.
    pub kind: FunctionKind,
    /// Size of the code in bytes.
    pub bytes: u64,
    /// The digest that identifies the code.
    pub digest: CodeDigest,
    /// Where the code is stored.
    pub source: Arc<dyn CodeSource>,
    /// The code itself, if it is in memory.
    pub here: Option<Arc<SealedCode>>,
}

/// A compiled function.
pub trait Code: fmt::Debug + Send + Sync {
    /// Returns the kind of the function.
    fn kind(&self) -> FunctionKind;

    /// Returns the full names of the module's imports; empty for loaded code.
    fn imports(&self) -> &[String] {
        &[]
    }

    /// Whether the module has an initialiser although no option names one; `false` for loaded code.
    fn has_initialiser(&self) -> bool {
        false
    }

    /// Whether the module is a component that runs scripts; `false` for loaded code.
    fn is_engine(&self) -> bool {
        false
    }

    /// Makes the seed that all scripts of this engine share. It may stay in memory for as long as
    /// the code exists.
    fn warm<'a>(&'a self, name: &'a str) -> BackendFuture<'a, Result<(), SeedError>> {
        let _ = name;
        Box::pin(async { Ok(()) })
    }

    /// Whether the seed that all scripts of this engine share is in memory.
    fn is_warm(&self) -> bool {
        false
    }

    /// Returns the outcome of preparing the module for initialisation, if it was prepared.
    fn initialising(&self) -> Option<&InitialisationPlan> {
        None
    }

    /// Whether the code reports the state of the initialised module and serves no requests.
    fn only_reports_state(&self) -> bool {
        matches!(self.initialising(), Some(InitialisationPlan::By(_)))
    }

    /// Initialises the module that the code was compiled from. Returns a module of at most
    /// `most_bytes` bytes that starts in the initialised state, and a report.
    fn initialise<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        module: &'a [u8],
        most_bytes: usize,
    ) -> BackendFuture<'a, Result<(Bytes, FreezeReport), InitialiseError>> {
        let _ = (spec, module, most_bytes);
        let refused = InitialiseError::Refused("there is nothing that initialises it".to_owned());
        Box::pin(async { Err(refused) })
    }

    /// Returns the code as bytes, for storing.
    ///
    /// # Errors
    /// Returns an error if the code is not in memory, or if the memory that holds it cannot be
    /// read.
    fn bytes(&self) -> io::Result<Vec<u8>>;

    /// Returns the code in memory, if it is the pool's.
    fn sealed(&self) -> Option<Arc<SealedCode>> {
        None
    }

    /// Notes that the code is stored: from now on it may be evicted from memory and read again from
    /// `source`.
    fn is_stored_at(&self, source: Arc<dyn CodeSource>, digest: CodeDigest) {
        let _ = (source, digest);
    }

    /// Makes the code ready to serve requests.
    fn seed<'a>(&'a self, spec: &'a FunctionSpec) -> BackendFuture<'a, SeedResult>;

    /// Registers code whose seed was made before. Its seed is read from its image or made again
    /// when a request arrives, which may be at once, or by [`ServableVersion::prewarm_seed`].
    fn register_existing<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        known: EarlierBuild,
    ) -> BackendFuture<'a, Result<Arc<dyn ServableVersion>, SeedError>> {
        let _ = known;
        Box::pin(async move { Ok(self.seed(spec).await?.0) })
    }

    /// Registers code whose seed is read from an image that came from elsewhere, without
    /// initialising anything. Returns the reason if the image cannot be used here.
    fn restore<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        known: EarlierBuild,
    ) -> BackendFuture<'a, RestoreResult> {
        let _ = (spec, known);
        Box::pin(async { Ok(Err(ImageError::Foreign)) })
    }
}

/// A function that is ready to serve requests.
pub trait ServableVersion: fmt::Debug + Send + Sync {
    /// Runs one request in an instance of its own.
    fn invoke(&self, call: InvocationRequest) -> BackendFuture<'_, Result<Reply, InvokeError>>;

    /// Whether the seed is in memory. It may not have been made yet, or may have been evicted.
    fn is_in_memory(&self) -> bool {
        true
    }

    /// Returns the size of the image on disk in bytes, as noted when the image was written or read,
    /// or `None` if there is no image.
    fn image_bytes(&self) -> Option<u64> {
        None
    }

    /// Describes the image, if there is one.
    fn describe_image(&self) -> BackendFuture<'_, Result<Option<ImageInfo>, ImageError>> {
        Box::pin(async { Ok(None) })
    }

    /// Makes sure that the seed is in memory, read from its image or made. Returns whether it was
    /// read.
    fn ensure_in_memory(&self) -> BackendFuture<'_, Result<bool, SeedError>> {
        Box::pin(async { Ok(false) })
    }

    /// Makes the seed in the background, unless a request needs it earlier. Does so only while less
    /// than half of the memory for seeds is used.
    fn prewarm_seed(&self) {}

    /// Notes that the version serves requests. From now on the backend keeps instances of it warm
    /// ahead of requests, as many as configured, as far as they fit. It makes the seed for that, as
    /// far as the seed fits the memory for seeds.
    fn provide(&self) {}

    /// Does what [`ServableVersion::provide`] does, and waits until the instances exist, as far as
    /// they can.
    fn provided(&self) -> BackendFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Returns which of these instances are missing and why, or `None` if all exist or are being
    /// made.
    fn shortfall(&self) -> Option<WarmShortfall> {
        None
    }

    /// Recounts what the function holds in memory, and reduces that to its budget.
    fn shrink_to_budget(&self) {}

    /// Makes sure that a valid image of the seed exists, in the background. The seed need not be in
    /// memory afterwards.
    fn ensure_image(&self) -> BackendFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Whether a request would get a slot now.
    fn has_free_slot(&self) -> bool {
        true
    }

    /// Returns the share that the version's requests count in, if slots are counted.
    fn share(&self) -> Option<PermitShare> {
        None
    }

    /// Cuts the request that has waited longest for its client, if any has waited. Returns whether
    /// it cut one.
    fn evict(&self) -> bool {
        false
    }
}

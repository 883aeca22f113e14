//! The seam between the node and the component that runs functions.
//!
//! A node compiles uploads with a [`Backend`], makes the code servable with it, and sends requests
//! to the [`ServableVersion`] that results. The pool is the backend of every real node. Tests use a
//! fake instead, because the pool needs `/dev/kvm` and the rules for names, requests, storage and
//! limits do not.
//!
//! There are two traits because their objects live for different times: a backend as long as its
//! node, a version as long as a function or a request holds it. Dropping a version frees its seed.
//! Compiled code is the pool's own type, because it needs no microVM. No method has a default, so
//! that every backend states what it does.

mod pool;

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;
use faasw_pool::{
    Compilation, CompileError, CompileOutput, CompiledFunction, EarlierBuild, FunctionSpec,
    ImageError, ImageInfo, InitialiseError, InitialisedModule, InvocationRequest, InvokeError,
    PermitShare, PoolStats, Reply, SeedError, SeedInfo, SeededVersion, WarmShortfall,
};

pub use crate::services::outbound::EgressProcesses;

/// A boxed future, as a backend's methods return it.
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of reading a seed from an image. The inner error says why the image is not used.
pub type RestoreResult = Result<Result<Arc<dyn ServableVersion>, ImageError>, SeedError>;

/// Compiles functions and makes them servable.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Returns an identifier of everything that compiled code depends on besides its module. It is
    /// part of file names. Code of another generation is never loaded.
    fn generation(&self) -> String;

    /// Compiles a module. Dropping the future stops the work.
    fn compile(&self, work: Compilation) -> BackendFuture<'_, Result<CompileOutput, CompileError>>;

    /// Packs the files of the function `owner` into a bundle. The node does not parse the files.
    /// Dropping the future stops the work.
    fn pack<'a>(
        &'a self,
        owner: &'a str,
        files: Bytes,
    ) -> BackendFuture<'a, Result<Bytes, CompileError>>;

    /// Initialises the module that `code` was compiled from. The result has at most `most_bytes`
    /// bytes.
    fn initialise<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        code: &'a CompiledFunction,
        module: &'a [u8],
        most_bytes: usize,
    ) -> BackendFuture<'a, Result<InitialisedModule, InitialiseError>>;

    /// Makes the seed that all scripts of the engine `name` share. It may stay in memory for as
    /// long as the engine's code exists.
    fn warm_engine<'a>(
        &'a self,
        name: &'a str,
        code: &'a CompiledFunction,
    ) -> BackendFuture<'a, Result<(), SeedError>>;

    /// Makes the seed of a function version.
    fn make_seed<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        code: &'a CompiledFunction,
    ) -> BackendFuture<'a, Result<SeededVersion<Arc<dyn ServableVersion>>, SeedError>>;

    /// Registers a version whose seed was made before. Its seed is read from its image or made
    /// again when a request arrives, which may be at once, or by
    /// [`ServableVersion::prewarm_seed`].
    fn register_existing<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        code: &'a CompiledFunction,
        known: EarlierBuild,
    ) -> BackendFuture<'a, Result<Arc<dyn ServableVersion>, SeedError>>;

    /// Registers a version whose seed is read from an image that came from elsewhere, without
    /// initialising anything. The inner error says why the image cannot be used here.
    fn restore<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        code: &'a CompiledFunction,
        known: EarlierBuild,
    ) -> BackendFuture<'a, RestoreResult>;

    /// Waits until the base that all functions share exists, and returns an identifier of it.
    /// Images of functions are valid with that base only. Returns `None` if there are no images.
    fn shared_content(&self) -> BackendFuture<'_, Option<String>>;

    /// Notes that requests may arrive for a function with this memory limit.
    fn note_function_added(&self, memory_limit: u64);

    /// Notes that no more requests arrive for a function that was added with this memory limit.
    fn note_function_removed(&self, memory_limit: u64);

    /// Returns statistics, for example the number of microVMs by state.
    fn stats(&self) -> PoolStats;

    /// Returns all seeds, parents before children.
    fn tree(&self) -> Vec<SeedInfo>;

    /// Returns how many compilations or seeds are queued before the one of this function, or `None`
    /// if the function has nothing queued.
    fn queued_behind(&self, function: &str) -> Option<usize>;

    /// Returns for how many functions instances can be warm ahead of requests; 0 if for none.
    fn provided_functions(&self) -> usize;

    /// Returns the number of instances that each function has at all times.
    fn min_warm(&self) -> usize;

    /// Returns the component that starts the processes for outbound calls, if there is one.
    fn egress(&self) -> Option<Arc<dyn EgressProcesses>>;

    /// Ends everything that the backend started.
    fn shutdown(&self) -> BackendFuture<'_, ()>;
}

/// A function version that serves requests.
pub trait ServableVersion: fmt::Debug + Send + Sync {
    /// Runs one request in an instance of its own.
    fn invoke(&self, call: InvocationRequest) -> BackendFuture<'_, Result<Reply, InvokeError>>;

    /// Whether a request would get an admission permit now.
    fn has_free_permit(&self) -> bool;

    /// Returns the share that the version's requests count in, if permits are counted.
    fn share(&self) -> Option<PermitShare>;

    /// Evicts the request that has waited longest for its client, if any has waited. Returns
    /// whether it evicted one.
    fn evict(&self) -> bool;

    /// Whether the seed is in memory. It may not have been made yet, or may have been evicted.
    fn is_in_memory(&self) -> bool;

    /// Makes sure that the seed is in memory, read from its image or made. Returns whether it was
    /// read.
    fn ensure_in_memory(&self) -> BackendFuture<'_, Result<bool, SeedError>>;

    /// Makes the seed in the background, unless a request needs it earlier. Does so only while less
    /// than half of the memory for seeds is used.
    fn prewarm_seed(&self);

    /// Notes that the version serves requests. From now on the backend keeps instances of it warm
    /// ahead of requests, as many as configured, as far as they fit. It makes the seed for that, as
    /// far as the seed fits the memory for seeds.
    fn provision(&self);

    /// Does what [`ServableVersion::provision`] does, and waits until the instances exist, as far
    /// as they can.
    fn provision_and_wait(&self) -> BackendFuture<'_, ()>;

    /// Returns which of these instances are missing and why, or `None` if all exist or are being
    /// made.
    fn shortfall(&self) -> Option<WarmShortfall>;

    /// Recounts what the function holds in memory, and reduces that to its budget.
    fn shrink_to_budget(&self);

    /// Returns the size of the image on disk in bytes, as noted when the image was written or read,
    /// or `None` if there is no image.
    fn image_bytes(&self) -> Option<u64>;

    /// Describes the image, if there is one.
    fn describe_image(&self) -> BackendFuture<'_, Result<Option<ImageInfo>, ImageError>>;

    /// Makes sure that a valid image of the seed exists, in the background. The seed need not be in
    /// memory afterwards.
    fn ensure_image(&self) -> BackendFuture<'_, ()>;
}

//! The pool as the backend of a node.

use std::{
    fmt, io,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use faasw_abi::wire::FunctionKind;
use faasw_pool::{
    CodeDigest, CodeSource, Compilation, CompileError, CompiledFunction, EarlierBuild,
    FreezeReport, FunctionSpec, ImageError, ImageInfo, InitialisationPlan, InitialiseError,
    InvocationRequest, InvokeError, LanguageEngine, PermitShare, PlatformError, Pool, PoolStats,
    Reply, SealedCode, SeedError, SeedInfo, WarmShortfall,
};

use super::{
    Backend, BackendFuture, Code, CompileResult, RestoreResult, SeedResult, ServableVersion,
    StoredCodeInfo,
};
use crate::services::outbound::{EgressProcesses, NameFiles, NewConnector, NewWorker};

impl EgressProcesses for faasw_pool::Egress {
    fn names(&self) -> BackendFuture<'_, io::Result<NameFiles>> {
        Box::pin(async {
            let [hosts, servers] = Self::names(self).await?;
            Ok(NameFiles { hosts, servers })
        })
    }

    fn connector(&self) -> BackendFuture<'_, io::Result<NewConnector>> {
        Box::pin(async {
            let made = Self::connector(self).await.map_err(io::Error::other)?;
            Ok(NewConnector {
                process: Box::new(made.process),
                socket: made.socket,
            })
        })
    }

    fn worker(&self) -> BackendFuture<'_, io::Result<NewWorker>> {
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

    fn compile(&self, work: Compilation) -> BackendFuture<'_, CompileResult> {
        Box::pin(async {
            let (compiled, kept) = self.compile_for(work).await?;
            Ok((wrap_code(self, compiled), kept))
        })
    }

    fn pack<'a>(
        &'a self,
        owner: &'a str,
        files: Bytes,
    ) -> BackendFuture<'a, Result<Bytes, CompileError>> {
        Box::pin(async move { Self::pack(self, owner, &files).await })
    }

    fn queued_behind(&self, function: &str) -> Option<usize> {
        Self::queued_behind(self, function)
    }

    fn load(
        &self,
        stored: StoredCodeInfo,
    ) -> BackendFuture<'_, Result<Option<Arc<dyn Code>>, PlatformError>> {
        let StoredCodeInfo {
            kind,
            bytes,
            digest,
            source,
            here,
        } = stored;
        let compiled = CompiledFunction::stored(kind, source, bytes, digest, here.as_ref());
        let code = wrap_code(self, compiled);
        Box::pin(async { Ok(Some(code)) })
    }

    fn shared(&self) -> BackendFuture<'_, Option<String>> {
        // The pool reports why there is none where it tries to make it.
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

    fn min_warm(&self) -> usize {
        Self::min_warm(self)
    }

    fn processes(&self) -> Option<Arc<dyn EgressProcesses>> {
        Some(Arc::new(self.egress()))
    }

    fn shutdown(&self) -> BackendFuture<'_, ()> {
        Box::pin(Self::shutdown(self))
    }
}

/// Wraps the pool's code.
fn wrap_code(pool: &Pool, compiled: CompiledFunction) -> Arc<dyn Code> {
    Arc::new(PoolCode {
        pool: pool.clone(),
        compiled,
        engine: OnceLock::new(),
    })
}

struct PoolCode {
    pool: Pool,
    compiled: CompiledFunction,
    /// The state that the scripts share, if the code is an engine's.
    engine: OnceLock<Arc<LanguageEngine>>,
}

impl PoolCode {
    /// Wraps the pool's function version.
    fn wrap_version(&self, version: faasw_pool::FunctionVersion) -> Arc<dyn ServableVersion> {
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

    fn warm<'a>(&'a self, name: &'a str) -> BackendFuture<'a, Result<(), SeedError>> {
        Box::pin(async {
            let engine = self.pool.make_engine_seed(name, &self.compiled).await?;
            // Concurrent calls return the same engine.
            self.engine.get_or_init(|| engine);
            Ok(())
        })
    }

    fn is_warm(&self) -> bool {
        self.engine
            .get()
            .is_some_and(|engine| engine.is_in_memory())
    }

    fn initialising(&self) -> Option<&InitialisationPlan> {
        self.compiled.initialising.as_ref()
    }

    fn initialise<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        module: &'a [u8],
        most_bytes: usize,
    ) -> BackendFuture<'a, Result<(Bytes, FreezeReport), InitialiseError>> {
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

    fn seed<'a>(&'a self, spec: &'a FunctionSpec) -> BackendFuture<'a, SeedResult> {
        Box::pin(async move {
            if let Some(script) = &spec.script {
                // Warming the engine now keeps the next script from waiting for it.
                self.warm(&script.engine).await?;
            }
            let (version, report) = self.pool.make_seed(spec, &self.compiled).await?;
            Ok((self.wrap_version(version), report))
        })
    }

    fn register_existing<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        known: EarlierBuild,
    ) -> BackendFuture<'a, Result<Arc<dyn ServableVersion>, SeedError>> {
        Box::pin(async move {
            if let Some(script) = &spec.script {
                let engine = self.pool.engine(&script.engine, &self.compiled)?;
                self.engine.get_or_init(|| engine);
            }
            let version = self.pool.register_existing(spec, &self.compiled, known)?;
            Ok(self.wrap_version(version))
        })
    }

    fn restore<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        known: EarlierBuild,
    ) -> BackendFuture<'a, RestoreResult> {
        Box::pin(async move {
            if let Some(script) = &spec.script {
                self.warm(&script.engine).await?;
            }
            let restored = self.pool.restore(spec, &self.compiled, known).await?;
            Ok(restored.map(|version| self.wrap_version(version)))
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

impl ServableVersion for PoolVersion {
    fn invoke(&self, call: InvocationRequest) -> BackendFuture<'_, Result<Reply, InvokeError>> {
        Box::pin(self.pool.invoke(&self.version, call))
    }

    fn is_in_memory(&self) -> bool {
        self.pool.has_seed_in_memory(&self.version)
    }

    fn image_bytes(&self) -> Option<u64> {
        self.pool.image_bytes(&self.version)
    }

    fn describe_image(&self) -> BackendFuture<'_, Result<Option<ImageInfo>, ImageError>> {
        Box::pin(self.pool.describe_image(&self.version))
    }

    fn ensure_in_memory(&self) -> BackendFuture<'_, Result<bool, SeedError>> {
        Box::pin(self.pool.ensure_in_memory(&self.version))
    }

    fn prewarm_seed(&self) {
        self.pool.prewarm_seed(&self.version);
    }

    fn provide(&self) {
        self.pool.provision(&self.version);
    }

    fn provided(&self) -> BackendFuture<'_, ()> {
        Box::pin(self.pool.provision_and_wait(&self.version))
    }

    fn shortfall(&self) -> Option<WarmShortfall> {
        self.pool.shortfall(&self.version)
    }

    fn shrink_to_budget(&self) {
        self.pool.fit(&self.version);
    }

    fn ensure_image(&self) -> BackendFuture<'_, ()> {
        Box::pin(self.pool.ensure_image(&self.version))
    }

    fn has_free_slot(&self) -> bool {
        self.pool.has_room(&self.version)
    }

    fn share(&self) -> Option<PermitShare> {
        Some(PermitShare::of(&self.version))
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

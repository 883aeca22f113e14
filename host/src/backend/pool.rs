//! The pool as the backend of a node.

use std::{io, sync::Arc};

use bytes::Bytes;
use faasw_pool::{
    Compilation, CompileError, CompileOutput, CompiledFunction, EarlierBuild, FunctionSpec,
    FunctionVersion, ImageError, ImageInfo, InitialiseError, InitialisedModule, InvocationRequest,
    InvokeError, PermitShare, Pool, PoolStats, Reply, SeedError, SeedInfo, SeededVersion,
    WarmShortfall,
};

use super::{Backend, BackendFuture, RestoreResult, ServableVersion};
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

    fn compile(&self, work: Compilation) -> BackendFuture<'_, Result<CompileOutput, CompileError>> {
        Box::pin(self.compile_for(work))
    }

    fn pack<'a>(
        &'a self,
        owner: &'a str,
        files: Bytes,
    ) -> BackendFuture<'a, Result<Bytes, CompileError>> {
        Box::pin(async move { Self::pack(self, owner, &files).await })
    }

    fn initialise<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        code: &'a CompiledFunction,
        module: &'a [u8],
        most_bytes: usize,
    ) -> BackendFuture<'a, Result<InitialisedModule, InitialiseError>> {
        Box::pin(Self::initialise(self, spec, code, module, most_bytes))
    }

    fn warm_engine<'a>(
        &'a self,
        name: &'a str,
        code: &'a CompiledFunction,
    ) -> BackendFuture<'a, Result<(), SeedError>> {
        Box::pin(Self::warm_engine(self, name, code))
    }

    fn make_seed<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        code: &'a CompiledFunction,
    ) -> BackendFuture<'a, Result<SeededVersion<Arc<dyn ServableVersion>>, SeedError>> {
        Box::pin(async {
            let made = Self::make_seed(self, spec, code).await?;
            Ok(SeededVersion {
                version: PoolVersion::wrap(self, made.version),
                report: made.report,
            })
        })
    }

    fn register_existing<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        code: &'a CompiledFunction,
        known: EarlierBuild,
    ) -> BackendFuture<'a, Result<Arc<dyn ServableVersion>, SeedError>> {
        Box::pin(async move {
            let version = Self::register_existing(self, spec, code, known)?;
            Ok(PoolVersion::wrap(self, version))
        })
    }

    fn restore<'a>(
        &'a self,
        spec: &'a FunctionSpec,
        code: &'a CompiledFunction,
        known: EarlierBuild,
    ) -> BackendFuture<'a, RestoreResult> {
        Box::pin(async move {
            let restored = Self::restore(self, spec, code, known).await?;
            Ok(restored.map(|version| PoolVersion::wrap(self, version)))
        })
    }

    fn shared_content(&self) -> BackendFuture<'_, Option<String>> {
        // The pool reports why there is none where it tries to make it.
        Box::pin(async { Self::shared_content(self).await.ok().flatten() })
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

    fn queued_behind(&self, function: &str) -> Option<usize> {
        Self::queued_behind(self, function)
    }

    fn provided_functions(&self) -> usize {
        Self::provided_functions(self)
    }

    fn min_warm(&self) -> usize {
        Self::min_warm(self)
    }

    fn egress(&self) -> Option<Arc<dyn EgressProcesses>> {
        Some(Arc::new(Self::egress(self)))
    }

    fn shutdown(&self) -> BackendFuture<'_, ()> {
        Box::pin(Self::shutdown(self))
    }
}

/// A function version and the pool that serves it.
#[derive(Debug)]
struct PoolVersion {
    pool: Pool,
    version: FunctionVersion,
}

impl PoolVersion {
    fn wrap(pool: &Pool, version: FunctionVersion) -> Arc<dyn ServableVersion> {
        Arc::new(Self {
            pool: pool.clone(),
            version,
        })
    }
}

impl ServableVersion for PoolVersion {
    fn invoke(&self, call: InvocationRequest) -> BackendFuture<'_, Result<Reply, InvokeError>> {
        Box::pin(self.pool.invoke(&self.version, call))
    }

    fn has_free_permit(&self) -> bool {
        self.pool.has_free_permit(&self.version)
    }

    fn share(&self) -> Option<PermitShare> {
        Some(PermitShare::of(&self.version))
    }

    fn evict(&self) -> bool {
        self.pool.evict(&self.version)
    }

    fn is_in_memory(&self) -> bool {
        self.version.is_in_memory()
    }

    fn ensure_in_memory(&self) -> BackendFuture<'_, Result<bool, SeedError>> {
        Box::pin(self.pool.ensure_in_memory(&self.version))
    }

    fn prewarm_seed(&self) {
        self.version.prewarm_seed();
    }

    fn provision(&self) {
        self.pool.provision(&self.version);
    }

    fn provision_and_wait(&self) -> BackendFuture<'_, ()> {
        Box::pin(self.pool.provision_and_wait(&self.version))
    }

    fn shortfall(&self) -> Option<WarmShortfall> {
        self.pool.shortfall(&self.version)
    }

    fn shrink_to_budget(&self) {
        self.version.shrink_to_budget();
    }

    fn image_bytes(&self) -> Option<u64> {
        self.version.image_bytes()
    }

    fn describe_image(&self) -> BackendFuture<'_, Result<Option<ImageInfo>, ImageError>> {
        Box::pin(self.version.describe_image())
    }

    fn ensure_image(&self) -> BackendFuture<'_, ()> {
        Box::pin(self.version.ensure_image())
    }
}

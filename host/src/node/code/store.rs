//! Compiles code, and keeps it in the registry.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use bytes::Bytes;
use faasw_abi::pages::PageSet;
use faasw_client::{Digest, FunctionName};
use faasw_pool::{
    CodeSource, Compilation, CompileOutput, CompiledFunction, Initialiser, LoadFuture, LoadedCode,
    SealedCode, SeedError,
};
use tokio::sync::Semaphore;

use super::{CodeOwner, DeployableCode};
use crate::{
    backend::Backend,
    error::{DeployError, FilesRefused},
    log::{Event, Observer},
    node::{
        carried_engine::CarriedEngine,
        content::PackedFiles,
        storage::{Storage, blocking},
    },
    registry::{Artifact, CodeProof, NewArtifact, RegistryError, StoredArtifact},
};

/// Artifacts that are read at the same time: with more, each read takes longer, and all of them are
/// in memory.
const READINGS: usize = 8;

/// Size of a module in bytes from which a compile cache is kept: a smaller module compiles in less
/// time than writing the cache takes.
const INCREMENTAL_FROM: usize = 1 << 20;

/// The code of all functions and engines.
#[derive(Debug)]
pub(crate) struct CodeStore {
    backend: Arc<dyn Backend>,
    storage: Arc<Storage>,
    /// Receives an event for each compilation.
    observer: Observer,
    /// Permits to read code from the registry.
    reading: Semaphore,
}

impl CodeStore {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        storage: Arc<Storage>,
        observer: Observer,
    ) -> Self {
        Self {
            backend,
            storage,
            observer,
            reading: Semaphore::new(READINGS),
        }
    }

    /// See [`Backend::generation`].
    pub(crate) fn generation(&self) -> String {
        self.backend.generation()
    }

    /// Returns the stored code of a module, if the registry has some that this owner may use. The
    /// code is read when it is needed.
    pub(crate) async fn find(
        self: &Arc<Self>,
        digest: Digest,
        owner: &CodeOwner,
    ) -> Result<Option<DeployableCode>, DeployError> {
        let artifact = self.artifact(digest, owner).await?;
        Ok(artifact.map(|artifact| self.load(digest, artifact, owner, None)))
    }

    /// Returns the stored code of a module as [`CodeStore::find`] does. The code is read and
    /// checked now, so that damaged code is compiled again from the upload.
    pub(crate) async fn find_and_read(
        self: &Arc<Self>,
        digest: Digest,
        owner: &CodeOwner,
    ) -> Result<Option<DeployableCode>, DeployError> {
        let Some(artifact) = self.artifact(digest, owner).await? else {
            return Ok(None);
        };
        let read = self.read(digest, owner.function(), None).await?;
        let Some(LoadedCode { code, .. }) = read else {
            return Ok(None);
        };
        Ok(Some(self.load(
            digest,
            artifact,
            owner,
            Some(Arc::new(code)),
        )))
    }

    async fn artifact(
        &self,
        digest: Digest,
        owner: &CodeOwner,
    ) -> Result<Option<StoredArtifact>, RegistryError> {
        let (generation, function) = (self.generation(), owner.function().cloned());
        let reading = self
            .storage
            .run(move |registry| registry.artifact(digest, &generation, function.as_ref()));
        reading.await
    }

    fn load(
        self: &Arc<Self>,
        digest: Digest,
        artifact: StoredArtifact,
        owner: &CodeOwner,
        held: Option<Arc<SealedCode>>,
    ) -> DeployableCode {
        let (kind, source) = (artifact.kind, self.source(digest, owner));
        let here = held.as_ref();
        let code = CompiledFunction::stored(kind, source, artifact.bytes, artifact.digest, here);
        DeployableCode {
            code,
            imports: artifact.imports,
            has_initialiser: artifact.has_initialiser,
            code_bytes: artifact.bytes,
            artifact: None,
            compile_time: None,
            cache: Bytes::new(),
            _held: held,
        }
    }

    /// Returns stored code in memory, if it exists and is undamaged. If `first` names the pages
    /// that are used first, the other pages may still be loading.
    async fn read(
        &self,
        module: Digest,
        function: Option<&FunctionName>,
        first: Option<PageSet>,
    ) -> Result<Option<LoadedCode>, RegistryError> {
        let _permit = self.reading.acquire().await;
        let (generation, function) = (self.generation(), function.cloned());
        let reading = self.storage.run(move |registry| {
            registry.code(module, &generation, function.as_ref(), first.as_ref())
        });
        reading.await
    }

    /// Notes that the registry has this code, so that it may leave memory.
    pub(crate) fn note_stored(
        self: &Arc<Self>,
        module: Digest,
        ready: &DeployableCode,
        owner: &CodeOwner,
    ) {
        ready.note_stored(self.source(module, owner));
    }

    fn source(self: &Arc<Self>, module: Digest, owner: &CodeOwner) -> Arc<dyn CodeSource> {
        Arc::new(StoredCode {
            store: Arc::downgrade(self),
            module,
            owner: owner.clone(),
        })
    }

    /// Compiles a module, prepared for its initialiser if it has one.
    pub(crate) async fn compile_module(
        &self,
        name: &FunctionName,
        module: Bytes,
        initialiser: Option<Initialiser>,
        cache: Option<Bytes>,
    ) -> Result<DeployableCode, DeployError> {
        self.observer.notify(Event::Compiling {
            function: name,
            module_bytes: module.len(),
        });
        let only_for = cache.as_ref().filter(|cache| !cache.is_empty());
        let only_for = only_for.map(|_| name.clone());
        let work = Compilation {
            owner: name.to_string(),
            upload: module,
            initialiser,
            cache,
        };
        self.compile(work, only_for).await
    }

    /// Compiles the component of a language engine.
    pub(crate) async fn compile_engine(
        &self,
        name: &FunctionName,
        component: Bytes,
    ) -> Result<DeployableCode, DeployError> {
        self.observer.notify(Event::CompilingEngine {
            engine: name,
            module_bytes: component.len(),
        });
        let work = Compilation {
            owner: name.to_string(),
            upload: component,
            ..Compilation::default()
        };
        self.compile(work, None).await
    }

    async fn compile(
        &self,
        work: Compilation,
        only_for: Option<FunctionName>,
    ) -> Result<DeployableCode, DeployError> {
        let begun = Instant::now();
        let CompileOutput { function, cache } = self.backend.compile(work).await?;
        let compile_time = begun.elapsed();
        let compiled = function.clone();
        let artifact = blocking(move || {
            let bytes = function.bytes();
            let bytes = bytes.map_err(|error| RegistryError::file("its code".as_ref(), error))?;
            Ok(Artifact {
                kind: function.kind,
                imports: function.imports,
                has_initialiser: function.has_initialiser,
                only_for,
                proof: CodeProof::of(&bytes),
                code: bytes,
            })
        });
        let artifact = artifact.await?;
        Ok(DeployableCode {
            imports: artifact.imports.clone(),
            has_initialiser: artifact.has_initialiser,
            code_bytes: artifact.code.len() as u64,
            artifact: Some(Arc::new(artifact)),
            compile_time: Some(compile_time),
            cache,
            _held: compiled.code(),
            code: compiled,
        })
    }

    /// Makes the seed that all scripts of the engine `name` share.
    pub(crate) async fn warm_engine(
        &self,
        name: &FunctionName,
        engine: &DeployableCode,
    ) -> Result<(), SeedError> {
        self.backend.warm_engine(name.as_str(), &engine.code).await
    }

    /// Compiles a stored module and stores its code.
    pub(crate) async fn compile_stored(
        self: &Arc<Self>,
        digest: Digest,
        owner: &CodeOwner,
    ) -> Result<DeployableCode, DeployError> {
        let reading = self.storage.run(move |registry| registry.module(digest));
        let module = reading.await;
        let ready = match owner {
            CodeOwner::Function(name) => {
                let module = module?.into();
                self.compile_module(name, module, None, None).await?
            }
            CodeOwner::Engine(name) => {
                let module = match module {
                    // An engine whose code was taken over without its component.
                    Err(RegistryError::Module(_)) => {
                        let gone = || RegistryError::Engine(name.clone());
                        let carried = CarriedEngine::find(name, digest).ok_or_else(gone)?;
                        carried.component().await?
                    }
                    module => module?,
                };
                self.compile_engine(name, module.into()).await?
            }
        };
        self.store(digest, &ready, owner).await;
        Ok(ready)
    }

    /// Stores code for the next start and lets it leave memory. If storing fails, the next start
    /// compiles the code again, so the function serves nevertheless.
    async fn store(self: &Arc<Self>, digest: Digest, ready: &DeployableCode, owner: &CodeOwner) {
        let Some(artifact) = ready.artifact.clone() else {
            return;
        };
        let generation = self.generation();
        let storing = self.storage.run(move |registry| {
            let new = NewArtifact {
                generation: &generation,
                artifact: &artifact,
            };
            registry.store_artifact(digest, new)
        });
        match storing.await {
            Ok(()) => self.note_stored(digest, ready, owner),
            Err(error) => tracing::warn!(%digest, %error, "compiled code could not be stored"),
        }
    }

    /// Returns the compile cache of the last compilation under this name, empty if there is none.
    /// Returns `None` if the module is too small for a cache.
    pub(crate) async fn compile_cache(&self, name: &FunctionName, module: &Bytes) -> Option<Bytes> {
        if module.len() < INCREMENTAL_FROM {
            return None;
        }
        let (name, generation) = (name.clone(), self.generation());
        let reading = self
            .storage
            .run(move |registry| Ok(registry.compile_cache(&name, &generation)));
        Some(reading.await.ok().flatten().unwrap_or_default().into())
    }

    /// Deletes the compile cache of this name, so that the next compilation starts without one.
    pub(crate) async fn forget_compile_cache(&self, name: &FunctionName) {
        let name = name.clone();
        let forgetting = self.storage.run(move |registry| {
            registry.forget_compile_cache(&name);
            Ok(())
        });
        let _ = forgetting.await;
    }

    /// Sends a function's files to the backend, which packs them.
    pub(crate) async fn pack(
        &self,
        name: &FunctionName,
        files: Bytes,
    ) -> Result<PackedFiles, DeployError> {
        let packed = self.backend.pack(name.as_str(), files).await;
        let bundle = packed.map_err(|error| DeployError::Files(FilesRefused::Bundle(error)))?;
        PackedFiles::of(bundle).await
    }
}

/// Code in the registry. The pool holds it, and the store holds the pool, so the reference is weak.
#[derive(Debug)]
struct StoredCode {
    store: Weak<CodeStore>,
    /// The digest of its module.
    module: Digest,
    owner: CodeOwner,
}

impl CodeSource for StoredCode {
    fn read(&self, first: Option<PageSet>) -> LoadFuture<'_, Option<LoadedCode>> {
        Box::pin(async move {
            let store = self.store.upgrade()?;
            let read = store.read(self.module, self.owner.function(), first);
            let read = read.await;
            read.unwrap_or_else(|error| {
                let module = self.module;
                tracing::warn!(%module, %error, "stored code cannot be read; it is compiled again");
                None
            })
        })
    }

    fn compile(&self) -> LoadFuture<'_, Result<Arc<SealedCode>, String>> {
        Box::pin(async {
            let gone = || "the node has ended".to_owned();
            let store = self.store.upgrade().ok_or_else(gone)?;
            let compiled = store.compile_stored(self.module, &self.owner).await;
            let compiled = compiled.map_err(|error| error.to_string())?;
            compiled.code.code().ok_or_else(gone)
        })
    }
}

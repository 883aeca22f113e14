//! The third stage: a module is compiled to code of this machine unless that was done before.

use std::time::Instant;

use bytes::Bytes;
use faasw_client::{Digest, FunctionName, Initialisation};
use faasw_pool::{Compilation, CompileOutput, FreezeReport, Initialiser};

use super::{code::DeployableCode, detect::DetectedUpload, prepare::PreparedModule};
use crate::{
    error::DeployError,
    log::Event,
    node::core::{Core, blocking},
    registry::{Artifact, CodeProof, RegistryError},
};

pub(super) struct CompiledModule {
    pub(super) detected: DetectedUpload,
    pub(super) digest: Digest,
    pub(super) ready: DeployableCode,
    /// How it was initialised, if it was.
    pub(super) initialised: Option<Initialisation>,
    /// The report of the initialisation that is part of the module now, if there is one.
    pub(super) drawn_report: Option<FreezeReport>,
}

/// Size of a module in bytes from which a compile cache is kept: a smaller module compiles in less
/// time than writing the cache takes.
const INCREMENTAL_FROM: usize = 1 << 20;

impl Core {
    /// Compiles the module unless its code is stored.
    pub(super) async fn compile(
        &self,
        prepared: PreparedModule,
    ) -> Result<CompiledModule, DeployError> {
        let PreparedModule {
            detected,
            digest,
            stored,
        } = prepared;
        let ready = match stored {
            Some(ready) => ready,
            None => {
                let module = detected.module.clone();
                let initialiser = detected.initialiser();
                let cache = self.compile_cache(&detected.name, &module).await;
                self.compile_module(&detected.name, module, initialiser, cache)
                    .await?
            }
        };
        Ok(CompiledModule {
            detected,
            digest,
            ready,
            initialised: None,
            drawn_report: None,
        })
    }

    /// Returns the compile cache of the last compilation under this name, empty if there is none.
    /// Returns `None` if the module is too small for a cache.
    async fn compile_cache(&self, name: &FunctionName, module: &Bytes) -> Option<Bytes> {
        if module.len() < INCREMENTAL_FROM {
            return None;
        }
        let (storage, generation) = (self.storage.clone(), self.backend.generation());
        let name = name.clone();
        let kept = blocking(move || Ok(storage.registry.compile_cache(&name, &generation))).await;
        Some(kept.ok().flatten().unwrap_or_default().into())
    }

    /// Deletes the compile cache of this name, so that the next compilation starts without one.
    pub(super) async fn forget_compile_cache(&self, name: &FunctionName) {
        let (storage, name) = (self.storage.clone(), name.clone());
        let _ = blocking(move || {
            storage.registry.forget_compile_cache(&name);
            Ok(())
        })
        .await;
    }

    /// Compiles a module, prepared for its initialiser if it has one.
    pub(super) async fn compile_module(
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
        self.compile_code(work, only_for).await
    }

    /// Compiles code without an event for the observer.
    pub(in crate::node) async fn compile_code(
        &self,
        work: Compilation,
        only_for: Option<FunctionName>,
    ) -> Result<DeployableCode, DeployError> {
        let begun = Instant::now();
        let CompileOutput { function, cache } = self.backend.compile(work).await?;
        let compile_time = begun.elapsed();
        let artifact = {
            let function = function.clone();
            blocking(move || {
                let bytes = function.bytes();
                let bytes =
                    bytes.map_err(|error| RegistryError::file("its code".as_ref(), error))?;
                Ok(Artifact {
                    kind: function.kind,
                    imports: function.imports,
                    has_initialiser: function.has_initialiser,
                    only_for,
                    proof: CodeProof::of(&bytes),
                    code: bytes,
                })
            })
            .await?
        };
        Ok(DeployableCode::compiled(
            function,
            artifact,
            compile_time,
            cache,
        ))
    }
}

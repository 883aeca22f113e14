//! Code that seeds are made of, and the source from which the pool reads it again after it has left
//! memory.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use faasw_abi::pages::PageSet;
use faasw_client::{Digest, FunctionName};
use faasw_pool::{CodeSource, CompiledFunction, LoadFuture, LoadedCode, ScriptSource, SealedCode};

use crate::{
    node::core::{Core, Storage, blocking},
    registry::{Artifact, StoredArtifact},
};

/// Code, and what the registry stores with it.
#[derive(Clone, Debug)]
pub(in crate::node) struct DeployableCode {
    pub(in crate::node) code: CompiledFunction,
    /// Full names of the module's imports.
    pub(super) imports: Vec<String>,
    /// Whether the module has an initialiser that no option names.
    pub(super) has_initialiser: bool,
    pub(super) code_bytes: u64,
    /// The artifact that is to be stored. `None` if the registry has it.
    pub(in crate::node) artifact: Option<Arc<Artifact>>,
    /// How long compiling took. `None` if the registry had the code.
    pub(super) compile_time: Option<Duration>,
    /// The compile cache for the function's next compilation. Empty if none is kept.
    pub(super) cache: Bytes,
    /// Keeps the code in memory as long as this value exists.
    _held: Option<Arc<SealedCode>>,
}

impl DeployableCode {
    /// Returns code that was compiled now.
    pub(super) fn compiled(
        code: CompiledFunction,
        artifact: Artifact,
        compile_time: Duration,
        cache: Bytes,
    ) -> Self {
        Self {
            imports: artifact.imports.clone(),
            has_initialiser: artifact.has_initialiser,
            code_bytes: artifact.code.len() as u64,
            artifact: Some(Arc::new(artifact)),
            compile_time: Some(compile_time),
            cache,
            _held: code.code(),
            code,
        }
    }

    /// Returns code that the registry has.
    pub(super) fn stored(
        code: CompiledFunction,
        artifact: StoredArtifact,
        held: Option<Arc<SealedCode>>,
    ) -> Self {
        Self {
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

    /// Returns the code without what is in memory only for this value, once the registry has it.
    pub(in crate::node) fn without_bytes(self) -> Self {
        Self {
            artifact: None,
            compile_time: None,
            cache: Bytes::new(),
            _held: None,
            ..self
        }
    }

    /// Notes that the registry has the code, so that it may leave memory.
    pub(in crate::node) fn is_stored_at(&self, source: StoredCode) {
        if let Some(artifact) = &self.artifact {
            let digest = artifact.proof.digest();
            self.code.is_stored_at(Arc::new(source), digest);
        }
    }
}

/// The owner of code.
#[derive(Clone, Debug)]
pub(in crate::node) enum CodeOwner {
    Function(FunctionName),
    Engine(FunctionName),
}

impl CodeOwner {
    /// Returns the function that owns the code, or `None` if an engine does.
    pub(in crate::node) fn function(&self) -> Option<&FunctionName> {
        match self {
            Self::Function(name) => Some(name),
            Self::Engine(_) => None,
        }
    }
}

/// Code in the registry.
#[derive(Debug)]
pub(in crate::node) struct StoredCode {
    pub(in crate::node) core: Weak<Core>,
    /// The digest of its module.
    pub(in crate::node) module: Digest,
    pub(in crate::node) owner: CodeOwner,
}

impl CodeSource for StoredCode {
    fn read(&self, first: Option<PageSet>) -> LoadFuture<'_, Option<LoadedCode>> {
        Box::pin(async move {
            let core = self.core.upgrade()?;
            let read = core.read_code(self.module, self.owner.function(), first);
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
            let core = self.core.upgrade().ok_or_else(gone)?;
            let compiled = core.compile_stored(self.module, &self.owner).await;
            let compiled = compiled.map_err(|error| error.to_string())?;
            compiled.code.code().ok_or_else(gone)
        })
    }
}

#[derive(Debug)]
pub(super) struct StoredScript {
    pub(super) storage: Weak<Storage>,
    pub(super) digest: Digest,
}

impl ScriptSource for StoredScript {
    fn read(&self) -> LoadFuture<'_, Result<Bytes, String>> {
        Box::pin(async {
            let gone = || "the node has ended".to_owned();
            let (storage, digest) = (self.storage.upgrade().ok_or_else(gone)?, self.digest);
            let read = blocking(move || storage.registry.module(digest)).await;
            Ok(read.map_err(|error| error.to_string())?.into())
        })
    }
}

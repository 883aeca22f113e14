//! Code that seeds can be made of, and where the pool has it from when it has left memory.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use faasw_abi::pages::PageSet;
use faasw_client::{Digest, FunctionName};
use faasw_pool::{Bringing, CodeSource, ReadCode, ScriptSource, SealedCode};

use crate::{
    backend::Code,
    node::core::{Core, Storage, blocking},
    registry::{Artifact, StoredArtifact},
};

/// Code, and what the registry keeps of it.
#[derive(Clone, Debug)]
pub(in crate::node) struct Ready {
    pub(in crate::node) code: Arc<dyn Code>,
    /// Full names of the module's imports.
    pub(super) imports: Vec<String>,
    /// Whether the module has what initialises it though nobody has named it.
    pub(super) has_initialiser: bool,
    /// Size of the artifact.
    pub(super) code_bytes: u64,
    /// What is to be stored; nothing where the registry has it.
    pub(in crate::node) artifact: Option<Arc<Artifact>>,
    /// What compiling took; nothing when the registry had it.
    pub(super) compile_time: Option<Duration>,
    /// What is kept of that for the next one of the same function; empty where nothing is.
    pub(super) cache: Bytes,
    /// Code that is in memory for as long as somebody has this.
    _held: Option<Arc<SealedCode>>,
}

impl Ready {
    /// What was compiled now.
    pub(super) fn compiled(
        code: Arc<dyn Code>,
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
            _held: code.sealed(),
            code,
        }
    }

    /// What the registry has.
    pub(super) fn stored(
        code: Arc<dyn Code>,
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

    /// The same as the registry has it: whatever of it is in memory for this alone may go.
    pub(in crate::node) fn without_bytes(self) -> Self {
        Self {
            artifact: None,
            compile_time: None,
            cache: Bytes::new(),
            _held: None,
            ..self
        }
    }

    /// The registry has it by now, so that it may leave memory.
    pub(in crate::node) fn is_stored_at(&self, source: StoredCode) {
        if let Some(artifact) = &self.artifact {
            let digest = artifact.proof.digest();
            self.code.is_stored_at(Arc::new(source), digest);
        }
    }
}

/// Whose code it is.
#[derive(Clone, Debug)]
pub(in crate::node) enum Whose {
    Function(FunctionName),
    Engine(FunctionName),
}

impl Whose {
    /// The function whose alone it may be.
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
    /// Of its module.
    pub(in crate::node) module: Digest,
    pub(in crate::node) whose: Whose,
}

impl CodeSource for StoredCode {
    fn read(&self, first: Option<PageSet>) -> Bringing<'_, Option<ReadCode>> {
        Box::pin(async move {
            let core = self.core.upgrade()?;
            let read = core.read_code(self.module, self.whose.function(), first);
            let read = read.await;
            read.unwrap_or_else(|error| {
                let module = self.module;
                tracing::warn!(%module, %error, "stored code cannot be read; it is compiled again");
                None
            })
        })
    }

    fn compile(&self) -> Bringing<'_, Result<Arc<SealedCode>, String>> {
        Box::pin(async {
            let gone = || "the node has ended".to_owned();
            let core = self.core.upgrade().ok_or_else(gone)?;
            let compiled = core.compile_stored(self.module, &self.whose).await;
            let compiled = compiled.map_err(|error| error.to_string())?;
            compiled.code.sealed().ok_or_else(gone)
        })
    }
}

/// A script in the registry.
#[derive(Debug)]
pub(super) struct StoredScript {
    pub(super) storage: Weak<Storage>,
    pub(super) digest: Digest,
}

impl ScriptSource for StoredScript {
    fn read(&self) -> Bringing<'_, Result<Bytes, String>> {
        Box::pin(async {
            let gone = || "the node has ended".to_owned();
            let (storage, digest) = (self.storage.upgrade().ok_or_else(gone)?, self.digest);
            let read = blocking(move || storage.registry.module(digest)).await;
            Ok(read.map_err(|error| error.to_string())?.into())
        })
    }
}

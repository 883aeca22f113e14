//! Code that seeds are made of.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use faasw_client::FunctionName;
use faasw_pool::{CodeSource, CompiledFunction, SealedCode};

use crate::registry::Artifact;

/// Code, and what the registry stores with it.
#[derive(Clone, Debug)]
pub(crate) struct DeployableCode {
    pub(crate) code: CompiledFunction,
    /// Full names of the module's imports.
    pub(crate) imports: Vec<String>,
    /// Whether the module has an initialiser that no option names.
    pub(crate) has_initialiser: bool,
    pub(crate) code_bytes: u64,
    /// The artifact that is to be stored. `None` if the registry has it.
    pub(crate) artifact: Option<Arc<Artifact>>,
    /// How long compiling took. `None` if the registry had the code.
    pub(crate) compile_time: Option<Duration>,
    /// The compile cache for the function's next compilation. Empty if none is kept.
    pub(crate) cache: Bytes,
    /// Keeps the code in memory as long as this value exists.
    pub(super) _held: Option<Arc<SealedCode>>,
}

impl DeployableCode {
    /// Returns the code without what is in memory only for this value, once the registry has it.
    pub(crate) fn without_bytes(self) -> Self {
        Self {
            artifact: None,
            compile_time: None,
            cache: Bytes::new(),
            _held: None,
            ..self
        }
    }

    /// Notes that the registry has the code, so that it may leave memory.
    pub(super) fn note_stored(&self, source: Arc<dyn CodeSource>) {
        if let Some(artifact) = &self.artifact {
            self.code.is_stored_at(source, artifact.proof.digest());
        }
    }
}

/// The owner of code.
#[derive(Clone, Debug)]
pub(crate) enum CodeOwner {
    Function(FunctionName),
    Engine(FunctionName),
}

impl CodeOwner {
    /// Returns the function that owns the code, or `None` if an engine does.
    pub(super) fn function(&self) -> Option<&FunctionName> {
        match self {
            Self::Function(name) => Some(name),
            Self::Engine(_) => None,
        }
    }
}

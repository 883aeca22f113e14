//! Code that seeds can be made of.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{engine::Code, registry::Artifact};

/// Code, and what the registry keeps of it.
#[derive(Clone, Debug)]
pub(in crate::node) struct Ready {
    pub(in crate::node) code: Arc<dyn Code>,
    pub(in crate::node) artifact: Arc<Artifact>,
    /// Size of the artifact.
    pub(super) code_bytes: u64,
    /// What compiling took; nothing when the registry had it.
    pub(super) compile_time: Option<Duration>,
    /// What is kept of that for the next one of the same function; empty where nothing is.
    pub(super) cache: Bytes,
}

impl Ready {
    pub(super) fn new(
        code: Arc<dyn Code>,
        artifact: Artifact,
        compile_time: Option<Duration>,
    ) -> Self {
        Self {
            code,
            code_bytes: artifact.code.len() as u64,
            artifact: Arc::new(artifact),
            compile_time,
            cache: Bytes::new(),
        }
    }

    pub(super) fn with_cache(self, cache: Bytes) -> Self {
        Self { cache, ..self }
    }

    /// The same as the registry has it, without a copy of the artifact.
    pub(in crate::node) fn without_bytes(self) -> Self {
        let Self {
            code,
            artifact,
            code_bytes,
            ..
        } = self;
        let artifact = Artifact {
            kind: artifact.kind,
            imports: artifact.imports.clone(),
            has_initialiser: artifact.has_initialiser,
            only_for: artifact.only_for.clone(),
            code: Vec::new(),
        };
        Self {
            code,
            artifact: Arc::new(artifact),
            code_bytes,
            compile_time: None,
            cache: Bytes::new(),
        }
    }
}

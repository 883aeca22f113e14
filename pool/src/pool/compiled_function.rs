//! Compiled code with what is known of it.

use std::io;
use std::sync::{Arc, OnceLock};

use faasw_abi::wire::FunctionKind;

use super::initialise::InitialisationPlan;
use crate::error::PlatformError;
use crate::seeds::LanguageEngine;
use crate::snapshots::{Code, CodeDigest, CodeHandle, CodeSource};

/// A compiled function. Clones share its code.
#[derive(Clone, Debug)]
pub struct CompiledFunction {
    /// The kind of the function, which determines how it is called.
    pub kind: FunctionKind,
    /// Full names of its imports; empty if the code was loaded instead of compiled.
    pub imports: Vec<String>,
    /// Whether it is a module with the export by which Wizer initialises modules.
    pub has_initialiser: bool,
    /// Whether it is a component with the exports of a language engine.
    pub is_engine: bool,
    /// The result of making it initialisable by Wizer, if that was requested.
    pub initialising: Option<InitialisationPlan>,
    pub(crate) code: Arc<CodeHandle>,
    /// The state that an engine's scripts share, once the engine was used. It is kept as long as
    /// the code is.
    pub(super) engine: Arc<OnceLock<Arc<LanguageEngine>>>,
}

impl CompiledFunction {
    /// Returns code that is stored nowhere and stays in memory.
    #[must_use]
    pub fn unstored(kind: FunctionKind, code: Arc<Code>) -> Self {
        Self::of(kind, CodeHandle::unstored(code))
    }

    /// Returns code of this size and digest that is stored, and that is not read before it is
    /// needed. It leaves memory when nothing that is made of it exists any more. If `here` has the
    /// code in memory, it need not be read.
    #[must_use]
    pub fn stored(
        kind: FunctionKind,
        source: Arc<dyn CodeSource>,
        bytes: u64,
        digest: CodeDigest,
        here: Option<&Arc<Code>>,
    ) -> Self {
        Self::of(kind, CodeHandle::stored(source, bytes, digest, here))
    }

    fn of(kind: FunctionKind, code: CodeHandle) -> Self {
        Self {
            kind,
            imports: Vec::new(),
            has_initialiser: false,
            is_engine: false,
            initialising: None,
            code: Arc::new(code),
            engine: Arc::default(),
        }
    }

    /// Notes that the code is stored by now, so it may leave memory as code of
    /// [`CompiledFunction::stored`] does.
    pub fn is_stored_at(&self, source: Arc<dyn CodeSource>, digest: CodeDigest) {
        self.code.is_stored_at(source, digest);
    }

    /// Returns the code if it is in memory.
    #[must_use]
    pub fn code(&self) -> Option<Arc<Code>> {
        self.code.in_memory()
    }

    /// Returns the code. If it is not in memory, it is read, or compiled again.
    ///
    /// # Errors
    /// Returns [`PlatformError::CodeGone`] if it can be neither read nor compiled again.
    pub async fn load(&self) -> Result<Arc<Code>, PlatformError> {
        self.code.get().await
    }

    /// Returns a copy of the artifact, for storing.
    ///
    /// # Errors
    /// Returns an error if the code is not in memory, or an error of the operating system if it
    /// cannot be read.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let code = self.code.in_memory();
        let code = code.ok_or_else(|| io::Error::other("the code is not in memory"))?;
        Ok(code.read()?)
    }

    /// Returns whether the code only reports the state of the initialised module, and serves no
    /// requests.
    #[must_use]
    pub fn only_reports_state(&self) -> bool {
        matches!(self.initialising, Some(InitialisationPlan::By(_)))
    }

    /// Returns whether the seed that all scripts of this engine share is in memory.
    #[must_use]
    pub fn is_engine_warm(&self) -> bool {
        let engine = self.engine.get();
        engine.is_some_and(|engine| engine.is_in_memory())
    }
}

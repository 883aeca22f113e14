//! Compiling uploads, and loading code that was compiled before.

use std::sync::Arc;

use bytes::Bytes;
use faasw_abi::wire::FunctionKind;

use super::{CompiledFunction, Pool};
use crate::compile::{Compilation, Limits};
use crate::error::{CompileError, PlatformError};
use crate::fair_slots::{Slot, SlotRequest, SlotRules, Urgency};
use crate::snapshots::{Code, CodeHandle};

/// The number of compilations at once, of which each function may have one. A compilation may use
/// all processors and gigabytes of memory. With two, a compilation that renews a function's code in
/// the background delays no deployment.
pub(super) const COMPILATIONS: SlotRules = SlotRules {
    total: 2,
    per_owner: 1,
    background: 1,
    background_yields: false,
};

impl Pool {
    /// Compiles an upload in the compile helper. Dropping the future ends it.
    ///
    /// # Errors
    /// Returns an error if the upload is no valid module or component, or if compiling exceeds its
    /// limit of CPU time or memory.
    pub async fn compile(&self, wasm: Bytes) -> Result<CompiledFunction, CompileError> {
        let work = Compilation {
            upload: wasm,
            ..Compilation::default()
        };
        Ok(self.compile_for(work).await?.0)
    }

    /// Waits for a slot to compile for this function or engine.
    pub(super) async fn compile_slot(&self, owner: &str) -> Slot<String> {
        let request = SlotRequest {
            owner: owner.to_owned(),
            urgency: Urgency::Foreground,
            bytes: 0,
        };
        self.inner.compiling.request(request).await
    }

    /// Returns how many compilations, or makings of seeds, come before that of this function.
    /// Returns `None` if nothing of the function is queued.
    #[must_use]
    pub fn queued_behind(&self, function: &str) -> Option<usize> {
        let compiling = self.inner.compiling.queued_behind(&function.to_owned());
        compiling.max(self.inner.tree.queued_behind(function))
    }

    pub(super) fn compile_limits(&self) -> Limits {
        Limits {
            cpu: self.inner.options.compile_cpu,
            memory: self.inner.options.compile_memory,
        }
    }

    /// Loads an artifact that [`CompiledFunction::bytes`] returned in a pool of the same version
    /// and instruction set.
    ///
    /// # Errors
    /// Returns `FBIG` if the artifact is empty or too large, and the error of the system if memory
    /// for it cannot be had.
    pub async fn load_code(
        &self,
        kind: FunctionKind,
        artifact: &[u8],
    ) -> Result<CompiledFunction, PlatformError> {
        let system = |error| PlatformError::System {
            what: "the artifact could not be loaded",
            error,
        };
        let code = Code::copy_of(artifact).map_err(system)?;
        Ok(CompiledFunction::of(
            kind,
            CodeHandle::unstored(Arc::new(code)),
        ))
    }
}

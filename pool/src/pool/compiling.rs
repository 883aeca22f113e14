//! Compiling uploads.

use bytes::Bytes;

use super::{CompiledFunction, Pool};
use crate::compile::{Compilation, Limits};
use crate::error::CompileError;
use crate::fair_slots::{Slot, SlotRequest, SlotRules, Urgency};

/// The number of compilations at once, of which each function may have one. A compilation may use
/// all processors and gigabytes of memory. With two, a compilation that renews a function's code in
/// the background delays no deployment.
pub(super) const COMPILATIONS: SlotRules = SlotRules {
    total: 2,
    per_owner: 1,
    background: 1,
    background_yields: false,
};

/// The result of a compilation.
#[derive(Debug)]
pub struct CompileOutput {
    /// The code and what is known of it.
    pub function: CompiledFunction,
    /// The bytes that the compile cache should keep for the next compilation of the same function;
    /// empty if it should keep nothing.
    pub cache: Bytes,
}

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
        Ok(self.compile_for(work).await?.function)
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
}

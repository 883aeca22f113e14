//! Performs one task of the helper, from an upload to an artifact.

use std::sync::Arc;

use crate::protocol::{Compiled, FunctionKind, Input, Refusal, RefusalKind, Task, Wizer};
use faasw_abi::files::{FilesError, upload};
use faasw_abi::isa::Isa;
use faasw_abi::state::INITIALISER;

use crate::cache::Cache;
use crate::{artifact, componentise, inspect, source, wizer};

/// A function and the code that was made of it.
#[derive(Debug)]
pub struct Artifact {
    /// The function for the report. The process fills `cpu_milliseconds` in later.
    pub compiled: Compiled,
    /// The code that the guest loads; for [`Task::Rewrite`], the rewritten module.
    pub code: Vec<u8>,
    /// The cache for the next compilation; empty if none is kept.
    pub cache: Vec<u8>,
}

/// Performs a helper's task.
///
/// An upload always results in the same artifact, on any machine and with any cache that a helper
/// of this version has written.
///
/// # Errors
/// Returns a [`Refusal`] that says what is wrong with the upload and what to do next.
pub fn perform(input: &Input<'_>, isa: Isa) -> Result<Artifact, Refusal> {
    if input.task == Task::Pack {
        return packed(input.upload);
    }
    let source = source::read(input.upload)?;
    let wasm = componentise::whole(source.wasm)?;
    let function = inspect::inspect(&wasm)?;
    let cache = input
        .keeps_cache
        .then(|| Arc::new(Cache::new(input.beside)));
    let compile = |wasm: &[u8]| artifact::compile(wasm, function.kind, isa, cache.as_ref());
    let instrument = |export| wizer::instrument(&wasm, function.kind, export);
    let instrumented = match &input.task {
        Task::Compile | Task::Pack => None,
        Task::CompileToInitialise => function.has_initialiser.then(|| instrument(INITIALISER)),
        Task::CompileToInitialiseBy(export) => Some(instrument(export)),
        Task::Rewrite(export) => {
            let rewritten = wizer::rewrite(&wasm, function.kind, export, input.beside)?;
            let function = inspect::inspect(&rewritten)?;
            return Ok(artifact(function, rewritten, source.from_text, None));
        }
    };
    let as_it_is = || compile(&wasm);
    let (code, wizer) = match instrumented {
        Some(Ok(wasm)) => match compile(&wasm) {
            Ok(code) => (code, Some(Wizer::Instrumented)),
            Err(refusal) => (as_it_is()?, Some(Wizer::Refused(refusal.message))),
        },
        Some(Err(reason)) => (as_it_is()?, Some(Wizer::Refused(reason))),
        None => (as_it_is()?, None),
    };
    let kept = cache.map(|cache| cache.write()).unwrap_or_default();
    Ok(artifact(function, code, source.from_text, wizer).with_cache(kept))
}

/// Packs a function's files to a bundle. Files have no function's properties, so that only the size
/// in the report has a meaning.
fn packed(files: &[u8]) -> Result<Artifact, Refusal> {
    let refused = |error: FilesError| Refusal::new(RefusalKind::Unsupported, error.to_string());
    let bundle = upload::pack(files).map_err(refused)?;
    let function = Compiled {
        kind: FunctionKind::CgiModule,
        name_hint: None,
        imports: Vec::new(),
        initial_memory_bytes: 0,
        code_bytes: 0,
        cache_bytes: 0,
        cpu_milliseconds: 0,
        from_text: false,
        has_initialiser: false,
        is_engine: false,
        wizer: None,
    };
    Ok(artifact(function, bundle, false, None))
}

impl Artifact {
    fn with_cache(mut self, cache: Vec<u8>) -> Self {
        self.compiled.cache_bytes = cache.len().try_into().unwrap_or(u64::MAX);
        Self { cache, ..self }
    }
}

fn artifact(function: Compiled, code: Vec<u8>, from_text: bool, wizer: Option<Wizer>) -> Artifact {
    let compiled = Compiled {
        code_bytes: code.len().try_into().unwrap_or(u64::MAX),
        from_text,
        wizer,
        ..function
    };
    Artifact {
        compiled,
        code,
        cache: Vec::new(),
    }
}

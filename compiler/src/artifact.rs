//! The compilation itself.

use std::sync::Arc;

use crate::protocol::{FunctionKind, Refusal, RefusalKind};
use faasw_abi::isa::Isa;
use faasw_runtime::engine;
use wasmtime::Engine;

use crate::cache::Cache;

/// Compiles a valid binary of a known kind, reusing the results in `cache`.
///
/// The code is never loaded here: only the guest loads it.
pub fn compile(
    wasm: &[u8],
    kind: FunctionKind,
    isa: Isa,
    cache: Option<&Arc<Cache>>,
) -> Result<Vec<u8>, Refusal> {
    let engine = engine::compile_config(isa)
        .and_then(|mut config| {
            if let Some(cache) = cache {
                config.enable_incremental_compilation(cache.clone())?;
            }
            Engine::new(&config)
        })
        .map_err(|error| {
            Refusal::new(
                RefusalKind::Internal,
                format!("the compiler cannot be set up: {error:#}"),
            )
        })?;
    match kind {
        FunctionKind::CgiModule => engine.precompile_module(wasm),
        FunctionKind::HttpComponent | FunctionKind::CliComponent => {
            engine.precompile_component(wasm)
        }
    }
    // The binary is valid under every proposal, so the remaining causes are a proposal that the
    // engine lacks, or a limit of the compiler.
    .map_err(|error| {
        Refusal::new(
            RefusalKind::Unsupported,
            format!("it is valid WebAssembly, but cannot be compiled here: {error:#}"),
        )
    })
}

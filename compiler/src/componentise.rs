//! Core modules that declare which component they are the code of.
//!
//! Bindings store that declaration in custom sections. Some SDKs, for example Spin's, leave the
//! rest to the host that runs the module. Therefore the component is made here, by the library that
//! the SDKs' tools use. As in those tools, the Bytecode Alliance's adapters turn calls of preview 1
//! into calls of 0.2.

use std::{
    borrow::Cow,
    panic::{self, AssertUnwindSafe},
};

use crate::protocol::{Refusal, RefusalKind};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as PREVIEW1, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
    WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmparser::{Validator, WasmFeatures};
use wit_component::ComponentEncoder;

use crate::{module::START, outline};

/// Makes the component that `wasm` declares to be the code of. If it declares none, returns `wasm`
/// unchanged.
///
/// # Errors
/// Returns a [`Refusal`] if the component cannot be made.
pub fn whole(wasm: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, Refusal> {
    // A later check reports why a binary is invalid.
    let is_valid = || {
        let mut validator = Validator::new_with_features(WasmFeatures::all());
        validator.validate_all(&wasm).is_ok()
    };
    if !outline::tells_of_component(&wasm) || !is_valid() {
        return Ok(wasm);
    }
    // The library asserts properties that only its own tools guarantee.
    let made = panic::catch_unwind(AssertUnwindSafe(|| encode(&wasm)));
    let made =
        made.unwrap_or_else(|_| Err("the library does not support something in it".to_owned()));
    made.map(Cow::Owned).map_err(|reason| {
        Refusal::new(
            RefusalKind::Unsupported,
            format!(
                "this core module has component types, but no component can be made of it: {reason}"
            ),
        )
    })
}

fn encode(module: &[u8]) -> Result<Vec<u8>, String> {
    let adapter = if outline::exports_function(module, START) {
        WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER
    } else {
        WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER
    };
    let encoded = ComponentEncoder::default()
        .module(module)
        .and_then(|encoder| encoder.adapter(PREVIEW1, adapter))
        .and_then(|mut encoder| encoder.encode());
    encoded.map_err(|error| format!("{error:#}"))
}

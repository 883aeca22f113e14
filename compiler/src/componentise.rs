//! Core modules that say of which component they are the code.
//!
//! Bindings leave that in custom sections, and some SDKs, Spin's for one, leave the rest to whoever
//! runs the module: the component is made here, by the library that their tools have for it. Calls
//! of preview 1 become calls of 0.2 by the Bytecode Alliance's adapters, as they do there.

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

/// The component that `wasm` is the code of, if it says of any; else `wasm` as it is, whatever it
/// is.
///
/// # Errors
/// When no component comes of it.
pub fn whole(wasm: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, Refusal> {
    // Of what is not valid others say what is wrong.
    let is_valid = || {
        let mut validator = Validator::new_with_features(WasmFeatures::all());
        validator.validate_all(&wasm).is_ok()
    };
    if !outline::tells_of_component(&wasm) || !is_valid() {
        return Ok(wasm);
    }
    // The library asserts what its own tools make.
    let made = panic::catch_unwind(AssertUnwindSafe(|| encode(&wasm)));
    let made = made.unwrap_or_else(|_| Err("the library does not know something in it".to_owned()));
    made.map(Cow::Owned).map_err(|reason| {
        Refusal::new(
            RefusalKind::Unsupported,
            format!(
                "this core module says that it is the code of a component, and none comes of it: \
                 {reason}"
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

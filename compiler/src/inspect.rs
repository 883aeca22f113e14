//! What a binary is as a function, found out without compiling it.
//!
//! The binary is validated first, under every proposal there is: so "broken"
//! and "needs something that is not offered here" are told apart, the latter by
//! the compiler, which knows the engine's own settings. What follows may then
//! rely on indices, names and types being sound.

use crate::protocol::{FunctionKind, Refusal, RefusalKind};
use wasmparser::{Validator, WasmFeatures};

use crate::{component, module, outline::Outline, supported::Supported};

/// What is known of a function before it is compiled.
#[derive(Debug)]
pub struct Function {
    /// How it is called.
    pub kind: FunctionKind,
    /// What its toolchain called it.
    pub name_hint: Option<String>,
    /// Full names of the host functions that it imports.
    pub imports: Vec<String>,
    /// Minimum sizes of all memories that it defines, in bytes.
    pub initial_memory_bytes: u64,
    /// Whether it is a module that exports what Wizer initialises modules by.
    pub has_initialiser: bool,
    /// Whether it is a component that exports what takes scripts.
    pub is_engine: bool,
}

/// Finds out what `wasm` is.
pub fn inspect(wasm: &[u8]) -> Result<Function, Refusal> {
    let types = Validator::new_with_features(WasmFeatures::all())
        .validate_all(wasm)
        .map_err(malformed)?;
    let outline = Outline::read(wasm).map_err(malformed)?;
    if outline.shared_memory {
        return Err(Refusal::new(
            RefusalKind::Unsupported,
            "it uses shared memory, and functions have no threads; build it without them \
             (not for wasm32-wasip1-threads, without -pthread)",
        ));
    }
    let supported = Supported::load()?;
    let role = if outline.component {
        component::inspect(types.as_ref(), &outline, &supported)?
    } else {
        module::inspect(types.as_ref())?
    };
    Ok(Function {
        kind: role.kind,
        name_hint: outline.name.map(|name| without_build_hash(name).to_owned()),
        imports: role.imports,
        initial_memory_bytes: outline.initial_memory_bytes,
        has_initialiser: role.has_initialiser,
        is_engine: role.is_engine,
    })
}

/// A module's name without the hash that rustc appends to it
/// (`hello-0123456789abcdef.wasm`).
fn without_build_hash(name: &str) -> &str {
    let stem = name.strip_suffix(".wasm").unwrap_or(name);
    match stem.rsplit_once('-') {
        Some((before, hash))
            if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            before
        }
        _ => stem,
    }
}

fn malformed(error: wasmparser::BinaryReaderError) -> Refusal {
    let truncated = if error.message().contains("unexpected end") {
        "; the file seems to be cut short"
    } else {
        ""
    };
    Refusal::new(
        RefusalKind::Malformed,
        format!(
            "not valid WebAssembly: {} (at offset {:#x}){truncated}",
            error.message(),
            error.offset()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_build_hash_is_taken_off_a_name() {
        assert_eq!(
            without_build_hash("cgi-probe-46ddfe29e2dafc82.wasm"),
            "cgi-probe"
        );
        assert_eq!(without_build_hash("cgi-probe.wasm"), "cgi-probe");
        assert_eq!(
            without_build_hash("probe-46ddfe29e2dafc8z"),
            "probe-46ddfe29e2dafc8z"
        );
    }
}

//! Determines the properties of a function from its binary, without compiling it.
//!
//! The binary is first validated with all proposals enabled. This separates "broken" from "needs a
//! feature that is not offered here", which the compiler reports because it knows the engine's
//! settings. The code after validation may rely on sound indices, names and types.

use crate::protocol::{Compiled, Refusal, RefusalKind};
use wasmparser::{Validator, WasmFeatures};

use crate::{component, module, outline::Outline, supported::Supported};

/// Validates `wasm`, and determines its properties. Those of its compilation are still zero.
pub fn inspect(wasm: &[u8]) -> Result<Compiled, Refusal> {
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
    Ok(Compiled {
        kind: role.kind,
        name_hint: outline.name.map(|name| without_build_hash(name).to_owned()),
        imports: role.imports,
        initial_memory_bytes: outline.initial_memory_bytes,
        code_bytes: 0,
        cache_bytes: 0,
        cpu_milliseconds: 0,
        from_text: false,
        has_initialiser: role.has_initialiser,
        is_engine: role.is_engine,
        wizer: None,
    })
}

/// Removes the hash that rustc appends to a module's name (`hello-0123456789abcdef.wasm`).
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

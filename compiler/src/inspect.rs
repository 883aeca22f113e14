//! What a binary is as a function, found out without compiling it.
//!
//! The binary is validated first, under every proposal there is: so "broken"
//! and "needs something that is not offered here" are told apart, the latter by
//! the compiler, which knows the engine's own settings. What follows may then
//! rely on indices, names and types being sound.

use faasw_compile_report::{FunctionKind, Refusal, RefusalKind};
use wasmparser::{
    ComponentName, CustomSectionReader, Encoding, KnownCustom, MemoryType, Name, Parser, Payload,
    TypeRef, Validator, WasmFeatures,
};

use crate::{component, module, supported::Supported};

/// Size of a linear memory's page where it has no other, as a power of two.
const PAGE_LOG2: u32 = 16;

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
}

/// Kind and imports, as the rules for modules and for components find them.
#[derive(Debug)]
pub struct Role {
    /// How it is called.
    pub kind: FunctionKind,
    /// Full names of the host functions that it imports.
    pub imports: Vec<String>,
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
        module::inspect(types.as_ref(), &outline)?
    };
    Ok(Function {
        kind: role.kind,
        name_hint: outline.name.map(|name| without_build_hash(name).to_owned()),
        imports: role.imports,
        initial_memory_bytes: outline.initial_memory_bytes,
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

/// What the types of a binary do not tell.
#[derive(Debug, Default)]
pub struct Outline<'a> {
    /// Whether the outermost level is a component.
    pub component: bool,
    /// Names that a component imports and exports, in their order.
    pub component_imports: Vec<&'a str>,
    /// Names that a component exports, in their order.
    pub component_exports: Vec<&'a str>,
    /// Whether a module carries the metadata from which a component is made.
    pub component_metadata: bool,
    name: Option<&'a str>,
    initial_memory_bytes: u64,
    shared_memory: bool,
}

impl<'a> Outline<'a> {
    fn read(wasm: &'a [u8]) -> wasmparser::Result<Self> {
        let mut outline = Self::default();
        // Nested modules and components come inline, each between a version and an end.
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::Version { encoding, .. } => {
                    depth += 1;
                    outline.component |= depth == 1 && encoding == Encoding::Component;
                }
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::MemorySection(memories) => {
                    for memory in memories {
                        outline.defined_memory(&memory?);
                    }
                }
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        if let TypeRef::Memory(memory) = import?.ty {
                            outline.shared_memory |= memory.shared;
                        }
                    }
                }
                Payload::ComponentImportSection(imports) if depth == 1 => {
                    for import in imports {
                        outline.component_imports.push(import?.name.name);
                    }
                }
                Payload::ComponentExportSection(exports) if depth == 1 => {
                    for export in exports {
                        outline.component_exports.push(export?.name.name);
                    }
                }
                Payload::CustomSection(section) if depth == 1 => outline.custom(&section),
                _ => {}
            }
        }
        Ok(outline)
    }

    fn defined_memory(&mut self, memory: &MemoryType) {
        let page = 1_u64
            .checked_shl(memory.page_size_log2.unwrap_or(PAGE_LOG2))
            .unwrap_or(u64::MAX);
        self.initial_memory_bytes = self
            .initial_memory_bytes
            .saturating_add(memory.initial.saturating_mul(page));
        self.shared_memory |= memory.shared;
    }

    /// Custom sections need not be sound for a binary to be valid, so what is
    /// wrong in one ends only the look into it.
    fn custom(&mut self, section: &CustomSectionReader<'a>) {
        self.component_metadata |= section.name().starts_with("component-type");
        match section.as_known() {
            KnownCustom::Name(names) => {
                for name in names.into_iter().map_while(Result::ok) {
                    if let Name::Module { name, .. } = name {
                        self.name = Some(name);
                    }
                }
            }
            KnownCustom::ComponentName(names) => {
                for name in names.into_iter().map_while(Result::ok) {
                    if let ComponentName::Component { name, .. } = name {
                        self.name = Some(name);
                    }
                }
            }
            _ => {}
        }
    }
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

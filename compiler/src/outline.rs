//! The outline of a binary, and the role that the rules for modules and components assign to it.

use crate::protocol::FunctionKind;
use wasmparser::{
    ComponentName, CustomSectionReader, Encoding, ExternalKind, KnownCustom, MemoryType, Name,
    Parser, Payload, TypeRef,
};

/// Default page size of a linear memory, as a power of two.
const PAGE_LOG2: u32 = 16;

/// The kind and the imports of a function, as the rules for modules and for components determine
/// them.
#[derive(Debug)]
pub struct Role {
    /// The function's kind.
    pub kind: FunctionKind,
    /// Full names of the imported host functions.
    pub imports: Vec<String>,
    /// Whether it is a module that exports the initialiser for Wizer.
    pub has_initialiser: bool,
    /// Whether it is a component that exports the interface for scripts.
    pub is_engine: bool,
}

/// Facts about a binary that its types do not contain.
#[derive(Debug, Default)]
pub struct Outline<'a> {
    /// Whether the outermost level is a component.
    pub component: bool,
    /// Names of the component's imports, in their order.
    pub component_imports: Vec<&'a str>,
    /// Names of the component's exports, in their order.
    pub component_exports: Vec<&'a str>,
    /// The name that the toolchain has stored.
    pub name: Option<&'a str>,
    /// Sum of the minimum sizes of all memories that it defines, in bytes.
    pub initial_memory_bytes: u64,
    /// Whether any of its memories is shared between threads.
    pub shared_memory: bool,
}

/// Returns whether `wasm` is a core module with the type of the component that it is the code of.
pub fn tells_of_component(wasm: &[u8]) -> bool {
    let payloads = Parser::new(0).parse_all(wasm).map_while(Result::ok);
    for payload in payloads {
        match payload {
            Payload::Version { encoding, .. } if encoding != Encoding::Module => return false,
            Payload::CustomSection(section) if section.name().starts_with("component-type") => {
                return true;
            }
            _ => {}
        }
    }
    false
}

/// Returns whether a module exports a function of this name.
pub fn exports_function(module: &[u8], name: &str) -> bool {
    let payloads = Parser::new(0).parse_all(module);
    payloads
        .filter_map(Result::ok)
        .any(|payload| match payload {
            Payload::ExportSection(exports) => exports
                .into_iter()
                .filter_map(Result::ok)
                .any(|export| export.name == name && export.kind == ExternalKind::Func),
            _ => false,
        })
}

impl<'a> Outline<'a> {
    /// Reads a valid binary completely.
    pub fn read(wasm: &'a [u8]) -> wasmparser::Result<Self> {
        let mut outline = Self::default();
        // Nested modules and components are inline, each between a version and an end.
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

    /// Reads a name section. A valid binary may have malformed custom sections, so an error only
    /// ends the reading of this one.
    fn custom(&mut self, section: &CustomSectionReader<'a>) {
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

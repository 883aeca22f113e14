//! What a binary shows of itself when it is read, and what the rules for modules and for
//! components make of it.

use crate::protocol::FunctionKind;
use wasmparser::{
    ComponentName, CustomSectionReader, Encoding, ExternalKind, KnownCustom, MemoryType, Name,
    Parser, Payload, TypeRef,
};

/// Size of a linear memory's page where it has no other, as a power of two.
const PAGE_LOG2: u32 = 16;

/// Kind and imports, as the rules for modules and for components find them.
#[derive(Debug)]
pub struct Role {
    /// How it is called.
    pub kind: FunctionKind,
    /// Full names of the host functions that it imports.
    pub imports: Vec<String>,
    /// Whether it is a module that exports what Wizer initialises modules by.
    pub has_initialiser: bool,
    /// Whether it is a component that exports what takes scripts.
    pub is_engine: bool,
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
    /// What its toolchain called it.
    pub name: Option<&'a str>,
    /// Minimum sizes of all memories that it defines, in bytes.
    pub initial_memory_bytes: u64,
    /// Whether a memory of its is shared by threads.
    pub shared_memory: bool,
}

/// Whether `wasm` is a core module that says of which component it is the code.
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

/// Whether a module exports a function of this name.
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
    /// Reads a valid binary from one end to the other.
    pub fn read(wasm: &'a [u8]) -> wasmparser::Result<Self> {
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

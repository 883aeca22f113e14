//! The rules for core modules: WASI preview 1 commands.

use crate::protocol::{FunctionKind, Refusal};
use faasw_abi::state::INITIALISER;
use wasmparser::{
    CompositeInnerType, FuncType,
    types::{CoreTypeId, EntityType, TypesRef},
};

use crate::{advice, outline::Role, preview1};

/// Name of a command's entry point.
pub const START: &str = "_start";
/// Name of a reactor's initialiser.
const INITIALIZE: &str = "_initialize";
/// Name of the memory that host functions work on.
const MEMORY: &str = "memory";

/// Checks whether a valid module is a function.
pub fn inspect(types: TypesRef<'_>) -> Result<Role, Refusal> {
    // Imports are checked first: if the linker left undefined symbols in a library, the refusal
    // names those rather than the missing entry point.
    let imports = imports(types)?;
    let exports = Exports::of(types);
    let takes_nothing = |id| {
        function(types, id)
            .is_some_and(|start| start.params().is_empty() && start.results().is_empty())
    };
    match exports.find(START) {
        Some(EntityType::Func(id) | EntityType::FuncExact(id)) => {
            if !takes_nothing(id) {
                return Err(advice::not_a_function(
                    "its `_start` takes parameters or returns results, so it is not a WASI command",
                ));
            }
        }
        Some(_) => return Err(advice::not_a_function("its `_start` is not a function")),
        None if exports.find(INITIALIZE).is_some() => {
            return Err(advice::not_a_function(
                "this core module is a library (a WASI reactor: it exports `_initialize`, no \
                 `_start`)",
            ));
        }
        None => {
            return Err(advice::not_a_function(format!(
                "this core module has no entry point `_start`; it exports {}",
                exports.names()
            )));
        }
    }
    match exports.find(MEMORY) {
        Some(EntityType::Memory(memory)) if !memory.memory64 => {}
        Some(EntityType::Memory(_)) => {
            return Err(advice::not_a_function(
                "its memory has 64-bit addresses, which WASI preview 1 has no functions for",
            ));
        }
        _ => {
            return Err(advice::not_a_function(
                "this core module exports no memory named `memory`, so it is not a WASI command",
            ));
        }
    }
    let initialiser = exports.find(INITIALISER);
    Ok(Role {
        kind: FunctionKind::CgiModule,
        imports,
        has_initialiser: matches!(
            initialiser,
            Some(EntityType::Func(id) | EntityType::FuncExact(id)) if takes_nothing(id)
        ),
        is_engine: false,
    })
}

/// Returns the names of all imports, if each of them is a function of WASI preview 1.
fn imports(types: TypesRef<'_>) -> Result<Vec<String>, Refusal> {
    let mut known = Vec::new();
    let mut unknown = Vec::new();
    for (module, name, entity) in types.core_imports().into_iter().flatten() {
        let full = format!("{module}.{name}");
        match entity {
            EntityType::Func(id) | EntityType::FuncExact(id) => {
                match (preview1::signature(module, name), function(types, id)) {
                    (Some(expected), Some(found)) if expected.fits(found) => known.push(full),
                    (Some(expected), Some(found)) => unknown.push(format!(
                        "{full} (as {}, but it is {expected})",
                        preview1::describe(found)
                    )),
                    _ => unknown.push(full),
                }
            }
            EntityType::Table(_) => unknown.push(format!("{full} (table)")),
            EntityType::Memory(_) => unknown.push(format!("{full} (memory)")),
            EntityType::Global(_) => unknown.push(format!("{full} (global)")),
            EntityType::Tag(_) => unknown.push(format!("{full} (tag)")),
        }
    }
    if unknown.is_empty() {
        Ok(known)
    } else {
        Err(advice::unknown_imports(unknown))
    }
}

fn function(types: TypesRef<'_>, id: CoreTypeId) -> Option<&FuncType> {
    match &types.get(id)?.composite_type.inner {
        CompositeInnerType::Func(ty) => Some(ty),
        _ => None,
    }
}

/// The exports of a module.
struct Exports<'a>(Vec<(&'a str, EntityType)>);

impl<'a> Exports<'a> {
    fn of(types: TypesRef<'a>) -> Self {
        Self(types.core_exports().into_iter().flatten().collect())
    }

    fn find(&self, name: &str) -> Option<EntityType> {
        let (_, entity) = self.0.iter().find(|(export, _)| *export == name)?;
        Some(*entity)
    }

    fn names(&self) -> String {
        if self.0.is_empty() {
            "nothing".to_owned()
        } else {
            advice::some_of(self.0.iter().map(|(name, _)| *name))
        }
    }
}

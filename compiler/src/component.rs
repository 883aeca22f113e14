//! The rules for components: `wasi:http` handlers and WASI 0.2 commands.

use crate::protocol::{FunctionKind, Refusal, RefusalKind};
use faasw_abi::script::{SCRIPT_EXPORT, SCRIPT_INIT};
use faasw_runtime::supported::{CLI_EXPORT, HTTP_EXPORT};
use wasmparser::{
    component_types::{ComponentAnyTypeId, ComponentEntityType, ComponentInstanceType},
    types::TypesRef,
};

use crate::{
    advice::{self, WASI_0_3, Wasi},
    interface::InterfaceName,
    outline::{Outline, Role},
    supported::Supported,
};

/// The exports that make a component callable, and the kind of function that each makes it. The
/// first match decides: a component with both serves HTTP.
const ENTRY_POINTS: [(&str, &str, FunctionKind); 2] = [
    (HTTP_EXPORT, "handle", FunctionKind::HttpComponent),
    (CLI_EXPORT, "run", FunctionKind::CliComponent),
];

/// The export of WASI 0.3 handlers.
const HANDLER_0_3: &str = "wasi:http/handler";

/// Checks whether a valid component is a function.
pub fn inspect(
    types: TypesRef<'_>,
    outline: &Outline<'_>,
    supported: &Supported,
) -> Result<Role, Refusal> {
    let exports = &outline.component_exports;
    let entry_point = entry_point(types, exports);
    // A component of another WASI also imports that WASI; naming those imports would hide the
    // cause.
    if entry_point.is_none()
        && let Some(name) = entry_point_of_another_wasi(exports)
    {
        return Err(Refusal::new(
            RefusalKind::Unsupported,
            match advice::wasi(name) {
                Wasi::Later => format!(
                    "this component exports {name}, where a function exports \
                     {HTTP_EXPORT}@0.2 or {CLI_EXPORT}@0.2: {WASI_0_3}"
                ),
                Wasi::Release0_2 | Wasi::Other => format!(
                    "this component exports {name}, which is not a release of WASI 0.2; rebuild it \
                     with a current toolchain to export {HTTP_EXPORT}@0.2 or {CLI_EXPORT}@0.2"
                ),
            },
        ));
    }
    let imports = imports(types, &outline.component_imports, supported)?;
    let kind = entry_point.unwrap_or_else(|| Err(library(exports)))?;
    Ok(Role {
        kind,
        imports,
        has_initialiser: false,
        is_engine: kind == FunctionKind::HttpComponent && takes_scripts(types, exports),
    })
}

/// Returns the component's kind by its entry point, if it exports one.
fn entry_point(types: TypesRef<'_>, exports: &[&str]) -> Option<Result<FunctionKind, Refusal>> {
    ENTRY_POINTS.iter().find_map(|(path, function, kind)| {
        let name = exports.iter().find(|name| {
            InterfaceName::parse(name).is_some_and(|name| name.is_wasi_0_2_of(path))
        })?;
        let exported = types.component_item_for_export(name).map(|item| item.ty);
        Some(match instance(types, exported) {
            Some(instance) if instance.exports.contains_key(*function) => Ok(*kind),
            _ => Err(advice::not_a_function(format!(
                "this component exports {name}, but without the function `{function}`"
            ))),
        })
    })
}

/// Returns whether a component exports the interface for scripts.
fn takes_scripts(types: TypesRef<'_>, exports: &[&str]) -> bool {
    exports.iter().any(|name| {
        let is_it = InterfaceName::parse(name)
            .is_some_and(|name| name.path == SCRIPT_EXPORT && name.is_ours());
        let exported = types.component_item_for_export(name).map(|item| item.ty);
        is_it
            && instance(types, exported)
                .is_some_and(|instance| instance.exports.contains_key(SCRIPT_INIT))
    })
}

fn entry_point_of_another_wasi<'a>(exports: &[&'a str]) -> Option<&'a str> {
    exports.iter().copied().find(|name| {
        let path = name.split_once('@').map_or(*name, |(path, _)| path);
        path == HANDLER_0_3 || ENTRY_POINTS.iter().any(|(entry, ..)| path == *entry)
    })
}

fn library(exports: &[&str]) -> Refusal {
    if exports.is_empty() {
        return advice::not_a_function("this component exports nothing");
    }
    advice::not_a_function(format!(
        "this component is a library: it exports {}",
        advice::some_of(exports.iter().copied())
    ))
}

/// Returns the names of all imported functions, if every import is supported.
fn imports(
    types: TypesRef<'_>,
    names: &[&str],
    supported: &Supported,
) -> Result<Vec<String>, Refusal> {
    let mut known = Vec::new();
    let mut unknown = Vec::new();
    for name in names {
        let entity = types.component_item_for_import(name).map(|item| item.ty);
        let Some(instance) = instance(types, entity) else {
            unknown.push(lone_import(name, entity));
            continue;
        };
        let offered = supported.interface(name);
        if offered.is_none() {
            unknown.push((*name).to_owned());
        }
        for (item_name, item) in &instance.exports {
            let full = format!("{name}#{item_name}");
            match item.ty {
                ComponentEntityType::Func(_) => {
                    if offered.is_some_and(|offered| offered.functions.contains(item_name)) {
                        known.push(full);
                    } else {
                        unknown.push(full);
                    }
                }
                // Other types are structural: they come with the functions.
                ComponentEntityType::Type {
                    created: ComponentAnyTypeId::Resource(_),
                    ..
                } => {
                    if offered.is_some_and(|offered| !offered.types.contains(item_name)) {
                        unknown.push(format!("{full} (resource)"));
                    }
                }
                ComponentEntityType::Type { .. } => {}
                // No interface of WASI 0.2 has any other item.
                _ => unknown.push(full),
            }
        }
    }
    if unknown.is_empty() {
        Ok(known)
    } else {
        Err(advice::unknown_imports(unknown))
    }
}

/// Describes an import that is not an interface. Types have no name in the linker either.
fn lone_import(name: &str, entity: Option<ComponentEntityType>) -> String {
    let what = match entity {
        Some(ComponentEntityType::Func(_)) | None => return name.to_owned(),
        Some(ComponentEntityType::Module(_)) => "core module",
        Some(ComponentEntityType::Value(_)) => "value",
        Some(ComponentEntityType::Type { .. }) => "type",
        Some(ComponentEntityType::Instance(_)) => "instance",
        Some(ComponentEntityType::Component(_)) => "component",
    };
    format!("{name} ({what})")
}

fn instance(
    types: TypesRef<'_>,
    entity: Option<ComponentEntityType>,
) -> Option<&ComponentInstanceType> {
    match entity? {
        ComponentEntityType::Instance(id) => types.get(id),
        _ => None,
    }
}

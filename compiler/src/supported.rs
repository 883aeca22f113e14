//! The imports that a component may have: the imports of the runtime's WIT worlds, and those that
//! the runtime lists by name.
//!
//! Texts and list are the runtime's own. If the runtime supports a new function, it is accepted
//! here without a change.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::{Refusal, RefusalKind};
use faasw_runtime::supported;
use wit_parser::{Interface, Resolve, SourceMap, UnresolvedPackageGroup, WorldItem};

use crate::interface::InterfaceName;

/// Everything that a component may import.
#[derive(Debug)]
pub struct Supported {
    /// By `namespace:package/interface`; all are of WASI 0.2, or for engines.
    interfaces: BTreeMap<String, Items>,
    /// Further interfaces. Each stands for itself and for compatible versions.
    others: Vec<(InterfaceName<'static>, Items)>,
}

/// The items of an interface.
#[derive(Debug)]
pub struct Items {
    /// Functions, spelled as in components (`[method]pollable.block`).
    pub functions: BTreeSet<String>,
    /// Types, including resources.
    pub types: BTreeSet<String>,
}

impl Supported {
    /// Reads the runtime's worlds.
    pub fn load() -> Result<Self, Refusal> {
        Self::from_wit(supported::wit_files()).map_err(|message| {
            Refusal::new(
                RefusalKind::Internal,
                format!("the supported interfaces cannot be read: {message}"),
            )
        })
    }

    /// Reads WIT files, of which the first holds the worlds.
    fn from_wit(files: &[(&str, &str)]) -> Result<Self, String> {
        let (worlds, packages) = files.split_first().ok_or("there are none")?;
        let packages = packages.iter().map(parse).collect::<Result<_, _>>()?;
        let mut resolve = Resolve::default();
        let main = resolve
            .push_groups(parse(worlds)?, packages)
            .map_err(|error| error.to_string())?;
        let mut interfaces = BTreeMap::new();
        for (_, world) in &resolve.worlds {
            if world.package != Some(main) {
                continue;
            }
            for item in world.imports.values() {
                if let WorldItem::Interface { id, .. } = item
                    && let Some(interface) = resolve.interfaces.get(*id)
                    && let Some(name) = resolve.id_of(*id)
                    && let Some(name) = InterfaceName::parse(&name)
                {
                    interfaces.insert(name.path.to_owned(), Items::of(interface));
                }
            }
        }
        let others = supported::OTHERS.iter().filter_map(|other| {
            let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let items = Items {
                functions: names(other.functions),
                types: names(&[other.resources, other.uses].concat()),
            };
            Some((InterfaceName::parse(other.name)?, items))
        });
        Ok(Self {
            interfaces,
            others: others.collect(),
        })
    }

    /// Returns the items of the interface of that name, or `None` if it is not supported.
    pub fn interface(&self, name: &str) -> Option<&Items> {
        let name = InterfaceName::parse(name)?;
        if name.is_wasi_0_2() || name.is_ours() {
            return self.interfaces.get(name.path);
        }
        let mut others = self.others.iter();
        let (_, items) = others.find(|(other, _)| name.fits(other))?;
        Some(items)
    }
}

impl Items {
    fn of(interface: &Interface) -> Self {
        Self {
            functions: interface.functions.keys().cloned().collect(),
            types: interface.types.keys().cloned().collect(),
        }
    }
}

fn parse((name, text): &(&str, &str)) -> Result<UnresolvedPackageGroup, String> {
    let mut source = SourceMap::new();
    source.push_str(name, *text);
    source
        .parse()
        .map_err(|(_, error)| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use faasw_abi::configuration::CONFIG_STORES;

    #[test]
    fn every_release_of_an_interface_is_offered() {
        let supported = Supported::load().unwrap();
        for name in ["wasi:io/poll@0.2.0", "wasi:io/poll@0.2.200"] {
            let items = supported.interface(name).unwrap();
            assert!(items.functions.contains("[method]pollable.block"));
            assert!(items.types.contains("pollable"));
        }
        assert!(supported.interface("wasi:io/poll@0.3.0").is_none());
    }

    #[test]
    fn the_interfaces_of_engines_are_offered() {
        let supported = Supported::load().unwrap();
        let fresh = supported.interface("faasw:engine/fresh@0.1.0").unwrap();
        assert!(fresh.functions.contains("seed"));
        let grants = supported.interface("faasw:engine/grants@0.1.0").unwrap();
        assert!(grants.functions.contains("secrets") && grants.functions.contains("stores"));
        // The engine exports this interface itself.
        let script = supported.interface("faasw:engine/script@0.1.0");
        assert!(script.is_none());
    }

    #[test]
    fn drafts_and_interfaces_of_sdks_are_offered_by_name() {
        let supported = Supported::load().unwrap();
        assert_eq!(supported.others.len(), supported::OTHERS.len());
        for name in CONFIG_STORES {
            let items = supported.interface(name).unwrap();
            assert!(items.functions.contains("get-all"), "{name}");
        }
        let batch = supported.interface("wasi:keyvalue/batch@0.2.0-draft2");
        assert!(batch.unwrap().types.contains("bucket"));
        let postgres = supported.interface("spin:postgres/postgres@4.0.0").unwrap();
        assert!(postgres.types.contains("connection"));
        for name in [
            "wasi:config/store",
            "wasi:config/store@0.2.0",
            "wasi:config/store@0.2.0-draft-2024-09-28",
            "fermyon:spin/variables",
            "fermyon:spin/variables@3.0.0",
            "spin:postgres/postgres@5.0.0",
        ] {
            assert!(supported.interface(name).is_none(), "{name}");
        }
    }

    #[test]
    fn a_functions_exports_are_not_offered_as_imports() {
        let supported = Supported::load().unwrap();
        assert!(
            supported
                .interface("wasi:http/outgoing-handler@0.2.0")
                .is_some()
        );
        assert!(
            supported
                .interface("wasi:http/incoming-handler@0.2.0")
                .is_none()
        );
    }
}

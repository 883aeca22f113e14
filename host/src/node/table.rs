//! The functions that a node has: by name, and by the hosts that are theirs.

use faasw_client::{FunctionName, FunctionOptions, HostName};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::function::Function;

/// Both change together, and only by whole functions.
#[derive(Debug, Default)]
pub(super) struct Table {
    functions: BTreeMap<FunctionName, Arc<Function>>,
    hosts: HashMap<HostName, FunctionName>,
}

impl Table {
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Function>> {
        self.functions.get(name)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Function>> {
        self.functions.values()
    }

    pub(super) fn count(&self) -> usize {
        self.functions.len()
    }

    /// The function that has a host of its own, in lower case.
    pub(super) fn of_host(&self, host: &str) -> Option<&FunctionName> {
        self.hosts.get(host)
    }

    /// A host of these options that another function has, and which one.
    pub(super) fn taken(
        &self,
        name: &FunctionName,
        options: &FunctionOptions,
    ) -> Option<(HostName, FunctionName)> {
        options.hosts().iter().find_map(|host| {
            let owner = self.hosts.get(host).filter(|owner| *owner != name)?;
            Some((host.clone(), owner.clone()))
        })
    }

    /// Puts a function in the place of the one of its name, which comes back: whoever drops
    /// it may end all that it has, for which nobody is to wait. A host that another one
    /// has stays that one's.
    #[must_use = "it is to be dropped where the table is not held"]
    pub(super) fn put(&mut self, function: Arc<Function>) -> Option<Arc<Function>> {
        let replaced = self.remove(&function.name);
        for host in function.record.options.hosts() {
            let owner = self.hosts.entry(host.clone());
            owner.or_insert_with(|| function.name.clone());
        }
        self.functions.insert(function.name.clone(), function);
        replaced
    }

    /// Takes a function out, which comes back as from [`Table::put`].
    #[must_use = "it is to be dropped where the table is not held"]
    pub(super) fn remove(&mut self, name: &FunctionName) -> Option<Arc<Function>> {
        let removed = self.functions.remove(name)?;
        for host in removed.record.options.hosts() {
            if self.hosts.get(host) == Some(name) {
                self.hosts.remove(host);
            }
        }
        Some(removed)
    }
}

//! The functions of a node: by name, and by the hosts that they own.

use faasw_client::{FunctionName, FunctionOptions, HostName};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::function::Function;

/// The functions and their hosts. Both change together, one complete function at a time.
#[derive(Debug, Default)]
pub(super) struct FunctionTable {
    functions: BTreeMap<FunctionName, Arc<Function>>,
    hosts: HashMap<HostName, FunctionName>,
}

impl FunctionTable {
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Function>> {
        self.functions.get(name)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Function>> {
        self.functions.values()
    }

    pub(super) fn count(&self) -> usize {
        self.functions.len()
    }

    /// Returns the function that owns this host, which is in lower case.
    pub(super) fn of_host(&self, host: &str) -> Option<&FunctionName> {
        self.hosts.get(host)
    }

    /// Returns a host of these options that another function owns, and that function.
    pub(super) fn conflicting_host(
        &self,
        name: &FunctionName,
        options: &FunctionOptions,
    ) -> Option<(HostName, FunctionName)> {
        options.hosts().iter().find_map(|host| {
            let owner = self.hosts.get(host).filter(|owner| *owner != name)?;
            Some((host.clone(), owner.clone()))
        })
    }

    /// Enters a function in place of another of the same name, and returns the replaced one.
    /// Dropping that one may free much, so the caller drops it after releasing the table. A host
    /// that another function owns stays with that function.
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

    /// Removes a function and returns it, to be dropped as after [`FunctionTable::put`].
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

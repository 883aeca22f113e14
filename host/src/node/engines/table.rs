//! The language engines of a node, and the code of those that scripts have needed.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
};

use faasw_client::{Digest, EngineUse, Extension, FunctionName};
use tokio::sync::OnceCell;

use crate::{
    node::code::DeployableCode,
    registry::{self, EngineRecord},
};

/// The engines of a node.
#[derive(Debug, Default)]
pub(super) struct EngineTable {
    table: RwLock<registry::EnginesByName>,
    /// Code by the digest of its component. It is made once and shared by all scripts of the
    /// engine.
    code: Mutex<HashMap<Digest, Arc<OnceCell<DeployableCode>>>>,
    /// Held while an engine that faasw carries is added.
    pub(super) carrying: tokio::sync::Mutex<()>,
}

impl EngineTable {
    /// Creates a table of these engines, without any code.
    pub(super) fn new(table: registry::EnginesByName) -> Self {
        Self {
            table: RwLock::new(table),
            code: Mutex::default(),
            carrying: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn by_name(&self) -> RwLockReadGuard<'_, registry::EnginesByName> {
        // The lock's holders do not panic while they change the data.
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut registry::EnginesByName)) {
        change(&mut self.table.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Removes the code that no engine in the table has and whose digest is not in `used`. Scripts
    /// that still hold the code keep it, and code that is being made is completed.
    pub(super) fn prune(&self, used: &HashSet<Digest>) {
        let listed: HashSet<Digest> = self
            .by_name()
            .values()
            .map(|record| record.digest)
            .collect();
        self.code()
            .retain(|digest, _| listed.contains(digest) || used.contains(digest));
    }

    pub(super) fn code(&self) -> MutexGuard<'_, HashMap<Digest, Arc<OnceCell<DeployableCode>>>> {
        self.code.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cell(&self, digest: Digest) -> Arc<OnceCell<DeployableCode>> {
        self.code().entry(digest).or_default().clone()
    }

    /// Returns the engine for scripts with this extension.
    pub(super) fn of(&self, extension: &Extension) -> Option<EngineUse> {
        let table = self.by_name();
        let (name, record) = table
            .iter()
            .find(|(_, record)| record.extensions.contains(extension))?;
        Some(EngineUse {
            name: name.clone(),
            digest: record.digest,
        })
    }

    /// Returns the operator's engine that conflicts with an engine of this name and these
    /// extensions, and the extension. Engines in the table that are carried never conflict. An
    /// engine of the operator replaces another of the same name; a carried one does not.
    pub(super) fn conflicting_engine(
        &self,
        name: &FunctionName,
        extensions: &[Extension],
        is_carried: bool,
    ) -> Option<(Extension, FunctionName)> {
        let table = self.by_name();
        let mut operators = table
            .iter()
            .filter(|(other, record)| !record.is_carried && (is_carried || *other != name));
        operators.find_map(|(other, record)| {
            let mut both = extensions.iter();
            let shared = both.find(|extension| record.extensions.contains(extension));
            let by_name = record.extensions.first().filter(|_| other == name);
            Some((shared.or(by_name)?.clone(), other.clone()))
        })
    }

    /// Returns the other carried engines that share an extension with this engine.
    pub(super) fn carried_beside(
        &self,
        name: &FunctionName,
        record: &EngineRecord,
    ) -> Vec<FunctionName> {
        let table = self.by_name();
        let beside = table.iter().filter(|(other, theirs)| {
            let mut both = theirs.extensions.iter();
            theirs.is_carried
                && *other != name
                && both.any(|extension| record.extensions.contains(extension))
        });
        beside.map(|(other, _)| other.clone()).collect()
    }
}

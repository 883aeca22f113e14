//! Which language engines a node has, and the code of those that were needed.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
};

use faasw_client::{Digest, EngineUse, Extension, FunctionName};
use tokio::sync::OnceCell;

use super::deploy::code::Ready;
use crate::registry::{self, EngineRecord};

/// The engines of a node.
#[derive(Debug, Default)]
pub(super) struct Engines {
    table: RwLock<registry::Engines>,
    /// Code by the digest of its component: single-flight, and shared by all scripts.
    code: Mutex<HashMap<Digest, Arc<OnceCell<Ready>>>>,
    /// Held while an engine that faasw carries is added.
    pub(super) carrying: tokio::sync::Mutex<()>,
}

impl Engines {
    /// These, none of whose code is there.
    pub(super) fn new(table: registry::Engines) -> Self {
        Self {
            table: RwLock::new(table),
            code: Mutex::default(),
            carrying: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn table(&self) -> RwLockReadGuard<'_, registry::Engines> {
        // It changes by calls that do not panic.
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut registry::Engines)) {
        change(&mut self.table.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Lets code go that neither an engine nor any of these digests has. Scripts that still
    /// need it have it, and whatever is being made goes on.
    pub(super) fn prune(&self, used: &HashSet<Digest>) {
        let listed: HashSet<Digest> = self.table().values().map(|record| record.digest).collect();
        self.code()
            .retain(|digest, _| listed.contains(digest) || used.contains(digest));
    }

    pub(super) fn code(&self) -> MutexGuard<'_, HashMap<Digest, Arc<OnceCell<Ready>>>> {
        self.code.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn jail(&self, digest: Digest) -> Arc<OnceCell<Ready>> {
        self.code().entry(digest).or_default().clone()
    }

    /// The engine for scripts that end like this.
    pub(super) fn of(&self, extension: &Extension) -> Option<EngineUse> {
        let table = self.table();
        let (name, record) = table
            .iter()
            .find(|(_, record)| record.extensions.contains(extension))?;
        Some(EngineUse {
            name: name.clone(),
            digest: record.digest,
        })
    }

    /// The operator's engine that an engine of this name and these extensions would be in the
    /// way of, and by which extension. Carried ones make room; one of the operator's replaces
    /// that of its name, a carried one does not.
    pub(super) fn taken(
        &self,
        name: &FunctionName,
        extensions: &[Extension],
        is_carried: bool,
    ) -> Option<(Extension, FunctionName)> {
        let table = self.table();
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

    /// Carried engines whose scripts end like this one's.
    pub(super) fn carried_beside(
        &self,
        name: &FunctionName,
        record: &EngineRecord,
    ) -> Vec<FunctionName> {
        let table = self.table();
        let beside = table.iter().filter(|(other, theirs)| {
            let mut both = theirs.extensions.iter();
            theirs.is_carried
                && *other != name
                && both.any(|extension| record.extensions.contains(extension))
        });
        beside.map(|(other, _)| other.clone()).collect()
    }
}

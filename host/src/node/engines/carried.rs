//! Adds engines that faasw carries. A carried engine is added when a script needs it, as if the
//! operator had added it.
//!
//! The operator's engines take precedence: an operator's engine with the name or an extension of a
//! carried engine displaces the carried one.

use std::sync::Arc;

use faasw_client::{EngineInfo, Extension};

use super::{Engines, first_file};
use crate::{
    error::{DeployError, EngineError},
    node::carried_engine::{CARRIED, CarriedEngine},
    registry::RegistryError,
};

impl Engines {
    /// Returns the carried engines that no engine of the operator displaces.
    fn carried(&self) -> impl Iterator<Item = &'static CarriedEngine> {
        CARRIED.iter().filter(|carried| !self.is_displaced(carried))
    }

    fn is_displaced(&self, carried: &CarriedEngine) -> bool {
        self.check_extensions(&carried.name, &carried.extensions, true)
            .is_err()
    }

    /// Returns the extensions of all engines, including carried engines that are not added yet.
    pub(super) fn known_extensions(&self) -> Vec<Extension> {
        let carried = self.carried().flat_map(|carried| &carried.extensions);
        let mut all: Vec<_> = carried.cloned().collect();
        for record in self.table.by_name().values() {
            all.extend(record.extensions.iter().cloned());
        }
        all.sort();
        all.dedup();
        all
    }

    /// Adds the carried engine for this script. Does nothing if the module is no script, if no
    /// carried engine fits, or if the engine was added before.
    pub(crate) async fn add_carried_for(
        self: &Arc<Self>,
        module: &[u8],
    ) -> Result<(), DeployError> {
        let Some(extension) = first_file(module)?.and_then(Extension::of_path) else {
            return Ok(());
        };
        let runs_it = |carried: &CarriedEngine| carried.extensions.contains(&extension);
        match self.add_carried(runs_it).await {
            Err(EngineError::NotReady(error)) => Err(error),
            // Meanwhile the operator added an engine for these scripts, or removed this one.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Adds the carried engine that `is_it` selects. Does nothing if there is none, or if it was
    /// added before.
    pub(super) async fn add_carried(
        self: &Arc<Self>,
        is_it: impl Fn(&CarriedEngine) -> bool,
    ) -> Result<(), EngineError> {
        let Some(carried) = self.carried().find(|carried| is_it(carried)) else {
            return Ok(());
        };
        let is_there = || {
            let record = self.record(&carried.name);
            record.is_some_and(|record| record.digest == carried.digest)
        };
        if is_there() {
            return Ok(());
        }
        // Scripts that arrive at the same time share one addition.
        let _carrying = self.table.carrying.lock().await;
        if is_there() {
            return Ok(());
        }
        let component = match carried.component().await {
            Ok(component) => component,
            // This was logged. The script is rejected for lack of an engine.
            Err(RegistryError::Engine(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let (name, extensions) = (carried.name.as_str(), carried.extensions.clone());
        let adding = self.add(name, component.into(), extensions, true);
        adding.await.map(drop)
    }

    /// Returns the carried engines that are not among the `added` engines.
    pub(super) fn carried_infos(&self, added: &[EngineInfo]) -> Vec<EngineInfo> {
        let resting = self
            .carried()
            .filter(|carried| added.iter().all(|engine| engine.name != carried.name));
        let infos = resting.map(|carried| EngineInfo {
            name: carried.name.clone(),
            extensions: carried.extensions.clone(),
            digest: carried.digest,
            added: None,
            is_carried: true,
            module_bytes: carried.runtime.bytes,
            functions: 0,
            is_warm: false,
        });
        infos.collect()
    }
}

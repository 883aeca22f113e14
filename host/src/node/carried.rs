//! Engines that faasw carries: added when a script needs one, as if the operator had.
//!
//! The operator's own engines come first: one that has a carried one's name, or one of its
//! extensions, takes its place.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use faasw_abi::script;
use faasw_control::{Digest, EngineInfo, Extension, FunctionName};
use faasw_wasm_runtimes::{ALL, Carried};

use super::core::{Core, blocking};
use crate::error::{DeployError, EngineError};

/// A carried component, unpacked.
#[derive(Clone, Debug)]
struct Unpacked {
    component: Bytes,
    digest: Digest,
}

/// What was unpacked, in the order of `ALL`.
static UNPACKED: [OnceLock<Unpacked>; ALL.len()] = [const { OnceLock::new() }; ALL.len()];

/// A carried component; takes some milliseconds the first time.
fn unpacked(carried: &Carried) -> Option<Unpacked> {
    let index = ALL.iter().position(|other| other.name == carried.name)?;
    let cell = UNPACKED.get(index)?;
    if cell.get().is_none() {
        let component = match carried.component() {
            Ok(component) => Bytes::from(component),
            Err(error) => {
                tracing::error!(engine = carried.name, %error, "a carried engine cannot be unpacked");
                return None;
            }
        };
        let digest = Digest::of(&component);
        let _ = cell.set(Unpacked { component, digest });
    }
    cell.get().cloned()
}

fn extensions(carried: &Carried) -> Vec<Extension> {
    let texts = carried.extensions.iter();
    texts.filter_map(|text| Extension::new(text).ok()).collect()
}

impl Core {
    /// Whether the operator has an engine that stands where this one would.
    fn is_displaced(&self, carried: &Carried) -> bool {
        let extensions = extensions(carried);
        self.engines.table().iter().any(|(name, record)| {
            let is_its_name = name.as_str() == carried.name;
            let mut both = extensions.iter();
            let has_its_scripts = both.any(|extension| record.extensions.contains(extension));
            !(record.is_carried && is_its_name) && (is_its_name || has_its_scripts)
        })
    }

    /// What there are engines for, or would be.
    pub(super) fn known_extensions(&self) -> Vec<Extension> {
        let carried = ALL.iter().filter(|carried| !self.is_displaced(carried));
        let mut all: Vec<_> = carried.flat_map(extensions).collect();
        for record in self.engines.table().values() {
            all.extend(record.extensions.iter().cloned());
        }
        all.sort();
        all.dedup();
        all
    }

    /// Adds the carried engine for this script, if that is one and it is not there.
    pub(super) async fn bring_engine_for(
        self: &Arc<Self>,
        module: &[u8],
    ) -> Result<(), DeployError> {
        if !script::is_script(module) {
            return Ok(());
        }
        let files = script::read(module).map_err(DeployError::Script)?;
        let first = files.first().map_or("", |(path, _)| path);
        let Some(extension) = Extension::of_path(first) else {
            return Ok(());
        };
        let is_its_script = |carried: &&Carried| carried.extensions.contains(&extension.as_str());
        let Some(carried) = ALL.iter().find(is_its_script) else {
            return Ok(());
        };
        match self.bring(carried).await {
            Err(EngineError::NotReady(error)) => Err(error),
            // The operator added one for these scripts meanwhile, or has removed this one.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Adds the carried engine of this name, if that is one and it is not there.
    pub(super) async fn bring_engine_of(self: &Arc<Self>, name: &str) -> Result<(), EngineError> {
        match ALL.iter().find(|carried| carried.name == name) {
            Some(carried) => self.bring(carried).await,
            None => Ok(()),
        }
    }

    async fn bring(self: &Arc<Self>, carried: &'static Carried) -> Result<(), EngineError> {
        if self.is_displaced(carried) {
            return Ok(());
        }
        // One for all scripts that come at once.
        let _carrying = self.engines.carrying.lock().await;
        let unpacking = blocking(move || Ok(unpacked(carried)));
        let Some(unpacked) = unpacking.await.map_err(DeployError::from)? else {
            return Ok(());
        };
        let is_there = {
            let table = self.engines.table();
            let record = table.get(carried.name);
            record.is_some_and(|record| record.digest == unpacked.digest)
        };
        if is_there || self.is_displaced(carried) {
            return Ok(());
        }
        let adding = self.add_engine(carried.name, unpacked.component, extensions(carried), true);
        adding.await.map(drop)
    }

    /// Carried engines that no script needed yet.
    pub(super) fn carried_infos(&self) -> Vec<EngineInfo> {
        let all = ALL.iter().filter(|carried| {
            let is_there = self.engines.table().contains_key(carried.name);
            !is_there && !self.is_displaced(carried)
        });
        let infos = all.filter_map(|carried| {
            let unpacked = unpacked(carried)?;
            Some(EngineInfo {
                name: FunctionName::new(carried.name).ok()?,
                extensions: extensions(carried),
                digest: unpacked.digest,
                added: None,
                is_carried: true,
                module_bytes: unpacked.component.len() as u64,
                functions: 0,
                is_warm: false,
            })
        });
        infos.collect()
    }
}

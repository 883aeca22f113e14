//! Engines that faasw carries. A carried engine is added when a script needs it, as if the operator
//! had added it.
//!
//! The operator's engines take precedence: an operator's engine with the name or an extension of a
//! carried engine displaces the carried one.

use std::sync::Arc;

use faasw_client::{Digest, EngineInfo, Extension, FunctionName};
use faasw_wasm_runtimes::{ALL, BundledRuntime};

use super::{
    core::{Core, blocking},
    engines::first_file,
};
use crate::{
    error::{DeployError, EngineError},
    registry::RegistryError,
};

/// Returns the name and the digest of a carried engine. A test checks that all carried data is well
/// formed.
fn known(carried: &BundledRuntime) -> Option<(FunctionName, Digest)> {
    let name = FunctionName::new(carried.name).ok()?;
    let digest = Digest::try_from(carried.sha256.to_owned()).ok()?;
    Some((name, digest))
}

fn extensions(carried: &BundledRuntime) -> Vec<Extension> {
    let texts = carried.extensions.iter();
    texts.filter_map(|text| Extension::new(text).ok()).collect()
}

/// Returns the carried engine with this name and digest, if there is one.
pub(super) fn is_carried(name: &FunctionName, digest: Digest) -> Option<&'static BundledRuntime> {
    let its = (name.clone(), digest);
    ALL.iter()
        .find(|carried| known(carried).as_ref() == Some(&its))
}

impl Core {
    /// Whether an engine of the operator displaces this carried engine.
    fn is_displaced(&self, carried: &BundledRuntime) -> bool {
        let taken = |(name, _)| {
            self.engines
                .conflicting_engine(&name, &extensions(carried), true)
        };
        known(carried).and_then(taken).is_some()
    }

    /// Returns the extensions of all engines, including carried engines that are not added yet.
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

    /// Adds the carried engine for this script. Does nothing if the module is no script, if no
    /// carried engine fits, or if the engine was added before.
    pub(super) async fn add_carried_engine_for(
        self: &Arc<Self>,
        module: &[u8],
    ) -> Result<(), DeployError> {
        let Some(extension) = first_file(module)?.and_then(Extension::of_path) else {
            return Ok(());
        };
        let is_its_script =
            |carried: &&BundledRuntime| carried.extensions.contains(&extension.as_str());
        let Some(carried) = ALL.iter().find(is_its_script) else {
            return Ok(());
        };
        match self.add_carried_engine(carried).await {
            Err(EngineError::NotReady(error)) => Err(error),
            // Meanwhile the operator added an engine for these scripts, or removed this one.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Adds the carried engine of this name. Does nothing if there is none, or if it was added
    /// before.
    pub(super) async fn add_carried_engine_named(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<(), EngineError> {
        match ALL.iter().find(|carried| carried.name == name) {
            Some(carried) => self.add_carried_engine(carried).await,
            None => Ok(()),
        }
    }

    async fn add_carried_engine(
        self: &Arc<Self>,
        carried: &'static BundledRuntime,
    ) -> Result<(), EngineError> {
        let Some((name, digest)) = known(carried).filter(|_| !self.is_displaced(carried)) else {
            return Ok(());
        };
        let is_there = || {
            let table = self.engines.table();
            table
                .get(&name)
                .is_some_and(|record| record.digest == digest)
        };
        if is_there() {
            return Ok(());
        }
        // Scripts that arrive at the same time share one addition.
        let _carrying = self.engines.carrying.lock().await;
        if is_there() {
            return Ok(());
        }
        let unpacking = blocking(move || Ok(carried.component()));
        let component = match unpacking.await.map_err(DeployError::from)? {
            Ok(component) => component,
            Err(error) => {
                tracing::error!(engine = carried.name, %error, "a built-in engine cannot be \
                     unpacked");
                return Ok(());
            }
        };
        let adding = self.add_engine(carried.name, component.into(), extensions(carried), true);
        adding.await.map(drop)
    }

    /// Returns the component that the carried engine of this digest is compiled from. Returns an
    /// error if there is no such engine or it cannot be unpacked.
    pub(super) async fn carried_component(
        &self,
        name: &FunctionName,
        digest: Digest,
    ) -> Result<Vec<u8>, RegistryError> {
        let gone = || RegistryError::Engine(name.clone());
        let carried = is_carried(name, digest).ok_or_else(gone)?;
        let unpacking = blocking(move || Ok(carried.component())).await?;
        unpacking.map_err(|_| gone())
    }

    /// Returns the carried engines that no script has needed yet.
    pub(super) fn carried_infos(&self) -> Vec<EngineInfo> {
        let all = ALL.iter().filter(|carried| !self.is_displaced(carried));
        let infos = all.filter_map(|carried| {
            let (name, digest) = known(carried)?;
            let is_there = self.engines.table().contains_key(&name);
            (!is_there).then(|| EngineInfo {
                name,
                extensions: extensions(carried),
                digest,
                added: None,
                is_carried: true,
                module_bytes: carried.bytes,
                functions: 0,
                is_warm: false,
            })
        });
        infos.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carried_engines_match_their_recorded_digests() {
        for carried in ALL {
            let (_, digest) = known(carried).unwrap();
            assert_eq!(Digest::of(&carried.component().unwrap()), digest);
            assert_eq!(extensions(carried).len(), carried.extensions.len());
        }
    }
}

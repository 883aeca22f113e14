//! The language engines that faasw carries.

use std::sync::LazyLock;

use faasw_client::{Digest, Extension, FunctionName};
use faasw_wasm_runtimes::{ALL, BundledRuntime};

use super::storage::blocking;
use crate::registry::RegistryError;

/// A language engine that faasw carries.
#[derive(Debug)]
pub(super) struct CarriedEngine {
    pub(super) name: FunctionName,
    pub(super) digest: Digest,
    pub(super) extensions: Vec<Extension>,
    pub(super) runtime: &'static BundledRuntime,
}

/// All engines that faasw carries. A test checks that their data is well formed.
pub(super) static CARRIED: LazyLock<Vec<CarriedEngine>> = LazyLock::new(|| {
    let carried = |runtime: &'static BundledRuntime| {
        let extensions = runtime.extensions.iter();
        Some(CarriedEngine {
            name: FunctionName::new(runtime.name).ok()?,
            digest: Digest::try_from(runtime.sha256.to_owned()).ok()?,
            extensions: extensions
                .filter_map(|text| Extension::new(text).ok())
                .collect(),
            runtime,
        })
    };
    ALL.iter().filter_map(carried).collect()
});

impl CarriedEngine {
    /// Returns the carried engine with this name and digest, if there is one.
    pub(super) fn find(name: &FunctionName, digest: Digest) -> Option<&'static Self> {
        let is_it = |carried: &&Self| carried.name == *name && carried.digest == digest;
        CARRIED.iter().find(is_it)
    }

    /// Unpacks the component that the engine is compiled from.
    ///
    /// # Errors
    /// Returns [`RegistryError::Engine`] if it cannot be unpacked.
    pub(super) async fn component(&'static self) -> Result<Vec<u8>, RegistryError> {
        let unpacking = blocking(move || {
            self.runtime.component().map_err(|error| {
                let engine = &self.name;
                tracing::error!(%engine, %error, "a built-in engine cannot be unpacked");
                RegistryError::Engine(engine.clone())
            })
        });
        unpacking.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carried_engines_match_their_recorded_digests() {
        assert_eq!(CARRIED.len(), ALL.len());
        for carried in CARRIED.iter() {
            let component = carried.runtime.component().unwrap();
            assert_eq!(Digest::of(&component), carried.digest);
            assert_eq!(carried.extensions.len(), carried.runtime.extensions.len());
        }
    }
}

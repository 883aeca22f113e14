//! The third stage: a module is compiled to code of this machine unless that was done before.

use faasw_client::Initialisation;
use faasw_pool::Initialiser;

use super::{
    Deployer,
    input::{EarlierImage, EarlierVersion},
    prepare::PreparedInput,
};
use crate::{
    error::DeployError,
    node::code::{CodeOwner, DeployableCode},
    registry::{FreezeRecord, VersionRecord},
};

pub(super) struct CompiledModule {
    pub(super) input: PreparedInput,
    pub(super) ready: DeployableCode,
    /// How it was initialised, if it was.
    pub(super) initialised: Option<Initialisation>,
    /// The freeze record of the initialisation that is part of the module now, if there is one.
    pub(super) freeze: Option<FreezeRecord>,
}

impl Deployer {
    /// Compiles the module unless its code is stored.
    pub(super) async fn compile(
        &self,
        input: PreparedInput,
    ) -> Result<CompiledModule, DeployError> {
        let initialiser = input.initialiser();
        let ready = match self.stored_code(&input, initialiser.as_ref()).await? {
            Some(ready) => ready,
            None => {
                let (name, module) = (&input.name, input.module.clone());
                let cache = match &input.earlier {
                    Some(_) => None,
                    None => self.code.compile_cache(name, &module).await,
                };
                let compiling = self.code.compile_module(name, module, initialiser, cache);
                compiling.await?
            }
        };
        let earlier = input.earlier.as_ref().map(|earlier| &earlier.record);
        Ok(CompiledModule {
            ready,
            initialised: earlier.and_then(|record| record.initialised.clone()),
            freeze: earlier.and_then(freeze_of_module),
            input,
        })
    }

    /// Looks for code of the same module that the same engine compiled.
    pub(super) async fn stored_code(
        &self,
        input: &PreparedInput,
        initialiser: Option<&Initialiser>,
    ) -> Result<Option<DeployableCode>, DeployError> {
        if let Some(engine) = &input.engine {
            return self.engines.code_of(engine).await.map(Some);
        }
        let (digest, owner) = (input.digest, CodeOwner::Function(input.name.clone()));
        if let Some(EarlierVersion {
            image: EarlierImage::Shared,
            ..
        }) = &input.earlier
        {
            // The code is read when it is needed, so that a pod starts without reading all of it.
            return self.code.find(digest, &owner).await;
        }
        let stored = || self.code.find_and_read(digest, &owner);
        // If the module is to be initialised, its code has to be compiled for that.
        Ok(match initialiser {
            Some(Initialiser::Named(_)) => None,
            Some(Initialiser::Found) => stored().await?.filter(|ready| !ready.has_initialiser),
            None => stored().await?,
        })
    }
}

/// Returns the freeze record of an initialisation that is part of the module, if there is one.
fn freeze_of_module(record: &VersionRecord) -> Option<FreezeRecord> {
    let is_part = matches!(record.initialised, Some(Initialisation::AsModule { .. }));
    is_part.then(|| record.freeze.clone())
}

#[cfg(test)]
mod tests {
    use faasw_client::Digest;

    use super::*;
    use crate::node::deploy::import::manifest_of;

    #[test]
    fn an_initialisation_that_is_part_of_the_module_is_reported() {
        let mut record = manifest_of(b"module", "f").unwrap().record;
        record.freeze.drawn = "a clock".into();
        assert!(freeze_of_module(&record).is_none());
        record.initialised = Some(Initialisation::AsModule {
            export: "init".into(),
            upload: Digest::of(b""),
        });
        assert_eq!(freeze_of_module(&record).unwrap().drawn, "a clock");
    }
}

//! The third stage: a module is compiled to code of this machine unless that was done before.

use faasw_client::Initialisation;
use faasw_pool::{FreezeReport, Initialiser};

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
    /// The report of the initialisation that is part of the module now, if there is one.
    pub(super) drawn_report: Option<FreezeReport>,
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
            drawn_report: earlier.and_then(initialisation_report),
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
            // The image has the pages of the code that requests use first.
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

/// Returns the freeze report of an initialisation that is part of the module, if there is one.
fn initialisation_report(record: &VersionRecord) -> Option<FreezeReport> {
    let FreezeRecord {
        after_init,
        at_entry,
        drew_entropy,
        drawn,
        instantiation,
        layer_bytes,
    } = record.freeze.clone();
    let is_part = matches!(record.initialised, Some(Initialisation::AsModule { .. }));
    is_part.then_some(FreezeReport {
        after_init,
        at_entry,
        drew_entropy,
        drawn,
        instantiation,
        layer_bytes,
    })
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
        assert!(initialisation_report(&record).is_none());
        record.initialised = Some(Initialisation::AsModule {
            export: "init".into(),
            upload: Digest::of(b""),
        });
        assert_eq!(initialisation_report(&record).unwrap().drawn, "a clock");
    }
}

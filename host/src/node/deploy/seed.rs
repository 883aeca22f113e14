//! The fifth stage: makes a seed of the code and records how it was frozen, or reads a seed that
//! was made before.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use faasw_client::DeployStage;

use super::{Deployer, compile::CompiledModule};
use crate::{
    backend::ServableVersion,
    error::DeployError,
    log::FunctionLog,
    node::{
        content::SeedContent,
        functions::{Function, VersionCell},
    },
    registry::{FreezeRecord, VersionRecord},
};

/// A function that could serve, but does not yet.
pub(super) struct SeededFunction {
    /// Without its version number, which the registry assigns.
    pub(super) function: Function,
    pub(super) compiled: CompiledModule,
    /// How long making the seed took.
    pub(super) seed_time: Duration,
    /// Why the seed was made here although there is an image that was made before.
    pub(super) rebuilt: Option<String>,
}

/// A version whose seed exists.
pub(super) struct ReadyVersion {
    pub(super) record: VersionRecord,
    pub(super) version: Arc<dyn ServableVersion>,
    /// See [`SeededFunction::rebuilt`].
    pub(super) rebuilt: Option<String>,
}

impl CompiledModule {
    /// Returns the record of the version, without its freeze record.
    pub(super) fn record(&self) -> VersionRecord {
        let input = &self.input;
        VersionRecord {
            digest: input.digest,
            engine: input.engine.clone(),
            files: input.files.as_ref().map(|files| files.record.clone()),
            initialised: self.initialised.clone(),
            kind: self.ready.code.kind,
            options: input.options.clone(),
            deployed: SystemTime::now(),
            imaged: None,
            freeze: FreezeRecord::default(),
            imports: self.ready.imports.clone(),
            module_bytes: input.module.len() as u64,
            code_bytes: self.ready.code_bytes,
        }
    }

    /// Returns the content of the version's seed.
    pub(super) fn content(&self, record: &VersionRecord) -> SeedContent {
        SeedContent::in_memory(record, &self.input.module, self.input.files.as_ref())
    }
}

impl Deployer {
    /// Makes the seed, unless there is an image of it that is usable here.
    pub(super) async fn seed(
        &self,
        mut compiled: CompiledModule,
        log: &Arc<FunctionLog>,
    ) -> Result<SeededFunction, DeployError> {
        let mut begun = Instant::now();
        compiled.input.slot.enter(DeployStage::Initialising);
        let restored = match compiled.input.earlier.take() {
            Some(earlier) => self.restore(&compiled, earlier, log).await?.map(Some),
            None => Ok(None),
        };
        let ready = match restored {
            Ok(Some(restored)) => restored,
            Ok(None) => self.make_seed(&compiled, log).await?,
            Err(why) => {
                // The reported time does not include the attempt to use the image.
                begun = Instant::now();
                ReadyVersion {
                    rebuilt: Some(why),
                    ..self.make_seed(&compiled, log).await?
                }
            }
        };
        let (number, version) = (0, VersionCell::filled(ready.version));
        let (name, record, log) = (&compiled.input.name, ready.record, log.clone());
        let versions = &self.versions;
        Ok(SeededFunction {
            function: versions.version(name, number, record, log, version),
            compiled,
            seed_time: begun.elapsed(),
            rebuilt: ready.rebuilt,
        })
    }

    async fn make_seed(
        &self,
        compiled: &CompiledModule,
        log: &Arc<FunctionLog>,
    ) -> Result<ReadyVersion, DeployError> {
        let mut record = compiled.record();
        let content = compiled.content(&record);
        let spec = self
            .versions
            .spec(&compiled.input.name, &record, content, log);
        let seeded = self.backend.make_seed(&spec, &compiled.ready.code).await?;
        record.freeze = FreezeRecord::from(&seeded.report);
        if let Some(module) = &compiled.freeze
            && !module.drawn.is_empty()
        {
            record.freeze.drew_entropy |= module.drew_entropy;
            record.freeze.drawn.insert_str(0, &module.drawn);
        }
        Ok(ReadyVersion {
            record,
            version: seeded.version,
            rebuilt: None,
        })
    }
}

//! The fifth stage: makes a seed of the code and records how it was frozen.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use faasw_client::{DeployStage, FunctionName};
use faasw_pool::ScriptFiles;

use super::{
    code::DeployableCode, compile::CompiledModule, detect::DetectedUpload, files::PackedFiles,
};
use crate::{
    backend::ServableVersion,
    error::DeployError,
    log::{Event, FunctionLog},
    node::{
        core::Core,
        function::{Function, VersionCell},
        secrets::VersionSecrets,
    },
    registry::{FreezeRecord, VersionRecord},
};

/// A function that could serve, but does not yet.
pub(super) struct SeededFunction {
    /// Without its version number, which the registry assigns.
    pub(super) function: Function,
    pub(super) module: Bytes,
    /// Its files, packed, if it has any.
    pub(super) files: Option<PackedFiles>,
    pub(super) ready: DeployableCode,
    /// How long making the seed took.
    pub(super) seed_time: Duration,
}

impl CompiledModule {
    /// Returns the record of the version, without its freeze record.
    pub(super) fn record(&self) -> VersionRecord {
        let Self {
            detected,
            digest,
            ready,
            initialised,
            ..
        } = self;
        VersionRecord {
            digest: *digest,
            engine: detected.engine.clone(),
            files: detected.files.as_ref().map(|files| files.record.clone()),
            initialised: initialised.clone(),
            kind: ready.code.kind,
            options: detected.options.clone(),
            deployed: SystemTime::now(),
            imaged: None,
            freeze: FreezeRecord::default(),
            imports: ready.imports.clone(),
            module_bytes: detected.module.len() as u64,
            code_bytes: ready.code_bytes,
        }
    }
}

impl Core {
    pub(super) async fn seed(
        &self,
        compiled: CompiledModule,
        log: Arc<FunctionLog>,
    ) -> Result<SeededFunction, DeployError> {
        let begun = Instant::now();
        let mut record = compiled.record();
        let CompiledModule {
            detected:
                DetectedUpload {
                    name,
                    module,
                    files,
                    progress,
                    ..
                },
            ready,
            drawn_report,
            ..
        } = compiled;
        progress.enter(DeployStage::Initialising);
        self.observer.notify(Event::MakingSeed { function: &name });
        let script = record.engine.is_some();
        let script = script.then(|| ScriptFiles::InMemory(module.clone()));
        let given = files.as_ref().map(|files| files.files(&record.options));
        let spec = self.spec(&name, &record, script, given, &log);
        let seeded = self.backend.make_seed(&spec, &ready.code).await?;
        record.freeze = FreezeRecord::from(&seeded.report);
        if let Some(drawn_report) =
            drawn_report.filter(|drawn_report| !drawn_report.drawn.is_empty())
        {
            record.freeze.drew_entropy |= drawn_report.drew_entropy;
            record.freeze.drawn.insert_str(0, &drawn_report.drawn);
        }
        let seed_time = begun.elapsed();
        Ok(SeededFunction {
            function: self.build_version(&name, record, &log, seeded.version),
            module,
            files,
            ready,
            seed_time,
        })
    }

    /// Returns a version that could serve, without its number, which the registry assigns.
    pub(super) fn build_version(
        &self,
        name: &FunctionName,
        record: VersionRecord,
        log: &Arc<FunctionLog>,
        made: Arc<dyn ServableVersion>,
    ) -> Function {
        Function {
            name: name.clone(),
            version: 0,
            stores: self.stores(name, &record),
            secrets: VersionSecrets::of(&record),
            outbound_grants: self.outbound_grants(&record),
            record,
            log: log.clone(),
            under_way: Arc::default(),
            backlog: self.backlog.function(),
            version_cell: VersionCell::filled(made),
        }
    }
}

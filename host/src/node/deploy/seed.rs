//! The fifth stage: makes a seed of the code and records how it was frozen.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use faasw_client::{DeployStage, FunctionName};
use faasw_pool::ScriptFiles;

use super::{code::Ready, compile::Compiled, detect::Detected, files::Packed};
use crate::{
    backend::FunctionVersion,
    error::DeployError,
    log::{Event, FunctionLog},
    node::{
        core::Core,
        function::{Function, VersionCell},
        secrets::Given,
    },
    registry::{FreezeRecord, VersionRecord},
};

/// A function that could serve, but does not yet.
pub(super) struct Seeded {
    /// Without its version number, which the registry assigns.
    pub(super) function: Function,
    pub(super) module: Bytes,
    /// Its files, packed, if it has any.
    pub(super) files: Option<Packed>,
    pub(super) ready: Ready,
    /// How long making the seed took.
    pub(super) seed_time: Duration,
}

impl Compiled {
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
            kind: ready.code.kind(),
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
        compiled: Compiled,
        log: Arc<FunctionLog>,
    ) -> Result<Seeded, DeployError> {
        let begun = Instant::now();
        let mut record = compiled.record();
        let Compiled {
            detected:
                Detected {
                    name,
                    module,
                    files,
                    progress,
                    ..
                },
            ready,
            drew,
            ..
        } = compiled;
        progress.enter(DeployStage::Initialising);
        self.observer.tell(Event::MakingSeed { function: &name });
        let script = record.engine.is_some();
        let script = script.then(|| ScriptFiles::InMemory(module.clone()));
        let given = files.as_ref().map(|files| files.files(&record.options));
        let spec = self.spec(&name, &record, script, given, &log);
        let (made, report) = ready.code.seed(&spec).await?;
        record.freeze = FreezeRecord::from(&report);
        if let Some(drew) = drew.filter(|drew| !drew.drawn.is_empty()) {
            record.freeze.drew_entropy |= drew.drew_entropy;
            record.freeze.drawn.insert_str(0, &drew.drawn);
        }
        let seed_time = begun.elapsed();
        Ok(Seeded {
            function: self.unnumbered(&name, record, &log, made),
            module,
            files,
            ready,
            seed_time,
        })
    }

    /// Returns a version that could serve, without its number, which the registry assigns.
    pub(super) fn unnumbered(
        &self,
        name: &FunctionName,
        record: VersionRecord,
        log: &Arc<FunctionLog>,
        made: Arc<dyn FunctionVersion>,
    ) -> Function {
        Function {
            name: name.clone(),
            version: 0,
            stores: self.stores(name, &record),
            secrets: Given::to(&record),
            reaches: self.reaches(&record),
            record,
            log: log.clone(),
            under_way: Arc::default(),
            backlog: self.backlog.function(),
            made: VersionCell::with(made),
        }
    }
}

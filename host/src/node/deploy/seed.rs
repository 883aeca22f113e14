//! The fifth stage: a seed is made of the code, and what that found out is recorded.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use faasw_pool::ScriptFiles;

use super::{code::Ready, compile::Compiled, detect::Detected};
use crate::{
    error::DeployError,
    log::{Event, FunctionLog},
    node::{
        core::Core,
        function::{Function, SeedCell},
    },
    registry::{FreezeRecord, VersionRecord},
};

/// A function that could serve, but does not yet.
pub(super) struct Seeded {
    /// Without its number, which the registry gives.
    pub(super) function: Function,
    pub(super) module: Bytes,
    pub(super) ready: Ready,
    /// What making the seed took.
    pub(super) seed_time: Duration,
}

impl Core {
    /// Makes the seed.
    pub(super) async fn seed(
        &self,
        compiled: Compiled,
        log: Arc<FunctionLog>,
    ) -> Result<Seeded, DeployError> {
        let Compiled {
            detected,
            digest,
            ready,
            initialised,
            drew,
        } = compiled;
        let Detected {
            name,
            module,
            engine,
            options,
        } = detected;
        let begun = Instant::now();
        self.observer.tell(Event::MakingSeed { function: &name });
        let mut record = VersionRecord {
            digest,
            engine,
            initialised,
            kind: ready.code.kind(),
            options,
            deployed: SystemTime::now(),
            freeze: FreezeRecord::default(),
            imports: ready.imports.clone(),
            module_bytes: module.len() as u64,
            code_bytes: ready.code_bytes,
        };
        let script = record
            .engine
            .is_some()
            .then(|| ScriptFiles::Here(module.clone()));
        let spec = self.spec(&name, &record, script, &log);
        let (seed, report) = ready.code.seed(&spec).await?;
        record.freeze = FreezeRecord::from(&report);
        if let Some(drew) = drew.filter(|drew| !drew.drawn.is_empty()) {
            record.freeze.drew_entropy |= drew.drew_entropy;
            record.freeze.drawn.insert_str(0, &drew.drawn);
        }
        let seed_time = begun.elapsed();
        let function = Function {
            name,
            version: 0,
            record,
            log,
            under_way: Arc::default(),
            backlog: self.backlog.function(),
            seed: SeedCell::with(seed),
        };
        Ok(Seeded {
            function,
            module,
            ready,
            seed_time,
        })
    }
}

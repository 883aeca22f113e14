//! Deployments: from the bytes of a module to a function that serves requests.
//!
//! Each stage is a file and takes the result of the stage before it. [`files`] packs the files in
//! front of the module, [`detect`] checks the upload, and [`prepare`] looks for stored code.
//! [`compile`] compiles the module if there is none, and [`initialise`] initialises it. [`seed`]
//! makes its seed, and [`commit`] stores the version and lets it serve. Nothing changes before the
//! commit, so a deployment that fails leaves the current version as it is. [`stored_version`] makes
//! stored versions ready again, [`import`] deploys exports of other nodes, and [`shared`] deploys
//! what the host has made before.

pub(super) mod code;
mod commit;
mod compile;
mod detect;
mod export_receiver;
mod files;
mod import;
mod initialise;
mod prepare;
mod seed;
mod shared;
mod stored_version;

#[cfg(feature = "fuzzing")]
pub(crate) use self::import::{export_note, note_of};
pub(super) use self::{
    code::{CodeOwner, DeployableCode},
    files::ROOT,
    import::ExportManifest,
};

use std::sync::Arc;

use bytes::Bytes;
use faasw_client::{DeployOutcome, DeployStage, FunctionName, FunctionOptions};
use faasw_common::text::Line;
use faasw_pool::CompileError;

use super::core::Core;
use crate::{error::DeployError, log::FunctionLog};

/// Whether the compile cache of an earlier compilation may be the cause of this error.
fn may_come_from_a_cache(error: &DeployError) -> bool {
    match error {
        DeployError::Compile(error) => !matches!(
            error,
            CompileError::Malformed(_)
                | CompileError::UnknownImports { .. }
                | CompileError::Unsupported(_)
                | CompileError::Platform(_)
        ),
        error => matches!(error, DeployError::Seed(_)),
    }
}

impl Core {
    pub(super) async fn deploy(
        self: &Arc<Self>,
        name: &str,
        module: Bytes,
        options: FunctionOptions,
    ) -> Result<DeployOutcome, DeployError> {
        let name = FunctionName::new(name)?;
        let log = self.log_of(&name);
        let deployed = self.run_stages(&name, module, options, log.clone()).await;
        self.conclude(&name, &log, deployed.as_ref()).await;
        deployed
    }

    /// Counts and logs the result of a deployment.
    async fn conclude(
        &self,
        name: &FunctionName,
        log: &FunctionLog,
        deployed: Result<&DeployOutcome, &DeployError>,
    ) {
        self.metrics.record_deployment(deployed.is_ok());
        match deployed {
            Ok(DeployOutcome { function, .. }) => {
                let (version, digest) = (function.version, function.digest);
                tracing::info!(function = %name, version, %digest, "deployed");
            }
            Err(error) => {
                tracing::warn!(function = %name, error = %Line(error), "deployment failed");
                if may_come_from_a_cache(error) {
                    self.forget_compile_cache(name).await;
                }
                if self.function(name.as_str()).is_none() {
                    log.delete_files();
                }
            }
        }
    }

    async fn run_stages(
        self: &Arc<Self>,
        name: &FunctionName,
        upload: Bytes,
        options: FunctionOptions,
        log: Arc<FunctionLog>,
    ) -> Result<DeployOutcome, DeployError> {
        if let Some((seeded, slot)) = self.take_shared(name, &upload, &options, &log).await {
            drop(upload);
            return self.commit(seeded, slot).await;
        }
        let (module, files) = Self::split(&upload)?;
        let bytes = upload.len();
        drop(upload);
        self.add_carried_engine_for(&module).await?;
        let mut detected = self.detect(name, module, options, files.is_some())?;
        let slot = self.deployments.begin(name, bytes).await;
        if self.has_ended() {
            return Err(DeployError::ShuttingDown);
        }
        detected.progress = slot.progress();
        detected.progress.enter(DeployStage::Compiling);
        detected.files = self.pack(name, files).await?;
        let prepared = self.prepare(detected).await?;
        let compiled = self.compile(prepared).await?;
        let compiled = self.initialise(compiled, &log).await?;
        let seeded = self.seed(compiled, log).await?;
        self.commit(seeded, slot).await
    }
}

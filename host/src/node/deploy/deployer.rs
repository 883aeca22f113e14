//! Runs the stages of a deployment.

use std::sync::Arc;

use bytes::Bytes;
use faasw_client::{DeployOutcome, FunctionName, FunctionOptions};
use faasw_common::text::Line;
use faasw_pool::CompileError;

use super::{input::DeploymentInput, seed::SeededFunction};
use crate::{
    backend::Backend,
    error::DeployError,
    limits::Limits,
    log::{FunctionLog, Observer},
    metrics::Metrics,
    node::{
        code::CodeStore,
        deployments::Deployments,
        engines::Engines,
        functions::FunctionTable,
        inspect::{Inspector, TransferPermits},
        secrets::SecretStore,
        state::NodeState,
        storage::Storage,
        versions::VersionFactory,
    },
};

/// Deploys functions, and changes which of their versions are current.
pub(crate) struct Deployer {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) functions: Arc<FunctionTable>,
    pub(crate) deployments: Arc<Deployments>,
    pub(crate) engines: Arc<Engines>,
    pub(crate) code: Arc<CodeStore>,
    pub(crate) versions: Arc<VersionFactory>,
    pub(crate) secrets: Arc<SecretStore>,
    pub(crate) inspector: Arc<Inspector>,
    pub(crate) storage: Arc<Storage>,
    pub(crate) state: Arc<NodeState>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) observer: Observer,
    /// Permits for imports under way.
    pub(crate) imports: TransferPermits,
}

impl Deployer {
    /// Deploys an upload as a new version of `name`.
    pub(crate) async fn deploy(
        self: &Arc<Self>,
        name: &str,
        upload: Bytes,
        options: FunctionOptions,
    ) -> Result<DeployOutcome, DeployError> {
        let name = FunctionName::new(name)?;
        let log = self.functions.log_of(&name);
        let deployed = self.deploy_upload(&name, upload, options, &log).await;
        self.conclude(&name, &log, deployed.as_ref()).await;
        deployed
    }

    async fn deploy_upload(
        self: &Arc<Self>,
        name: &FunctionName,
        upload: Bytes,
        options: FunctionOptions,
        log: &Arc<FunctionLog>,
    ) -> Result<DeployOutcome, DeployError> {
        let shared = self.build_shared(name, &upload, &options, log).await;
        let seeded = match shared {
            Some(seeded) => {
                // The upload is not needed any more, so it leaves memory before the commit.
                drop(upload);
                seeded
            }
            None => {
                let input = DeploymentInput::of_upload(name.clone(), upload, options)?;
                self.build(input, log).await?
            }
        };
        self.commit(seeded).await
    }

    /// Runs the stages before the commit.
    pub(super) async fn build(
        &self,
        input: DeploymentInput,
        log: &Arc<FunctionLog>,
    ) -> Result<SeededFunction, DeployError> {
        self.engines.add_carried_for(&input.module).await?;
        let engine = self.detect(&input)?;
        let slot = self.deployments.begin(&input.name, input.bytes).await?;
        let prepared = self.prepare(input, engine, slot).await?;
        let compiled = self.compile(prepared).await?;
        let initialised = self.initialise(compiled, log).await?;
        self.seed(initialised, log).await
    }

    /// Counts and logs the result of a deployment.
    pub(super) async fn conclude(
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
                    self.code.forget_compile_cache(name).await;
                }
                if self.functions.get(name.as_str()).is_none() {
                    log.delete_files();
                }
            }
        }
    }
}

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

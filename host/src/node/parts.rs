//! Builds the parts of a node, each over the parts below it, and hands them out. No part holds all
//! of them.

use std::{fmt, sync::Arc};

use faasw_client::{FunctionName, HostName};
use faasw_pool::{Backlog, BacklogLimits};

use super::{
    code::CodeStore,
    deploy::Deployer,
    deployments::Deployments,
    dispatch::{Dispatcher, ReportOptions},
    engines::Engines,
    functions::{FunctionTable, VersionCell},
    inspect::{Inspector, TransferPermits},
    secrets::SecretStore,
    state::NodeState,
    storage::Storage,
    versions::VersionFactory,
};
use crate::{
    backend::Backend,
    data_dir::DataDir,
    limits::Limits,
    log::Observer,
    metrics::Metrics,
    registry::{RegistryError, VersionRecord},
    services::outbound::OutboundMaker,
};

/// The registry's functions when a node starts: each with the number and the record of its current
/// version.
pub(crate) type RegisteredFunctions = Vec<(FunctionName, u64, VersionRecord)>;

/// The values that a node is built from.
pub(crate) struct NodeInputs {
    /// Runs functions.
    pub(crate) backend: Arc<dyn Backend>,
    /// Makes the outbound calls of functions.
    pub(crate) outbound: OutboundMaker,
    pub(crate) limits: Limits,
    pub(crate) observer: Observer,
    pub(crate) storage: Storage,
    pub(crate) functions: RegisteredFunctions,
    /// A request for the host `NAME.domain` is for the function `NAME`.
    pub(crate) domain: Option<HostName>,
    pub(crate) report_options: ReportOptions,
}

/// The parts of a node.
pub(crate) struct NodeParts {
    pub(super) backend: Arc<dyn Backend>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) state: Arc<NodeState>,
    /// Response bytes that clients have not read yet.
    pub(crate) backlog: Arc<Backlog>,
    pub(super) storage: Arc<Storage>,
    pub(crate) functions: Arc<FunctionTable>,
    pub(super) deployments: Arc<Deployments>,
    pub(super) engines: Arc<Engines>,
    pub(super) versions: Arc<VersionFactory>,
    pub(super) secrets: Arc<SecretStore>,
    pub(crate) inspector: Arc<Inspector>,
    pub(crate) deployer: Arc<Deployer>,
    pub(crate) dispatcher: Arc<Dispatcher>,
}

impl NodeParts {
    /// Builds the parts, and enters the functions that the registry has.
    pub(crate) fn build(inputs: NodeInputs) -> Result<Self, RegistryError> {
        let (limits, storage) = (Arc::new(inputs.limits), Arc::new(inputs.storage));
        let (state, metrics) = (Arc::<NodeState>::default(), Arc::<Metrics>::default());
        let (backend, observer) = (inputs.backend, inputs.observer);
        let report_options = inputs.report_options;
        let backlog = Backlog::new(BacklogLimits {
            node: limits.undelivered,
            function: limits.undelivered_function,
            connection: limits.undelivered_connection,
        });
        let functions = Arc::new(FunctionTable::new(
            backend.clone(),
            limits.clone(),
            inputs.domain,
            storage.directory.as_ref().map(DataDir::logs),
            observer.clone(),
        ));
        let code = Arc::new(CodeStore::new(
            backend.clone(),
            storage.clone(),
            observer.clone(),
        ));
        let deployments = Deployments::new(limits.module, state.clone());
        let engines = Arc::new(Engines::new(
            storage.registry.engines()?,
            code.clone(),
            storage.clone(),
            functions.clone(),
            deployments.clone(),
            limits.module,
        ));
        let versions = Arc::new(VersionFactory {
            backend: backend.clone(),
            code: code.clone(),
            engines: engines.clone(),
            storage: storage.clone(),
            state: state.clone(),
            limits: limits.clone(),
            backlog: backlog.clone(),
            outbound: inputs.outbound,
            observer: observer.clone(),
        });
        let secrets = Arc::new(SecretStore::new(storage.clone(), functions.clone()));
        let inspector = Arc::new(Inspector {
            functions: functions.clone(),
            engines: engines.clone(),
            versions: versions.clone(),
            storage: storage.clone(),
            state: state.clone(),
            backend: backend.clone(),
            limits: limits.clone(),
            metrics: metrics.clone(),
            backlog: backlog.clone(),
            exports: TransferPermits::default(),
        });
        let deployer = Arc::new(Deployer {
            backend: backend.clone(),
            functions: functions.clone(),
            deployments: deployments.clone(),
            engines: engines.clone(),
            code: code.clone(),
            versions: versions.clone(),
            secrets: secrets.clone(),
            inspector: inspector.clone(),
            storage: storage.clone(),
            state: state.clone(),
            limits: limits.clone(),
            metrics: metrics.clone(),
            observer: observer.clone(),
            imports: TransferPermits::default(),
        });
        let dispatcher = Arc::new(Dispatcher {
            functions: functions.clone(),
            versions: versions.clone(),
            secrets: secrets.clone(),
            state: state.clone(),
            limits: limits.clone(),
            metrics,
            backlog: backlog.clone(),
            report_options,
            observer: report_options
                .requests
                .then(|| observer.of_requests())
                .flatten(),
        });
        // The functions of the registry rest until they are needed.
        for (name, number, record) in inputs.functions {
            if let Err(error) = functions.check_hosts(&name, &record.options) {
                tracing::warn!(function = %name, %error, "a host of the function belongs to \
                     another function");
            }
            let (log, resting) = (functions.new_log(&name), VersionCell::default());
            let function = versions.version(&name, number, record, log, resting);
            functions.put(Arc::new(function));
        }
        Ok(Self {
            backend,
            limits,
            state,
            backlog,
            storage,
            functions,
            deployments,
            engines,
            versions,
            secrets,
            inspector,
            deployer,
            dispatcher,
        })
    }
}

impl fmt::Debug for NodeParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeParts")
            .field("backend", &self.backend)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

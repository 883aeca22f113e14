//! Makes versions of functions: their entries in the table, the specifications of their seeds, and
//! the seeds of stored versions.

mod spec;
mod warm_up;

use std::sync::Arc;

use faasw_abi::store::is_import;
use faasw_client::FunctionName;
use faasw_pool::{Backlog, EarlierBuild, FunctionSpec, StoreService};

use super::{
    code::{CodeOwner, CodeStore, DeployableCode},
    content::SeedContent,
    engines::Engines,
    functions::{Function, OutboundGrants, VersionCell, VersionSecrets},
    state::NodeState,
    storage::Storage,
};
use crate::{
    backend::{Backend, ServableVersion},
    error::DeployError,
    limits::Limits,
    log::{FunctionLog, Observer},
    registry::{FreezeRecord, VersionRecord},
    services::{
        key_value::{FunctionStores, Quota},
        outbound::OutboundMaker,
    },
};

/// Makes versions of functions.
#[derive(Debug)]
pub(crate) struct VersionFactory {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) code: Arc<CodeStore>,
    pub(super) engines: Arc<Engines>,
    pub(super) storage: Arc<Storage>,
    pub(super) state: Arc<NodeState>,
    pub(super) limits: Arc<Limits>,
    pub(super) backlog: Arc<Backlog>,
    pub(super) outbound: OutboundMaker,
    /// Receives an event for each seed.
    pub(super) observer: Observer,
}

impl VersionFactory {
    /// Returns a version for the table of functions. The table replaces what it shares with earlier
    /// versions of the function.
    pub(super) fn version(
        &self,
        name: &FunctionName,
        number: u64,
        record: VersionRecord,
        log: Arc<FunctionLog>,
        version_cell: VersionCell,
    ) -> Function {
        let most_calls = self.limits.outbound_function;
        Function {
            name: name.clone(),
            version: number,
            stores: self.stores(name, &record),
            secrets: VersionSecrets::of(&record),
            outbound_grants: OutboundGrants::of(&record, &self.outbound, most_calls),
            record,
            log,
            under_way: Arc::default(),
            backlog: self.backlog.function(),
            version_cell,
        }
    }

    /// Returns the service on the store channel. Returns `None` for a version that imports no store
    /// interface.
    fn stores(&self, name: &FunctionName, record: &VersionRecord) -> Option<Arc<dyn StoreService>> {
        if !record.imports.iter().any(|import| is_import(import)) {
            return None;
        }
        let granted = record.options.stores().iter().cloned().collect();
        let store = self.storage.key_value.clone();
        let quota = self.store_quota();
        Some(Arc::new(FunctionStores::new(store, name, granted, quota)))
    }

    /// Returns the quota of each key-value store.
    pub(super) fn store_quota(&self) -> Quota {
        Quota {
            keys: self.limits.store_keys,
            bytes: self.limits.store_bytes,
        }
    }

    /// Makes a function ready that the registry had at the start, so that it accepts requests. Its
    /// code and its seed are not loaded before a request needs them.
    pub(super) async fn wake(
        &self,
        function: &Function,
    ) -> Result<Arc<dyn ServableVersion>, DeployError> {
        self.state.check_running()?;
        let Function {
            name, record, log, ..
        } = function;
        let SeedInput { ready, spec } = self.stored(name, record, log).await?;
        let known = earlier_build(&record.freeze);
        let registering = self.backend.register_existing(&spec, &ready.code, known);
        Ok(registering.await?)
    }

    /// Makes the seed of a stored version.
    pub(super) async fn seed_stored(
        &self,
        name: &FunctionName,
        record: &VersionRecord,
        log: &Arc<FunctionLog>,
    ) -> Result<Arc<dyn ServableVersion>, DeployError> {
        let SeedInput { ready, spec } = self.stored(name, record, log).await?;
        let seeded = self.backend.make_seed(&spec, &ready.code).await?;
        Ok(seeded.version)
    }

    /// Returns what the seed of a stored version is made of. The code is compiled again if needed.
    async fn stored(
        &self,
        name: &FunctionName,
        record: &VersionRecord,
        log: &Arc<FunctionLog>,
    ) -> Result<SeedInput, DeployError> {
        let ready = match &record.engine {
            Some(engine) => self.engines.code_of(engine).await?,
            None => {
                let owner = CodeOwner::Function(name.clone());
                match self.code.find(record.digest, &owner).await? {
                    Some(ready) => ready,
                    // A different version of faasw compiled the code.
                    None => {
                        let compiled = self.code.compile_stored(record.digest, &owner).await?;
                        compiled.without_bytes()
                    }
                }
            }
        };
        let content = SeedContent::stored(&self.storage, record);
        let spec = self.spec(name, record, content, log);
        Ok(SeedInput { ready, spec })
    }
}

/// The code and the specification that a seed is made of.
struct SeedInput {
    ready: DeployableCode,
    spec: FunctionSpec,
}

/// Returns what is known of a seed that was made before.
pub(super) fn earlier_build(freeze: &FreezeRecord) -> EarlierBuild {
    EarlierBuild {
        after_init: freeze.after_init,
        instantiation: freeze.instantiation,
        layer_bytes: freeze.layer_bytes,
    }
}

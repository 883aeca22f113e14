//! Rollback to a stored version.

use std::sync::Arc;

use faasw_client::FunctionInfo;

use super::{
    core::{Core, blocking},
    function::{Function, VersionCell},
    replace::OF_A_ROLLBACK,
    secrets::VersionSecrets,
};
use crate::{
    error::{DeployError, RollbackError},
    registry::RegistryError,
};

impl Core {
    pub(super) async fn rollback(
        self: &Arc<Self>,
        name: &str,
        version: Option<u64>,
    ) -> Result<FunctionInfo, RollbackError> {
        let current = self
            .function(name)
            .ok_or_else(|| RollbackError::Unknown(name.into()))?;
        let slot = self.deployments.begin(&current.name, 0).await;
        if self.has_ended() {
            return Err(DeployError::ShuttingDown.into());
        }
        let name = current.name.clone();
        let storage = self.storage.clone();
        let mut versions = {
            let name = name.clone();
            blocking(move || storage.registry.versions(&name)).await?
        };
        let wanted = match version {
            Some(version) => version,
            None => match versions.range(..current.version).next_back() {
                Some((below, _)) => *below,
                None => return Err(RollbackError::NothingBefore(current.version)),
            },
        };
        let Some(record) = versions.remove(&wanted) else {
            return Err(RollbackError::NoVersion {
                version: wanted,
                kept: versions.into_keys().collect(),
            });
        };
        let made = if wanted == current.version {
            current.version_cell.get()
        } else {
            None
        };
        let made = match made {
            Some(made) => made,
            None => self.stored_seed(&name, &record, &current.log).await?,
        };
        let function = Function {
            stores: self.stores(&name, &record),
            secrets: VersionSecrets::of(&record),
            outbound_grants: self.outbound_grants(&record),
            name,
            version: wanted,
            record,
            log: current.log.clone(),
            under_way: current.under_way.clone(),
            backlog: current.backlog.clone(),
            version_cell: VersionCell::filled(made),
        };
        drop(slot);
        // A task, so that dropping this future does not interrupt it: table and registry would
        // disagree.
        let core = Arc::clone(self);
        let commit = tokio::spawn(async move {
            core.prepare_instances(&function, OF_A_ROLLBACK).await;
            core.commit_rollback(function).await
        });
        let function = commit.await.map_err(|_| RegistryError::Interrupted)??;
        tracing::info!(function = %function.name, version = wanted, "rolled back");
        Ok(self.info(&function))
    }

    async fn commit_rollback(&self, function: Function) -> Result<Arc<Function>, RollbackError> {
        let _committing = self.committing.lock().await;
        if self.has_ended() {
            return Err(DeployError::ShuttingDown.into());
        }
        let (name, version) = (function.name.clone(), function.version);
        // A different function may have taken the hosts of this version meanwhile.
        self.check_hosts(&name, &function.record.options)?;
        let record = function.record.clone();
        let storage = self.storage.clone();
        if !blocking(move || storage.registry.roll_back(&name, version, &record)).await? {
            return Err(RollbackError::Overtaken(version));
        }
        Ok(self.make_current(function).await)
    }
}

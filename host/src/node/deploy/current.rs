//! Replaces, rolls back and removes the current versions of functions.

use std::{sync::Arc, time::Duration};

use faasw_client::{FunctionInfo, FunctionName};
use faasw_pool::ImageId;
use tokio::time::timeout;

use super::Deployer;
use crate::{
    backend::ServableVersion,
    error::{FunctionError, RollbackError},
    node::{
        functions::{Function, VersionCell},
        storage::uninterrupted,
    },
};

/// How long a deployment waits at most for the new version's instances before that version takes
/// the place of the current one.
pub(super) const OF_A_DEPLOYMENT: Duration = Duration::from_secs(10);
/// How long a rollback waits for this at most. The limit is shorter,
/// because an operator who rolls back is in a hurry.
pub(super) const OF_A_ROLLBACK: Duration = Duration::from_secs(1);

impl Deployer {
    /// Waits, at most for `most`, until a version that is to become current has its instances
    /// warm ahead of requests. The current version keeps its own instances until then. A node
    /// that is ending does not wait.
    pub(super) async fn prepare_instances(&self, function: &Function, most: Duration) {
        if let Some(version) = self.needs_instances(function) {
            tokio::select! {
                // Instances that are missing by then are made later.
                _ = timeout(most, version.provision_and_wait()) => {}
                () = self.state.wait_until_ended() => {}
            }
        }
    }

    /// Returns the version, if it is to have instances before it takes the place of another.
    fn needs_instances(&self, function: &Function) -> Option<Arc<dyn ServableVersion>> {
        let before = self.functions.get(function.name.as_str());
        let before = before.and_then(|before| before.version_cell.get());
        before.and(function.version_cell.get())
    }

    /// Makes a version the current one of its function, keeps instances of it warm, and removes the
    /// image of the version that it replaces. The caller holds the lock of
    /// [`FunctionTable::lock_changes`](crate::node::functions::FunctionTable::lock_changes).
    pub(super) async fn make_current(&self, function: Function) -> Arc<Function> {
        let before = self.functions.get(function.name.as_str());
        let function = self.functions.replace(function);
        self.engines.prune();
        if let Some(version) = function.version_cell.get() {
            version.provision();
        }
        let now = function.image();
        let before = before.map(|before| before.image());
        let gone = before.into_iter().filter(|before| *before != now).collect();
        self.storage.serve_image(Some(now), gone).await;
        function
    }

    /// Removes this image, which no version has, unless it is the image of the current version.
    pub(super) async fn remove_unused_image(&self, name: &FunctionName, image: ImageId) {
        let current = self.functions.get(name.as_str());
        if current.is_none_or(|current| current.image() != image) {
            self.storage.serve_image(None, vec![image]).await;
        }
    }

    /// Removes a function from registry and table.
    pub(crate) async fn remove(self: &Arc<Self>, name: &str) -> Result<(), FunctionError> {
        let name = self.functions.require(name)?.name.clone();
        let deployer = self.clone();
        uninterrupted(async move { deployer.commit_removal(name).await }).await
    }

    async fn commit_removal(&self, name: FunctionName) -> Result<(), FunctionError> {
        let _changing = self.functions.lock_changes().await;
        let function = self.functions.require(name.as_str())?;
        let removed = name.clone();
        let removing = self.storage.run(move |registry| {
            let images = registry.images_of(&removed).unwrap_or_default();
            registry.remove_function(&removed)?;
            Ok(images)
        });
        let images = removing.await?;
        self.functions.remove(&name);
        self.storage.serve_image(None, images).await;
        self.engines.prune();
        function.log.delete_files();
        self.metrics.remove_function(&name);
        tracing::info!(function = %name, "function removed");
        Ok(())
    }

    /// Makes a stored version the current one: `version`, or the one with the next lower number.
    pub(crate) async fn rollback(
        self: &Arc<Self>,
        name: &str,
        version: Option<u64>,
    ) -> Result<FunctionInfo, RollbackError> {
        let current = self
            .functions
            .get(name)
            .ok_or_else(|| RollbackError::Unknown(name.into()))?;
        let slot = self.deployments.begin(&current.name, 0).await?;
        let name = current.name.clone();
        let mut versions = self
            .storage
            .run(move |registry| registry.versions(&name))
            .await?;
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
        let (name, log) = (&current.name, current.log.clone());
        let ready = match current.version_cell.get() {
            Some(ready) if wanted == current.version => ready,
            _ => self.versions.seed_stored(name, &record, &log).await?,
        };
        let ready = VersionCell::filled(ready);
        let function = self.versions.version(name, wanted, record, log, ready);
        drop(slot);
        let deployer = self.clone();
        let committing = uninterrupted(async move {
            deployer.prepare_instances(&function, OF_A_ROLLBACK).await;
            deployer.commit_rollback(function).await
        });
        let function = committing.await?;
        tracing::info!(function = %function.name, version = wanted, "rolled back");
        Ok(self.inspector.info(&function))
    }

    async fn commit_rollback(&self, function: Function) -> Result<Arc<Function>, RollbackError> {
        let _changing = self.functions.lock_changes().await;
        self.state.check_running()?;
        // A different function may have taken the hosts of this version meanwhile.
        let (name, record) = (function.name.clone(), function.record.clone());
        self.functions.check_hosts(&name, &record.options)?;
        let number = function.version;
        let storing = self
            .storage
            .run(move |registry| registry.roll_back(&name, number, &record));
        if !storing.await? {
            return Err(RollbackError::Overtaken(number));
        }
        Ok(self.make_current(function).await)
    }
}

//! Replaces the current version of a function.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{core::Core, function::Function};
use crate::backend::ServableVersion;

/// How long a deployment waits at most for the new version's instances before that version takes
/// the place of the current one.
pub(super) const OF_A_DEPLOYMENT: Duration = Duration::from_secs(10);
/// How long a rollback waits for this at most. The limit is shorter,
/// because an operator who rolls back is in a hurry.
pub(super) const OF_A_ROLLBACK: Duration = Duration::from_secs(1);

impl Core {
    /// Waits, at most for `most`, until a version that is to become current has its instances
    /// warm ahead of requests. The current version keeps its own instances until then. A node
    /// that is ending does not wait.
    pub(super) async fn prepare_instances(&self, function: &Function, most: Duration) {
        if let Some(made) = self.needs_instances(function) {
            tokio::select! {
                // Instances that are missing by then are made later.
                _ = timeout(most, made.provision_and_wait()) => {}
                () = self.wait_until_ended() => {}
            }
        }
    }

    /// Returns the version, if it is to have instances before it takes the place of another.
    fn needs_instances(&self, function: &Function) -> Option<Arc<dyn ServableVersion>> {
        let before = self.function(function.name.as_str());
        let before = before.and_then(|before| before.version_cell.get());
        before.and(function.version_cell.get())
    }

    /// Makes a version the current one as [`Core::replace`] does, keeps instances of it warm, and
    /// removes the images of the version that it replaces.
    pub(super) async fn make_current(&self, function: Function) -> Arc<Function> {
        let before = self.function(function.name.as_str());
        let function = self.replace(function);
        if let Some(made) = function.version_cell.get() {
            made.provision();
        }
        let now = function.record.image(&function.name);
        let before = before.map(|before| before.record.image(&before.name));
        let gone = before.into_iter().filter(|before| *before != now).collect();
        self.keep_serving_image(Some(&function), gone).await;
        function
    }
}

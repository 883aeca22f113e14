//! The life of a node: whether it is ready, whether it has ended, and whether its owner has dropped
//! it.

use tokio::sync::watch;

use crate::{error::DeployError, readiness::ReadinessState};

/// The phases of a node, which its parts and their tasks can wait on.
#[derive(Debug, Default)]
pub(crate) struct NodeState {
    pub(crate) readiness: ReadinessState,
    ended: watch::Sender<bool>,
    /// Becomes true when the program that started the node has dropped its last handle. The
    /// handles of the node's own servers do not count.
    gone: watch::Sender<bool>,
}

/// Reports when dropped that the node is gone.
#[derive(Debug)]
pub(super) struct AliveGuard(watch::Sender<bool>);

impl Drop for AliveGuard {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl NodeState {
    /// Makes the node reject requests and deployments from now on.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Returns [`DeployError::ShuttingDown`] if the node has ended.
    pub(super) fn check_running(&self) -> Result<(), DeployError> {
        if self.has_ended() {
            Err(DeployError::ShuttingDown)
        } else {
            Ok(())
        }
    }

    /// Waits until the node rejects requests and deployments.
    pub(super) async fn wait_until_ended(&self) {
        let mut ended = self.ended.subscribe();
        // `self` owns the sender, so the wait does not fail.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Returns a guard that reports the end of the node when it is dropped.
    pub(super) fn alive_guard(&self) -> AliveGuard {
        AliveGuard(self.gone.clone())
    }

    /// Waits until the program that started the node has dropped its last handle.
    pub(super) async fn wait_until_dropped(&self) {
        let mut gone = self.gone.subscribe();
        let _ = gone.wait_for(|gone| *gone).await;
    }
}

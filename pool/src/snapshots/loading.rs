//! Waiting for memory or code that is being loaded.

use faasw_seedtree::reading::LoadProgress;
use tokio::sync::oneshot;

/// Waits until memory or code is fully loaded. Returns false if it never will be.
pub async fn wait_loaded(progress: &LoadProgress) -> bool {
    let (sender, receiver) = oneshot::channel();
    progress.on_decided(move |is_fully_loaded| {
        // The receiver may be gone.
        let _ = sender.send(is_fully_loaded);
    });
    receiver.await.unwrap_or(false)
}

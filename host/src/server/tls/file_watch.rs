//! Reads certificates again when their files change.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use super::{Tls, TlsError, watched_files::fingerprints};

/// Interval of the checks for changes. A change is read after two checks, so that a program that
/// renews a certificate can write the key as well.
const LOOK: Duration = Duration::from_secs(1);

impl Tls {
    /// Checks the files periodically until dropped.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let tls = self.clone();
            // The files may be on a disk that is slow or unavailable.
            let looked = tokio::task::spawn_blocking(move || tls.reload_if_changed()).await;
            match looked {
                Ok(None) => {}
                Ok(Some(Ok(()))) => tracing::info!("changed certificates reloaded"),
                Ok(Some(Err(error))) => tracing::error!(
                    %error, "changed certificates are invalid; the previous ones stay in use"
                ),
                // The runtime ends.
                Err(_) => return,
            }
        }
    }

    fn reload_if_changed(&self) -> Option<Result<(), TlsError>> {
        let now = fingerprints(&self.pairs)?;
        let mut files = self
            .files
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        files.0.look(now).then(|| self.reload())
    }
}

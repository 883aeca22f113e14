//! The spawner of the one process in the host's network: the connector.
//!
//! The spawner of sandboxes has an empty network, which none of its jails leaves. So another one
//! makes the connector, and nothing else. It is started when a connector is first needed.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use faasw_jail::{ConfinementLevel, Network};

use super::group_account::GroupAccount;
use super::launcher::Launcher;
use super::spawner::Spawner;
use super::spawner_slot::SpawnerSlot;
use crate::error::PlatformError;

/// The memory limit in bytes of the connector, together with a predecessor that is about to end.
const MEMORY: u64 = 128 << 20;

/// Starts and holds that spawner.
#[derive(Debug)]
pub struct EgressSpawner(SpawnerSlot);

impl EgressSpawner {
    /// Prepares for a spawner without starting it; its jails will have this level. Must be called
    /// inside a Tokio runtime.
    pub fn new(launcher: Option<Arc<Launcher>>, level: ConfinementLevel) -> Self {
        let groups = Arc::new(GroupAccount::new(1, MEMORY));
        Self(SpawnerSlot::new(launcher, Network::Host, level, groups))
    }

    /// Returns the spawner, or starts another one if the last has ended.
    ///
    /// # Errors
    /// Returns an error if it cannot be started, or [`PlatformError::SpawnerGone`] after
    /// [`Self::stop`].
    pub fn spawner(&self) -> Result<Arc<Spawner>, PlatformError> {
        self.0.get(|| {})
    }

    /// Opens the files that configure name resolution on this host, `/etc/hosts` and
    /// `/etc/resolv.conf`, if they exist.
    ///
    /// # Errors
    /// Returns an error if a file exists but cannot be opened.
    pub async fn open_resolver_files(&self) -> io::Result<[Option<OwnedFd>; 2]> {
        if let Some(launcher) = &self.0.launcher {
            return launcher.open_resolver_files().await;
        }
        let open = |path| match File::open(path) {
            Ok(file) => Ok(Some(file.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        Ok([open("/etc/hosts")?, open("/etc/resolv.conf")?])
    }

    /// Returns how many connectors were killed for a system call that their jail does not allow.
    pub fn forbidden_calls(&self) -> u64 {
        self.0.forbidden_calls()
    }

    /// Ends the spawner with the processes that it made; waits until they are gone. No others are
    /// made afterwards.
    pub async fn stop(&self) {
        if let Some(spawner) = self.0.close() {
            spawner.stop().await;
        }
    }
}

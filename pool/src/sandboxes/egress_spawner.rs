//! The spawner of the one process in the host's network: the connector.
//!
//! The spawner of sandboxes has an empty network, which none of its jails leaves. So another one
//! makes the connector, and nothing else. It is started when a connector is first needed.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use faasw_common::Lock;
use faasw_jail::{ConfinementLevel, Network};
use rustix::io::Errno;
use tokio::runtime::Handle;

use super::group_account::GroupAccount;
use super::launcher::Launcher;
use super::spawner::Spawner;
use crate::error::PlatformError;

/// The memory limit in bytes of the connector, together with a predecessor that is about to end.
const MEMORY: u64 = 128 << 20;

/// Starts and holds that spawner.
#[derive(Debug)]
pub struct EgressSpawner {
    launcher: Option<Arc<Launcher>>,
    level: ConfinementLevel,
    forbidden_calls: Arc<AtomicU64>,
    groups: Arc<GroupAccount>,
    spawner: Lock<SpawnerState>,
    /// The runtime that the pool was started in; a caller may run in another one.
    runtime: Handle,
}

#[derive(Debug, Default)]
struct SpawnerState {
    spawner: Option<Arc<Spawner>>,
    is_stopped: bool,
}

impl EgressSpawner {
    /// Prepares for a spawner without starting it; its jails will have this level. Must be called
    /// inside a Tokio runtime.
    pub fn new(launcher: Option<Arc<Launcher>>, level: ConfinementLevel) -> Self {
        Self {
            launcher,
            level,
            forbidden_calls: Arc::default(),
            groups: Arc::new(GroupAccount::new(1, MEMORY)),
            spawner: Lock::default(),
            runtime: Handle::current(),
        }
    }

    /// Returns the spawner, or starts another one if the last has ended.
    ///
    /// # Errors
    /// Returns an error if it cannot be started, or [`PlatformError::SpawnerGone`] after
    /// [`Self::stop`].
    pub fn spawner(&self) -> Result<Arc<Spawner>, PlatformError> {
        let mut state = self.spawner.lock();
        if state.is_stopped {
            return Err(PlatformError::SpawnerGone);
        }
        if let Some(spawner) = state.spawner.as_ref()
            && !spawner.is_gone()
        {
            return Ok(spawner.clone());
        }
        let _on_the_pools_own = self.runtime.enter();
        let started = Spawner::start(
            self.launcher.as_deref(),
            (Network::Host, self.level),
            self.forbidden_calls.clone(),
            self.groups.clone(),
        );
        let started = started.map_err(|error: io::Error| PlatformError::System {
            what: "the process that starts the connector could not be started",
            error: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        Ok(state.spawner.insert(started).clone())
    }

    /// Opens the files that configure name resolution on this host, `/etc/hosts` and
    /// `/etc/resolv.conf`, if they exist.
    ///
    /// # Errors
    /// Returns an error if a file exists but cannot be opened.
    pub async fn open_resolver_files(&self) -> io::Result<[Option<OwnedFd>; 2]> {
        if let Some(launcher) = &self.launcher {
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
        self.forbidden_calls.load(Ordering::Relaxed)
    }

    /// Ends the spawner with the processes that it made; waits until they are gone. No others are
    /// made afterwards.
    pub async fn stop(&self) {
        let spawner = {
            let mut state = self.spawner.lock();
            state.is_stopped = true;
            state.spawner.take()
        };
        if let Some(spawner) = spawner {
            spawner.stop().await;
        }
    }
}

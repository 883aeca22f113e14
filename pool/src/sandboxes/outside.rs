//! The spawner of the one process that has the host's network: the connector.
//!
//! The spawner of sandboxes has an empty network, which none of its jails leaves. So there is
//! another one, which makes nothing else. It is started when a connector is first asked for.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faasw_jail::{ConfinementLevel, Network};
use rustix::io::Errno;
use tokio::runtime::Handle;

use super::groups::Groups;
use super::launcher::Launcher;
use super::spawner::Spawner;
use crate::error::PlatformError;

/// Bytes of memory that the connector, and one that is about to end, may take together.
const MEMORY: u64 = 128 << 20;

/// Who starts that spawner.
#[derive(Debug)]
pub struct Outside {
    launcher: Option<Arc<Launcher>>,
    level: ConfinementLevel,
    forbidden_calls: Arc<AtomicU64>,
    groups: Arc<Groups>,
    spawner: Mutex<Wanted>,
    /// Where the pool was started: whoever calls may have another.
    runtime: Handle,
}

#[derive(Debug, Default)]
struct Wanted {
    spawner: Option<Arc<Spawner>>,
    is_stopped: bool,
}

impl Outside {
    /// None is started yet; its jails are going to be of this level. Must be called inside a
    /// tokio runtime.
    pub fn new(launcher: Option<Arc<Launcher>>, level: ConfinementLevel) -> Self {
        Self {
            launcher,
            level,
            forbidden_calls: Arc::default(),
            groups: Arc::new(Groups::new(1, MEMORY)),
            spawner: Mutex::default(),
            runtime: Handle::current(),
        }
    }

    /// The spawner; another one when the last has ended.
    ///
    /// # Errors
    /// When it cannot be started, or is not to be any more.
    pub fn spawner(&self) -> Result<Arc<Spawner>, PlatformError> {
        let mut wanted = self.lock();
        if wanted.is_stopped {
            return Err(PlatformError::SpawnerGone);
        }
        if let Some(spawner) = wanted.spawner.as_ref()
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
        Ok(wanted.spawner.insert(started).clone())
    }

    /// What says how this host resolves names: `/etc/hosts` and `/etc/resolv.conf`, where they are.
    ///
    /// # Errors
    /// When one is there and cannot be opened; the system's.
    pub async fn names(&self) -> io::Result<[Option<OwnedFd>; 2]> {
        if let Some(launcher) = &self.launcher {
            return launcher.names().await;
        }
        let open = |path| match File::open(path) {
            Ok(file) => Ok(Some(file.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        Ok([open("/etc/hosts")?, open("/etc/resolv.conf")?])
    }

    /// How many connectors were ended for a system call that their jail does not allow.
    pub fn forbidden_calls(&self) -> u64 {
        self.forbidden_calls.load(Ordering::Relaxed)
    }

    /// Ends it with what it made; waits until they are gone. There will be no others.
    pub async fn stop(&self) {
        let spawner = {
            let mut wanted = self.lock();
            wanted.is_stopped = true;
            wanted.spawner.take()
        };
        if let Some(spawner) = spawner {
            spawner.stop().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        // It changes by single assignments.
        self.spawner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

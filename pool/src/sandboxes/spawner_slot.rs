//! The place of a spawner, which starts another one when it has ended.

use std::io;
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

/// The place of a spawner, which is empty until the spawner is needed.
#[derive(Debug)]
pub struct SpawnerSlot {
    /// The launcher that starts spawners; with `None`, this process starts them.
    pub launcher: Option<Arc<Launcher>>,
    network: Network,
    level: ConfinementLevel,
    forbidden_calls: Arc<AtomicU64>,
    groups: Arc<GroupAccount>,
    state: Lock<SlotState>,
    /// The runtime that the pool was started in; a caller may run in another one.
    runtime: Handle,
}

#[derive(Debug, Default)]
struct SlotState {
    spawner: Option<Arc<Spawner>>,
    is_closed: bool,
}

impl SpawnerSlot {
    /// Prepares for a spawner whose jails have this network and level, without starting it. Must
    /// be called inside a Tokio runtime.
    pub fn new(
        launcher: Option<Arc<Launcher>>,
        network: Network,
        level: ConfinementLevel,
        groups: Arc<GroupAccount>,
    ) -> Self {
        Self {
            launcher,
            network,
            level,
            forbidden_calls: Arc::default(),
            groups,
            state: Lock::default(),
            runtime: Handle::current(),
        }
    }

    /// Starts the spawner before it is needed.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn fill(&self) -> io::Result<()> {
        self.state.lock().spawner = Some(self.start()?);
        Ok(())
    }

    fn start(&self) -> io::Result<Arc<Spawner>> {
        let _on_the_pools_own = self.runtime.enter();
        Spawner::start(
            self.launcher.as_deref(),
            (self.network, self.level),
            self.forbidden_calls.clone(),
            self.groups.clone(),
        )
    }

    /// Returns the spawner. If the last one has ended, calls `on_end` and starts another.
    ///
    /// # Errors
    /// Returns an error if it cannot be started, or [`PlatformError::SpawnerGone`] after
    /// [`Self::close`].
    pub fn get(&self, on_end: impl FnOnce()) -> Result<Arc<Spawner>, PlatformError> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(PlatformError::SpawnerGone);
        }
        match &state.spawner {
            Some(spawner) if !spawner.is_gone() => return Ok(spawner.clone()),
            Some(_) => on_end(),
            None => {}
        }
        let started = self.start().map_err(|error| PlatformError::System {
            what: match self.network {
                Network::Empty => "the spawner process could not be started",
                Network::Host => "the process that starts the connector could not be started",
            },
            error: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        Ok(state.spawner.insert(started).clone())
    }

    /// Returns how many processes were killed for a system call that their jail does not allow.
    pub fn forbidden_calls(&self) -> u64 {
        self.forbidden_calls.load(Ordering::Relaxed)
    }

    /// Starts no other spawner from now on. Returns the last one, for the caller to stop; later
    /// calls return the same one, so that each caller can wait for its end.
    pub fn close(&self) -> Option<Arc<Spawner>> {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.spawner.clone()
    }
}

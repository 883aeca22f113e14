//! The maker of sandboxes: the spawner, or this program.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::process::Process;
use super::spawner::Spawner;
use super::threads::Threads;
use crate::error::PlatformError;

/// The maker of sandboxes.
#[derive(Clone, Debug)]
pub enum SandboxMaker {
    /// The spawner, by forking.
    Spawner(Arc<Spawner>),
    /// This program, by starting threads.
    Threads(Arc<Threads>),
}

impl SandboxMaker {
    /// Makes a sandbox that communicates over `socket` and whose guest signals `progress`. With
    /// `is_ahead` it runs only when nothing else wants to, until [`Process::assign`] is called.
    ///
    /// # Errors
    /// Returns an error if it cannot be made.
    pub async fn sandbox(
        &self,
        socket: OwnedFd,
        progress: &OwnedFd,
        is_ahead: bool,
    ) -> Result<Process, PlatformError> {
        match self {
            Self::Spawner(spawner) => spawner.sandbox(&socket, progress, is_ahead).await,
            Self::Threads(threads) => threads.sandbox(socket, progress, is_ahead),
        }
    }
}

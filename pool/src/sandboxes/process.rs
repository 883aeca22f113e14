//! The pool's view of a process that it requested: a sandbox, the compile helper, or an egress
//! process.
//!
//! Dropping a [`Process`] ends it. So a request that fails, times out or is dropped leaves no
//! process behind.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use faasw_fri::messages::FunctionNumber;
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::cpu_account::CpuAccount;
use crate::error::PlatformError;
use crate::snapshots::InstanceEnder;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The signal that ended it, or 0.
    pub signal: u64,
    /// The exit code, if no signal ended it.
    pub code: u64,
    /// Whether the kernel killed it for lack of memory.
    pub out_of_memory: bool,
}

impl From<Exit> for PlatformError {
    fn from(exit: Exit) -> Self {
        if exit.out_of_memory {
            Self::OutOfMemory
        } else {
            Self::SandboxEnded(exit.to_string())
        }
    }
}

/// `SIGSYS`, which ends a process that violates its system-call filter.
pub const FORBIDDEN_CALL: u64 = 31;

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self {
                out_of_memory: true,
                ..
            } => f.write_str("the kernel ended it for lack of memory"),
            Self {
                signal: 0, code, ..
            } => write!(f, "it exited with code {code}"),
            Self { signal, .. } if *signal == FORBIDDEN_CALL => {
                f.write_str("it made a forbidden system call")
            }
            Self { signal, .. } => write!(f, "signal {signal} ended it"),
        }
    }
}

/// How long the spawner took to make a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessCreationTimes {
    /// The time to find or make its control group.
    pub group: Duration,
    /// The time to fork.
    pub fork: Duration,
}

/// The maker's handle of a process: of the spawner, or of a thread of this program.
pub trait ProcessHandle: fmt::Debug + Send + Sync {
    /// Orders its end.
    fn kill(&self);

    /// Returns whether the maker is gone, and the process with it.
    fn is_orphan(&self) -> bool;

    /// Sets its memory limit in bytes, and the function that it serves; `None` if it makes a seed.
    /// With control groups, the kernel enforces the limit and shares processors by function; a
    /// thread never has a group. From now on the process runs at the usual priority.
    fn assign(&self, bytes: u64, function: Option<FunctionNumber>);

    /// Sets the background priority or the usual one.
    fn set_background(&self, background: bool);

    /// Moves it into the group behind all other processes that want a processor, or out of it.
    fn set_background_group(&self, background: bool);

    /// Returns whether it is in that group; always false on a host that has none.
    fn is_in_background_group(&self) -> bool;

    /// Returns whether it is in that group, or may be at any moment.
    fn may_be_in_background_group(&self) -> bool;

    /// Returns the CPU time that it has used so far.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    fn cpu_time(&self) -> Result<Duration, Errno>;

    /// Returns how long it took to make it; zero for a thread.
    fn creation_times(&self) -> ProcessCreationTimes;
}

/// Ends a process through its maker's handle.
#[derive(Debug)]
struct ProcessEnder(Arc<dyn ProcessHandle>);

impl InstanceEnder for ProcessEnder {
    fn end(&self) {
        self.0.kill();
    }
}

/// A process that the spawner made, or a thread in its place. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    handle: Arc<dyn ProcessHandle>,
    account: Arc<CpuAccount>,
    ended: oneshot::Receiver<Exit>,
    /// How it ended, once that is known; the inner `None` means that this cannot be known.
    exit: Option<Option<Exit>>,
    /// When [`Process::closed`] kills it, once that was called.
    closed_due: Option<Instant>,
}

impl Process {
    /// Wraps a requested process. Its reaper, or the joiner of its thread, closes `account`.
    pub fn new(
        handle: Arc<dyn ProcessHandle>,
        account: Arc<CpuAccount>,
        ended: oneshot::Receiver<Exit>,
    ) -> Self {
        Self {
            handle,
            account,
            ended,
            exit: None,
            closed_due: None,
        }
    }

    /// Returns the maker's handle.
    pub fn handle(&self) -> &dyn ProcessHandle {
        &*self.handle
    }

    /// Records that the spawner could not make it.
    pub fn mark_never_spawned(&mut self) {
        self.exit = Some(None);
    }

    /// Returns a handle that can end it.
    pub fn ender(&self) -> Box<dyn InstanceEnder> {
        Box::new(ProcessEnder(self.handle.clone()))
    }

    /// Orders its end; [`Process::ended`] waits for it.
    pub fn kill(&self) {
        self.handle.kill();
    }

    /// Returns whether it is still alive, as far as that is known without waiting.
    pub fn check_alive(&mut self) -> bool {
        if self.exit.is_none()
            && let Ok(exit) = self.ended.try_recv()
        {
            self.exit = Some(Some(exit));
        }
        self.exit.is_none() && !self.handle.is_orphan()
    }

    /// Returns the account that its CPU time is charged to.
    pub fn account(&self) -> &CpuAccount {
        &self.account
    }

    /// Returns the CPU time that it has used so far.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub fn cpu_time(&self) -> Result<Duration, PlatformError> {
        self.handle
            .cpu_time()
            .map_err(|error| PlatformError::System {
                what: "a process's CPU time could not be read",
                error,
            })
    }

    /// Waits until it has ended and was reaped or joined. Can be called repeatedly.
    ///
    /// # Errors
    /// Returns [`PlatformError::SpawnerGone`] if the spawner is gone, and the process with it.
    pub async fn ended(&mut self) -> Result<Exit, PlatformError> {
        if self.exit.is_none() {
            self.exit = Some((&mut self.ended).await.ok());
        }
        self.exit.flatten().ok_or(PlatformError::SpawnerGone)
    }

    /// As [`Process::ended`], for a process that has closed its socket, as at its end. An attacker
    /// who has taken it over could close the socket only, so it is killed if it lives on. The time
    /// limit starts with the first call, even if the caller drops the future and calls again.
    ///
    /// # Errors
    /// Returns the error of [`Process::ended`].
    pub async fn closed(&mut self) -> Result<Exit, PlatformError> {
        let due = *self
            .closed_due
            .get_or_insert_with(|| Instant::now() + CLOSED_TIMEOUT);
        match timeout_at(due, self.ended()).await {
            Ok(ended) => ended,
            Err(_) => {
                self.kill();
                self.ended().await
            }
        }
    }
}

/// 1 s: longer than a process takes to end once its socket is closed.
const CLOSED_TIMEOUT: Duration = Duration::from_secs(1);

impl Drop for Process {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.kill();
        }
    }
}

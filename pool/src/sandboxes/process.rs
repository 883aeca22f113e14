//! What the pool knows of a process that it asked for: a sandbox, or the compile helper.
//!
//! Dropping a [`Process`] ends it. So whatever becomes of a request (an error,
//! a timeout, a dropped future), its process goes with it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::oneshot;

use super::account::Account;
use crate::error::PlatformError;
use crate::seeds::FunctionNumber;
use crate::snapshots::Ending;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Signal that ended it, or 0.
    pub signal: u64,
    /// Exit code, where no signal ended it.
    pub code: u64,
    /// The system ended it for want of memory.
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

/// `SIGSYS`: what a system-call filter ends a process with.
pub const FORBIDDEN_CALL: u64 = 31;

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self {
                out_of_memory: true,
                ..
            } => f.write_str("the system ended it for want of memory"),
            Self {
                signal: 0, code, ..
            } => write!(f, "it exited with code {code}"),
            Self { signal, .. } if *signal == FORBIDDEN_CALL => {
                f.write_str("it made a system call that its jail does not allow")
            }
            Self { signal, .. } => write!(f, "signal {signal} ended it"),
        }
    }
}

/// What the spawner took to make a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Birth {
    /// To find or make its control group.
    pub group: Duration,
    /// To fork.
    pub fork: Duration,
}

/// What a process is to whoever made it: the spawner's, or a thread of this program.
pub trait Made: fmt::Debug + Send + Sync {
    /// Asks for its end.
    fn kill(&self);

    /// Whether whoever made it is gone, and it with them.
    fn is_orphan(&self) -> bool;

    /// Sets its memory limit in bytes, and the function that it serves; `None` if it makes a seed.
    fn assign(&self, bytes: u64, function: Option<FunctionNumber>);

    /// Has it run at the background priority, or at the usual one.
    fn set_background(&self, background: bool);

    /// Has all that wants a processor come before it, or not any more.
    fn step_aside(&self, aside: bool);

    /// Whether that is so by now.
    fn is_aside(&self) -> bool;

    /// Whether that is so, or may be at any moment.
    fn may_be_aside(&self) -> bool;

    /// CPU time that it has used so far.
    ///
    /// # Errors
    /// The system's, when it has ended.
    fn cpu_time(&self) -> Result<Duration, Errno>;

    /// What it took to make it.
    fn birth(&self) -> Birth;
}

/// Ends what somebody made.
#[derive(Debug)]
struct Killed(Arc<dyn Made>);

impl Ending for Killed {
    fn end(&self) {
        self.0.kill();
    }
}

/// A process that the spawner made, or a thread in its place. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    made: Arc<dyn Made>,
    account: Arc<Account>,
    ended: oneshot::Receiver<Exit>,
    /// How it ended, once that is known; the inner `None` says that nobody knows.
    exit: Option<Option<Exit>>,
}

impl Process {
    /// One that was asked for. Whoever reaps or joins it closes `account`.
    pub fn new(made: Arc<dyn Made>, account: Arc<Account>, ended: oneshot::Receiver<Exit>) -> Self {
        Self {
            made,
            account,
            ended,
            exit: None,
        }
    }

    /// What the spawner took to make it; nothing for a thread.
    pub fn birth(&self) -> Birth {
        self.made.birth()
    }

    /// The spawner could not make it.
    pub fn never_was(&mut self) {
        self.exit = Some(None);
    }

    /// What asks for its end, whoever has it.
    pub fn ending(&self) -> Box<dyn Ending> {
        Box::new(Killed(self.made.clone()))
    }

    /// Asks for its end; [`Process::ended`] says when it has come.
    pub fn kill(&self) {
        self.made.kill();
    }

    /// Looks whether it has ended by now; whether it has not.
    pub fn check_alive(&mut self) -> bool {
        if self.exit.is_none()
            && let Ok(exit) = self.ended.try_recv()
        {
            self.exit = Some(Some(exit));
        }
        self.exit.is_none() && !self.made.is_orphan()
    }

    /// Sets its memory limit in bytes, and the function that it serves; `None` if it makes a seed.
    /// The kernel enforces the limit and shares processors by function where there are control
    /// groups, which a thread never has. From now on the process runs at the usual priority.
    pub fn assign(&self, bytes: u64, function: Option<FunctionNumber>) {
        self.made.assign(bytes, function);
    }

    /// Has it run at the background priority, or at the usual one.
    pub fn set_background(&self, background: bool) {
        self.made.set_background(background);
    }

    /// Has all that wants a processor come before it, or not any more.
    pub fn step_aside(&self, aside: bool) {
        self.made.step_aside(aside);
    }

    /// Whether that is so by now; never where the host cannot have it.
    pub fn is_aside(&self) -> bool {
        self.made.is_aside()
    }

    /// Whether that is so, or may be at any moment.
    pub fn may_be_aside(&self) -> bool {
        self.made.may_be_aside()
    }

    /// Whom its CPU time is charged to.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// CPU time that it has used so far.
    ///
    /// # Errors
    /// The system's, when it has ended.
    pub fn cpu_time(&self) -> Result<Duration, PlatformError> {
        self.made.cpu_time().map_err(|error| PlatformError::System {
            what: "a process's CPU time could not be read",
            error,
        })
    }

    /// Waits until it has ended and was reaped or joined; may be asked again.
    ///
    /// # Errors
    /// When the spawner is gone, and the process with it.
    pub async fn ended(&mut self) -> Result<Exit, PlatformError> {
        if self.exit.is_none() {
            self.exit = Some((&mut self.ended).await.ok());
        }
        self.exit.flatten().ok_or(PlatformError::SpawnerGone)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.kill();
        }
    }
}

//! What the pool knows of a process that it asked for: a shell, or the compile helper.
//!
//! Dropping a [`Process`] ends it. So whatever becomes of a request (an error,
//! a timeout, a dropped future), its process goes with it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use faasw_fri::messages::Spawned;
use faasw_shell::thread::Thread;
use rustix::io::Errno;
use tokio::sync::oneshot;

use crate::account::Account;
use crate::error::PlatformError;
use crate::spawner::Spawner;

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
        match exit.out_of_memory {
            true => Self::OutOfMemory,
            false => Self::ShellEnded(exit.to_string()),
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
                f.write_str("it made a system call that its cell does not allow")
            }
            Self { signal, .. } => write!(f, "signal {signal} ended it"),
        }
    }
}

/// What a process is to the system.
#[derive(Debug)]
enum Body {
    /// One that the spawner made.
    Spawned {
        spawner: Arc<Spawner>,
        token: u64,
        /// Its CPU time's, unless it had ended by then.
        clock: Option<libc::clockid_t>,
        birth: Birth,
    },
    /// A thread of this one.
    Thread(Arc<Thread>),
}

/// What the spawner took to make a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Birth {
    /// To find or make its control group.
    pub group: Duration,
    /// To fork.
    pub fork: Duration,
}

/// A process that the spawner made, or a thread in its place. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    body: Body,
    account: Arc<Account>,
    ended: oneshot::Receiver<Exit>,
    /// How it ended, once that is known; the inner `None` says that nobody knows.
    exit: Option<Option<Exit>>,
}

impl Process {
    /// One that the spawner was asked for, and knows by `token`. Whoever reaps it closes
    /// `account`.
    pub fn spawned(
        spawner: Arc<Spawner>,
        token: u64,
        account: Arc<Account>,
        ended: oneshot::Receiver<Exit>,
    ) -> Self {
        let body = Body::Spawned {
            spawner,
            token,
            clock: None,
            birth: Birth::default(),
        };
        Self {
            body,
            account,
            ended,
            exit: None,
        }
    }

    /// A thread that was started; it closes `account` at its end.
    pub fn thread(
        thread: Arc<Thread>,
        account: Arc<Account>,
        ended: oneshot::Receiver<Exit>,
    ) -> Self {
        Self {
            body: Body::Thread(thread),
            account,
            ended,
            exit: None,
        }
    }

    /// The spawner has made it.
    pub fn was_spawned(&mut self, spawned: &Spawned) {
        if let Body::Spawned { clock, birth, .. } = &mut self.body {
            *clock = clock_of(spawned.pid);
            *birth = Birth {
                group: Duration::from_nanos(spawned.group_nanoseconds),
                fork: Duration::from_nanos(spawned.fork_nanoseconds),
            };
        }
    }

    /// What the spawner took to make it; nothing for a thread.
    pub fn birth(&self) -> Birth {
        match &self.body {
            Body::Spawned { birth, .. } => *birth,
            Body::Thread(_) => Birth::default(),
        }
    }

    /// The spawner could not make it.
    pub fn never_was(&mut self) {
        self.exit = Some(None);
    }

    /// Asks for its end; [`Process::ended`] says when it has come.
    pub fn kill(&self) {
        match &self.body {
            Body::Spawned { spawner, token, .. } => spawner.kill(*token),
            Body::Thread(thread) => thread.kill(),
        }
    }

    /// Whether it has not ended, as far as is known by now.
    pub fn is_there(&mut self) -> bool {
        if self.exit.is_none()
            && let Ok(exit) = self.ended.try_recv()
        {
            self.exit = Some(Some(exit));
        }
        let is_orphan = match &self.body {
            Body::Spawned { spawner, .. } => spawner.is_gone(),
            Body::Thread(_) => false,
        };
        self.exit.is_none() && !is_orphan
    }

    /// Sets what it may have of memory, now that it is known for whom: by the kernel's
    /// account, where there is one, and a thread has none. From now on it takes turns
    /// with everybody else.
    pub fn limit_memory(&self, bytes: u64) {
        match &self.body {
            Body::Spawned { spawner, token, .. } => spawner.limit(*token, bytes),
            Body::Thread(thread) => thread.restore_priority(),
        }
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
        let time = match &self.body {
            Body::Spawned { clock, .. } => clock.map_or(Err(Errno::SRCH), cpu_time),
            Body::Thread(thread) => thread.cpu_time(),
        };
        time.map_err(|error| PlatformError::System {
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

/// The clock of a process's CPU time.
#[expect(unsafe_code, reason = "no safe interface takes a process's number")]
fn clock_of(pid: u64) -> Option<libc::clockid_t> {
    // 0 would be the caller's own.
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
    let mut clock = 0;
    // SAFETY: the call writes one value of the type it is given.
    let found = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    (found == 0).then_some(clock)
}

#[expect(unsafe_code, reason = "no safe interface takes such a clock")]
fn cpu_time(clock: libc::clockid_t) -> Result<Duration, Errno> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one value of the type it is given.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(Errno::SRCH);
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Ok(Duration::new(
        seconds,
        u32::try_from(time.tv_nsec).unwrap_or(0),
    ))
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.kill();
        }
    }
}

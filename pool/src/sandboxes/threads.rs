//! Sandboxes on threads of this program: for pools whose owner asked for no jails
//! ([`crate::Confinement::InProcess`]).

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use faasw_sandbox::sandbox::thread::{Host, Thread};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use super::account::Account;
use super::process::{Birth, Exit, Made, Process};
use crate::error::PlatformError;
use crate::seeds::FunctionNumber;

/// The threads of a pool.
#[derive(Debug)]
pub struct Threads {
    host: Arc<Host>,
    living: Mutex<Living>,
    /// How many have not been joined.
    count: watch::Sender<usize>,
    /// Where the pool was started: whoever calls may have another.
    runtime: Handle,
}

#[derive(Debug, Default)]
struct Living {
    threads: HashMap<u64, Arc<Thread>>,
    next: u64,
    /// There are to be no more.
    is_stopped: bool,
}

impl Threads {
    /// None yet. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When KVM does not answer.
    pub fn prepare() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            host: Arc::new(Host::prepare()?),
            living: Mutex::default(),
            count: watch::Sender::new(0),
            runtime: Handle::current(),
        }))
    }

    /// Starts a sandbox that talks over `socket` and whose guest signals `progress`; with
    /// `is_ahead` when nothing else wants to run.
    ///
    /// # Errors
    /// When there can be no more threads, or are to be none.
    pub fn sandbox(
        self: &Arc<Self>,
        socket: OwnedFd,
        progress: &OwnedFd,
        is_ahead: bool,
    ) -> Result<Process, PlatformError> {
        let system = |error: io::Error| PlatformError::System {
            what: "a thread could not be made",
            error: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
        };
        let progress = progress.try_clone().map_err(system)?;
        let (over_sender, over) = oneshot::channel();
        let account = Arc::<Account>::default();
        let charged = account.clone();
        let ended = move |code| {
            charged.close(own_cpu_time());
            // Nobody waits where the runtime is gone.
            let _ = over_sender.send(code);
        };
        let mut living = self.living();
        if living.is_stopped {
            return Err(PlatformError::SpawnerGone);
        }
        let started = Thread::start(self.host.clone(), socket, progress, is_ahead, ended);
        let (thread, joined) = started.map_err(system)?;
        let number = living.next;
        living.next += 1;
        living.threads.insert(number, thread.clone());
        self.count.send_modify(|count| *count += 1);
        drop(living);
        let (ended_sender, ended) = oneshot::channel();
        let threads = self.clone();
        self.runtime.spawn(async move {
            let exit = joined_after(over, joined).await;
            threads.living().threads.remove(&number);
            // Nobody waits for what was dropped.
            let _ = ended_sender.send(exit);
            threads.count.send_modify(|count| *count -= 1);
        });
        Ok(Process::new(thread, account, ended))
    }

    /// Ends them all and waits until they are gone. There will be no others.
    pub async fn stop(&self) {
        {
            let mut living = self.living();
            living.is_stopped = true;
            for thread in living.threads.values() {
                thread.kill();
            }
        }
        // The sender is this one's own.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    fn living(&self) -> MutexGuard<'_, Living> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Made for Thread {
    fn kill(&self) {
        Self::kill(self);
    }

    fn is_orphan(&self) -> bool {
        false
    }

    /// A thread has none of its own. From now on it takes turns with everybody else.
    fn assign(&self, _bytes: u64, _function: Option<FunctionNumber>) {
        self.restore_priority();
    }

    fn set_background(&self, background: bool) {
        Self::set_background(self, background);
    }

    /// It has no group.
    fn step_aside(&self, _aside: bool) {}

    fn is_aside(&self) -> bool {
        false
    }

    fn may_be_aside(&self) -> bool {
        false
    }

    fn cpu_time(&self) -> Result<Duration, Errno> {
        Self::cpu_time(self)
    }

    fn birth(&self) -> Birth {
        Birth::default()
    }
}

/// CPU time of the thread that asks.
fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Waits for a thread that says when it is over, until the system has it no more either.
async fn joined_after(over: oneshot::Receiver<i32>, thread: JoinHandle<()>) -> Exit {
    let code = over.await.unwrap_or_default();
    // It has nothing left to do, but may have to wait for a processor to do it.
    let _ = tokio::task::spawn_blocking(move || thread.join()).await;
    Exit {
        signal: 0,
        out_of_memory: false,
        code: u64::try_from(code).unwrap_or_default(),
    }
}

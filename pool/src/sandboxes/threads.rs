//! Sandboxes on threads of this program, for pools that are configured without jails
//! ([`crate::Confinement::InProcess`]).

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use faasw_common::Lock;
use faasw_fri::messages::FunctionNumber;
use faasw_sandbox::sandbox::thread::{SandboxThread, ThreadHost};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use super::cpu_account::CpuAccount;
use super::process::{Exit, Process, ProcessCreationTimes, ProcessHandle};
use crate::error::PlatformError;

/// The threads of a pool.
#[derive(Debug)]
pub struct Threads {
    host: Arc<ThreadHost>,
    living: Lock<ThreadTable>,
    /// The number of threads that have not been joined.
    count: watch::Sender<usize>,
    /// The runtime that the pool was started in; a caller may run in another one.
    runtime: Handle,
}

#[derive(Debug, Default)]
struct ThreadTable {
    threads: HashMap<u64, Arc<SandboxThread>>,
    next: u64,
    /// Whether no more threads may be started.
    is_stopped: bool,
}

impl Threads {
    /// Prepares for threads without starting any. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// Returns an error if KVM does not answer.
    pub fn prepare() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            host: Arc::new(ThreadHost::prepare()?),
            living: Lock::default(),
            count: watch::Sender::new(0),
            runtime: Handle::current(),
        }))
    }

    /// Starts a sandbox that communicates over `socket` and whose guest signals `progress`. With
    /// `is_ahead` it runs only when nothing else wants to, until [`Process::assign`] is called.
    ///
    /// # Errors
    /// Returns an error if no thread can be started, or [`PlatformError::SpawnerGone`] after
    /// [`Self::stop`].
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
        let account = Arc::<CpuAccount>::default();
        let charged = account.clone();
        let ended = move |code| {
            charged.close(own_cpu_time());
            // The receiver is gone if the runtime is.
            let _ = over_sender.send(code);
        };
        let mut living = self.living.lock();
        if living.is_stopped {
            return Err(PlatformError::SpawnerGone);
        }
        let started = SandboxThread::start(self.host.clone(), socket, progress, is_ahead, ended);
        let (thread, joined) = started.map_err(system)?;
        let number = living.next;
        living.next += 1;
        living.threads.insert(number, thread.clone());
        self.count.send_modify(|count| *count += 1);
        drop(living);
        let (ended_sender, ended) = oneshot::channel();
        let threads = self.clone();
        self.runtime.spawn(async move {
            let exit = join_after(over, joined).await;
            threads.living.lock().threads.remove(&number);
            // The receiver is gone if the process was dropped.
            let _ = ended_sender.send(exit);
            threads.count.send_modify(|count| *count -= 1);
        });
        Ok(Process::new(thread, account, ended))
    }

    /// Ends all threads and waits until they are gone. No others can be started afterwards.
    pub async fn stop(&self) {
        {
            let mut living = self.living.lock();
            living.is_stopped = true;
            for thread in living.threads.values() {
                thread.kill();
            }
        }
        // The sender belongs to `self`, so it cannot be dropped meanwhile.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl ProcessHandle for SandboxThread {
    fn kill(&self) {
        Self::kill(self);
    }

    fn is_orphan(&self) -> bool {
        false
    }

    /// A thread has no memory limit of its own. From now on it runs at the usual priority.
    fn assign(&self, _bytes: u64, _function: Option<FunctionNumber>) {
        self.restore_priority();
    }

    fn set_background(&self, background: bool) {
        Self::set_background(self, background);
    }

    /// A thread has no control group.
    fn set_background_group(&self, _background: bool) {}

    fn is_in_background_group(&self) -> bool {
        false
    }

    fn may_be_in_background_group(&self) -> bool {
        false
    }

    fn cpu_time(&self) -> Result<Duration, Errno> {
        Self::cpu_time(self)
    }

    fn creation_times(&self) -> ProcessCreationTimes {
        ProcessCreationTimes::default()
    }
}

/// Returns the CPU time of the calling thread.
fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Waits for the report that a thread is over, and then until it has been joined.
async fn join_after(over: oneshot::Receiver<i32>, thread: JoinHandle<()>) -> Exit {
    let code = over.await.unwrap_or_default();
    // The thread has nothing left to do, but may have to wait for a processor to end.
    let _ = tokio::task::spawn_blocking(move || thread.join()).await;
    Exit {
        signal: 0,
        out_of_memory: false,
        code: u64::try_from(code).unwrap_or_default(),
    }
}

//! A sandbox without a process, whose messages and actions come from a test.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use faasw_fri::messages::FunctionNumber;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Sandbox, SandboxCreationTimes};
use crate::sandboxes::cpu_account::CpuAccount;
use crate::sandboxes::process::{Exit, Process, ProcessCreationTimes, ProcessHandle};
use crate::sandboxes::progress_doorbell::ProgressDoorbell;
use crate::sandboxes::watch::watch;

/// The other end of the sandbox's socket.
#[derive(Debug)]
pub struct FakeSandbox {
    /// Carries the sandbox's messages and receives its orders.
    pub socket: OwnedFd,
    made: Arc<FakeProcess>,
}

/// The orders for the process.
#[derive(Debug)]
struct FakeProcess {
    is_in_background_group: AtomicBool,
    ended: Mutex<Option<oneshot::Sender<Exit>>>,
}

impl ProcessHandle for FakeProcess {
    fn kill(&self) {
        if let Some(ended) = self.ended.lock().unwrap().take() {
            // The receiver is gone if the process was dropped.
            let _ = ended.send(Exit {
                signal: 9,
                code: 0,
                out_of_memory: false,
            });
        }
    }

    fn is_orphan(&self) -> bool {
        false
    }

    fn assign(&self, _: u64, _: Option<FunctionNumber>) {}

    fn set_background(&self, _background: bool) {}

    fn set_background_group(&self, background: bool) {
        self.is_in_background_group
            .store(background, Ordering::Relaxed);
    }

    fn is_in_background_group(&self) -> bool {
        self.is_in_background_group.load(Ordering::Relaxed)
    }

    fn may_be_in_background_group(&self) -> bool {
        self.is_in_background_group()
    }

    fn cpu_time(&self) -> Result<Duration, Errno> {
        Ok(Duration::ZERO)
    }

    fn creation_times(&self) -> ProcessCreationTimes {
        ProcessCreationTimes::default()
    }
}

impl FakeSandbox {
    /// Returns whether the sandbox is to be in the background group.
    pub fn is_in_background_group(&self) -> bool {
        self.made.is_in_background_group()
    }
}

impl Drop for FakeSandbox {
    fn drop(&mut self) {
        drop(self.made.ended.lock().unwrap().take());
    }
}

impl Sandbox {
    /// Returns a sandbox in the background group, and the stand-in for its process.
    pub fn fake() -> (Self, FakeSandbox) {
        let (ours, socket) = faasw_fri::pair().unwrap();
        let signalled = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let (ended, exit) = oneshot::channel();
        let made = Arc::new(FakeProcess {
            is_in_background_group: AtomicBool::new(true),
            ended: Mutex::new(Some(ended)),
        });
        let sandbox = Self {
            process: Process::new(made.clone(), Arc::new(CpuAccount::default()), exit),
            socket: watch(ours).unwrap(),
            progress: ProgressDoorbell::new(signalled).unwrap(),
            wall_clock: SystemTime::now,
            specialised_for: None,
            creation_times: SandboxCreationTimes::default(),
            faults: None,
            paged: None,
        };
        (sandbox, FakeSandbox { socket, made })
    }
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_closes_its_socket_is_ended() {
    let (mut sandbox, stand_in) = Sandbox::fake();
    rustix::net::shutdown(&stand_in.socket, rustix::net::Shutdown::Both).unwrap();
    let event = timeout(Duration::from_secs(60), sandbox.next_event(None)).await;
    let error = event.unwrap().unwrap_err();
    assert!(error.to_string().contains("signal 9"), "{error}");
}

//! A sandbox without a process, whose messages and actions come from a test.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use faasw_fri::messages::FunctionNumber;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use tokio::sync::oneshot;

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
    _ended: oneshot::Sender<Exit>,
}

/// The orders for the process.
#[derive(Debug)]
struct FakeProcess {
    is_in_background_group: AtomicBool,
}

impl ProcessHandle for FakeProcess {
    fn kill(&self) {}

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

impl Sandbox {
    /// Returns a sandbox in the background group, and the stand-in for its process.
    pub fn fake() -> (Self, FakeSandbox) {
        let (ours, socket) = faasw_fri::pair().unwrap();
        let signalled = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let made = Arc::new(FakeProcess {
            is_in_background_group: AtomicBool::new(true),
        });
        let (ended, exit) = oneshot::channel();
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
        let stand_in = FakeSandbox {
            socket,
            made,
            _ended: ended,
        };
        (sandbox, stand_in)
    }
}

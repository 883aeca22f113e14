//! A sandbox: a process or thread with one VM that becomes one instance and then ends.
//!
//! [`run`] makes a sandbox and closes its jail. Then the sandbox carries out the node's orders:
//! `orders` has those that make an instance and take it apart, `running` those that let it run, and
//! `hot` lets a guest poll for its next request. [`thread`] runs a sandbox without a process and a
//! jail of its own.

mod hot;
mod orders;
mod running;
mod start;
pub mod thread;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use faasw_fri::messages::{Activate, Failed, Failure, Prepared, SandboxStarted};
use faasw_fri::{FriError, Kind, Message, receive, send};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

pub use self::start::{SandboxStart, enclose, run};
use crate::instance::fork::Instance;
use crate::instance::reset::ResetFailure;
use crate::instance::zygote::SpecialisedZygote;
use crate::memory::page_map::PageMap;
use crate::vm::{Vm, VmTemplate};

/// Exit code of a sandbox that failed.
pub(crate) const FAILED: i32 = 1;

/// Exit code of a sandbox that panicked.
pub(crate) const PANICKED: i32 = 101;

/// Why a sandbox ends.
pub(crate) enum End {
    /// The node has closed the socket.
    Dismissed,
    /// The sandbox has failed; the node was notified if possible.
    Failed,
}

pub(crate) struct Sandbox<'a> {
    socket: &'a OwnedFd,
    template: &'a VmTemplate,
    vm: Vm,
    page_map: PageMap,
    zygote: Option<Box<SpecialisedZygote>>,
    instance: Option<Instance>,
    fork_nanoseconds: u64,
    /// Page faults before the request.
    faults_before: u64,
    activated: u64,
    /// The monotonic time from which the guest continues.
    monotonic_nanoseconds: u64,
    exits: u64,
    /// CPU time of this thread when its instance was last offered.
    offered_at: Duration,
}

pub(crate) fn report(socket: impl AsFd, failure: Failure, detail: u64, instruction: u64) {
    let message = Failed {
        failure,
        detail,
        instruction,
    };
    // A node that is gone needs no report.
    let _ = send(socket, &message, &[], SendFlags::empty());
}

/// Sends the node a descriptor by which it can serve this process's page faults, and keeps no copy
/// of it. The holder of such a descriptor can make a process wait within a system call, which must
/// not be possible for a process that an attacker may control. Must be called before any tenant's
/// data arrives.
pub(crate) fn hand_over_faults(socket: impl AsFd, template: &VmTemplate) {
    if let Some(faults) = template.faults() {
        // If the node is gone, a later call notices it.
        let _ = send(
            socket,
            &SandboxStarted { reserved: 0 },
            &[faults.as_fd()],
            SendFlags::empty(),
        );
    }
}

impl<'a> Sandbox<'a> {
    pub(crate) fn new(
        socket: &'a OwnedFd,
        template: &'a VmTemplate,
        vm: Vm,
        page_map: PageMap,
    ) -> Self {
        Self {
            socket,
            template,
            vm,
            page_map,
            zygote: None,
            instance: None,
            fork_nanoseconds: 0,
            faults_before: 0,
            activated: 0,
            monotonic_nanoseconds: 0,
            exits: 0,
            offered_at: Duration::ZERO,
        }
    }

    /// Notifies the node that the VM is ready, and serves it to the end.
    ///
    /// # Errors
    /// Returns [`End::Dismissed`] if the node has closed the socket, and [`End::Failed`] if the
    /// sandbox has failed. `Ok` means that the sandbox has handed over a seed.
    pub(crate) fn live(&mut self, prepared: Prepared) -> Result<(), End> {
        self.send(&prepared).and_then(|()| self.serve())
    }

    fn send<M: Message>(&self, message: &M) -> Result<(), End> {
        send(self.socket, message, &[], SendFlags::empty()).map_err(|_| End::Dismissed)
    }

    fn fail(&self, failure: Failure, detail: u64) -> End {
        report(self.socket, failure, detail, self.vm.instruction());
        End::Failed
    }

    fn fail_system(&self, failure: Failure, errno: Errno) -> End {
        self.fail(failure, errno.raw_os_error() as u64)
    }

    fn fail_reset(&self, failure: Failure, cause: ResetFailure) -> End {
        match cause {
            ResetFailure::Broken(page) => self.fail(Failure::Broken, page),
            ResetFailure::Changed(change) => self.fail(Failure::Changed, change as u64),
            ResetFailure::System(errno) => self.fail_system(failure, errno),
        }
    }

    fn serve(&mut self) -> Result<(), End> {
        loop {
            let packet = match receive(self.socket, RecvFlags::empty()) {
                Ok(packet) => packet,
                Err(FriError::Closed) => return Err(End::Dismissed),
                Err(_) => return Err(self.fail(Failure::Message, 0)),
            };
            let kind = packet.kind();
            match (kind, &mut self.instance) {
                (Some(Kind::Specialise), None) if self.zygote.is_none() => {
                    self.specialise(packet)?
                }
                (Some(Kind::Fork), None) => self.fork(packet)?,
                (Some(Kind::Activate), Some(instance)) => {
                    instance.is_done = false;
                    let ram = instance.ram;
                    let order = packet
                        .message::<Activate>()
                        .map_err(|_| self.fail(Failure::Message, 0))?;
                    self.activate(&order, ram, 0)?;
                    let ordered = self.run()?;
                    self.settle(ordered)?;
                }
                (Some(Kind::Reset), Some(instance)) if instance.is_done => {
                    let order = self.order(&packet)?;
                    self.settle(Some(order))?;
                }
                (Some(Kind::Resume), Some(_)) => {
                    let ordered = self.run()?;
                    self.settle(ordered)?;
                }
                // For a wait that is over.
                (Some(Kind::Wake), Some(_)) => {}
                (Some(Kind::Survey), Some(_)) => self.survey()?,
                (Some(Kind::Seal), Some(_)) => return self.seal(packet),
                _ => return Err(self.fail(Failure::Message, kind.map_or(0, |kind| kind as u64))),
            }
        }
    }
}

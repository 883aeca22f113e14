//! Making the spawner's children: sandboxes, compile helpers and processes of egress.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use faasw_fri::messages::{SpawnEgress, SpawnHelper, SpawnSandbox, Spawned};
use faasw_jail::group::{Group, Groups};
use faasw_jail::{ForkSide, Network, Site, Step, egress, helper};
use rustix::io::Errno;
use rustix::process::Pid;

use super::resources::SandboxResources;
use super::{Child, Spawner};
use crate::sandbox::{self, SandboxStart};
use crate::vm::clock;

/// Times for making a child, in nanoseconds.
#[derive(Clone, Copy)]
struct SpawnTimes {
    group: u64,
    /// Until the spawner continues; seen from the child, until it runs in its group.
    fork: u64,
}

impl Spawner {
    /// Returns the site. If this host allows none, or it is in another network, reports the failure
    /// for `token`.
    fn site(&self, token: u64, network: Network) -> Option<&Site> {
        match &self.maker.site {
            Ok(site) if site.network() == network => Some(site),
            Ok(_) => {
                self.report_failed(token, Errno::OPNOTSUPP.into(), Step::Namespaces);
                None
            }
            Err(error) => {
                self.report_failed(token, error.errno.into(), error.step);
                None
            }
        }
    }

    pub(super) fn spawn_helper(&mut self, order: &SpawnHelper, fds: [BorrowedFd<'_>; 3]) {
        let Some(site) = self.site(order.token, Network::Empty) else {
            return;
        };
        let number = self.free_number();
        let program = self.programs.compiler.program();
        let limits = helper::HelperLimits {
            isa: order.isa.name(),
            cpu_seconds: order.cpu_seconds,
            memory_bytes: order.memory_bytes,
        };
        let made = self.make(number, Self::group, |group| {
            helper::spawn(site, (number, group), program, &limits, fds)
        });
        self.note(order.token, number, made);
    }

    pub(super) fn spawn_egress(
        &mut self,
        order: &SpawnEgress,
        socket: &OwnedFd,
        connections: Option<OwnedFd>,
    ) {
        let network = match order.kind {
            egress::EgressRole::Connector => Network::Host,
            egress::EgressRole::Worker => Network::Empty,
        };
        let null = io::stdin();
        let connections = connections.as_ref().map_or(null.as_fd(), AsFd::as_fd);
        let fds = [socket.as_fd(), connections];
        let Some(site) = self.site(order.token, network) else {
            return;
        };
        let number = self.free_number();
        let program = self.programs.egress.program();
        let made = self.make(number, Self::group, |group| {
            egress::spawn(site, (number, group), program, order.kind, fds)
        });
        self.note(order.token, number, made);
    }

    pub(super) fn spawn_sandbox(
        &mut self,
        order: &SpawnSandbox,
        socket: OwnedFd,
        progress: OwnedFd,
    ) {
        let Some(site) = self.site(order.token, Network::Empty) else {
            return;
        };
        let is_ahead = order.is_ahead.is_yes() && self.can_restore;
        let number = self.free_number();
        let forked = self.make(number, Self::sandbox_group, |group| {
            Self::fork(site, number, group)
        });
        match forked {
            Ok((ForkSide::Child(jail), took)) => {
                let start = SandboxStart {
                    is_ahead,
                    nanoseconds: took.fork,
                };
                let sandboxes = self.maker.sandboxes.as_ref();
                let code = sandboxes.map_or(1, |SandboxResources { template, filter }| {
                    sandbox::run(jail, socket, progress, template, filter, start)
                });
                // The spawner's own clean-up must not run in the child.
                // SAFETY: ends this process without running anything.
                unsafe { libc::_exit(code) }
            }
            Ok((ForkSide::Parent(pid), took)) => self.note(order.token, number, Ok((pid, took))),
            Err(error) => self.note(order.token, number, Err(error)),
        }
    }

    /// Makes a child with this number by `fork`, in the group that `group` returns.
    fn make<T>(
        &self,
        number: u32,
        group: impl FnOnce(&Self, u32) -> io::Result<Option<Group>>,
        fork: impl FnOnce(Option<&Group>) -> io::Result<T>,
    ) -> io::Result<(T, SpawnTimes)> {
        let started = clock::monotonic();
        let group = group(self, number)?;
        let grouped = clock::monotonic();
        let made = fork(group.as_ref()).inspect_err(|_| self.give_back(number, true))?;
        let took = SpawnTimes {
            group: grouped - started,
            fork: clock::monotonic() - grouped,
        };
        Ok((made, took))
    }

    /// Returns a number that no living child has: that of a group that waits for a jail, if there
    /// is one.
    fn free_number(&self) -> u32 {
        // Jails without confinement leave groups unused.
        let groups = self.maker.groups.as_ref().ok();
        let groups = groups.filter(|_| !is_without_jail());
        if let Some(number) = groups.and_then(Groups::free) {
            return number;
        }
        let mut is_used = vec![false; self.children.len() + 1];
        for child in &self.children {
            if let Some(used) = is_used.get_mut(child.number as usize) {
                *used = true;
            }
        }
        // There is one more number than children: one of them is free.
        let free = is_used.iter().position(|used| !used);
        free.map_or(u32::MAX, |number| number as u32)
    }

    /// Records a new child. Reports to the node whether it was made.
    fn note(&mut self, token: u64, number: u32, child: io::Result<(Pid, SpawnTimes)>) {
        match child {
            Ok((pid, took)) => {
                self.children.push(Child {
                    token,
                    pid,
                    number,
                    member: None,
                    is_background: false,
                });
                self.send(&Spawned {
                    token,
                    pid: pid.as_raw_nonzero().get() as u64,
                    group_nanoseconds: took.group,
                    fork_nanoseconds: took.fork,
                    groups: self.groups(),
                });
            }
            Err(error) => self.report_failed(token, error, Step::Fork),
        }
    }

    fn fork(site: &Site, number: u32, group: Option<&Group>) -> io::Result<ForkSide> {
        #[cfg(feature = "ablation")]
        if is_without_jail() {
            return site.fork_open();
        }
        site.fork(number, group)
    }

    /// Returns the group for a jail with this number; `None` if the host has no groups.
    fn group(&self, number: u32) -> io::Result<Option<Group>> {
        match &self.maker.groups {
            Ok(groups) => Ok(Some(groups.group(number)?)),
            Err(_) => Ok(None),
        }
    }

    /// Returns the group for a sandbox.
    fn sandbox_group(&self, number: u32) -> io::Result<Option<Group>> {
        if is_without_jail() {
            Ok(None)
        } else {
            self.group(number)
        }
    }
}

/// Whether sandboxes are made without a jail and without a group.
#[cfg(feature = "ablation")]
fn is_without_jail() -> bool {
    std::env::args().any(|word| word == faasw_jail::WITHOUT_JAIL)
}

/// Whether sandboxes are made without a jail: never.
#[cfg(not(feature = "ablation"))]
const fn is_without_jail() -> bool {
    false
}

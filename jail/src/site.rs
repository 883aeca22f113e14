//! The resources that all jails of a node share, and the forking of children into jails.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Gid, Pid, PidfdFlags, Uid};
use rustix::thread::UnshareFlags;

use crate::close::{EMPTY, Jail, JailError, Plan, Step};
use crate::descriptors::dup_to_high_fd;
use crate::empty_folder::empty_folder;
use crate::group::Group;
use crate::level::{ConfinementLevel, Network};
use crate::privileges::Identities;

/// The resources of the process that forks all others: it must have one thread.
///
/// Network and IPC namespaces are made once, because making one takes milliseconds (AFaaS §4.2
/// pools them for that reason). Sharing them is safe: they are empty, no process has a capability
/// to put anything in, and no filter here allows opening a socket or an IPC object. The connector
/// alone belongs to a site with the host's network ([`Network::Host`]), and its filter allows
/// sockets of that network.
///
/// A site of the reduced level has no namespaces: its jails are in the host's, and only their
/// filters keep them from its network.
#[derive(Debug)]
pub struct Site {
    /// This process, so that children can check whether it is alive.
    maker: OwnedFd,
    plan: Plan,
    /// The root of jails that have an empty root without a mount namespace: a folder without a
    /// name.
    root: Option<OwnedFd>,
}

/// Whether this process may give jails users of their own. Otherwise the full level needs a host
/// that lets all users make user namespaces.
#[must_use]
pub fn has_privilege(level: ConfinementLevel) -> bool {
    Identities::available(0, level).is_some()
}

/// Keeps the numbers of user and group in the user namespace that was entered: a process whose user
/// has no number there cannot make further namespaces (user_namespaces(7)).
fn keep_name(user: Uid, group: Gid) -> Result<(), Errno> {
    let map = |number: u32| format!("{number} {number} 1");
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", map(user.as_raw())),
        ("/proc/self/gid_map", map(group.as_raw())),
    ] {
        std::fs::write(file, text)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    }
    Ok(())
}

/// Calls `unshare` again while it fails because the process has another thread, for at most
/// `timeout`. A process with another thread can make no user namespace (unshare(2)), and threads
/// of the kernel count as well: Debian's 6.12 starts one in each process that makes a VM
/// (`vhost_task_create` in `arch/x86/kvm/mmu/mmu.c`). It may outlive the VM for a moment, and the
/// kernel does not report its end.
fn retry_unshare(
    timeout: Duration,
    mut unshare: impl FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (began, mut between) = (Instant::now(), Duration::from_millis(1));
    loop {
        match unshare() {
            Err(Errno::INVAL) if began.elapsed() < timeout => {
                std::thread::sleep(between);
                between = (between * 2).min(Duration::from_millis(50));
            }
            done => return done,
        }
    }
}

/// How long to wait for such threads: an idle one ends in this time, even if there is little CPU
/// time.
const THREAD_EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// From Linux 5.7 on (clone(2)).
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The two sides of a fork.
#[derive(Debug)]
pub enum ForkSide {
    /// The maker, with the child's number.
    Parent(Pid),
    /// The child, with its jail.
    Child(Jail),
}

impl Site {
    /// Prepares a site. At the full level, moves the calling process to namespaces of its own.
    /// Without privilege it gets a user namespace, and jails share its user. At the reduced level
    /// the process stays in its namespaces.
    ///
    /// # Errors
    /// Returns the step that this host does not allow.
    pub fn prepare(network: Network, level: ConfinementLevel) -> Result<Self, JailError> {
        let process = rustix::process::getpid();
        let number = process.as_raw_nonzero().get().unsigned_abs();
        let plan = Plan {
            identities: Identities::available(number, level),
            level,
            network,
        };
        if level == ConfinementLevel::Full {
            Self::leave_namespaces(plan)?;
        }
        let root = if plan.has_empty_folder() {
            Some(empty_folder().map_err(Step::Root.failed())?)
        } else {
            None
        };
        let maker = rustix::process::pidfd_open(process, PidfdFlags::empty())
            .and_then(|maker| dup_to_high_fd(&maker))
            .map_err(Step::Maker.failed())?;
        Ok(Self { maker, plan, root })
    }

    fn leave_namespaces(plan: Plan) -> Result<(), JailError> {
        let mut spaces = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
        if plan.network == Network::Empty {
            spaces |= UnshareFlags::NEWNET;
        }
        if plan.identities.is_none() {
            spaces |= UnshareFlags::NEWUSER;
        }
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        // SAFETY: no memory or descriptor table is unshared, and the process has one thread of
        // ours.
        retry_unshare(THREAD_EXIT_TIMEOUT, || unsafe {
            rustix::thread::unshare_unsafe(spaces)
        })
        .and_then(|()| match plan.identities {
            Some(_) => Ok(()),
            None => keep_name(user, group),
        })
        .map_err(Step::Namespaces.failed())?;
        // Unmounts on the host take effect here as well; mounts made here stay here.
        let below = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", below)
            .and_then(|()| {
                let flags = MountFlags::RDONLY
                    | MountFlags::NOSUID
                    | MountFlags::NODEV
                    | MountFlags::NOEXEC;
                let options = c"size=4k,nr_inodes=1,mode=555";
                rustix::mount::mount(c"faasw-jail", EMPTY, c"tmpfs", flags, options)
            })
            .map_err(Step::Root.failed())
    }

    /// Returns the network of its jails.
    #[must_use]
    pub fn network(&self) -> Network {
        self.plan.network
    }

    /// Whether each jail has a user of its own, see [`has_privilege`].
    #[must_use]
    pub fn has_identities(&self) -> bool {
        self.plan.identities.is_some()
    }

    /// Forks a child into `group`, and at the full level into process, mount and UTS namespaces of
    /// its own. The child must close its jail before it accesses any tenant's data. No other living
    /// jail may have `number`.
    ///
    /// # Errors
    /// Returns the error of the fork.
    pub fn fork(&self, number: u32, group: Option<&Group>) -> io::Result<ForkSide> {
        let mut flags = 0;
        if self.plan.level == ConfinementLevel::Full {
            flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWUTS;
            if self.plan.identities.is_none() {
                flags |= libc::CLONE_NEWUSER;
            }
        }
        let maker = dup_to_high_fd(&self.maker)?;
        let root = self.root.as_ref().map(dup_to_high_fd).transpose()?;
        let (pid, is_in_group) = match clone(flags, group) {
            // A container's filter cannot see the flags of this call, and so refuses all such
            // calls.
            Err(error) if flags == 0 && error.raw_os_error() == Some(libc::ENOSYS) => {
                (fork()?, false)
            }
            made => (
                made?,
                group.is_some_and(|group| group.birthplace().is_some()),
            ),
        };
        let group = group.filter(|_| !is_in_group);
        Ok(match pid {
            Some(pid) => ForkSide::Parent(pid),
            None => ForkSide::Child(Jail::born(maker, self.plan, number, group, root)),
        })
    }

    /// Forks a child whose jail is never closed: to measure the cost of closed jails.
    ///
    /// # Errors
    /// Returns the error of the fork.
    #[cfg(feature = "ablation")]
    pub fn fork_open(&self) -> io::Result<ForkSide> {
        let maker = dup_to_high_fd(&self.maker)?;
        Ok(match clone(0, None)? {
            Some(pid) => ForkSide::Parent(pid),
            None => ForkSide::Child(Jail::open(maker, self.plan)),
        })
    }
}

/// Forks into new namespaces and a group. Returns the child's number; `None` in the child.
fn clone(flags: libc::c_int, group: Option<&Group>) -> io::Result<Option<Pid>> {
    // SAFETY: all zeroes are valid arguments, and request nothing.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(flags.unsigned_abs());
    if let Some(folder) = group.and_then(Group::birthplace) {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::from(folder.as_raw_fd().unsigned_abs());
    }
    arguments.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
    // SAFETY: the child has a copy of everything, as after a fork; this process has one
    // thread, so no lock is held.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const arguments,
            size_of::<libc::clone_args>(),
        )
    };
    match i32::try_from(pid) {
        Ok(pid) if pid >= 0 => Ok(Pid::from_raw(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Forks by the older call, without namespaces or group. Returns the child's number; `None` in the
/// child.
fn fork() -> io::Result<Option<Pid>> {
    let flags = libc::c_long::from(libc::SIGCHLD);
    // SAFETY: as in [`clone`].
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match i32::try_from(pid) {
        Ok(pid) if pid >= 0 => Ok(Pid::from_raw(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unshare_is_retried_until_a_kernel_thread_has_ended() {
        let mut refused = 0;
        let mut others = |errno, times, timeout| {
            refused = 0;
            retry_unshare(Duration::from_secs(timeout), || {
                refused += 1;
                if refused <= times { Err(errno) } else { Ok(()) }
            })
        };
        assert_eq!(others(Errno::INVAL, 3, 60), Ok(()));
        assert_eq!(others(Errno::PERM, 1, 60), Err(Errno::PERM));
        // A second: four attempts take 7 ms on an idle machine.
        assert_eq!(others(Errno::INVAL, u32::MAX, 1), Err(Errno::INVAL));
        assert!(refused > 3);
    }
}

//! What all cells of a node share, and the forking of children into them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Gid, Pid, PidfdFlags, Uid};
use rustix::thread::UnshareFlags;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::close::{Cell, CellError, EMPTY, Step};
use crate::descriptors::out_of_the_way;
use crate::group::Group;
use crate::privileges::Identities;

/// Prepared by the process that forks all others: it must have one thread.
///
/// Network and IPC namespaces are made once, because making one takes milliseconds
/// (AFaaS §4.2 pools them for that reason). Sharing them is safe: they are empty,
/// there is no capability to put anything in, and no system call of a filter here
/// opens a socket or an IPC object. The connector alone is of a site that has the host's network
/// ([`Network::Host`]), and its filter lets it make sockets of that.
#[derive(Debug)]
pub struct Site {
    /// This process, for children to see whether it still lives.
    maker: OwnedFd,
    identities: Option<Identities>,
    network: Network,
}

/// Which network a site's cells are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u64)]
pub enum Network {
    /// An empty one: whoever has seen anything of a tenant or of a stranger.
    Empty = 0,
    /// The host's: who connects, and reads nothing of whom it connects to.
    Host = 1,
}

/// Whether this process may give cells users of their own. Without that it takes user
/// namespaces that the host lets everybody make.
#[must_use]
pub fn has_privilege() -> bool {
    Identities::available(0).is_some()
}

/// Has user and group keep their numbers in the user namespace that was entered: who
/// has none there cannot make namespaces below (user_namespaces(7)).
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

/// Who has another thread can make no user namespace (unshare(2)), and one of the kernel's own is one: Debian's 6.12 starts it in
/// whoever makes a VM (`vhost_task_create` in `arch/x86/kvm/mmu/mmu.c`), where it may outlive the VM for a moment. Nothing
/// tells of its end.
fn as_soon_as_alone(
    patience: Duration,
    mut unshare: impl FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (began, mut between) = (Instant::now(), Duration::from_millis(1));
    loop {
        match unshare() {
            Err(Errno::INVAL) if began.elapsed() < patience => {
                std::thread::sleep(between);
                between = (between * 2).min(Duration::from_millis(50));
            }
            done => return done,
        }
    }
}

/// In this time a thread ends that has nothing to do any more, where there is little of a processor.
const OTHERS_END: Duration = Duration::from_secs(5);

/// From Linux 5.7 on (clone(2)).
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Born {
    /// The child's number.
    Maker(Pid),
    /// The child.
    Child(Cell),
}

impl Site {
    /// Moves the calling process to namespaces of its own. Without privilege it gets
    /// a user namespace, and cells share its user.
    ///
    /// # Errors
    /// The step that this host does not allow.
    pub fn prepare(network: Network) -> Result<Self, CellError> {
        let process = rustix::process::getpid();
        let identities = Identities::available(process.as_raw_nonzero().get().unsigned_abs());
        let mut spaces = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
        if network == Network::Empty {
            spaces |= UnshareFlags::NEWNET;
        }
        if identities.is_none() {
            spaces |= UnshareFlags::NEWUSER;
        }
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        // SAFETY: no memory or descriptor table is unshared, and there is one thread of ours.
        as_soon_as_alone(OTHERS_END, || unsafe {
            rustix::thread::unshare_unsafe(spaces)
        })
        .and_then(|()| match identities {
            Some(_) => Ok(()),
            None => keep_name(user, group),
        })
        .map_err(Step::Namespaces.failed())?;
        // What the host unmounts goes here, too; what is mounted here stays here.
        let below = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", below)
            .and_then(|()| {
                let flags = MountFlags::RDONLY
                    | MountFlags::NOSUID
                    | MountFlags::NODEV
                    | MountFlags::NOEXEC;
                let options = c"size=4k,nr_inodes=1,mode=555";
                rustix::mount::mount(c"faasw-cell", EMPTY, c"tmpfs", flags, options)
            })
            .map_err(Step::Root.failed())?;
        let maker = rustix::process::pidfd_open(process, PidfdFlags::empty())
            .and_then(|maker| out_of_the_way(&maker))
            .map_err(Step::Maker.failed())?;
        Ok(Self {
            maker,
            identities,
            network,
        })
    }

    /// Which network its cells are in.
    #[must_use]
    pub fn network(&self) -> Network {
        self.network
    }

    /// Whether each cell has a user of its own, see [`has_privilege`].
    #[must_use]
    pub fn has_identities(&self) -> bool {
        self.identities.is_some()
    }

    /// Forks a child into process, mount and UTS namespaces of its own, and into
    /// `group`. It must close its cell before it touches anything that is a tenant's.
    /// `number` tells living cells apart.
    ///
    /// # Errors
    /// The system's.
    pub fn fork(&self, number: u32, group: Option<&Group>) -> io::Result<Born> {
        let mut flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWUTS;
        if self.identities.is_none() {
            flags |= libc::CLONE_NEWUSER;
        }
        let maker = out_of_the_way(&self.maker)?;
        Ok(match clone(flags, group)? {
            Some(pid) => Born::Maker(pid),
            None => Born::Child(Cell::born(maker, self.identities, number, group)),
        })
    }

    /// Forks a child whose cell stays open whatever it does: to measure what closed
    /// ones cost.
    ///
    /// # Errors
    /// The system's.
    #[cfg(feature = "ablation")]
    pub fn fork_open(&self) -> io::Result<Born> {
        let maker = out_of_the_way(&self.maker)?;
        Ok(match clone(0, None)? {
            Some(pid) => Born::Maker(pid),
            None => Born::Child(Cell::open(maker)),
        })
    }
}

/// Forks into new namespaces and a group; the child's number, or nothing in the child.
fn clone(flags: libc::c_int, group: Option<&Group>) -> io::Result<Option<Pid>> {
    // SAFETY: all zeroes is what the call takes for nothing.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_the_kernels_that_is_ending_is_waited_for() {
        let mut refused = 0;
        let mut others = |errno, times| {
            refused = 0;
            as_soon_as_alone(Duration::from_millis(100), || {
                refused += 1;
                if refused <= times { Err(errno) } else { Ok(()) }
            })
        };
        assert_eq!(others(Errno::INVAL, 3), Ok(()));
        assert_eq!(others(Errno::PERM, 1), Err(Errno::PERM));
        assert_eq!(others(Errno::INVAL, u32::MAX), Err(Errno::INVAL));
        assert!(refused > 3);
    }
}

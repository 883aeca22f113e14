//! Closing a jail: the steps of a child before it accesses any tenant's data.

use std::ffi::CStr;
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{
    Resource, Rlimit, SpeculationFeature, SpeculationFeatureControl, SpeculationFeatureState,
};
use rustix::thread::{CapabilitySet, UnshareFlags};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::filter::Filter;
use crate::group::Group;
use crate::landlock;
use crate::level::{ConfinementLevel, Network};
use crate::privileges::{self, Identities};

/// Where the empty root is mounted, in mount namespaces that only the maker of jails and its
/// children see. Any folder that every system has would do.
pub(crate) const EMPTY: &CStr = c"/sys";

/// A step of making or closing a jail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u64)]
pub enum Step {
    /// The process is forked.
    Fork = 0,
    /// Namespaces are made.
    Namespaces = 1,
    /// The empty root is mounted and entered.
    Root = 2,
    /// The process is set to end with the one that made it.
    Maker = 3,
    /// Resource limits are set.
    Limits = 4,
    /// The process takes a user of its own.
    Identity = 5,
    /// The process gives up its capabilities.
    Privileges = 6,
    /// Speculation is restricted.
    Speculation = 7,
    /// The system-call filter is installed.
    Filter = 8,
    /// Descriptors are put in their places.
    Descriptors = 9,
    /// The control group is entered.
    Group = 10,
    /// Landlock forbids files, signals and sockets.
    Landlock = 11,
}

impl Step {
    /// Returns the step with this number.
    #[must_use]
    pub fn from_u64(value: u64) -> Option<Self> {
        Self::try_read_from_bytes(value.as_bytes()).ok()
    }

    /// Returns a function that makes an error of this step.
    pub fn failed(self) -> impl Fn(Errno) -> JailError {
        move |errno| JailError { step: self, errno }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fork => "making its process",
            Self::Namespaces => "making its namespaces",
            Self::Root => "entering its empty root",
            Self::Maker => "watching the process that made it",
            Self::Limits => "setting its limits",
            Self::Identity => "taking a user of its own",
            Self::Privileges => "giving up its privileges",
            Self::Speculation => "restricting speculation",
            Self::Filter => "installing its system-call filter",
            Self::Descriptors => "putting its descriptors in place",
            Self::Group => "entering its control group",
            Self::Landlock => "restricting it by Landlock",
        })
    }
}

/// The error of a jail that could not be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JailError {
    /// The step that failed.
    pub step: Step,
    /// The kernel's error.
    pub errno: Errno,
}

impl fmt::Display for JailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.errno)
    }
}

impl std::error::Error for JailError {}

/// The resource limits of a process in a jail (getrlimit(2)). The limits of core files, locked
/// memory, queues and priorities are 0 in every jail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number above the highest descriptor.
    pub descriptors: u64,
    /// Threads and processes of the process's user.
    pub processes: u64,
    /// Bytes of address space.
    pub address_space: u64,
    /// The largest size of a file, in bytes.
    pub file_bytes: u64,
}

impl Limits {
    /// Sets the limits. The kernel counts processes by user: without a user of its own, the number
    /// of processes is not limited.
    fn set(self, has_own_user: bool) -> Result<(), Errno> {
        if has_own_user {
            lower(Resource::Nproc, self.processes)?;
        }
        let limits = [
            (Resource::Nofile, self.descriptors),
            (Resource::As, self.address_space),
            (Resource::Fsize, self.file_bytes),
            (Resource::Core, 0),
            (Resource::Memlock, 0),
            (Resource::Locks, 0),
            (Resource::Sigpending, 0),
            (Resource::Msgqueue, 0),
            (Resource::Nice, 0),
            (Resource::Rtprio, 0),
            // In microseconds. The limit has no effect on a process that cannot be real-time, but
            // with 0 a timer over CPU time ends the process at its first check.
            (Resource::Rttime, 1),
        ];
        limits
            .into_iter()
            .try_for_each(|(resource, most)| lower(resource, most))
    }
}

/// Lowers a resource limit to `most`, or leaves it if it is lower already.
fn lower(resource: Resource, most: u64) -> Result<(), Errno> {
    let held = rustix::process::getrlimit(resource);
    let most = held.maximum.map_or(most, |held| held.min(most));
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    rustix::process::setrlimit(resource, limit)
}

/// A jail that is still open, in the child that will run in it.
#[derive(Debug)]
pub struct Jail {
    maker: OwnedFd,
    plan: Plan,
    number: u32,
    /// The empty folder that becomes the root, without namespaces; `None` once it is the working
    /// directory.
    root: Option<OwnedFd>,
    /// The result of entering the control group.
    entered: Result<(), Errno>,
    #[cfg(feature = "ablation")]
    stays_open: bool,
}

/// The properties that all jails of a site share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The users of jails, if each has its own.
    pub(crate) identities: Option<Identities>,
    pub(crate) level: ConfinementLevel,
    pub(crate) network: Network,
}

impl Plan {
    /// Whether jails have an empty root without a mount namespace.
    pub(crate) fn has_empty_folder(self) -> bool {
        self.level == ConfinementLevel::Reduced && self.identities.is_some()
    }
}

impl Jail {
    /// For the child, as its first action: enters `group`, which is `None` if the kernel has put it
    /// into its group, or there is none. If memory is short, the child is the first to be killed.
    pub(crate) fn born(
        maker: OwnedFd,
        plan: Plan,
        number: u32,
        group: Option<&Group>,
        root: Option<OwnedFd>,
    ) -> Self {
        let entered = group.map_or(Ok(()), Group::enter);
        go_first();
        Self {
            entered,
            root,
            ..Self::new(maker, plan, number)
        }
    }

    fn new(maker: OwnedFd, plan: Plan, number: u32) -> Self {
        Self {
            maker,
            plan,
            number,
            root: None,
            entered: Ok(()),
            #[cfg(feature = "ablation")]
            stays_open: false,
        }
    }

    /// Returns a jail that is not closed.
    #[cfg(feature = "ablation")]
    pub(crate) fn open(maker: OwnedFd, plan: Plan) -> Self {
        Self {
            stays_open: true,
            ..Self::new(maker, plan, 0)
        }
    }

    /// Hands the jail to a program that this process is about to execute, and that loads its own
    /// libraries before it closes the jail. The returned text and the descriptor `number` are for
    /// [`Jail::take_over`].
    ///
    /// # Errors
    /// Returns the step that failed.
    pub fn hand_over(&self, number: RawFd) -> Result<String, JailError> {
        self.entered.map_err(Step::Group.failed())?;
        // SAFETY: redirects a number that nothing in this process owns.
        if unsafe { libc::dup2(self.maker.as_raw_fd(), number) } < 0 {
            return Err(Step::Maker.failed()(Errno::BADF));
        }
        if let Some(root) = &self.root {
            // The working directory survives the execution, and descriptors do not.
            rustix::process::fchdir(root).map_err(Step::Root.failed())?;
        }
        privileges::keep_through_execution().map_err(Step::Privileges.failed())?;
        let Plan {
            identities,
            level,
            network,
        } = self.plan;
        let [first, count] = identities.map_or([0, 0], Identities::numbers);
        let (level, network, number) = (level as u64, network as u64, self.number);
        Ok(format!("{first},{count},{level},{network},{number}"))
    }

    /// Takes over the jail that [`Jail::hand_over`] handed over; `None` if the text is not from
    /// there.
    #[must_use]
    pub fn take_over(text: &str, maker: OwnedFd) -> Option<Self> {
        let numbers: Vec<u32> = text
            .split(',')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        let [first, count, level, network, number] = numbers.try_into().ok()?;
        let [level, network] = [level, network].map(u64::from);
        let plan = Plan {
            identities: Identities::from_numbers([first, count]),
            level: ConfinementLevel::try_read_from_bytes(level.as_bytes()).ok()?,
            network: Network::try_read_from_bytes(network.as_bytes()).ok()?,
        };
        Some(Self::new(maker, plan, number))
    }

    /// Closes the jail. From then on this process has no privilege, these limits, and only the
    /// system calls of `filter`. It ends when the process that made it does. At the full level it
    /// also has an empty read-only root. At the reduced level it has an empty root if its maker has
    /// root's privileges, and Landlock if the kernel has it.
    ///
    /// Descriptors from the limit on are closed; below it, only those that the caller wants in the
    /// jail may be open.
    ///
    /// # Errors
    /// Returns the step that failed; the process must end then.
    pub fn close(mut self, limits: Limits, filter: &Filter) -> Result<(), JailError> {
        #[cfg(feature = "ablation")]
        if self.stays_open {
            return privileges::die_with_parent().map_err(Step::Maker.failed());
        }
        self.entered.map_err(Step::Group.failed())?;
        match self.plan.level {
            ConfinementLevel::Full => self.leave_host()?,
            ConfinementLevel::Reduced => self.leave_files()?,
        }
        restrict_speculation().map_err(Step::Speculation.failed())?;
        match self.plan.level {
            ConfinementLevel::Full => {
                privileges::drop_all().map_err(Step::Privileges.failed())?;
            }
            ConfinementLevel::Reduced => {
                privileges::confine_daemon(CapabilitySet::empty())
                    .map_err(Step::Privileges.failed())?;
                landlock::forbid_all(self.plan.network).map_err(Step::Landlock.failed())?;
            }
        }
        // After the last change of credentials, which would undo this.
        privileges::die_with_parent().map_err(Step::Maker.failed())?;
        check_lives(&self.maker)?;
        drop(self.maker);
        close_from(limits.descriptors).map_err(Step::Descriptors.failed())?;
        let has_own_user =
            self.plan.level == ConfinementLevel::Full || self.plan.identities.is_some();
        limits.set(has_own_user).map_err(Step::Limits.failed())?;
        filter.install().map_err(Step::Filter.failed())
    }

    /// Leaves files, host name and users behind, in the namespaces in which it was created.
    fn leave_host(&self) -> Result<(), JailError> {
        enter_empty_root().map_err(Step::Root.failed())?;
        rustix::system::sethostname(b"jail").map_err(Step::Namespaces.failed())?;
        let Some(identities) = self.plan.identities else {
            return Ok(());
        };
        identities
            .take(self.number)
            .and_then(|()| {
                // No user is mapped into the namespace, so there is none to become there.
                // SAFETY: no memory or descriptor table is unshared.
                unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }
            })
            .map_err(Step::Identity.failed())
    }

    /// Leaves files and the maker's user behind, as far as that is possible without namespaces: if
    /// it has the privileges for it.
    fn leave_files(&mut self) -> Result<(), JailError> {
        let Some(identities) = self.plan.identities else {
            return Ok(());
        };
        let entered = match self.root.take() {
            Some(root) => rustix::process::fchdir(root),
            // [`Jail::hand_over`] has changed to it.
            None => Ok(()),
        };
        entered
            .and_then(|()| rustix::process::chroot(c"."))
            .map_err(Step::Root.failed())?;
        identities
            .take(self.number)
            .map_err(Step::Identity.failed())
    }
}

/// Makes the kernel kill this process before others if memory is short, whatever their sizes
/// (proc_pid_oom_score_adj(5)): the node must outlive its jails, also without control groups.
/// Raising this value needs no privilege.
fn go_first() {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty());
    // Without this file, the kernel chooses the process by its size.
    let _ = file.and_then(|file| rustix::io::write(file, b"1000"));
}

/// Checks that the maker is alive. If it had ended before its death signal was set, no signal would
/// come.
fn check_lives(maker: &OwnedFd) -> Result<(), JailError> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut events = [PollFd::new(maker, PollFlags::IN)];
    match poll(&mut events, Some(&now)).map_err(Step::Maker.failed())? {
        0 => Ok(()),
        _ => Err(Step::Maker.failed()(Errno::SRCH)),
    }
}

/// Closes every descriptor from `first` on.
pub(crate) fn close_from(first: u64) -> Result<(), Errno> {
    let first = libc::c_uint::try_from(first).map_err(|_| Errno::INVAL)?;
    // SAFETY: no code uses a descriptor there any more: the owners are in the maker's part of this
    // process, which never runs again.
    match unsafe { libc::close_range(first, libc::c_uint::MAX, 0) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::BADF)),
    }
}

/// Leaves all mounts behind (pivot_root(2): "new_root and put_old may be the same directory").
fn enter_empty_root() -> Result<(), Errno> {
    // A mount of this namespace's own, which can become the root.
    rustix::mount::mount_bind(EMPTY, EMPTY)?;
    rustix::process::chdir(EMPTY)?;
    rustix::process::pivot_root(c".", c".")?;
    rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")
}

/// Turns off the kinds of speculation that a process can turn off for itself, if the host offers
/// that.
fn restrict_speculation() -> Result<(), Errno> {
    for feature in [
        SpeculationFeature::SpeculativeStoreBypass,
        SpeculationFeature::IndirectBranchSpeculation,
    ] {
        let state = match rustix::process::speculative_feature_state(feature) {
            Ok(Some(state)) => state,
            // The CPU has no such weakness, or the host no such choice.
            Ok(None) | Err(Errno::NODEV | Errno::INVAL) => continue,
            Err(errno) => return Err(errno),
        };
        if state.contains(SpeculationFeatureState::PRCTL) {
            rustix::process::control_speculative_feature(
                feature,
                SpeculationFeatureControl::FORCE_DISABLE,
            )?;
        }
    }
    Ok(())
}

//! Why a host does not let a process make namespaces, and what its operator can do about it.
//!
//! The kernel answers all causes alike, with `EPERM` or `ENOSPC`. Files of /proc distinguish them.

use std::fs;
use std::path::Path;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, UnshareFlags};
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// A reason for which no namespaces can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u64)]
pub enum Obstacle {
    /// No known reason.
    Unknown = 0,
    /// A system-call filter answers in the kernel's place: a container's, or systemd's.
    SystemCallFilter = 1,
    /// `user.max_user_namespaces` is 0.
    UserNamespacesOff = 2,
    /// The number of namespaces has reached a limit (`user.max_*_namespaces`).
    NamespacesUsedUp = 3,
    /// The limit of another kind of namespace is 0.
    OtherNamespacesOff = 4,
    /// `kernel.unprivileged_userns_clone` is 0.
    UnprivilegedOff = 5,
    /// `kernel.apparmor_restrict_unprivileged_userns` is 1, and no profile allows them.
    AppArmorRestriction = 6,
    /// The process has an AppArmor profile that forbids mounts, as a container's does.
    AppArmorProfile = 7,
    /// Root without `CAP_SYS_ADMIN`, on a host where that takes the place of a profile.
    MissingCapability = 8,
    /// The kernel is built without user namespaces, and this process has no `CAP_SYS_ADMIN`.
    NotBuilt = 9,
}

/// The limits of namespaces other than user namespaces.
const OTHER_LIMITS: [&str; 5] = [
    "proc/sys/user/max_mnt_namespaces",
    "proc/sys/user/max_net_namespaces",
    "proc/sys/user/max_ipc_namespaces",
    "proc/sys/user/max_pid_namespaces",
    "proc/sys/user/max_uts_namespaces",
];
const USER_LIMIT: &str = "proc/sys/user/max_user_namespaces";
/// Debian's switch.
const UNPRIVILEGED: &str = "proc/sys/kernel/unprivileged_userns_clone";
/// Ubuntu's switch, from 23.10 on.
const APPARMOR: &str = "proc/sys/kernel/apparmor_restrict_unprivileged_userns";
/// The process's AppArmor profile: the newer file, and the one that all modules share.
const PROFILE: [&str; 2] = ["proc/self/attr/apparmor/current", "proc/self/attr/current"];

/// The properties of a process that decide whether it may make namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Whether its effective user is root.
    pub is_root: bool,
    /// Whether it has `CAP_SYS_ADMIN`.
    pub is_administrator: bool,
    /// Whether a system-call filter refuses it `unshare`.
    pub is_refused: bool,
}

impl Process {
    /// Describes the calling process. A filter that ends processes for `unshare` ends this one.
    #[must_use]
    pub fn own() -> Self {
        Self::read(Path::new("/"), is_unshare_refused)
    }

    /// Reads the files below `root`, and calls `is_refused` if the process has a filter.
    fn read(root: &Path, is_refused: impl FnOnce() -> bool) -> Self {
        let status = text(root, "proc/self/status");
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let user = field("Uid:").and_then(|ids| ids.split_whitespace().nth(1));
        let held = field("CapEff:").and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        Self {
            is_root: user == Some("0"),
            is_administrator: held.is_some_and(|held| held & CapabilitySet::SYS_ADMIN.bits() != 0),
            is_refused: field("Seccomp:").is_some_and(|mode| mode.trim() == "2") && is_refused(),
        }
    }
}

/// Whether something answers `unshare` in the kernel's place: the kernel rejects a flag that does
/// not exist before it looks at anything else, and then makes nothing.
fn is_unshare_refused() -> bool {
    const NO_SUCH_FLAG: u32 = 1;
    let flags = UnshareFlags::from_bits_retain(NO_SUCH_FLAG) | UnshareFlags::NEWUSER;
    // SAFETY: nothing is unshared.
    let answer = unsafe { rustix::thread::unshare_unsafe(flags) };
    answer != Err(Errno::INVAL)
}

impl Obstacle {
    /// Finds the obstacle that made the kernel answer the calling process with `errno`; `Unknown`
    /// if the answer has another reason.
    #[must_use]
    pub fn of_failure(errno: Errno) -> Self {
        match errno {
            Errno::NOSPC | Errno::USERS => Self::of_limits(),
            Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::INVAL => {
                Self::find(Path::new("/"), Process::own(), errno == Errno::ACCESS)
            }
            _ => Self::Unknown,
        }
    }

    /// Finds the limit that made the kernel answer with `ENOSPC`.
    #[must_use]
    pub fn of_limits() -> Self {
        Self::exceeded(Path::new("/")).unwrap_or(Self::NamespacesUsedUp)
    }

    /// Finds an obstacle that would stop the calling process, before it tries to make namespaces.
    #[must_use]
    pub fn predict() -> Self {
        Self::find(Path::new("/"), Process::own(), false)
    }

    /// Finds a limit that is 0.
    fn exceeded(root: &Path) -> Option<Self> {
        let is_zero = |path: &str| text(root, path).trim() == "0";
        if is_zero(USER_LIMIT) {
            return Some(Self::UserNamespacesOff);
        }
        let other = OTHER_LIMITS.iter().any(|path| is_zero(path));
        other.then_some(Self::OtherNamespacesOff)
    }

    /// Reads the files below `root`. With `was_mount` a mount failed, not a namespace.
    fn find(root: &Path, process: Process, was_mount: bool) -> Self {
        if process.is_refused {
            return Self::SystemCallFilter;
        }
        if let Some(limit) = Self::exceeded(root) {
            return limit;
        }
        let profile = profile(root);
        if was_mount && profile.as_deref().is_some_and(is_enforced) {
            return Self::AppArmorProfile;
        }
        if process.is_administrator {
            return Self::Unknown;
        }
        if !root.join("proc/self/ns/user").exists() {
            return Self::NotBuilt;
        }
        let is = |path, value: &str| text(root, path).trim() == value;
        let is_unprivileged_off = is(UNPRIVILEGED, "0");
        let is_restricted = is(APPARMOR, "1") && !profile.as_deref().is_some_and(is_allowing);
        match (is_unprivileged_off, is_restricted) {
            (false, false) => Self::Unknown,
            _ if process.is_root => Self::MissingCapability,
            (true, _) => Self::UnprivilegedOff,
            (false, true) => Self::AppArmorRestriction,
        }
    }

    /// Describes the cause and its cure on this host in one line; `None` for an unknown one.
    #[must_use]
    pub fn advice(self) -> Option<String> {
        self.advice_by(Path::new("/"))
    }

    fn advice_by(self, root: &Path) -> Option<String> {
        let docker = docker(root);
        let advice: &str = match self {
            Self::Unknown => return None,
            Self::SystemCallFilter => &format!(
                "a system-call filter that this process was started with refuses namespaces: \
                 start the container with `{docker}`; in a unit of systemd set \
                 RestrictNamespaces=no"
            ),
            Self::AppArmorProfile => &format!(
                "the container's AppArmor profile forbids mounts: start the container with \
                 `{docker}`"
            ),
            Self::MissingCapability => &format!(
                "root has no CAP_SYS_ADMIN here, and the host denies namespaces without it: \
                 start the container with `{docker}`, or faasw with `sudo` on the host"
            ),
            Self::UserNamespacesOff => {
                "user.max_user_namespaces is 0, for root, too: allow them with \
                 `sudo sysctl user.max_user_namespaces=15000`"
            }
            Self::NamespacesUsedUp => {
                "as many namespaces are in use as user.max_user_namespaces and the limits beside \
                 it allow: raise them with `sudo sysctl`, or end what uses them (`lsns`)"
            }
            Self::OtherNamespacesOff => {
                "a limit of namespaces is 0: raise what `sysctl user` shows as 0 (max_mnt_, \
                 max_net_, max_ipc_, max_pid_ or max_uts_namespaces)"
            }
            Self::UnprivilegedOff => {
                "kernel.unprivileged_userns_clone is 0: start faasw with `sudo`, or allow ordinary \
                 users namespaces with `sudo sysctl kernel.unprivileged_userns_clone=1`"
            }
            Self::AppArmorRestriction => {
                "AppArmor denies namespaces to programs without a profile \
                 (kernel.apparmor_restrict_unprivileged_userns is 1): put faasw's path into \
                 packaging/apparmor/faasw and load that with `sudo install -m 644 \
                 packaging/apparmor/faasw /etc/apparmor.d/faasw && sudo apparmor_parser -r \
                 /etc/apparmor.d/faasw`, or start faasw with `sudo`"
            }
            Self::NotBuilt => {
                "this kernel has no user namespaces (CONFIG_USER_NS): start faasw with `sudo`"
            }
        };
        Some(advice.to_owned())
    }
}

/// The least options with which a container can make namespaces on this host. Docker's own
/// system-call profile never allows pivot_root(2), whatever capabilities a container has.
fn docker(root: &Path) -> String {
    let mut options = "docker run --device /dev/kvm --security-opt seccomp=unconfined".to_owned();
    let is = |path, value: &str| text(root, path).trim() == value;
    if is(APPARMOR, "1") || profile(root).as_deref().is_some_and(is_enforced) {
        options.push_str(" --security-opt apparmor=unconfined");
    }
    if is(APPARMOR, "1") || is(UNPRIVILEGED, "0") {
        options.push_str(" --cap-add SYS_ADMIN");
    }
    options
}

/// Returns the name and mode of the process's AppArmor profile; `None` without AppArmor.
fn profile(root: &Path) -> Option<String> {
    let read = |path: &&str| fs::read_to_string(root.join(path)).ok();
    let profile = PROFILE.iter().find_map(read)?;
    let profile = profile.trim_end_matches(['\n', '\0']).to_owned();
    (!profile.is_empty()).then_some(profile)
}

/// Whether the kernel refuses everything that a profile does not name.
fn is_enforced(profile: &str) -> bool {
    profile.ends_with("(enforce)")
}

/// Whether a profile may allow user namespaces: one that was written for the program. Neither the
/// profile to which Ubuntu moves a program without one, nor Docker's for all containers, is such a
/// profile.
fn is_allowing(profile: &str) -> bool {
    const NOT_THE_PROGRAMS: [&str; 2] = ["unprivileged_userns", "docker-default"];
    let mut others = NOT_THE_PROGRAMS.iter();
    profile != "unconfined" && !others.any(|name| profile.starts_with(name))
}

fn text(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

#[cfg(test)]
#[path = "obstacle_tests.rs"]
mod tests;

//! Checks what a host needs for microVMs, before a pod starts. A missing prerequisite is then
//! reported as an event of the pod, and not only in the log of a container that keeps restarting.

use std::{
    fs,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _},
        process::CommandExt as _,
    },
    process::{Command, Stdio},
};

use rustix::fs::{Mode, OFlags};

use crate::error::Error;

/// The name (`argv[0]`) under which this program tests whether an unprivileged user can make
/// namespaces.
pub const TRIAL_NAME: &str = "faasw-namespaces";

/// The unprivileged user and group id with which the test runs.
const NOBODY: u32 = 65534;

/// A device file of the host, as the node's containers get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The path.
    pub path: &'static str,
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

/// Returns the devices that the node's containers get: `/dev/kvm`, and `/dev/userfaultfd` if it
/// exists.
///
/// # Errors
/// Returns [`Error::Host`] if there is no `/dev/kvm`.
pub fn devices() -> Result<Vec<Device>, Error> {
    let found = ["/dev/kvm", "/dev/userfaultfd"].into_iter().map(device);
    let devices: Vec<Device> = found.flatten().collect();
    match devices.first() {
        Some(Device {
            path: "/dev/kvm", ..
        }) => Ok(devices),
        _ => Err(Error::Host(
            "there is no /dev/kvm: its processors have no virtualisation, it is switched off, or \
             the module kvm is not loaded"
                .into(),
        )),
    }
}

fn device(path: &'static str) -> Option<Device> {
    let found = fs::metadata(path).ok()?;
    let number = found.rdev();
    found.file_type().is_char_device().then(|| Device {
        path,
        major: rustix::fs::major(number),
        minor: rustix::fs::minor(number),
    })
}

/// Checks that this host can run microVMs.
///
/// # Errors
/// Returns [`Error::Host`] if `/dev/kvm` is missing or cannot be opened, or if an unprivileged user
/// cannot make user namespaces. Returns [`Error::Io`] if the test cannot be started.
pub fn check() -> Result<(), Error> {
    devices()?;
    // The file can exist without a driver.
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::fs::open("/dev/kvm", flags, Mode::empty())
        .map_err(|errno| Error::Host(format!("/dev/kvm cannot be opened: {errno}")))?;
    let most = fs::read_to_string("/proc/sys/user/max_user_namespaces");
    if most.is_ok_and(|most| most.trim() == "0") {
        return Err(Error::Host(
            "it forbids user namespaces: user.max_user_namespaces is 0".into(),
        ));
    }
    let trial = Command::new("/proc/self/exe")
        .arg0(TRIAL_NAME)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .map_err(|error| Error::io("whether user namespaces can be made", error))?;
    if trial.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&trial.stderr);
    let reason = reason.trim().trim_start_matches("faasw: ");
    let hint = hint(|path| fs::read_to_string(path).ok());
    Err(Error::Host(format!("{reason}{hint}")))
}

/// Returns which of the known kernel settings forbids user namespaces, as the end of a message.
fn hint(read: impl Fn(&str) -> Option<String>) -> &'static str {
    const RESTRICTED: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
    let is = |path, value| read(path).is_some_and(|found| found.trim() == value);
    if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "; kernel.unprivileged_userns_clone is 0"
    } else if is(RESTRICTED, "1") {
        "; kernel.apparmor_restrict_unprivileged_userns is 1"
    } else {
        ""
    }
}

/// Makes namespaces as jails do, and uses a privilege in them that only their owner has. Where
/// AppArmor or another security module restricts user namespaces, they can be made but have no
/// privileges.
///
/// # Errors
/// Returns [`Error::Refused`] if the namespaces cannot be made or have no privileges.
pub fn try_namespaces() -> Result<(), Error> {
    use rustix::thread::UnshareFlags;
    let namespaces = UnshareFlags::NEWUSER | UnshareFlags::NEWUTS;
    // SAFETY: this process has one thread and no descriptors of others, and ends after this. None
    // of the flags changes the meaning of memory or descriptors.
    let made = unsafe { rustix::thread::unshare_unsafe(namespaces) };
    made.map_err(|errno| {
        let what = "it denies user namespaces to unprivileged users";
        Error::Refused(format!("{what}: {errno}"))
    })?;
    rustix::system::sethostname(b"faasw").map_err(|errno| {
        let what = "it denies the privileges of a user namespace to its owner";
        Error::Refused(format!("{what}: {errno}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_the_sysctl_that_forbids_namespaces() {
        let with = |name: &'static str, value: &'static str| {
            hint(move |path| path.ends_with(name).then(|| value.to_owned()))
        };
        assert!(with("unprivileged_userns_clone", "0\n").contains("unprivileged_userns_clone"));
        assert!(with("apparmor_restrict_unprivileged_userns", "1\n").contains("apparmor"));
        assert_eq!(with("apparmor_restrict_unprivileged_userns", "0\n"), "");
        assert_eq!(hint(|_| None), "");
    }

    #[test]
    fn a_device_is_a_character_device() {
        let null = device("/dev/null").unwrap();
        assert_eq!((null.major, null.minor), (1, 3));
        assert_eq!(device("/dev"), None);
        assert_eq!(device("/nowhere"), None);
    }
}

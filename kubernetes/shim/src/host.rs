//! What a host has to have for microVMs, looked at before a pod is there: what is missing is then
//! said of the pod, and not found in the log of a container that ends again and again.

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

/// What this program is called where it tries whether somebody without privileges can make
/// namespaces.
pub const TRIAL: &str = "faasw-namespaces";

/// Who tries it: nobody.
const NOBODY: u32 = 65534;

/// Which device files a host has, as the node's containers get them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Where it is.
    pub path: &'static str,
    /// The kind of device.
    pub major: u32,
    /// Which of its kind.
    pub minor: u32,
}

/// The devices that the node's containers have: `/dev/kvm`, and `/dev/userfaultfd` where there is
/// one.
///
/// # Errors
/// When there is no `/dev/kvm`.
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

/// Looks whether there can be microVMs.
///
/// # Errors
/// What is missing.
pub fn check() -> Result<(), Error> {
    devices()?;
    // A file can be there without a driver behind it.
    rustix::fs::open(
        "/dev/kvm",
        OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY,
        Mode::empty(),
    )
    .map_err(|errno| Error::Host(format!("/dev/kvm cannot be opened: {errno}")))?;
    if fs::read_to_string("/proc/sys/user/max_user_namespaces").is_ok_and(|most| most.trim() == "0")
    {
        return Err(Error::Host(
            "it forbids user namespaces: user.max_user_namespaces is 0".into(),
        ));
    }
    let trial = Command::new("/proc/self/exe")
        .arg0(TRIAL)
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
    let said = String::from_utf8_lossy(&trial.stderr);
    let said = said.trim().trim_start_matches("faasw: ");
    let hint = hint(|path| fs::read_to_string(path).ok());
    Err(Error::Host(format!("{said}{hint}")))
}

/// Which of the known switches it is.
fn hint(read: impl Fn(&str) -> Option<String>) -> &'static str {
    let is = |path, value| read(path).is_some_and(|found| found.trim() == value);
    if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "; kernel.unprivileged_userns_clone is 0"
    } else if is(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
    ) {
        "; kernel.apparmor_restrict_unprivileged_userns is 1"
    } else {
        ""
    }
}

/// Makes namespaces as jails do, and does in them what only their owner may: where AppArmor or
/// another module restricts them they can be made, but have no privileges.
///
/// # Errors
/// That it cannot be done.
pub fn try_namespaces() -> Result<(), Error> {
    use rustix::thread::UnshareFlags;
    let namespaces = UnshareFlags::NEWUSER | UnshareFlags::NEWUTS;
    // SAFETY: this process has one thread and no descriptors of others, and ends after this;
    // nothing of the flags changes what memory or descriptors mean.
    let made = unsafe { rustix::thread::unshare_unsafe(namespaces) };
    made.map_err(|errno| {
        let what = "it forbids user namespaces to those without privileges";
        Error::Refused(format!("{what}: {errno}"))
    })?;
    rustix::system::sethostname(b"faasw").map_err(|errno| {
        let what = "it takes the privileges from who makes a user namespace";
        Error::Refused(format!("{what}: {errno}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_that_is_to_blame_is_named() {
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

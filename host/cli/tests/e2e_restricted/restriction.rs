//! Hosts that do not allow a program namespaces, imitated by restrictions of the process before it
//! becomes the program.

#![allow(unsafe_code, reason = "a child is restricted between fork and exec")]

use std::{
    ffi::CStr,
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::{
        fs::{DirBuilderExt as _, PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::Path,
    process::Command,
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    thread::{CapabilitySet, CapabilitySets, UnshareFlags},
};
use seccompiler::apply_filter;

use crate::{denied, e2e::process::faasw};

/// A kind of host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restriction {
    /// Root in a container with Docker's usual capabilities and system-call profile.
    Container,
    /// An ordinary user under that profile.
    OrdinaryUser,
    /// Root of a user namespace in which no others can be made.
    NoUserNamespaces,
}

/// The capabilities of root in a Docker container.
const DOCKERS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::AUDIT_WRITE);

/// A user without files.
const ORDINARY: u32 = 64_123;
/// A directory for files that an ordinary user needs, in the child's own mount namespace.
const SHOWN: &CStr = c"/mnt";
/// The program there, because its own directory may be closed to others.
const PROGRAM: &CStr = c"/mnt/faasw";
/// KVM's device, with a mode that lets every user open it.
const KVM: &CStr = c"/mnt/kvm";
/// The device's number (Documentation/admin-guide/devices.txt): a miscellaneous device.
const KVM_NUMBER: (u32, u32) = (10, 232);

impl Restriction {
    /// All kinds of host.
    pub const ALL: [Self; 3] = [Self::Container, Self::OrdinaryUser, Self::NoUserNamespaces];

    /// Returns a command for the program on such a host, with its runtime directory below `folder`.
    pub fn faasw(self, folder: &Path, words: &[&str]) -> Command {
        let usual = faasw(words);
        let mut command = match self {
            Self::OrdinaryUser => Command::new(PROGRAM.to_str().unwrap()),
            _ => Command::new(usual.get_program()),
        };
        // An ordinary user must reach its own directory below this one.
        fs::set_permissions(folder, Permissions::from_mode(0o711)).unwrap();
        let runtime = folder.join(format!("{self:?}"));
        if !runtime.exists() {
            DirBuilder::new().mode(0o700).create(&runtime).unwrap();
        }
        if self == Self::OrdinaryUser {
            chown(&runtime, Some(ORDINARY), Some(ORDINARY)).unwrap();
        }
        command
            .args(words)
            .current_dir(usual.get_current_dir().unwrap())
            .env_remove("FAASW_DATA_DIR")
            .env("XDG_RUNTIME_DIR", &runtime);
        let program = fs::canonicalize(usual.get_program()).unwrap();
        let program = std::ffi::CString::new(program.into_os_string().into_encoded_bytes());
        let (program, filters) = (program.unwrap(), denied::filters());
        // SAFETY: between fork and exec only system calls are made, with what was prepared here.
        unsafe {
            command.pre_exec(move || {
                match self {
                    Self::Container => keep_capabilities(DOCKERS)?,
                    Self::OrdinaryUser => become_ordinary(&program)?,
                    Self::NoUserNamespaces => return allow_no_user_namespaces(),
                }
                filters
                    .iter()
                    .try_for_each(|filter| apply_filter(filter))
                    .map_err(|_| io::ErrorKind::PermissionDenied.into())
            });
        }
        command
    }
}

fn keep_capabilities(kept: CapabilitySet) -> Result<(), Errno> {
    for capability in CapabilitySet::all().difference(kept).iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // An older kernel has fewer capabilities.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)
}

/// Provides the program and a usable device for an ordinary user, and becomes that user.
fn become_ordinary(program: &CStr) -> Result<(), Errno> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
    // SAFETY: no memory or descriptor table is unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)? };
    let alone = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change(c"/", alone)?;
    mount(c"shown", SHOWN, c"tmpfs", MountFlags::empty(), c"mode=755")?;
    let file = rustix::fs::open(PROGRAM, OFlags::CREATE | OFlags::WRONLY, Mode::RWXU)?;
    drop(file);
    mount_bind(program, PROGRAM)?;
    let device = rustix::fs::makedev(KVM_NUMBER.0, KVM_NUMBER.1);
    let character = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, KVM, character, Mode::empty(), device)?;
    rustix::fs::chmod(KVM, Mode::RUSR | Mode::WUSR | Mode::ROTH | Mode::WOTH)?;
    mount_bind(KVM, c"/dev/kvm")?;
    let user = rustix::process::Uid::from_raw(ORDINARY);
    let group = rustix::process::Gid::from_raw(ORDINARY);
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)
}

/// Enters a user namespace as its root, and forbids further ones below it.
fn allow_no_user_namespaces() -> io::Result<()> {
    // SAFETY: no memory or descriptor table is unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER)? };
    for (file, text) in [
        (c"/proc/self/setgroups", c"deny"),
        (c"/proc/self/uid_map", c"0 0 1"),
        (c"/proc/self/gid_map", c"0 0 1"),
        (c"/proc/sys/user/max_user_namespaces", c"0"),
    ] {
        let file = rustix::fs::open(file, OFlags::WRONLY, Mode::empty())?;
        rustix::io::write(&file, text.to_bytes())?;
    }
    Ok(())
}

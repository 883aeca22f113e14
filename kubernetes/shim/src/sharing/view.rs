//! The installation's `faasw` as root of the host, with the root that the node's containers have:
//! it needs the libraries there, whatever the host has, and sees nothing of the host but its
//! kernel's files, the store and what it is given.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, UnmountFlags},
    process::Signal,
    thread::UnshareFlags,
};

use crate::error::Error;

/// What this program is called where it becomes that.
pub const VIEW: &str = "faasw-view";

/// Where the store is there.
pub const STORE: &str = "/var/lib/faasw-pods/shared";

/// What stands behind the files; no path is that.
const END: &str = "--";

/// File systems of the kernel, of which nobody there is to write to more than to groups.
const OF_KERNEL: [&str; 2] = ["proc", "sys"];

/// Devices of the host that there are, if it has them.
const DEVICES: [&str; 7] = [
    "kvm",
    "userfaultfd",
    "null",
    "zero",
    "full",
    "random",
    "urandom",
];

/// What of `/proc` is the host's to set.
const SET: [&str; 2] = ["sys", "sysrq-trigger"];

/// By which it is told that it was not entered, from what `faasw` says itself.
pub const NOT_ENTERED: u8 = 70;

/// A command of it that has these files of the host at these paths, and whose arguments are still
/// to be said.
#[must_use]
pub fn command<'a>(
    root: &Path,
    store: &Path,
    files: impl IntoIterator<Item = (&'a Path, &'a str)>,
) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(VIEW).env_clear().current_dir("/");
    command.arg(root).arg(store);
    for (on_host, path) in files {
        command.arg(on_host).arg(path);
    }
    command.arg(END);
    command.stdin(Stdio::null());
    command
}

/// Runs it for so long at most; then it is ended.
///
/// # Errors
/// When it cannot be started, and that it took too long.
pub fn output(command: Command, patience: Duration) -> io::Result<Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut command = tokio::process::Command::from(command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.kill_on_drop(true).spawn()?.wait_with_output();
        let output = tokio::time::timeout(patience, output).await;
        output.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    })
}

/// Has the kernel end this process, and what it makes, before others for want of memory:
/// containerd, whose child it is, is the last to go.
pub fn go_first() {
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
}

/// Becomes it: the root, the store, files and where each of them is to be, and behind the end of
/// those what it is told.
///
/// # Errors
/// What of that cannot be had.
pub fn enter(arguments: &[OsString]) -> Result<(), Error> {
    let mut parts = arguments.split(|word| word == END);
    let (Some([root, store, files @ ..]), Some(told)) = (parts.next(), parts.next()) else {
        return Err(Error::Refused("a view of nothing".into()));
    };
    let (root, store) = (Path::new(root), Path::new(store));
    let failed = |what: &Path| {
        let what = what.display().to_string();
        move |errno| Error::io(what, errno)
    };
    // Whoever waits for this is not to leave it behind.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed(root))?;
    go_first();
    let namespaces = UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWIPC;
    // SAFETY: this process has one thread; nothing of the flags changes what memory or descriptors
    // mean.
    let made = unsafe { rustix::thread::unshare_unsafe(namespaces) };
    made.map_err(failed(root))?;
    let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", all).map_err(failed(root))?;
    let bind = |from: &Path, to: &Path| rustix::mount::mount_bind(from, to).map_err(failed(from));
    let is_read = |path: &Path| {
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        rustix::mount::mount_remount(path, flags, c"").map_err(failed(path))
    };
    // What is entered has to be a mount.
    bind(root, root)?;
    for name in OF_KERNEL {
        let from = Path::new("/").join(name);
        rustix::mount::mount_bind_recursive(&from, root.join(name)).map_err(failed(&from))?;
    }
    is_read(&root.join("sys"))?;
    for name in SET {
        let set = root.join("proc").join(name);
        // Not every kernel has them.
        if set.exists() {
            bind(&set, &set)?;
            is_read(&set)?;
        }
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    rustix::mount::mount(
        "tmpfs",
        root.join("dev"),
        "tmpfs",
        flags,
        c"mode=755,size=64k",
    )
    .map_err(failed(root))?;
    for name in DEVICES {
        let from = Path::new("/dev").join(name);
        let to = root.join("dev").join(name);
        if from.exists() {
            fs::write(&to, "").map_err(|error| Error::io(to.display(), error))?;
            bind(&from, &to)?;
        }
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(
        "tmpfs",
        root.join("tmp"),
        "tmpfs",
        flags,
        c"mode=1777,size=1m",
    )
    .map_err(failed(root))?;
    let inside =
        |path: &OsStr| root.join(Path::new(path).strip_prefix("/").unwrap_or(Path::new("")));
    bind(store, &inside(OsStr::new(STORE)))?;
    for file in files.chunks_exact(2) {
        if let [from, to] = file {
            bind(Path::new(from), &inside(to))?;
        }
    }
    rustix::process::chdir(root).map_err(failed(root))?;
    // Not by `chroot`: who is in one can make no user namespaces, and so no jails.
    rustix::process::pivot_root(".", ".").map_err(failed(root))?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(failed(root))?;
    rustix::process::chdir("/").map_err(failed(root))?;
    let program = Path::new("/bin/faasw");
    let error = Command::new(program)
        .arg0("faasw")
        .args(told)
        .env_clear()
        .exec();
    Err(Error::io(program.display(), error))
}

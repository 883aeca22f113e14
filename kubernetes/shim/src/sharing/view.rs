//! The installation's `faasw` as root of the host, with the root that the node's containers have: it needs the libraries
//! there, whatever the host has, and sees nothing of the host but its kernel's files, the store and what it is given.

use std::{
    ffi::{OsStr, OsString},
    io,
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
pub const STORE: &str = "/var/lib/faasw/shared";

/// What stands behind the files; no path is that.
const END: &str = "--";

/// File systems of the kernel, as the host has them.
const OF_KERNEL: [&str; 3] = ["dev", "proc", "sys"];

/// A command of it that has these files of the host at these paths, and whose arguments are still to be said.
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

/// Becomes it: the root, the store, files and where each of them is to be, and behind the end of those what it is told.
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
    // SAFETY: this process has one thread; nothing of the flag changes what memory or descriptors mean.
    let made = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
    made.map_err(failed(root))?;
    let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", all).map_err(failed(root))?;
    let bind = |from: &Path, to: &Path| rustix::mount::mount_bind(from, to).map_err(failed(from));
    // What is entered has to be a mount.
    bind(root, root)?;
    for name in OF_KERNEL {
        let from = Path::new("/").join(name);
        rustix::mount::mount_bind_recursive(&from, root.join(name)).map_err(failed(&from))?;
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
    // Not by `chroot`: who is in one can make no user namespaces, and so no cells.
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

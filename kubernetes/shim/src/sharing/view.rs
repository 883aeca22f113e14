//! The view: runs the installation's `faasw` as the host's root, with the root file system of the
//! node's containers. `faasw` needs the libraries there, whatever the host has. It sees nothing of
//! the host except the kernel's file systems, some devices, the store and the given files.

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

/// The name (`argv[0]`) under which this program enters the view.
pub const VIEW: &str = "faasw-view";

/// Path of the store in the view.
pub const STORE: &str = "/var/lib/faasw-pods/shared";

/// Argument after the list of files. No path has this name.
const END: &str = "--";

/// The control groups, the only file systems below `/sys` in the view, which stay writable. `/sys`
/// itself becomes read-only.
const CONTROL_GROUPS: &str = "sys/fs/cgroup";

/// Devices of the host in the view, if the host has them.
const DEVICES: [&str; 7] = [
    "kvm",
    "userfaultfd",
    "null",
    "zero",
    "full",
    "random",
    "urandom",
];

/// Paths below `/proc` with settings of the host, which become read-only.
const SET: [&str; 2] = ["sys", "sysrq-trigger"];

/// Exit status if the view was not entered. `faasw` itself does not use it.
pub const NOT_ENTERED: u8 = 70;

/// Returns a command that runs `faasw` in the view, with these files of the host at these paths.
/// The caller adds the arguments of `faasw`.
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

/// Runs a command and kills it after a timeout.
///
/// # Errors
/// Returns an error if the command cannot be started, and [`io::ErrorKind::TimedOut`] after the
/// timeout.
pub fn output(command: Command, timeout: Duration) -> io::Result<Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut command = tokio::process::Command::from(command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.kill_on_drop(true).spawn()?.wait_with_output();
        let output = tokio::time::timeout(timeout, output).await;
        output.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    })
}

/// Makes this process and its children the kernel's first victims when memory runs out. Otherwise
/// they would inherit the setting of containerd, their parent, which the kernel kills last.
pub fn raise_oom_score() {
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
}

/// Enters the view and becomes `faasw`. The arguments are the root, the store, pairs of a file and
/// its path in the view, `--`, and the arguments of `faasw`.
///
/// # Errors
/// Returns [`Error::Refused`] if the arguments are incomplete, and [`Error::Io`] if a namespace or
/// mount cannot be made or `faasw` cannot be executed.
pub fn enter(arguments: &[OsString]) -> Result<(), Error> {
    let mut parts = arguments.split(|word| word == END);
    let (Some([root, store, files @ ..]), Some(command)) = (parts.next(), parts.next()) else {
        return Err(Error::Refused(
            "the arguments of a view are incomplete".into(),
        ));
    };
    let (root, store) = (Path::new(root), Path::new(store));
    let failed = |what: &Path| {
        let what = what.display().to_string();
        move |errno| Error::io(what, errno)
    };
    // If the parent ends, this process ends as well.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed(root))?;
    raise_oom_score();
    let namespaces = UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWIPC;
    // SAFETY: this process has one thread. None of the flags changes the meaning of memory or
    // descriptors.
    let made = unsafe { rustix::thread::unshare_unsafe(namespaces) };
    made.map_err(failed(root))?;
    let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", all).map_err(failed(root))?;
    let bind = |from: &Path, to: &Path| rustix::mount::mount_bind(from, to).map_err(failed(from));
    let make_read_only = |path: &Path| {
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        rustix::mount::mount_remount(path, flags, c"").map_err(failed(path))
    };
    // `pivot_root` needs a mount point.
    bind(root, root)?;
    let bind_all = |name: &str| {
        let from = Path::new("/").join(name);
        rustix::mount::mount_bind_recursive(&from, root.join(name)).map_err(failed(&from))
    };
    bind_all("proc")?;
    // Not recursive: settings of the host are in further file systems below it, such as debugfs.
    bind(Path::new("/sys"), &root.join("sys"))?;
    bind_all(CONTROL_GROUPS)?;
    make_read_only(&root.join("sys"))?;
    for name in SET {
        let set = root.join("proc").join(name);
        // Some kernels lack them.
        if set.exists() {
            bind(&set, &set)?;
            make_read_only(&set)?;
        }
    }
    let still = MountFlags::NOSUID | MountFlags::NOEXEC;
    let tmpfs = |name: &str, flags, options| {
        rustix::mount::mount("tmpfs", root.join(name), "tmpfs", flags, options)
            .map_err(failed(root))
    };
    tmpfs("dev", still, c"mode=755,size=64k")?;
    for name in DEVICES {
        let from = Path::new("/dev").join(name);
        let to = root.join("dev").join(name);
        if from.exists() {
            fs::write(&to, "").map_err(|error| Error::io(to.display(), error))?;
            bind(&from, &to)?;
        }
    }
    tmpfs("tmp", still | MountFlags::NODEV, c"mode=1777,size=1m")?;
    let inside =
        |path: &OsStr| root.join(Path::new(path).strip_prefix("/").unwrap_or(Path::new("")));
    bind(store, &inside(OsStr::new(STORE)))?;
    for file in files.chunks_exact(2) {
        if let [from, to] = file {
            bind(Path::new(from), &inside(to))?;
        }
    }
    rustix::process::chdir(root).map_err(failed(root))?;
    // Not `chroot`: a process in a chroot cannot make user namespaces, and so no jails.
    rustix::process::pivot_root(".", ".").map_err(failed(root))?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(failed(root))?;
    rustix::process::chdir("/").map_err(failed(root))?;
    let program = Path::new("/bin/faasw");
    let error = Command::new(program)
        .arg0("faasw")
        .args(command)
        .env_clear()
        .exec();
    Err(Error::io(program.display(), error))
}

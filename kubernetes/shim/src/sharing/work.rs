//! Who works the queue off: one process of a host at a time, behind everything else, that ends when nothing waits.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    queue::{Job, Queue, Taken},
    room::{Disk, Row, Wanted, room},
    view,
};
use crate::{installation::Installation, options::MODULE};

/// What this program is called where it begins with that, for a moment: who it leaves behind belongs to no container.
pub const BEGINNING: &str = "faasw-share-begin";

/// What it is called where it works.
pub const WORKING: &str = "faasw-share-work";

/// For making one of them.
const MAKING: Duration = Duration::from_secs(600);

/// For looking at the store.
const LOOKING: Duration = Duration::from_secs(60);

/// The lowest.
const PRIORITY: i32 = 19;

/// Its control group, below which microVMs are: one between, since with version 2 a group has processes or others below it.
const GROUP: &str = "faasw-share";
const OWN_GROUP: &str = "faasw-share/work";

/// Where the system's groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// Begins with it, unless somebody works.
pub(super) fn begin() {
    let begun = Command::new("/proc/self/exe")
        .arg0(BEGINNING)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    // Without it the next pod begins.
    drop(begun);
}

/// Leaves a process behind that works.
pub fn leave_behind() {
    let _ = rustix::process::setsid();
    let left = Command::new("/proc/self/exe").arg0(WORKING).spawn();
    drop(left);
}

/// Works until nothing waits.
pub fn run() {
    let Some(state) = Installation::own().ok().and_then(|own| own.state()) else {
        return;
    };
    let queue = Queue::at(&state);
    loop {
        let Some(lock) = queue.lock() else {
            return;
        };
        join_group();
        let _ = rustix::process::setpriority_process(None, PRIORITY);
        queue.tidy();
        while let Some(taken) = queue.next() {
            let made = make(&taken, &state.join("shared"));
            queue.done(&taken, made.err().as_deref());
        }
        leave_group();
        drop(lock);
        // What was put while this one still had the lock has nobody else.
        if queue.is_empty() {
            return;
        }
    }
}

fn make(taken: &Taken, store: &Path) -> Result<(), String> {
    let job = &taken.job;
    let rows = list(job, store)?;
    let disk = rustix::fs::statvfs(store).map_err(|errno| format!("the store: {errno}"))?;
    let disk = Disk {
        size: disk.f_blocks.saturating_mul(disk.f_frsize),
        free: disk.f_bavail.saturating_mul(disk.f_frsize),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let wanted = Wanted {
        namespace: &job.namespace,
        name: job.name(),
        upload: job.upload(),
        now: now.unwrap_or_default().as_secs(),
    };
    for row in room(&rows, disk, wanted)? {
        let mut remove = share(job, store, &[], "rm");
        remove.args([&row.entry, "--namespace", &row.namespace]);
        said(remove, LOOKING)?;
    }
    let mut add = share(job, store, &taken.files, "add");
    add.arg(MODULE);
    add.arg(format!("--namespace={}", job.namespace));
    add.args(&job.options);
    said(add, MAKING).map(drop)
}

fn list(job: &Job, store: &Path) -> Result<Vec<Row>, String> {
    let mut list = share(job, store, &[], "ls");
    list.arg("--json");
    let said = said(list, LOOKING)?;
    serde_json::from_slice(&said).map_err(|error| format!("what there is: {error}"))
}

fn share(job: &Job, store: &Path, files: &[(PathBuf, String)], what: &str) -> Command {
    let files = files.iter();
    let files = files.map(|(on_host, path)| (on_host.as_path(), path.as_str()));
    let mut command = view::command(&job.root, store, files);
    command.args(["share", what, "--store", view::STORE]);
    command
}

/// What it says, or why it failed.
fn said(command: Command, patience: Duration) -> Result<Vec<u8>, String> {
    let output = view::output(command, patience).map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", output.status, why.trim()))
}

/// A group of its own that weighs as little as one can, in whatever hierarchies there are. Where it cannot be had there is the
/// priority alone.
fn join_group() {
    for hierarchy in hierarchies() {
        let _ = fs::create_dir_all(hierarchy.join(OWN_GROUP));
        for (file, value) in [("cpu.weight", "1"), ("cpu.shares", "2")] {
            let _ = write(&hierarchy.join(GROUP).join(file), value);
        }
        let _ = enter(&hierarchy.join(OWN_GROUP));
    }
}

/// Leaves it, and nothing of it.
fn leave_group() {
    for hierarchy in hierarchies() {
        let _ = enter(&hierarchy);
        for group in [OWN_GROUP, GROUP] {
            let _ = fs::remove_dir(hierarchy.join(group));
        }
    }
}

/// Where groups are made: version 2's, or those of version 1 that cells are in.
fn hierarchies() -> Vec<PathBuf> {
    let groups = Path::new(GROUPS);
    if groups.join("cgroup.controllers").exists() {
        return vec![groups.to_owned()];
    }
    let all = ["cpu", "memory", "pids"].map(|name| groups.join(name));
    all.into_iter().filter(|folder| folder.is_dir()).collect()
}

fn enter(group: &Path) -> io::Result<()> {
    write(&group.join("cgroup.procs"), "0")
}

fn write(file: &Path, value: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(file)?;
    file.write_all(value.as_bytes())
}

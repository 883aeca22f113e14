//! Who works the queue off: one process of a host at a time, behind everything else, that ends when
//! nothing waits.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    queue::{Job, Queue, Taken},
    room::{Disk, Row, Wanted, is_too_large, room},
    view,
};
use crate::{
    groups::{GROUPS, are_unified},
    installation::Installation,
    options::MODULE,
};

/// What this program is called where it begins with that, for a moment: who it leaves behind
/// belongs to no container.
pub const BEGINNING: &str = "faasw-share-begin";

/// What it is called where it works.
pub const WORKING: &str = "faasw-share-work";

/// For making one of them.
const MAKING: Duration = Duration::from_secs(600);

/// For looking at the store.
const LOOKING: Duration = Duration::from_secs(300);

/// The lowest.
const PRIORITY: i32 = 19;

/// Its control group, below which microVMs are: one between, since with version 2 a group has
/// processes or others below it.
const GROUP: &str = "faasw-share";
const OWN_GROUP: &str = "faasw-share/work";

/// As little of processors as one can weigh, and 2 GiB of memory, in both versions: whatever a
/// function does when it is made, it does to nobody else.
const LIMITS: [(&str, &str); 4] = [
    ("cpu.weight", "1"),
    ("cpu.shares", "2"),
    ("memory.max", "2147483648"),
    ("memory.limit_in_bytes", "2147483648"),
];

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
    let Ok(installation) = Installation::own() else {
        return;
    };
    let Some(state) = installation.state() else {
        return;
    };
    let queue = Queue::at(&state);
    let store = state.join("shared");
    loop {
        let Some(lock) = queue.lock() else {
            return;
        };
        join_group();
        view::go_first();
        let _ = rustix::process::setpriority_process(None, PRIORITY);
        queue.tidy();
        let mut last: Option<String> = None;
        while let Some(taken) = queue.next(last.as_deref()) {
            let made = if installation.is_root_of_a_version(&taken.job.root) {
                make(&taken, &store)
            } else {
                Err(Unmade::Failed("it is of no version here".into()))
            };
            // Where there is no room there may be some for the next pod.
            let why = match &made {
                Err(Unmade::Failed(why)) => Some(why.as_str()),
                Ok(()) | Err(Unmade::NoRoom) => None,
            };
            queue.done(&taken, why);
            last = Some(taken.job.namespace);
        }
        leave_group();
        drop(lock);
        // What was put while this one still had the lock has nobody else; what cannot be taken is
        // not looked at for ever.
        if last.is_none() || queue.is_empty() {
            return;
        }
    }
}

/// Why there is no entry.
enum Unmade {
    NoRoom,
    Failed(String),
}

impl From<String> for Unmade {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

fn make(taken: &Taken, store: &Path) -> Result<(), Unmade> {
    let job = &taken.job;
    let rows = list(job, store)?;
    let disk = || Disk::of(store).map_err(|error| format!("the store: {error}"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let wanted = Wanted {
        namespace: &job.namespace,
        name: job.name(),
        upload: job.upload(),
        now: now.unwrap_or_default().as_secs(),
    };
    let room = room(&rows, disk()?, wanted).map_err(|_| Unmade::NoRoom)?;
    let mut gone: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in room {
        let of_namespace = gone.entry(&row.namespace).or_default();
        of_namespace.push(&row.entry);
    }
    for (namespace, entries) in gone {
        remove(job, store, namespace, &entries);
    }
    let mut add = share(job, store, &taken.files, "add");
    add.arg(MODULE);
    add.arg(format!("--namespace={}", job.namespace));
    add.args(&job.options);
    said(add, MAKING)?;
    let is_known = |row: &&Row| rows.iter().any(|known| known.entry == row.entry);
    let after = list(job, store)?;
    let new = { after.iter() }.filter(|row| row.namespace == job.namespace && !is_known(row));
    let disk = disk()?;
    let large: Vec<_> = { new }
        .filter(|row| is_too_large(row.bytes, disk))
        .collect();
    if large.is_empty() {
        return Ok(());
    }
    let entries: Vec<_> = large.iter().map(|row| row.entry.as_str()).collect();
    remove(job, store, &job.namespace, &entries);
    Err(Unmade::Failed("it is too large to be kept".into()))
}

/// Removes entries. One that is gone is as well.
fn remove(job: &Job, store: &Path, namespace: &str, entries: &[&str]) {
    let mut remove = share(job, store, &[], "rm");
    remove.args(["--namespace", namespace]).args(entries);
    let _ = said(remove, LOOKING);
}

fn list(job: &Job, store: &Path) -> Result<Vec<Row>, String> {
    let mut list = share(job, store, &[], "ls");
    list.arg("--json");
    let said = said(list, LOOKING)?;
    let mut rows: Vec<Row> =
        serde_json::from_slice(&said).map_err(|error| format!("what there is: {error}"))?;
    for row in &mut rows {
        let folder = fs::metadata(store.join(&row.namespace).join(&row.entry));
        let used = folder.and_then(|folder| folder.modified()).ok();
        let used = used.and_then(|used| used.duration_since(UNIX_EPOCH).ok());
        row.used = used.unwrap_or_default().as_secs();
    }
    Ok(rows)
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

/// A group of its own that weighs as little as one can, in whatever hierarchies there are. Where it
/// cannot be had there is the priority alone.
fn join_group() {
    for hierarchy in hierarchies() {
        let _ = fs::create_dir_all(hierarchy.join(OWN_GROUP));
        for (file, value) in LIMITS {
            let _ = write(&hierarchy.join(GROUP).join(file), value);
        }
        let _ = enter(&hierarchy.join(OWN_GROUP));
    }
}

/// Leaves it, and nothing of it.
fn leave_group() {
    for hierarchy in hierarchies() {
        let _ = enter(&hierarchy);
        remove_groups(&hierarchy.join(GROUP));
    }
}

/// Those below it, too, if somebody was ended who would have removed them.
fn remove_groups(group: &Path) {
    for below in fs::read_dir(group).into_iter().flatten().flatten() {
        if below.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&below.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// Where groups are made: version 2's, or those of version 1 that jails are in.
fn hierarchies() -> Vec<PathBuf> {
    let groups = Path::new(GROUPS);
    if are_unified() {
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

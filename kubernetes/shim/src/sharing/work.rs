//! The worker of the queue: one low-priority process for each host, which ends when no job waits.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    eviction::{Disk, NewEntry, StoredEntry, is_too_large, select_evictions},
    queue::{Job, Queue, QueuedJob},
    view,
};
use crate::{
    groups::{GROUPS, are_unified, write},
    installation::Installation,
    options::MODULE,
};

/// The name (`argv[0]`) under which this program starts the worker and exits. So the worker is not
/// a child of a container's processes.
pub const STARTER_NAME: &str = "faasw-share-begin";

/// The name (`argv[0]`) under which this program is the worker.
pub const WORKER_NAME: &str = "faasw-share-work";

/// Timeout for making one entry.
const BUILD_TIMEOUT: Duration = Duration::from_secs(600);

/// Timeout for listing or removing entries.
const LIST_TIMEOUT: Duration = Duration::from_secs(300);

/// The lowest priority.
const PRIORITY: i32 = 19;

/// The worker's control group, below which the microVMs have theirs. The worker itself is in a
/// group one level below, because with version 2 a group has either processes or groups.
const GROUP: &str = "faasw-share";
const OWN_GROUP: &str = "faasw-share/work";

/// Limits for both versions of control groups: the smallest processor weight, and 2 GiB of memory.
/// So a function that is being made cannot slow down or starve others.
const LIMITS: [(&str, &str); 4] = [
    ("cpu.weight", "1"),
    ("cpu.shares", "2"),
    ("memory.max", "2147483648"),
    ("memory.limit_in_bytes", "2147483648"),
];

/// Starts the worker, which exits if another one holds the lock.
pub(super) fn start_worker() {
    // If this fails, the next pod starts the worker.
    let _ = Command::new("/proc/self/exe")
        .arg0(STARTER_NAME)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// Starts the worker in a new session and does not wait for it.
pub fn spawn_worker() {
    let _ = rustix::process::setsid();
    let _ = Command::new("/proc/self/exe").arg0(WORKER_NAME).spawn();
}

/// Works until no job waits.
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
        view::raise_oom_score();
        let _ = rustix::process::setpriority_process(None, PRIORITY);
        queue.tidy();
        let mut last: Option<String> = None;
        while let Some(taken) = queue.next(last.as_deref()) {
            let made = if installation.is_root_of_a_version(&taken.job.root) {
                make(&taken, &store)
            } else {
                Err(EntryError::Failed(
                    "its root is of no version that is installed here".into(),
                ))
            };
            // A lack of room is not recorded as a failure: the next pod may find room.
            let why = match &made {
                Err(EntryError::Failed(why)) => Some(why.as_str()),
                Ok(()) | Err(EntryError::NoRoom) => None,
            };
            queue.done(&taken, why);
            last = Some(taken.job.namespace);
        }
        leave_group();
        drop(lock);
        // A job that was added while this worker held the lock has no other worker. If no job could
        // be taken, the worker ends, because it would find the same folders again.
        if last.is_none() || queue.is_empty() {
            return;
        }
    }
}

/// The reason why an entry was not made.
enum EntryError {
    NoRoom,
    Failed(String),
}

impl From<String> for EntryError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

fn make(taken: &QueuedJob, store: &Path) -> Result<(), EntryError> {
    let job = &taken.job;
    let rows = list(job, store)?;
    let disk = || Disk::of(store).map_err(|error| format!("the store: {error}"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let wanted = NewEntry {
        namespace: &job.namespace,
        name: job.name(),
        upload: job.upload(),
        now: now.unwrap_or_default().as_secs(),
    };
    let evicted = select_evictions(&rows, disk()?, wanted).map_err(|_| EntryError::NoRoom)?;
    let mut gone: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in evicted {
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
    run_command(add, BUILD_TIMEOUT)?;
    let (after, disk) = (list(job, store)?, disk()?);
    let is_known = |row: &StoredEntry| rows.iter().any(|known| known.entry == row.entry);
    let is_surplus = |row: &&StoredEntry| {
        row.namespace == job.namespace && !is_known(row) && is_too_large(row.bytes, disk)
    };
    let surplus = after.iter().filter(is_surplus);
    let surplus: Vec<_> = surplus.map(|row| row.entry.as_str()).collect();
    if surplus.is_empty() {
        return Ok(());
    }
    remove(job, store, &job.namespace, &surplus);
    Err(EntryError::Failed("it is too large to be kept".into()))
}

/// Removes entries. Failures are ignored, for example for an entry that is already gone.
fn remove(job: &Job, store: &Path, namespace: &str, entries: &[&str]) {
    let mut remove = share(job, store, &[], "rm");
    remove.args(["--namespace", namespace]).args(entries);
    let _ = run_command(remove, LIST_TIMEOUT);
}

fn list(job: &Job, store: &Path) -> Result<Vec<StoredEntry>, String> {
    let mut list = share(job, store, &[], "ls");
    list.arg("--json");
    let output = run_command(list, LIST_TIMEOUT)?;
    let mut rows: Vec<StoredEntry> =
        serde_json::from_slice(&output).map_err(|error| format!("the list of entries: {error}"))?;
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

/// Runs a command. Returns its output, or the reason why it failed.
fn run_command(command: Command, timeout: Duration) -> Result<Vec<u8>, String> {
    let output = view::output(command, timeout).map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", output.status, why.trim()))
}

/// Joins a control group with the smallest weight, in each hierarchy of the host. If that fails,
/// only the low priority remains.
fn join_group() {
    for hierarchy in hierarchies() {
        let _ = fs::create_dir_all(hierarchy.join(OWN_GROUP));
        for (file, value) in LIMITS {
            let _ = write(&hierarchy.join(GROUP).join(file), value);
        }
        let _ = enter(&hierarchy.join(OWN_GROUP));
    }
}

/// Leaves the control group and removes it.
fn leave_group() {
    for hierarchy in hierarchies() {
        let _ = enter(&hierarchy);
        remove_groups(&hierarchy.join(GROUP));
    }
}

/// Removes a group and those below it, which remain if a process was killed before it removed them.
fn remove_groups(group: &Path) {
    for below in fs::read_dir(group).into_iter().flatten().flatten() {
        if below.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&below.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// Returns the hierarchies in which groups are made: the one of version 2, or those of version 1
/// that jails use.
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

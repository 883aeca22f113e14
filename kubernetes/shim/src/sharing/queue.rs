//! The queue of entries to be made.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Function, eviction::Disk};
use crate::{
    bundle,
    error::Error,
    image::{MODULE_MAX, hex},
};

/// Maximum number of waiting jobs. A job that is not accepted is requested again by the next pod.
const WAITING_MAX: usize = 32;

/// Maximum number of waiting jobs of one namespace.
const OF_NAMESPACE_MAX: usize = 4;

/// How long a failed job is not retried.
const FAILURE_LIFETIME: Duration = Duration::from_secs(3600);

/// Maximum number of failures that are kept.
const FAILURES_MAX: usize = 256;

/// Maximum size of a failure's reason in bytes.
const REASON_MAX: usize = 4 << 10;

const LOCK: &str = ".lock";
const NEW: &str = ".new";
const FAILURE: &str = ".failed-";

const ORDER: &str = "order.json";
const TRIED: &str = "tried";

/// An entry to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The root folder of the version whose pods will look for the entry.
    pub root: PathBuf,
    /// The namespace of the function.
    pub namespace: String,
    /// The function's name and options.
    pub options: Vec<String>,
    /// The module and the files that its options name: the path in the view and the digest of each.
    pub files: Vec<(String, String)>,
}

impl Job {
    /// Creates the job for a function. Hashes files whose digest is unknown.
    fn new(root: PathBuf, function: Function<'_>) -> io::Result<Self> {
        let files = function.files.iter().map(|file| {
            let known = file.digest.as_deref();
            let known = known.and_then(|digest| digest.strip_prefix("sha256:"));
            let digest = match known {
                Some(digest) => digest.to_owned(),
                None => copy(&file.on_host, &mut io::sink())?,
            };
            Ok((file.path.to_owned(), digest))
        });
        Ok(Self {
            root,
            namespace: function.namespace.to_owned(),
            options: function.options.to_vec(),
            files: files.collect::<io::Result<_>>()?,
        })
    }

    /// Returns the function's name.
    #[must_use]
    pub fn name(&self) -> &str {
        let mut names = self.options.iter();
        names
            .find_map(|option| option.strip_prefix("--name="))
            .unwrap_or_default()
    }

    /// Returns the digest of the module.
    #[must_use]
    pub fn upload(&self) -> &str {
        self.files.first().map_or("", |(_, digest)| digest)
    }

    /// Returns the job's id, which is equal for equal jobs.
    fn id(&self) -> String {
        let identity = serde_json::json!([self.root, self.namespace, self.options, self.files]);
        let hash = Sha256::digest(identity.to_string().as_bytes());
        format!("{}.{}", self.namespace, hex(&hash))
    }
}

/// A job that the worker has taken from the queue.
#[derive(Debug)]
pub struct QueuedJob {
    /// The job.
    pub job: Job,
    /// The module and the files that its options name: the copy on the host, and the path in the
    /// view.
    pub files: Vec<(PathBuf, String)>,
    folder: PathBuf,
}

/// The folder of all jobs of a host.
#[derive(Clone, Debug)]
pub struct Queue(PathBuf);

impl Queue {
    /// Returns the queue in a state folder.
    #[must_use]
    pub fn at(state: &Path) -> Self {
        Self(state.join("queue-1"))
    }

    /// Adds a job with a copy of the function's files, for the version with this root. Does nothing
    /// if the job already waits or failed within the last hour, if the queue or the namespace's
    /// share of it is full, or if the disk is nearly full.
    ///
    /// # Errors
    /// Returns an error if the queue or the files cannot be read or written, and
    /// [`io::ErrorKind::InvalidData`] if a file has changed.
    pub fn put(&self, root: PathBuf, function: Function<'_>, disk: Disk) -> io::Result<()> {
        let made = DirBuilder::new().mode(0o700).create(&self.0);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // The lock makes processes count the jobs one after the other.
        let alone = File::open(&self.0)?;
        rustix::fs::flock(&alone, FlockOperation::LockExclusive)?;
        let waiting = self.waiting();
        let of_namespace = format!("{}.", function.namespace);
        let own = waiting
            .iter()
            .filter(|(name, _)| name.starts_with(&of_namespace));
        if waiting.len() >= WAITING_MAX || own.count() >= OF_NAMESPACE_MAX || disk.is_nearly_full()
        {
            return Ok(());
        }
        let job = Job::new(root, function)?;
        let id = job.id();
        let has_failed = age(&self.failure(&id)).is_some_and(|age| age < FAILURE_LIFETIME);
        if has_failed || self.0.join(&id).exists() {
            return Ok(());
        }
        // A remainder of an interrupted process is useless.
        let new = self.0.join(NEW);
        let _ = fs::remove_dir_all(&new);
        DirBuilder::new().mode(0o700).create(&new)?;
        let put = || {
            let mut options = OpenOptions::new();
            let options = options.write(true).create_new(true).mode(0o400);
            for (at, (file, (_, digest))) in function.files.iter().zip(&job.files).enumerate() {
                let mut to = options.open(new.join(at.to_string()))?;
                // The copy has to match the digest of the job.
                if copy(&file.on_host, &mut to)? != *digest {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
            fs::write(new.join(ORDER), serde_json::to_vec(&job)?)?;
            fs::rename(&new, self.0.join(&id))
        };
        put().inspect_err(|_| drop(fs::remove_dir_all(&new)))
    }

    /// Returns whether a job waits and no worker holds the lock.
    #[must_use]
    pub fn needs_worker(&self) -> bool {
        !self.is_empty() && self.lock().is_some()
    }

    /// Locks the queue for a worker. Returns `None` if another process holds the lock.
    #[must_use]
    pub fn lock(&self) -> Option<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(self.0.join(LOCK)).ok()?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(file)
    }

    /// Takes the job that waits longest. Prefers namespaces other than the last one. Only the
    /// process with the lock may call this.
    #[must_use]
    pub fn next(&self, last: Option<&str>) -> Option<QueuedJob> {
        loop {
            let waiting = self.waiting();
            let order = |(name, path): &(String, PathBuf)| {
                let namespace = name.split_once('.').map(|(namespace, _)| namespace);
                (namespace != last, age(path))
            };
            let (_, folder) = waiting.into_iter().max_by_key(order)?;
            if let Some(taken) = take(&folder) {
                return Some(taken);
            }
            // The job is unreadable, or a worker ended while it made it. If the folder cannot be
            // removed, the loop ends, because it would find the same folder again.
            self.keep_reason(&folder, "its worker ended");
            fs::remove_dir_all(&folder).ok()?;
        }
    }

    /// Returns whether no job waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    /// Removes a finished job. If it failed, keeps the reason.
    pub fn done(&self, taken: &QueuedJob, failed: Option<&str>) {
        if let Some(why) = failed {
            self.keep_reason(&taken.folder, why);
        }
        let _ = fs::remove_dir_all(&taken.folder);
    }

    /// Removes outdated failures. Only the process with the lock may call this.
    pub fn tidy(&self) {
        let mut reasons = Vec::new();
        for (name, path) in self.all() {
            match age(&path) {
                Some(age) if name.starts_with(FAILURE) && age < FAILURE_LIFETIME => {
                    reasons.push((age, path))
                }
                _ if name.starts_with(FAILURE) => drop(fs::remove_file(path)),
                _ => {}
            }
        }
        reasons.sort();
        for (_, path) in reasons.into_iter().skip(FAILURES_MAX) {
            let _ = fs::remove_file(path);
        }
    }

    fn keep_reason(&self, folder: &Path, why: &str) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let why = why.split_at(why.floor_char_boundary(REASON_MAX)).0;
        let _ = fs::write(self.failure(&name), format!("{why}\n"));
    }

    fn failure(&self, id: &str) -> PathBuf {
        self.0.join(format!("{FAILURE}{id}"))
    }

    /// Returns the waiting jobs. No namespace begins with a dot, so other files are not among them.
    fn waiting(&self) -> Vec<(String, PathBuf)> {
        let all = self.all().into_iter();
        all.filter(|(name, _)| !name.starts_with('.')).collect()
    }

    fn all(&self) -> Vec<(String, PathBuf)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let all = entries.map(|entry| (entry.file_name().into_string(), entry.path()));
        all.filter_map(|(name, path)| Some((name.ok()?, path)))
            .collect()
    }
}

/// Returns the age of a file. If its time is in the future, because the clock was set, the age is
/// [`Duration::MAX`].
fn age(path: &Path) -> Option<Duration> {
    let changed = fs::symlink_metadata(path).ok()?.modified().ok()?;
    let age = SystemTime::now().duration_since(changed);
    Some(age.unwrap_or(Duration::MAX))
}

/// Takes a job, at most once: a worker that ended during a job may have ended because of it.
fn take(folder: &Path) -> Option<QueuedJob> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut tried = options.open(folder.join(TRIED)).ok()?;
    writeln!(tried, "{}", std::process::id()).ok()?;
    let order: Result<Vec<u8>, Error> = bundle::read(&folder.join(ORDER));
    let job: Job = serde_json::from_slice(&order.ok()?).ok()?;
    let files = job.files.iter().enumerate();
    let files = files.map(|(at, (path, _))| (folder.join(at.to_string()), path.clone()));
    Some(QueuedJob {
        files: files.collect(),
        job,
        folder: folder.to_owned(),
    })
}

/// Copies a file, at most one byte more than [`MODULE_MAX`], and returns the digest.
fn copy(from: &Path, to: &mut impl io::Write) -> io::Result<String> {
    let mut from = File::open(from)?.take(MODULE_MAX + 1);
    let (mut hash, mut piece) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        let count = from.read(&mut piece)?;
        let Some(read @ [_, ..]) = piece.get(..count) else {
            return Ok(hex(&hash.finalize()));
        };
        hash.update(read);
        to.write_all(read)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec;

    /// A queue whose disk has fixed figures, independent of the disk on which the tests run.
    struct Host {
        folder: tempfile::TempDir,
        disk: Disk,
    }

    impl Host {
        fn new() -> Self {
            let this = Self {
                folder: tempfile::tempdir().unwrap(),
                disk: Disk {
                    size: 1000,
                    free: 200,
                },
            };
            fs::write(this.module(), "module").unwrap();
            this
        }

        fn module(&self) -> PathBuf {
            self.folder.path().join("module")
        }

        fn files(&self) -> [spec::File; 2] {
            let variables = self.folder.path().join("variables");
            fs::write(&variables, "{}").unwrap();
            let both = [
                (self.module(), "/function.wasm"),
                (variables, "/function.env.json"),
            ];
            both.map(|(on_host, path)| spec::File {
                on_host,
                path,
                digest: None,
            })
        }

        fn queue(&self) -> Queue {
            Queue::at(self.folder.path())
        }

        fn put_files(&self, namespace: &str, name: &str, files: &[spec::File]) -> io::Result<()> {
            let options = [format!("--name={name}"), "--memory=16".to_owned()];
            let function = Function {
                namespace,
                options: &options,
                files,
                memory: None,
            };
            self.queue()
                .put("/opt/faasw/1/root".into(), function, self.disk)
        }

        /// Adds a job and returns whether it was accepted.
        fn put(&self, namespace: &str, name: &str) -> bool {
            let before = self.queue().waiting().len();
            self.put_files(namespace, name, &self.files()).unwrap();
            self.queue().waiting().len() > before
        }

        fn reasons(&self) -> Vec<String> {
            let all = self.queue().all().into_iter();
            let reasons = all.filter(|(name, _)| name.starts_with(FAILURE));
            reasons
                .map(|(_, path)| fs::read_to_string(path).unwrap())
                .collect()
        }
    }

    #[test]
    fn a_job_is_taken_once() {
        let host = Host::new();
        assert!(host.put("n", "first") && !host.put("n", "first"));
        assert!(host.queue().needs_worker());
        let first = host.queue().next(None).unwrap();
        assert_eq!(
            (first.job.name(), fs::read(&first.files[0].0).unwrap()),
            ("first", b"module".to_vec())
        );
        assert!(!host.put("n", "first"), "it is being made");
        host.queue().done(&first, None);
        assert!(host.queue().is_empty() && host.put("n", "first"));
    }

    #[test]
    fn namespaces_alternate() {
        let host = Host::new();
        for name in ["a", "b"] {
            assert!(host.put("n", name) && host.put("failed-m", name));
        }
        let mut last: Option<String> = None;
        for _ in 0..4 {
            let taken = host.queue().next(last.as_deref()).unwrap();
            assert_ne!(last.as_deref(), Some(taken.job.namespace.as_str()));
            host.queue().done(&taken, None);
            last = Some(taken.job.namespace);
        }
        assert!(host.queue().next(None).is_none());
    }

    #[test]
    fn a_failed_job_is_not_retried_and_keeps_its_reason() {
        let host = Host::new();
        host.put("n", "f");
        let taken = host.queue().next(None).unwrap();
        host.queue().done(&taken, Some(&"ä".repeat(REASON_MAX)));
        assert!(!host.put("n", "f") && host.put("n", "g"));
        assert!(host.reasons()[0].starts_with("ä"));
        host.queue().tidy();
        assert!(!host.put("n", "f"));
        // A time in the future, after the clock was set, counts as outdated.
        for (_, path) in host.queue().all() {
            if path.is_file() {
                let file = OpenOptions::new().append(true).open(path).unwrap();
                file.set_modified(SystemTime::now() + FAILURE_LIFETIME)
                    .unwrap();
            }
        }
        host.queue().tidy();
        assert!(host.put("n", "f") && host.reasons().is_empty());
    }

    #[test]
    fn a_job_that_ends_its_worker_is_not_retried() {
        let host = Host::new();
        host.put("n", "bad");
        host.queue().next(None).unwrap();
        // The job is not marked as done.
        host.put("n", "good");
        assert!(host.queue().needs_worker());
        assert_eq!(host.queue().next(None).unwrap().job.name(), "good");
        assert!(!host.put("n", "bad"));
    }

    #[test]
    fn the_queue_is_bounded_per_namespace_and_in_all() {
        let host = Host::new();
        // The remainder of an interrupted addition takes no place.
        fs::create_dir_all(host.queue().0.join(NEW).join("x")).unwrap();
        let put = |namespace: &str| {
            let names = (0..6).map(|at| format!("f{at}"));
            names.filter(|name| host.put(namespace, name)).count()
        };
        assert_eq!(put("n"), OF_NAMESPACE_MAX);
        // A namespace whose name has another's name as its prefix has its own share.
        assert_eq!(put("n-n"), OF_NAMESPACE_MAX);
        assert_eq!(put("failed-n"), OF_NAMESPACE_MAX);
        let rest: usize = (0..9).map(|at| put(&format!("m{at}"))).sum();
        assert_eq!(rest + 3 * OF_NAMESPACE_MAX, WAITING_MAX);
        // Jobs that waited before the worker started are worked off as well.
        assert!(host.queue().needs_worker());
    }

    #[test]
    fn nothing_is_queued_on_a_nearly_full_disk() {
        let mut host = Host::new();
        assert!(host.put("n", "f"));
        host.disk.free -= 1;
        assert!(!host.put("n", "g"));
        // A waiting job is still taken.
        assert_eq!(host.queue().next(None).unwrap().job.name(), "f");
    }

    #[test]
    fn unreadable_jobs_are_removed() {
        let host = Host::new();
        host.put("n", "f");
        let queue = host.queue();
        for (name, order) in [("n.1", "{"), ("n.2", "[]"), ("n.3", "{\"root\": 1}")] {
            fs::create_dir(queue.0.join(name)).unwrap();
            fs::write(queue.0.join(name).join(ORDER), order).unwrap();
        }
        fs::create_dir(queue.0.join("empty")).unwrap();
        let taken = queue.next(None).unwrap();
        assert_eq!(taken.job.name(), "f");
        queue.done(&taken, None);
        assert!(queue.next(None).is_none() && queue.is_empty());
        // An entry that cannot be removed ends the turn instead of looping for ever.
        fs::write(queue.0.join("file"), "").unwrap();
        assert!(queue.next(None).is_none());
    }

    #[test]
    fn a_module_that_changes_is_not_copied() {
        let host = Host::new();
        let mut files = host.files();
        files[0].digest = Some(format!("sha256:{}", "0".repeat(64)));
        assert!(host.put_files("n", "f", &files).is_err());
        assert!(host.queue().all().is_empty());
    }

    #[test]
    fn only_one_worker_runs_at_a_time() {
        let host = Host::new();
        host.put("n", "f");
        let lock = host.queue().lock();
        assert!(lock.is_some() && host.queue().lock().is_none());
        assert!(!host.queue().needs_worker());
        drop(lock);
        assert!(host.queue().lock().is_some());
    }
}

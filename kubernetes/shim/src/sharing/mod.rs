//! Func-images that pods of this host share, and the queue of those to be made for later pods
//! (docs/decisions/0034).
//!
//! The store belongs to root (docs/decisions/0032) and is in the folder to which the installation's
//! `state` leads. Without that folder, nothing is shared. For each container, the shim looks once
//! for an entry in the store. If there is none, the pod makes its function itself, and a copy of
//! the module, checked against its digest, goes into a queue. A low-priority process works through
//! the queue and ends when the queue is empty.
//!
//! ```text
//! STATE/
//!   shared/          the store
//!   queue-1/         mode 0700; the number is the version of the format
//!     .lock          held by the worker
//!     NAMESPACE.ID/  a job
//!     .failed-NAMESPACE.ID   the reason why a job failed
//! ```

pub mod eviction;
pub mod queue;
pub mod view;
pub mod work;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde::Deserialize;

use crate::{
    installation::Installation,
    options::{FILES, MODULE},
    spec::File,
};
use eviction::Disk;
use queue::Queue;

/// How long a container waits for the store's answer. 5 s is longer than reading and verifying a
/// note of the largest module takes.
const FIND_TIMEOUT: Duration = Duration::from_secs(5);

/// Exit status of `share find` if there is no entry.
const NOT_SHARED: i32 = 5;

/// Memory of a function in MiB if its options do not set it.
const MEMORY: u64 = 128;

/// Maximum memory in bytes of a function that is made here.
const MEMORY_MAX: u64 = 1 << 30;

/// Maximum length of a namespace's name.
const NAMESPACE_MAX: usize = 63;

/// Path of the entry's folder inside the node's container.
pub const FOLDER: &str = "/shared/entry";
/// Path of the entry's key inside the node's container.
pub const KEY: &str = "/shared/key";

/// An entry of the store, on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's folder.
    pub folder: PathBuf,
    /// The file with the entry's key.
    pub key: PathBuf,
}

/// The function of a container.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// The pod's namespace, as CRI states it.
    pub namespace: &'a str,
    /// The function's name and options, as on the node's command line.
    pub options: &'a [String],
    /// The module, and the files that its options name.
    pub files: &'a [File],
    /// The container's memory limit in bytes, if it has one.
    pub memory: Option<u64>,
}

impl Function<'_> {
    /// Returns the function's memory in bytes by its options.
    fn own_memory(&self) -> u64 {
        let mut options = self.options.iter();
        let set = options.find_map(|option| option.strip_prefix("--memory="));
        let mebibytes = set.map_or(Some(MEMORY), |set| set.parse().ok());
        mebibytes.unwrap_or(u64::MAX >> 20).saturating_mul(1 << 20)
    }

    /// Returns whether the function may be made outside of its pod. It may use no more memory there
    /// than it could in its pod, nor more than [`MEMORY_MAX`].
    fn is_made_here(&self) -> bool {
        // The worker runs as root, which must not unpack a tenant's archive.
        let has_archive = self.files.iter().any(|file| file.path == FILES);
        let most = self.memory.unwrap_or(MEMORY_MAX).min(MEMORY_MAX);
        !has_archive && is_namespace(self.namespace) && self.own_memory() <= most
    }
}

/// Returns the entry of a function, if this host has one. Otherwise queues the function, so that a
/// later pod may find an entry. Failures of the store or the queue are ignored, because the pod
/// works without them.
#[must_use]
pub fn entry(installation: &Installation, function: Function<'_>) -> Option<Entry> {
    if !function.is_made_here() {
        return None;
    }
    let state = installation.state()?;
    let store = state.join("shared");
    let found = find(installation, &store, function)?;
    match &found {
        Some(entry) => entry.mark_used(),
        None => {
            let queue = Queue::at(&state);
            // If this fails, the next pod retries it. The worker of an older job may have ended, so
            // the check below does not depend on this job.
            let _ =
                Disk::of(&state).and_then(|disk| queue.put(installation.root(), function, disk));
            if queue.needs_worker() {
                work::start_worker();
            }
        }
    }
    found
}

/// Looks up an entry in the store. Returns `None` if the store does not answer in time or fails
/// otherwise, and `Some(None)` if it has no usable entry.
fn find(
    installation: &Installation,
    store: &Path,
    function: Function<'_>,
) -> Option<Option<Entry>> {
    let files = function.files.iter();
    let files = files.map(|file| (file.on_host.as_path(), file.path));
    let mut command = view::command(&installation.root(), store, files);
    let namespace = function.namespace;
    command.args(["share", "find", "--json", "--store", view::STORE]);
    match function.files.first()?.digest.as_deref() {
        Some(digest) => command.args(["--digest", digest]),
        None => command.arg(MODULE),
    };
    command.arg(format!("--namespace={namespace}"));
    command.args(function.options);
    let output = view::output(command, FIND_TIMEOUT).ok()?;
    if output.status.success() {
        return Entry::read(&output.stdout, store).map(Some);
    }
    // A damaged entry is made anew, like a missing one.
    let is_answer = output
        .status
        .code()
        .is_some_and(|code| matches!(code, 1 | NOT_SHARED));
    is_answer.then_some(None)
}

impl Entry {
    /// Marks the entry as used now, in the modification time of its folder's parent. Entries that
    /// were not used for longest are evicted first.
    fn mark_used(&self) {
        let own = self.folder.parent().map(fs::File::open);
        let _ = own.map(|own| own.and_then(|own| own.set_modified(SystemTime::now())));
    }

    /// Parses the output of `share find`, and maps the paths in its view to the host's.
    fn read(output: &[u8], store: &Path) -> Option<Self> {
        #[derive(Deserialize)]
        struct FindOutput {
            folder: PathBuf,
            key: PathBuf,
        }
        let found: FindOutput = serde_json::from_slice(output).ok()?;
        let on_host = |path: &Path| {
            let inside = path.strip_prefix(view::STORE).ok()?;
            let is_plain = inside
                .components()
                .all(|part| matches!(part, std::path::Component::Normal(_)));
            is_plain.then(|| store.join(inside))
        };
        Some(Self {
            folder: on_host(&found.folder)?,
            key: on_host(&found.key)?,
        })
    }
}

/// Returns whether the store can have a folder of this name.
fn is_namespace(name: &str) -> bool {
    let is_letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=NAMESPACE_MAX).contains(&name.len())
        && name.bytes().all(is_letter)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_must_be_inside_of_the_store() {
        let read = |folder: &str, key: &str| {
            let output = serde_json::json!({ "entry": "1", "folder": folder, "key": key });
            Entry::read(output.to_string().as_bytes(), Path::new("/state/shared"))
        };
        let found = read(
            "/var/lib/faasw-pods/shared/n/1/entry",
            "/var/lib/faasw-pods/shared/n/1/key",
        );
        assert_eq!(found.unwrap().key, Path::new("/state/shared/n/1/key"));
        for wrong in [
            "/etc/shadow",
            "/var/lib/faasw-pods/shared/../../etc",
            "relative",
            "/var/lib/faasw-pods/shared-not",
        ] {
            let right = "/var/lib/faasw-pods/shared/n/1/key";
            assert_eq!(read(wrong, right), None, "{wrong}");
            assert_eq!(read(right, wrong), None, "{wrong}");
        }
        for wrong in ["", "[]", "{}", "{\"folder\": 1, \"key\": \"/\"}"] {
            assert_eq!(Entry::read(wrong.as_bytes(), Path::new("/s")), None);
        }
    }

    #[test]
    fn namespaces_are_names_of_folders() {
        for name in ["a", "kube-system", "0", &"a".repeat(63)] {
            assert!(is_namespace(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "A",
            "-a",
            "a-",
            "a.b",
            &"a".repeat(64),
        ] {
            assert!(!is_namespace(name), "{name}");
        }
    }
}

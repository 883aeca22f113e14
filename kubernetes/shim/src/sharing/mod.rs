//! What this host has made of a function before, and what it is to make of it for the next pod
//! (docs/decisions/0034).
//!
//! The store is root's (docs/decisions/0032), in the folder that the installation's `state` leads
//! to; where there is none, nothing is shared. For a container it is asked once whether there is an
//! entry. If there is not, the pod makes its function itself, and the module, as containerd has
//! verified it, is put into a queue that is worked off behind everything else, by a process that
//! ends when it is empty.
//!
//! ```text
//! STATE/
//!   shared/          the store
//!   queue-1/         0700; the number is its format's
//!     .lock          held by who works it off
//!     NAMESPACE.ID/  something that is to be made
//!     .failed-NAMESPACE.ID   why it was not
//! ```

pub mod queue;
pub mod room;
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
use queue::Queue;
use room::Disk;

/// How long a container waits for an answer of the store: longer than it takes to read and prove a
/// note of the largest module.
const PATIENCE: Duration = Duration::from_secs(5);

/// `share find` has found nothing.
const NOT_SHARED: i32 = 5;

/// MiB that a function may have unless it says.
const MEMORY: u64 = 128;

/// Most bytes that one may have to be made here.
const MEMORY_MAX: u64 = 1 << 30;

/// Longest name of a namespace.
const NAMESPACE_MAX: usize = 63;

/// Where a node finds what it is given of the store.
pub const FOLDER: &str = "/shared/entry";
/// The same for the key to it.
pub const KEY: &str = "/shared/key";

/// An entry of the store, on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its folder.
    pub folder: PathBuf,
    /// The file with its key.
    pub key: PathBuf,
}

/// What a container is to run.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// The pod's namespace, as CRI says it.
    pub namespace: &'a str,
    /// The function's name and options, as the node is given them.
    pub options: &'a [String],
    /// The module, and the files that its options name.
    pub files: &'a [File],
    /// Bytes of memory that the pod gives the container, if it says.
    pub memory: Option<u64>,
}

impl Function<'_> {
    /// Bytes that it may have by its options.
    fn own_memory(&self) -> u64 {
        let mut said = self.options.iter();
        let said = said.find_map(|option| option.strip_prefix("--memory="));
        let mebibytes = said.map_or(Some(MEMORY), |said| said.parse().ok());
        mebibytes.unwrap_or(u64::MAX >> 20).saturating_mul(1 << 20)
    }

    /// Whether it is made outside of a pod: it is to have no more there than it could have in its
    /// own, nor more than is given to anybody.
    fn is_made_here(&self) -> bool {
        // An archive is unpacked by nobody who is root.
        let has_archive = self.files.iter().any(|file| file.path == FILES);
        let most = self.memory.unwrap_or(MEMORY_MAX).min(MEMORY_MAX);
        !has_archive && is_namespace(self.namespace) && self.own_memory() <= most
    }
}

/// The entry of a function, if this host has one. If not it is to have one later. Whatever is wrong
/// with store or queue, a pod can do without: it is not its affair.
#[must_use]
pub fn entry(installation: &Installation, function: Function<'_>) -> Option<Entry> {
    if !function.is_made_here() {
        return None;
    }
    let state = installation.state()?;
    let store = state.join("shared");
    let found = find(installation, &store, function)?;
    match &found {
        Some(entry) => entry.is_used(),
        None => {
            let queue = Queue::at(&state);
            // What cannot be put is put by the next pod; what was put may have lost who would make
            // it.
            let _ =
                Disk::of(&state).and_then(|disk| queue.put(installation.root(), function, disk));
            if queue.wants_somebody() {
                work::begin();
            }
        }
    }
    found
}

/// What the store says; nothing where it does not say it in time.
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
    let output = view::output(command, PATIENCE).ok()?;
    if output.status.success() {
        return Entry::read(&output.stdout, store).map(Some);
    }
    // One that is damaged is made anew, as one that is missing.
    let is_told = output
        .status
        .code()
        .is_some_and(|code| matches!(code, 1 | NOT_SHARED));
    is_told.then_some(None)
}

impl Entry {
    /// Says of its time that a pod has it: those that nobody has asked for longest go first.
    fn is_used(&self) {
        let own = self.folder.parent().map(fs::File::open);
        let _ = own.map(|own| own.and_then(|own| own.set_modified(SystemTime::now())));
    }

    /// Reads what `share find` prints, in whose root the store is elsewhere.
    fn read(told: &[u8], store: &Path) -> Option<Self> {
        #[derive(Deserialize)]
        struct Told {
            folder: PathBuf,
            key: PathBuf,
        }
        let told: Told = serde_json::from_slice(told).ok()?;
        let on_host = |path: &Path| {
            let inside = path.strip_prefix(view::STORE).ok()?;
            let is_plain = inside
                .components()
                .all(|part| matches!(part, std::path::Component::Normal(_)));
            is_plain.then(|| store.join(inside))
        };
        Some(Self {
            folder: on_host(&told.folder)?,
            key: on_host(&told.key)?,
        })
    }
}

/// Whether the store can have a folder of this name.
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
    fn an_entry_is_in_the_store_and_nowhere_else() {
        let read = |folder: &str, key: &str| {
            let told = serde_json::json!({ "entry": "1", "folder": folder, "key": key });
            Entry::read(told.to_string().as_bytes(), Path::new("/state/shared"))
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

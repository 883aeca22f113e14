//! `--watch`: detects changed files.
//!
//! Files are checked several times a second. A change counts if the file is unchanged at the next
//! check, so that a compiler can finish writing. A changed script is deployed within a tenth of a
//! second, because its author waits for it.

use std::{future, path::PathBuf, time::Duration};

use bytes::Bytes;
use faasw::{
    Digest, Extension, FunctionName,
    file_fingerprint::{FileFingerprint, StableChange},
};
use tokio::time::{Instant, sleep_until};

use super::{files, output::say};

/// Maximum time until a change of a module is noticed. It is deployed after at most twice this
/// time.
const MODULE_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum time until a change of a script is noticed.
const SCRIPT_INTERVAL: Duration = Duration::from_millis(20);

/// Minimum pause between checks, as a multiple of the duration of a check. It limits the cost for
/// folders with many files.
const PAUSE_FACTOR: u32 = 20;

/// The watched files.
#[derive(Debug, Default)]
pub struct Watch {
    files: Vec<Watched>,
}

/// A file and its state at its last deployment.
#[derive(Debug)]
struct Watched {
    name: FunctionName,
    path: PathBuf,
    /// The entry of a folder's script, if it was named.
    entry: Option<String>,
    /// The folder of the function's files, if there is one.
    files: Option<PathBuf>,
    digest: Digest,
    stamp: StableChange<Vec<(PathBuf, FileFingerprint)>>,
    /// The time of the next check, and the minimum interval of checks.
    due: Instant,
    every: Duration,
}

impl Watch {
    /// Adds a file with its content at the deployment, the entry of its script and the folder of
    /// its files.
    pub fn add(
        &mut self,
        name: FunctionName,
        path: PathBuf,
        entry: Option<String>,
        files: Option<PathBuf>,
        module: &[u8],
    ) {
        let extension = path.to_str().and_then(Extension::of_path);
        let is_script = extension.is_some() || path.is_dir();
        self.files.push(Watched {
            name,
            path,
            entry,
            files,
            digest: Digest::of(module),
            // There is no stamp yet, so the first checks notice a change since the file was read.
            stamp: StableChange::new(None),
            due: Instant::now(),
            every: if is_script {
                SCRIPT_INTERVAL
            } else {
                MODULE_INTERVAL
            },
        });
    }

    /// Waits for a change. Returns the function and its file's new content.
    pub async fn changed(&mut self) -> (FunctionName, Bytes) {
        loop {
            let Some(next) = self.files.iter_mut().min_by_key(|file| file.due) else {
                return future::pending().await;
            };
            sleep_until(next.due).await;
            let began = Instant::now();
            let changed = next.check();
            let pause = next.every.max(began.elapsed() * PAUSE_FACTOR);
            next.due = Instant::now() + pause;
            if let Some(changed) = changed {
                return changed;
            }
        }
    }
}

impl Watched {
    fn check(&mut self) -> Option<(FunctionName, Bytes)> {
        // In the middle of a rename, the file is missing for a moment.
        let folder = self.files.as_deref();
        let now = files::stamp(&self.path, folder).ok()?;
        if !self.stamp.look(now) {
            return None;
        }
        let module = match files::read_upload(&self.path, self.entry.as_deref(), folder) {
            Ok(module) => module,
            Err(exit) => {
                say(format_args!("{}: {exit}", self.name));
                return None;
            }
        };
        let digest = Digest::of(&module);
        if digest == self.digest {
            return None;
        }
        self.digest = digest;
        Some((self.name.clone(), module))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Returns a deployed file whose stamp is known.
    fn watched(folder: &tempfile::TempDir) -> Watched {
        let path = folder.path().join("f.wat");
        fs::write(&path, "one").unwrap();
        let mut watched = Watched {
            name: FunctionName::new("f").unwrap(),
            path,
            entry: None,
            files: None,
            digest: Digest::of(b"one"),
            stamp: StableChange::new(None),
            due: Instant::now(),
            every: MODULE_INTERVAL,
        };
        assert_eq!((watched.check(), watched.check()), (None, None));
        watched
    }

    #[test]
    fn a_change_counts_when_the_file_has_settled() {
        let folder = tempfile::tempdir().unwrap();
        let mut watched = watched(&folder);
        assert_eq!(watched.check(), None);
        fs::write(&watched.path, "half of ").unwrap();
        assert_eq!(watched.check(), None);
        fs::write(&watched.path, "half of two").unwrap();
        assert_eq!(watched.check(), None);
        let (name, module) = watched.check().unwrap();
        assert_eq!((name.as_str(), &module[..]), ("f", &b"half of two"[..]));
        assert_eq!(watched.check(), None);
    }

    #[test]
    fn a_file_that_is_replaced_by_another_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let mut watched = watched(&folder);
        // Editors move the old file away and then put another one in its place.
        fs::rename(&watched.path, folder.path().join("f.wat~")).unwrap();
        assert_eq!(watched.check(), None);
        fs::write(folder.path().join(".f.new"), "two").unwrap();
        fs::rename(folder.path().join(".f.new"), &watched.path).unwrap();
        assert_eq!(watched.check(), None);
        assert!(watched.check().is_some());
    }

    #[test]
    fn the_same_content_again_is_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let mut watched = watched(&folder);
        let other = folder.path().join("other");
        fs::write(&other, "one").unwrap();
        fs::rename(&other, &watched.path).unwrap();
        assert_eq!((watched.check(), watched.check()), (None, None));
    }
}

//! `--watch`: detects changed files.
//!
//! Files are checked several times a second. A change counts if the file is unchanged at the next
//! check, so that a compiler can finish writing. A changed script is deployed within a tenth of a
//! second, because its author waits for it.

use std::{
    future, io,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use faasw::{
    Digest, Extension, FunctionName,
    file_fingerprint::{FileFingerprint, StableChange},
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use super::{
    exit::Exit,
    files,
    output::say,
    preparation::{Reading, ScriptReader},
    script,
};

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
    source: WatchedSource,
    /// The files and folders that decide a script, if they are not its own.
    inputs: Option<Vec<PathBuf>>,
    digest: Digest,
    stamp: StableChange<Vec<(PathBuf, Option<FileFingerprint>)>>,
    /// The time of the next check, and the minimum interval of checks.
    due: Instant,
    every: Duration,
    /// Whether the last check failed, and its error was printed.
    has_failed: bool,
}

/// A deployed script or module, which is read again when a file has changed.
#[derive(Clone, Debug)]
pub struct WatchedSource {
    pub name: FunctionName,
    pub path: PathBuf,
    /// The entry of a script, if it was named.
    pub entry: Option<String>,
    /// The folder of the function's files, if there is one.
    pub files: Option<PathBuf>,
    /// The process that reads it, if it is a script.
    pub reader: Option<ScriptReader>,
}

/// Returns whether a path is that of a script, and not of a module.
pub fn is_script(path: &Path) -> bool {
    let extension = path.to_str().and_then(Extension::of_path);
    extension.is_some() || path.is_dir()
}

impl WatchedSource {
    /// Reads the file and returns what decides its content.
    fn read(&self) -> (Result<Bytes, Exit>, Option<Vec<PathBuf>>) {
        let entry = self.entry.as_deref();
        let mut reading = match &self.reader {
            Some(reader) => reader.read(&self.path),
            None => Reading::plain(script::read_upload(&self.path, entry)),
        };
        let inputs = reading.inputs.take();
        (files::complete(reading, self.files.as_deref()), inputs)
    }
}

impl Watch {
    /// Adds a file with its content at the deployment and what decided it.
    pub fn add(&mut self, source: WatchedSource, module: &[u8], inputs: Option<Vec<PathBuf>>) {
        let every = if is_script(&source.path) {
            SCRIPT_INTERVAL
        } else {
            MODULE_INTERVAL
        };
        self.files.push(Watched {
            source,
            inputs,
            digest: Digest::of(module),
            // There is no stamp yet, so the first checks notice a change since the file was read.
            stamp: StableChange::new(None),
            due: Instant::now(),
            every,
            has_failed: false,
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
            let has_changed = next.has_changed();
            let pause = next.every.max(began.elapsed() * PAUSE_FACTOR);
            next.due = Instant::now() + pause;
            if !has_changed {
                continue;
            }
            let source = next.source.clone();
            let Ok((upload, inputs)) = spawn_blocking(move || source.read()).await else {
                continue;
            };
            if let Some(changed) = next.accept(upload, inputs) {
                return changed;
            }
        }
    }
}

impl Watched {
    fn has_changed(&mut self) -> bool {
        let WatchedSource {
            name, path, files, ..
        } = &self.source;
        match files::stamp(path, self.inputs.as_deref(), files.as_deref()) {
            Ok(now) => {
                self.has_failed = false;
                self.stamp.look(now)
            }
            // In the middle of a rename, the file is missing for a moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                if !self.has_failed {
                    say(format_args!("{name}: changes are not noticed: {error}"));
                }
                self.has_failed = true;
                false
            }
        }
    }

    /// Takes what was read. Returns it if it differs from what was deployed.
    fn accept(
        &mut self,
        upload: Result<Bytes, Exit>,
        inputs: Option<Vec<PathBuf>>,
    ) -> Option<(FunctionName, Bytes)> {
        // A failed reading may not know them all.
        if (upload.is_ok() || inputs.is_some()) && self.inputs != inputs {
            self.inputs = inputs;
            // The files of the new list are compared from now on. One that has changed since it
            // was read is noticed, because an unknown stamp counts as a change.
            self.stamp = StableChange::new(None);
        }
        let name = &self.source.name;
        let module = match upload {
            Ok(module) => module,
            Err(exit) => {
                say(format_args!("{name}: {exit}"));
                return None;
            }
        };
        let digest = Digest::of(&module);
        if digest == self.digest {
            return None;
        }
        self.digest = digest;
        Some((name.clone(), module))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    impl Watched {
        fn check(&mut self) -> Option<(FunctionName, Bytes)> {
            if !self.has_changed() {
                return None;
            }
            let (upload, inputs) = self.source.read();
            self.accept(upload, inputs)
        }
    }

    /// Returns a deployed file whose stamp is known.
    fn watched(folder: &tempfile::TempDir) -> Watched {
        let path = folder.path().join("f.wat");
        fs::write(&path, "one").unwrap();
        let mut watched = Watched {
            source: WatchedSource {
                name: FunctionName::new("f").unwrap(),
                path,
                entry: None,
                files: None,
                reader: None,
            },
            inputs: None,
            digest: Digest::of(b"one"),
            stamp: StableChange::new(None),
            due: Instant::now(),
            every: MODULE_INTERVAL,
            has_failed: false,
        };
        assert_eq!((watched.check(), watched.check()), (None, None));
        watched
    }

    #[test]
    fn a_change_counts_when_the_file_has_settled() {
        let folder = tempfile::tempdir().unwrap();
        let mut watched = watched(&folder);
        assert_eq!(watched.check(), None);
        fs::write(&watched.source.path, "half of ").unwrap();
        assert_eq!(watched.check(), None);
        fs::write(&watched.source.path, "half of two").unwrap();
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
        fs::rename(&watched.source.path, folder.path().join("f.wat~")).unwrap();
        assert_eq!(watched.check(), None);
        fs::write(folder.path().join(".f.new"), "two").unwrap();
        fs::rename(folder.path().join(".f.new"), &watched.source.path).unwrap();
        assert_eq!(watched.check(), None);
        assert!(watched.check().is_some());
    }

    #[test]
    fn the_same_content_again_is_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let mut watched = watched(&folder);
        let other = folder.path().join("other");
        fs::write(&other, "one").unwrap();
        fs::rename(&other, &watched.source.path).unwrap();
        assert_eq!((watched.check(), watched.check()), (None, None));
    }
}

//! `--watch`: which file has changed.
//!
//! Files are looked at some times a second. A change counts once the file has
//! stayed as it is for one look, so that a compiler can finish writing; whoever saves a
//! script waits for it, and has it deployed within a tenth of a second.

use std::{future, path::PathBuf, time::Duration};

use bytes::Bytes;
use faasw::{
    Digest, Extension, FunctionName,
    stamp::{Settling, Stamp},
};
use tokio::time::{Instant, sleep_until};

use super::{files, output::say};

/// How long it takes at most to notice that a module changed; it is deployed after twice that.
const MODULE: Duration = Duration::from_millis(200);

/// The same of a script.
const SCRIPT: Duration = Duration::from_millis(20);

/// Of whatever time a look takes, as in a folder of many files, so many times passes until the
/// next.
const PAUSE: u32 = 20;

/// Files whose changes are of interest.
#[derive(Debug, Default)]
pub struct Watch {
    files: Vec<Watched>,
}

/// A file, as it was when it was deployed.
#[derive(Debug)]
struct Watched {
    name: FunctionName,
    path: PathBuf,
    /// What a folder begins with, if that was named.
    entry: Option<String>,
    /// The folder of its files, if it has some.
    files: Option<PathBuf>,
    digest: Digest,
    stamp: Settling<Vec<(PathBuf, Stamp)>>,
    /// When it is looked at next, and how long after that again.
    due: Instant,
    every: Duration,
}

impl Watch {
    /// Adds a file, what a folder begins with and where its own files are, and what of it was
    /// deployed.
    pub fn add(
        &mut self,
        name: FunctionName,
        path: PathBuf,
        (entry, files): (Option<String>, Option<PathBuf>),
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
            // Not stamped: should it have changed since it was read, the first
            // looks notice.
            stamp: Settling::new(None),
            due: Instant::now(),
            every: if is_script { SCRIPT } else { MODULE },
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
            let changed = next.look();
            let pause = next.every.max(began.elapsed() * PAUSE);
            next.due = Instant::now() + pause;
            if let Some(changed) = changed {
                return changed;
            }
        }
    }
}

impl Watched {
    fn look(&mut self) -> Option<(FunctionName, Bytes)> {
        // In the middle of a rename there is no file for a moment.
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

    /// A file that was deployed, and whose stamp is known.
    fn watched(folder: &tempfile::TempDir) -> Watched {
        let path = folder.path().join("f.wat");
        fs::write(&path, "one").unwrap();
        let mut watched = Watched {
            name: FunctionName::new("f").unwrap(),
            path,
            entry: None,
            files: None,
            digest: Digest::of(b"one"),
            stamp: Settling::new(None),
            due: Instant::now(),
            every: MODULE,
        };
        assert_eq!((watched.look(), watched.look()), (None, None));
        watched
    }

    #[test]
    fn a_change_counts_when_the_file_has_settled() {
        let folder = tempfile::tempdir().unwrap();
        let mut watched = watched(&folder);
        assert_eq!(watched.look(), None);
        fs::write(&watched.path, "half of ").unwrap();
        assert_eq!(watched.look(), None);
        fs::write(&watched.path, "half of two").unwrap();
        assert_eq!(watched.look(), None);
        let (name, module) = watched.look().unwrap();
        assert_eq!((name.as_str(), &module[..]), ("f", &b"half of two"[..]));
        assert_eq!(watched.look(), None);
    }

    #[test]
    fn a_file_that_is_replaced_by_another_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let mut watched = watched(&folder);
        // As editors do it: the old one away, then another in its place.
        fs::rename(&watched.path, folder.path().join("f.wat~")).unwrap();
        assert_eq!(watched.look(), None);
        fs::write(folder.path().join(".f.new"), "two").unwrap();
        fs::rename(folder.path().join(".f.new"), &watched.path).unwrap();
        assert_eq!(watched.look(), None);
        assert!(watched.look().is_some());
    }

    #[test]
    fn the_same_content_again_is_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let mut watched = watched(&folder);
        let other = folder.path().join("other");
        fs::write(&other, "one").unwrap();
        fs::rename(&other, &watched.path).unwrap();
        assert_eq!((watched.look(), watched.look()), (None, None));
    }
}

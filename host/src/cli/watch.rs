//! `--watch`: which file has changed.
//!
//! Files are looked at a few times a second. A change counts once the file has
//! stayed as it is for one look, so that a compiler can finish writing.

use std::{path::PathBuf, time::Duration};

use bytes::Bytes;
use faasw::{
    Digest, FunctionName,
    stamp::{Settling, Stamp},
};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{output::say, script};

/// How long it takes at most to notice a change; it is deployed after twice that.
const LOOK: Duration = Duration::from_millis(200);

/// Files whose changes are of interest.
#[derive(Debug)]
pub struct Watch {
    files: Vec<Watched>,
    look: Interval,
}

/// A file, as it was when it was deployed.
#[derive(Debug)]
struct Watched {
    name: FunctionName,
    path: PathBuf,
    /// What a folder begins with, if that was named.
    entry: Option<String>,
    digest: Digest,
    stamp: Settling<Vec<(PathBuf, Stamp)>>,
}

impl Watch {
    /// Watches files whose content was read after they had been named here.
    /// Must be called inside a tokio runtime.
    pub fn new() -> Self {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            files: Vec::new(),
            look,
        }
    }

    /// Adds a file and what of it was deployed.
    pub fn add(&mut self, name: FunctionName, path: PathBuf, entry: Option<String>, module: &[u8]) {
        self.files.push(Watched {
            name,
            path,
            entry,
            digest: Digest::of(module),
            // Not stamped: should it have changed since it was read, the first
            // looks notice.
            stamp: Settling::new(None),
        });
    }

    /// Waits for a change. Returns the function and its file's new content.
    pub async fn changed(&mut self) -> (FunctionName, Bytes) {
        loop {
            self.look.tick().await;
            if let Some(changed) = self.files.iter_mut().find_map(Watched::look) {
                return changed;
            }
        }
    }
}

impl Watched {
    fn look(&mut self) -> Option<(FunctionName, Bytes)> {
        // In the middle of a rename there is no file for a moment.
        let now = script::stamp(&self.path).ok()?;
        if !self.stamp.look(now) {
            return None;
        }
        let module = match script::read_upload(&self.path, self.entry.as_deref()) {
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
            digest: Digest::of(b"one"),
            stamp: Settling::new(None),
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

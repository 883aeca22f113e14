//! Whether files have changed, and stay as they are.
//!
//! Files are looked at now and then rather than subscribed to: that works for
//! editors that write a new file and rename it over the old one, for links, and
//! on file systems that send no events; for a handful of files it costs nothing.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path};

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    /// The stamp of the file as it is now, behind any links.
    ///
    /// # Errors
    /// When there is none, as in the middle of a rename.
    pub fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// Tells a change once what changed has stayed as it is for one look, so that
/// whoever writes can finish.
#[derive(Debug)]
pub struct Settling<T> {
    /// What the last change that was told left; nothing before the first.
    seen: Option<T>,
    /// What the last look found, where that was new.
    settling: Option<T>,
}

impl<T: PartialEq> Settling<T> {
    /// Begins with what is known; with nothing, the first looks tell a change.
    #[must_use]
    pub fn new(seen: Option<T>) -> Self {
        Self {
            seen,
            settling: None,
        }
    }

    /// Takes what a look found, and says whether it is a change that has settled.
    pub fn look(&mut self, now: T) -> bool {
        if self.seen.as_ref() == Some(&now) {
            self.settling = None;
            return false;
        }
        if self.settling.as_ref() != Some(&now) {
            self.settling = Some(now);
            return false;
        }
        self.settling = None;
        self.seen = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_and_only_when_it_has_settled() {
        let mut settling = Settling::new(Some(1));
        let told: Vec<bool> = [1, 2, 3, 3, 3, 1, 3, 1, 1]
            .map(|now| settling.look(now))
            .into();
        let expected = [false, false, false, true, false, false, false, false, true];
        assert_eq!(told, expected);
        let mut unknown = Settling::new(None);
        assert_eq!([1, 1, 1].map(|now| unknown.look(now)), [false, true, false]);
    }
}

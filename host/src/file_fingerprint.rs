//! Detects changes of files that have settled.
//!
//! Files are polled rather than watched. Polling works for editors that write a new file and rename
//! it over the old one, for links, and on file systems that send no events. For a handful of files
//! it costs nothing.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

/// The properties of a file that change with its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFingerprint {
    device: u64,
    inode: u64,
    size: u64,
    /// When content or properties changed. A program can set back only the time of modification.
    changed: (i64, i64),
}

impl FileFingerprint {
    /// Returns the current fingerprint of the file, following links.
    ///
    /// # Errors
    /// Returns an error if the file cannot be looked up. It may be missing in the middle of a
    /// rename.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from(&fs::metadata(path)?))
    }
}

impl From<&Metadata> for FileFingerprint {
    fn from(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

/// Reports a change once the new value has stayed the same for one check, so that the writer can
/// finish.
#[derive(Debug)]
pub struct StableChange<T> {
    /// The value of the last reported change, or the initial one.
    seen: Option<T>,
    /// The value of the last check, if it was new.
    settling: Option<T>,
}

impl<T: PartialEq> StableChange<T> {
    /// Starts with a known value. With `None`, the first value is reported as a change once it has
    /// settled.
    #[must_use]
    pub fn new(seen: Option<T>) -> Self {
        Self {
            seen,
            settling: None,
        }
    }

    /// Checks a value. Returns whether it is a change that has settled.
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
    fn a_change_is_reported_once_after_it_has_settled() {
        let mut settling = StableChange::new(Some(1));
        let told: Vec<bool> = [1, 2, 3, 3, 3, 1, 3, 1, 1]
            .map(|now| settling.look(now))
            .into();
        let expected = [false, false, false, true, false, false, false, false, true];
        assert_eq!(told, expected);
        let mut unknown = StableChange::new(None);
        assert_eq!([1, 1, 1].map(|now| unknown.look(now)), [false, true, false]);
    }
}

//! A function's files: as they are uploaded, and as a bundle that its guests read.
//!
//! The client that deploys uploads them one after the other ([`upload`]). The compile helper takes
//! the upload apart, checks paths, links and sizes, and packs a [`bundle`]: an index of records of
//! one size, names, and contents that begin on pages. The node passes both on and checks lengths
//! only. The guest checks the bundle against its rules once more, because it trusts no input.

pub mod bundle;
pub mod upload;

use alloc::string::String;
use core::fmt;

use crate::wire::WireError;

/// Maximum bytes of the contents of all files of a function together.
pub const CONTENTS_MAX: u64 = 64 << 20;

/// Maximum number of files, folders and links together.
pub const ENTRIES_MAX: usize = 20_000;

/// Maximum bytes of a path, and of a link's target.
pub const PATH_MAX: usize = 1 << 10;

/// Maximum bytes of a name.
pub const NAME_MAX: usize = 255;

/// Maximum number of folders on a path.
pub const DEPTH_MAX: usize = 64;

/// The kind of an object at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    File,
    /// A directory of names.
    Folder,
    /// A symbolic link: a path that replaces it.
    Link,
}

impl Kind {
    const fn number(self) -> u8 {
        match self {
            Self::File => 1,
            Self::Folder => 2,
            Self::Link => 3,
        }
    }

    const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::File),
            2 => Some(Self::Folder),
            3 => Some(Self::Link),
            _ => None,
        }
    }
}

/// The reason why bytes are not valid files of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilesError {
    /// The length is wrong, or a number has no meaning.
    Malformed(WireError),
    /// There are more than [`ENTRIES_MAX`] entries.
    TooMany,
    /// The contents have more than [`CONTENTS_MAX`] bytes together.
    TooLarge,
    /// A path is absolute, leads out of the files, is too long or is not UTF-8.
    BadPath(String),
    /// Two entries have this path, or a file is at the path of a folder.
    Twice(String),
    /// A link leads out of the files, or its target is invalid.
    BadLink(String),
}

impl fmt::Display for FilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "the files are malformed: {error}"),
            Self::TooMany => write!(
                f,
                "there are more than {ENTRIES_MAX} files, folders and links"
            ),
            Self::TooLarge => write!(
                f,
                "the files have more than {} MiB together",
                CONTENTS_MAX >> 20
            ),
            Self::BadPath(path) => write!(
                f,
                "{path:?} is not a valid path of a file: a path is relative UTF-8 with / between \
                 its parts, has at most {PATH_MAX} bytes and {DEPTH_MAX} folders, and no part is \
                 empty, . or .., or longer than {NAME_MAX} bytes"
            ),
            Self::Twice(path) => write!(f, "there are two files at {path:?}"),
            Self::BadLink(path) => write!(
                f,
                "the link {path:?} leads out of the files: links are relative and stay within"
            ),
        }
    }
}

impl core::error::Error for FilesError {}

impl From<WireError> for FilesError {
    fn from(error: WireError) -> Self {
        Self::Malformed(error)
    }
}

/// Returns whether a text can be the name of a file in a folder.
#[must_use]
pub fn is_name(name: &str) -> bool {
    name.len() <= NAME_MAX && !name.contains(['\0', '/']) && !matches!(name, "" | "." | "..")
}

/// Returns whether a text can be the mount point of a function's files: `/`, or an absolute path
/// without `.` and `..`.
#[must_use]
pub fn is_mount(path: &str) -> bool {
    path == "/"
        || path.len() <= PATH_MAX
            && path
                .strip_prefix('/')
                .is_some_and(|path| path.split('/').all(is_name))
}

/// Returns whether the target of a link at this depth of folders is within the files, as far as its
/// text shows.
fn leads_within(target: &str, depth: usize) -> bool {
    if target.is_empty()
        || target.len() > PATH_MAX
        || target.starts_with('/')
        || target.contains('\0')
    {
        return false;
    }
    let mut depth = depth;
    for part in target.split('/') {
        depth = match part {
            "" | "." => depth,
            ".." => match depth.checked_sub(1) {
                Some(depth) => depth,
                None => return false,
            },
            _ => depth + 1,
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_within_by_their_text() {
        for (target, depth) in [("a", 0), ("../a", 1), ("a/../..", 1), ("./b//c/", 0)] {
            assert!(leads_within(target, depth), "{target}");
        }
        for (target, depth) in [("", 3), ("..", 0), ("/a", 9), ("../../a", 1), ("a\0b", 0)] {
            assert!(!leads_within(target, depth), "{target}");
        }
    }

    #[test]
    fn files_can_be_at_absolute_paths() {
        for path in ["/", "/data", "/usr/local/lib"] {
            assert!(is_mount(path), "{path}");
        }
        for path in ["", "data", "/data/", "//", "/a/../b", "/."] {
            assert!(!is_mount(path), "{path}");
        }
    }
}

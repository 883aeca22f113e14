//! Why the key-value store failed.

use std::{
    borrow::Cow,
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Why the key-value store failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A limit of the store would be passed.
    #[error("the store would have more than {most} {what}")]
    Full {
        /// What there would be too many of.
        what: &'static str,
        /// How many there may be.
        most: u64,
    },
    /// The value to be counted up is no number.
    #[error("the value is no number of 64 bits")]
    NoNumber,
    /// The file system of the data directory is full, or its user's share of it.
    #[error("no space is left on the file system of the data directory")]
    NoSpace,
    /// The file cannot be used.
    #[error("the key-value store {path:?} failed: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// What redb or the system says.
        why: String,
    },
    /// All values that were asked for are too much for one answer.
    #[error("the values take more than {0} bytes together: ask for fewer at a time")]
    TooMuch(usize),
    /// A list would begin behind more keys than are counted.
    #[error("a list begins behind {0} keys at most; the newer draft's go on behind a key")]
    TooFar(u64),
    /// Writing failed in its last step, and the file cannot be read either; or a server was asked
    /// and did not answer.
    #[error("the key-value store failed, and whether this was written is not known")]
    Unknown,
    /// There is no way to the server, or no answer of it in time: nothing was changed.
    #[error("the key-value server {server} cannot be reached: {why}")]
    Away {
        /// The server, without whom it knows.
        server: String,
        /// What the system says.
        why: String,
    },
    /// The server answers, and does not do it: nothing was changed.
    #[error("the key-value server {server} refuses: {why}")]
    Refused {
        /// The server, without whom it knows.
        server: String,
        /// What it says.
        why: String,
    },
    /// The writer ended, or the file was closed after somebody else's failure.
    #[error("the key-value store's work was interrupted")]
    Interrupted,
}

impl StoreError {
    /// What a function hears: what it can do something about, and nothing of files and servers.
    pub(super) fn to_function(&self) -> Cow<'static, str> {
        match self {
            Self::File { .. } | Self::Refused { .. } => {
                Cow::Borrowed("the key-value store failed; the node's log has why")
            }
            Self::Away { .. } => Cow::Borrowed("the key-value store cannot be reached"),
            error => Cow::Owned(error.to_string()),
        }
    }

    /// What redb says of the store in this file.
    pub(super) fn of(path: &Path, error: impl Into<redb::Error>) -> Self {
        match error.into() {
            redb::Error::Io(error) => Self::io(path, &error),
            error => Self::File {
                path: path.into(),
                why: error.to_string(),
            },
        }
    }

    /// What the system says of this file.
    pub(super) fn io(path: &Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::File {
                path: path.into(),
                why: error.to_string(),
            },
        }
    }

    /// Whether redb refuses everything from now on, until the file is opened again.
    pub(super) fn closes(&self) -> bool {
        matches!(self, Self::NoSpace | Self::File { .. })
    }
}

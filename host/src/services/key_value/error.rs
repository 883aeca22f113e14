//! Errors of the key-value store.

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
    /// A limit of the store would be exceeded.
    #[error("the store would have more than {most} {what}")]
    Full {
        /// The unit of the limit: keys or bytes.
        what: &'static str,
        /// The limit.
        most: u64,
    },
    /// The value to be incremented is not a number of 64 bits, or would not be one afterwards.
    #[error("the value is not a 64-bit number")]
    NoNumber,
    /// The file system of the data directory is full, or the user's quota on it is.
    #[error("no space is left on the file system of the data directory")]
    NoSpace,
    /// The file cannot be used.
    #[error("the key-value store {path:?} failed: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// The message of redb or of the kernel.
        why: String,
    },
    /// The requested values are too large for one answer.
    #[error("the values exceed {0} bytes together: read fewer keys at a time")]
    TooMuch(usize),
    /// A list would start after more keys than are counted.
    #[error("a list can skip at most {0} keys; with the newer draft, it can begin after a key")]
    TooFar(u64),
    /// Whether the write was made is unknown: its last step failed and the file cannot be read
    /// either, or a server did not answer.
    #[error("the key-value store failed; it is unknown whether the value was written")]
    Unknown,
    /// The server cannot be reached, or does not answer in time. Nothing was changed.
    #[error("the key-value server {server} cannot be reached: {why}")]
    Away {
        /// The server, without its user name and password.
        server: String,
        /// The reason.
        why: String,
    },
    /// The server answers, but rejects the command. Nothing was changed.
    #[error("the key-value server {server} rejected the command: {why}")]
    Refused {
        /// The server, without its user name and password.
        server: String,
        /// The server's message.
        why: String,
    },
    /// The writer ended, or the file was closed after the failure of another call.
    #[error("the key-value store's operation was interrupted")]
    Interrupted,
}

impl StoreError {
    /// Returns the text for a function. It hides details of files and servers, which the function
    /// cannot act on.
    pub(super) fn to_function(&self) -> Cow<'static, str> {
        match self {
            Self::File { .. } | Self::Refused { .. } => {
                Cow::Borrowed("the key-value store failed; the node's log has the reason")
            }
            Self::Away { .. } => Cow::Borrowed("the key-value store cannot be reached"),
            error => Cow::Owned(error.to_string()),
        }
    }

    /// Converts an error of redb about this file.
    pub(super) fn of(path: &Path, error: impl Into<redb::Error>) -> Self {
        match error.into() {
            redb::Error::Io(error) => Self::io(path, &error),
            error => Self::File {
                path: path.into(),
                why: error.to_string(),
            },
        }
    }

    /// Converts an I/O error about this file.
    pub(super) fn io(path: &Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::File {
                path: path.into(),
                why: error.to_string(),
            },
        }
    }

    /// Whether redb rejects every further call until the file is opened again.
    pub(super) fn closes_store(&self) -> bool {
        matches!(self, Self::NoSpace | Self::File { .. })
    }
}

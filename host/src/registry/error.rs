//! Errors of the registry.

use std::{
    io,
    path::{Path, PathBuf},
};

use faasw_client::{Digest, FunctionName};
use thiserror::Error;

use super::record::FORMAT_WITH_FILES;

/// Why the registry failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The data directory's file system is full, or the user's quota on it is.
    #[error(
        "the file system of the data directory is full, and nothing was changed: free space, for \
         example by removing functions, and retry"
    )]
    NoSpace,
    /// The store failed.
    #[error("the registry's database failed: {0}")]
    Store(#[source] Box<redb::Error>),
    /// A file beside the store failed.
    #[error("the registry's file {path:?} failed: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        error: io::Error,
    },
    /// The registry was written by another version of faasw.
    #[error(
        "the registry has format {found}; this version of faasw supports formats up to \
         {FORMAT_WITH_FILES}: use the version that wrote it, or another data directory"
    )]
    Format {
        /// The format that was found.
        found: u64,
    },
    /// A record cannot be parsed.
    #[error("the registry's record of {key:?} cannot be read: {error}")]
    Record {
        /// The record's key.
        key: String,
        /// The parser's error.
        error: serde_json::Error,
    },
    /// A function's current version has no record.
    #[error("the registry lacks version {version} of {name:?}, the current one")]
    VersionMissing {
        /// The function.
        name: String,
        /// The version.
        version: u64,
    },
    /// A module is missing or damaged.
    #[error("the stored module {0} is missing or damaged: deploy the function again")]
    Module(Digest),
    /// A script's engine was replaced or removed while the script was deployed.
    #[error("the language engine {0} was replaced or removed in the meantime: deploy again")]
    EngineGone(FunctionName),
    /// An engine's component is missing or damaged.
    #[error("the stored component of the language engine {0} is missing or damaged: add it again")]
    Engine(FunctionName),
    /// The task of the registry panicked or was cancelled.
    #[error("the registry's operation was interrupted")]
    Interrupted,
}

impl RegistryError {
    /// Converts an I/O error about a file.
    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        if is_full(&error) {
            Self::NoSpace
        } else {
            Self::File {
                path: path.into(),
                error,
            }
        }
    }

    /// Returns the error for a record that cannot be parsed.
    pub(super) fn record(key: impl Into<String>, error: serde_json::Error) -> Self {
        Self::Record {
            key: key.into(),
            error,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

impl<E: Into<redb::Error>> From<E> for RegistryError {
    fn from(error: E) -> Self {
        match error.into() {
            redb::Error::Io(error) if is_full(&error) => Self::NoSpace,
            error => Self::Store(Box::new(error)),
        }
    }
}

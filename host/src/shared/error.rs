//! The reasons why a store or an entry is not used.

use std::{
    io,
    path::{Path, PathBuf},
};

use faasw_pool::ParcelError;
use thiserror::Error;

use crate::error::{DeployError, FunctionError};

/// The reason why a store or an entry is not used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SharedError {
    /// A file or folder failed.
    #[error("{path:?}: {error}")]
    File {
        /// The path.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The store is accessible to users other than root.
    #[error("{0:?} is accessible to users other than root: run chmod 700")]
    Open(PathBuf),
    /// The store does not belong to root.
    #[error("{0:?} belongs to user {1}; a store must belong to root")]
    Owner(PathBuf, u32),
    /// The note of an entry cannot be opened.
    #[error("the description of {path:?} is not used: {error}")]
    Note {
        /// The path of the entry.
        path: PathBuf,
        /// The reason.
        error: ParcelError,
    },
    /// The note was sealed with the right key but is not valid.
    #[error("the description of {path:?} is invalid: {why}")]
    Senseless {
        /// The path of the entry.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The entry is of something other than its place says.
    #[error("{0:?} is not the entry that its path names")]
    Misplaced(PathBuf),
}

impl SharedError {
    pub(super) fn file(path: &Path, error: impl Into<io::Error>) -> Self {
        Self::File {
            path: path.into(),
            error: error.into(),
        }
    }
}

/// Names the file or folder in an error.
pub(super) fn at<T>(path: &Path, done: io::Result<T>) -> Result<T, SharedError> {
    done.map_err(|error| SharedError::file(path, error))
}

/// The reason why nothing was added to a store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AddError {
    /// The store or the entry failed.
    #[error(transparent)]
    Store(#[from] SharedError),
    /// The function cannot be deployed.
    #[error(transparent)]
    Deploy(#[from] DeployError),
    /// The deployed function cannot be read from the node.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The function answered a request with a server error, or its response broke off.
    #[error("the function responded to {path} with {status}")]
    Answer {
        /// The path of the request.
        path: String,
        /// The status of the response.
        status: u16,
    },
}

//! Why something is not shared.

use std::{
    io,
    path::{Path, PathBuf},
};

use faasw_pool::ParcelError;
use thiserror::Error;

use crate::error::{DeployError, FunctionError};

/// Why a store or an entry is not used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SharedError {
    /// A file or folder of it fails.
    #[error("{path:?}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// How.
        error: io::Error,
    },
    /// Nobody but root is to come into a store.
    #[error("{0:?} is open to others than root: chmod 700 makes it a store")]
    Open(PathBuf),
    /// Root alone writes to a store.
    #[error("{0:?} belongs to user {1}, and is no store: that is root's")]
    Owner(PathBuf, u32),
    /// What an entry is of cannot be told.
    #[error("the note of {path:?} is not used: {error}")]
    Note {
        /// The entry.
        path: PathBuf,
        /// Why.
        error: ParcelError,
    },
    /// Somebody who has the key says what no faasw says.
    #[error("the note of {path:?} makes no sense: {why}")]
    Senseless {
        /// The entry.
        path: PathBuf,
        /// What it says.
        why: String,
    },
    /// An entry of another place.
    #[error("{0:?} is an entry of something else")]
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

/// Why nothing was added to a store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AddError {
    /// The store.
    #[error(transparent)]
    Store(#[from] SharedError),
    /// The function cannot be made.
    #[error(transparent)]
    Deploy(#[from] DeployError),
    /// What it has become cannot be read.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// It answers what makes ready with no answer.
    #[error("the function answered {path} with {status}")]
    Answer {
        /// What it was asked for.
        path: String,
        /// What it said.
        status: u16,
    },
}

//! Why a node did not do what it was asked.

use std::{error::Error as _, io, path::PathBuf};

use http::StatusCode;
use thiserror::Error;

use super::exchange::LINE_BYTES;

/// Why a node did not do what it was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No node answers.
    #[error("no node is running on the data directory {0:?}")]
    NotRunning(PathBuf),
    /// The node may not be asked.
    #[error("the admin socket {path:?} cannot be used: {error}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// The connection broke.
    #[error("the node stopped answering: {0}")]
    Connection(#[source] hyper::Error),
    /// What the node is to have cannot be read here, or what it sends cannot be written.
    #[error("a file cannot be read or written: {0}")]
    File(#[from] io::Error),
    /// The node refused, or failed.
    #[error("{detail}")]
    Refused {
        /// Status of the answer.
        status: StatusCode,
        /// What the node says, complete.
        detail: String,
    },
    /// The node's answer makes no sense.
    #[error("the node's answer cannot be read: {0}; is it another version of faasw?")]
    Answer(#[from] serde_json::Error),
    /// What a deployment asks for takes so many bytes, as a request's line spells it.
    #[error(
        "name and options take {0} bytes as the request spells them, three for most that are no ASCII letter or \
         digit, and at most {LINE_BYTES} are sent: environment, configuration and warm-up requests are too \
         large together"
    )]
    TooLong(usize),
    /// The request cannot be written.
    #[error("the request is not valid: {0}")]
    Request(#[from] http::Error),
}

impl From<hyper::Error> for ClientError {
    fn from(error: hyper::Error) -> Self {
        // A request's body that could not be read here is no fault of the node's.
        let body = error.is_user().then(|| error.source()).flatten();
        match body.and_then(|error| error.downcast_ref::<io::Error>()) {
            Some(body) => Self::File(again(body)),
            None => Self::Connection(error),
        }
    }
}

/// The same error, which is somebody else's.
fn again(error: &io::Error) -> io::Error {
    let said = || io::Error::new(error.kind(), error.to_string());
    error
        .raw_os_error()
        .map_or_else(said, io::Error::from_raw_os_error)
}

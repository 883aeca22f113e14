//! Errors of the client.

use std::{error::Error as _, io, path::PathBuf};

use http::StatusCode;
use thiserror::Error;

use crate::OPTIONS_BYTES;

/// The reason why a request to a node failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No node runs on the data directory.
    #[error("no node is running on the data directory {0:?}")]
    NotRunning(PathBuf),
    /// The admin socket cannot be used, for example for lack of permission.
    #[error("the admin socket {path:?} cannot be used: {error}")]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The connection broke before the answer was complete.
    #[error("the node stopped answering: {0}")]
    Connection(#[source] hyper::Error),
    /// An input cannot be read, or an output cannot be written.
    #[error("a file cannot be read or written: {0}")]
    File(#[from] io::Error),
    /// The node rejected the request, or failed.
    #[error("{detail}")]
    Refused {
        /// The status of the answer.
        status: StatusCode,
        /// The node's explanation, complete.
        detail: String,
    },
    /// The node's answer cannot be parsed.
    #[error("the node's answer cannot be read: {0}; is it another version of faasw?")]
    Answer(#[from] serde_json::Error),
    /// The options of a deployment are too large for a request: their size as JSON in bytes.
    #[error(
        "options take {0} bytes of JSON, and at most {OPTIONS_BYTES} are sent: environment, \
         configuration and warm-up requests are too large together"
    )]
    TooLong(usize),
    /// The request is not valid HTTP.
    #[error("the request is not valid: {0}")]
    Request(#[from] http::Error),
}

impl From<hyper::Error> for ClientError {
    fn from(error: hyper::Error) -> Self {
        // A request body that cannot be read is a local error, not one of the connection.
        let body = error.is_user().then(|| error.source()).flatten();
        match body.and_then(|error| error.downcast_ref::<io::Error>()) {
            Some(body) => Self::File(again(body)),
            None => Self::Connection(error),
        }
    }
}

/// Copies an error, which cannot be moved out of the one that contains it.
fn again(error: &io::Error) -> io::Error {
    let said = || io::Error::new(error.kind(), error.to_string());
    error
        .raw_os_error()
        .map_or_else(said, io::Error::from_raw_os_error)
}

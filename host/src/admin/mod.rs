//! The admin API: HTTP with JSON on a Unix socket in the data directory.
//!
//! | request | does |
//! | --- | --- |
//! | `GET /v1/node` | tells about the node: [`NodeInfo`] |
//! | `GET /v1/functions` | lists functions: [`FunctionInfo`](crate::FunctionInfo)s |
//! | `PUT /v1/functions/NAME?…` | deploys the body: [`Deployed`](crate::Deployed) |
//! | `GET /v1/functions/NAME` | one with its versions: [`FunctionDetails`](crate::FunctionDetails) |
//! | `POST /v1/functions/NAME/rollback?version=…` | goes back to a version, or the one before: [`FunctionInfo`](crate::FunctionInfo) |
//! | `DELETE /v1/functions/NAME` | removes a function |
//! | `POST /v1/functions/NAME/invoke?path=…&method=…` | invokes it: its response |
//! | `GET /v1/functions/NAME/logs?lines=…` | its newest log lines: a [`LogPage`](crate::LogPage) |
//! | `GET /v1/functions/NAME/logs?after=…` | those after a place; waits for one for at most 30 s |
//! | `GET /v1/tree` | the tree of seeds: [`SeedInfo`](crate::SeedInfo)s, parents first |
//! | `GET /metrics` | metrics as OpenMetrics text |
//!
//! Options of a deployment are `memory` (bytes), `concurrency`, `freeze`, the
//! times `cpu-time`, `timeout`, `idle-client`, `idle-guest` and `total-time` (as
//! `500ms` or `10s`) and, any number of times, `env` (`NAME=VALUE`). Failures
//! are problem bodies. Who may open the socket may do everything; its mode and
//! its directory's leave that to the node's user.

mod api;
mod client;
mod query;

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

pub(crate) use api::Api;
pub use client::{Client, ClientError};

use crate::error::StartError;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeInfo {
    /// Version of faasw.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Address of the gateway, if it has one.
    pub address: Option<SocketAddr>,
    /// Data directory.
    pub data_dir: PathBuf,
    /// Number of functions.
    pub functions: usize,
    /// Largest module that it deploys, in bytes.
    pub module_limit: usize,
}

/// Makes the socket. The data directory's lock is held, so one that is there is a leftover.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, StartError> {
    let make = || -> io::Result<UnixListener> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        // The directory has been closed to others all along.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    make().map_err(|error| StartError::AdminSocket {
        path: path.into(),
        error,
    })
}

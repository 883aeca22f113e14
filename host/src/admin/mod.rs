//! The node's side of the admin API, on a Unix socket in the data directory.
//!
//! The types of requests and responses, and the client, are in [`faasw_client`]. Failures are
//! problem bodies. A process that can open the socket may do everything. The modes of the socket
//! and of its directory restrict it to the node's user.

mod api;
mod key_value;
mod metrics;
mod secrets;
mod uploads;

use std::{fs, io, os::unix::fs::PermissionsExt as _, path::Path};

use tokio::net::UnixListener;

pub(crate) use api::Api;
pub use faasw_client::{Client, ClientError, NodeInfo};
pub(crate) use metrics::MetricsPage;

use crate::error::StartError;

/// Creates the socket. The data directory is locked, so an existing socket is a leftover and is
/// removed.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, StartError> {
    let make = || -> io::Result<UnixListener> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        // The directory was closed to other users before the socket existed.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    make().map_err(|error| StartError::AdminSocket {
        path: path.into(),
        error,
    })
}

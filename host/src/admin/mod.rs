//! The admin API's side of the node, on a Unix socket in the data directory.
//!
//! What is asked and answered is in [`faasw_client`], and so is the client. Failures
//! are problem bodies. Who may open the socket may do everything; its mode and its
//! directory's leave that to the node's user.

mod api;
mod key_value;
mod metrics;
mod secrets;
mod uploads;

use std::{fs, io, os::unix::fs::PermissionsExt as _, path::Path};

use tokio::net::UnixListener;

pub(crate) use api::Api;
pub use faasw_client::{Client, ClientError, NodeInfo};
pub(crate) use metrics::Page;

use crate::error::StartError;

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

//! `faasw-egress`: the connector or a worker, by its argument, in the cell that is handed to it.
//!
//! | descriptor | connector | worker |
//! | ---: | --- | --- |
//! | 3 | the socket to the node: orders | the socket to the node: frames |
//! | 4 | | the socket on which connections come |

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::process::ExitCode;

use faasw_cell::egress::{CONNECTIONS_FD, Kind, NODE_FD};
use faasw_egress::{cell, connector, worker};

fn main() -> ExitCode {
    // Before anything is read.
    let outcome = cell::enter().map_err(io::Error::other);
    let outcome = outcome.and_then(|kind| match kind {
        Kind::Connector => connector::run(inherited(NODE_FD)),
        Kind::Worker => worker::run(inherited(NODE_FD), inherited(CONNECTIONS_FD)),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faasw-egress: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A descriptor that this process was started with.
fn inherited(number: RawFd) -> OwnedFd {
    // SAFETY: whoever starts this program gives it these numbers; nothing here has opened any
    // descriptor before, and each is taken once. Where one is missing, its first use says so.
    unsafe { OwnedFd::from_raw_fd(number) }
}

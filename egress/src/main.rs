//! `faasw-egress`: the connector or a worker, by its argument, in the jail that is handed to it.
//!
//! | descriptor | connector | worker |
//! | ---: | --- | --- |
//! | 3 | the socket to the node: orders | the socket to the node: frames |
//! | 4 | | the socket on which connections come |

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::process::ExitCode;

use faasw_egress::{connector, jail, runtime, worker};
use faasw_jail::egress::{CONNECTIONS_FD, Kind, NODE_FD};

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faasw-egress: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    let runtime = runtime()?;
    // Before anything is read.
    match jail::enter().map_err(io::Error::other)? {
        Kind::Connector => connector::run(&runtime, inherited(NODE_FD)),
        Kind::Worker => worker::run(&runtime, inherited(NODE_FD), inherited(CONNECTIONS_FD)),
    }
}

/// A descriptor that this process was started with.
fn inherited(number: RawFd) -> OwnedFd {
    // SAFETY: whoever starts this program gives it these numbers; what the runtime has opened has
    // others, and each is taken once. Where one is missing, its first use says so.
    unsafe { OwnedFd::from_raw_fd(number) }
}

//! `faasw-egress`: runs as the connector or a worker, as its argument says, in a jail that the node
//! prepared.
//!
//! | descriptor | connector | worker |
//! | ---: | --- | --- |
//! | 3 | the socket to the node: orders | the socket to the node: frames |
//! | 4 | | the socket on which connections arrive |

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::process::ExitCode;

use faasw_egress::{connector, jail, runtime, worker};
use faasw_jail::egress::{CONNECTIONS_FD, EgressRole, NODE_FD};

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
    // The jail is entered before any input is read.
    match jail::enter().map_err(io::Error::other)? {
        EgressRole::Connector => connector::run(&runtime, inherited(NODE_FD)),
        EgressRole::Worker => worker::run(&runtime, inherited(NODE_FD), inherited(CONNECTIONS_FD)),
    }
}

/// Takes ownership of a descriptor that this process inherited.
fn inherited(number: RawFd) -> OwnedFd {
    // SAFETY: the process that starts this program passes descriptors with these numbers. Those
    // that the runtime has opened have other numbers, and each number is taken once. If a
    // descriptor is missing, its first use fails.
    unsafe { OwnedFd::from_raw_fd(number) }
}

//! `faasw-egress`: the connector or a worker, by its argument.
//!
//! | descriptor | connector | worker |
//! | ---: | --- | --- |
//! | 3 | the socket to the node: orders | the socket to the node: frames |
//! | 4 | | the socket on which connections come |

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::process::ExitCode;

/// The socket to the node.
const NODE: RawFd = 3;
/// The socket on which a worker is passed connections.
const CONNECTIONS: RawFd = 4;

fn main() -> ExitCode {
    let mode = std::env::args().nth(1);
    let outcome = match mode.as_deref() {
        Some("connector") => faasw_egress::connector::run(inherited(NODE)),
        Some("worker") => faasw_egress::worker::run(inherited(NODE), inherited(CONNECTIONS)),
        _ => Err(io::Error::other("say `connector` or `worker`")),
    };
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

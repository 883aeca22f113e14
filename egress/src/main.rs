//! `faasw-egress`: connector or worker, by its argument.

use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use faasw_cell::egress::NODE_FD;
use faasw_egress::cell;

fn main() -> ExitCode {
    if let Err(error) = cell::enter() {
        eprintln!("faasw-egress: {error}");
        return ExitCode::FAILURE;
    }
    // SAFETY: who starts this program gives it, and nothing else in it owns it.
    let node = unsafe { OwnedFd::from_raw_fd(NODE_FD) };
    let mut node = UnixStream::from(node);
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = node.read(&mut bytes) {
        if node
            .write_all(bytes.get(..read).unwrap_or_default())
            .is_err()
        {
            break;
        }
    }
    ExitCode::SUCCESS
}

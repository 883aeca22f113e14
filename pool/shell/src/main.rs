//! The spawner, and the shells that it forks.
//!
//! The node starts this program once. It stays single-threaded and does nothing
//! but make processes: shells by forking itself, the compile helper by
//! executing it. A forked child becomes a shell: it owns one VM and answers to
//! the node over a socket of its own.
//!
//! Inherited descriptors: [`NODE_FD`] is the socket to the node, [`HELPER_FD`]
//! the compile helper's program. The spawner ends when the node closes its end,
//! which the kernel does for it however it dies; shells and helpers end with
//! the spawner, which is their parent and has one thread (`PR_SET_PDEATHSIG`
//! fires when the parent *thread* ends).

mod clock;
mod guest_memory;
mod helper;
mod prefault;
mod reset;
mod shell;
mod spawner;
mod state;
mod statistics;
mod vm;
mod written;

use std::process::ExitCode;

/// The socket to the node.
const NODE_FD: i32 = 3;
/// The compile helper's program.
const HELPER_FD: i32 = 4;

fn main() -> ExitCode {
    match spawner::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faasw spawner: {error}");
            ExitCode::FAILURE
        }
    }
}

//! The spawner, and the shells that it forks.
//!
//! The node starts this program once. It stays single-threaded and does nothing
//! but make processes: shells by forking itself, the compile helper by
//! executing it. A forked child becomes a shell: it owns one VM and answers to
//! the node over a socket of its own.
//!
//! Inherited descriptors: [`faasw_shell::NODE_FD`] is the socket to the node,
//! [`faasw_shell::HELPER_FD`] the compile helper's program. The spawner ends when
//! the node closes its end, which the kernel does for it however it dies; shells
//! and helpers end with the spawner, which is their parent and has one thread
//! (`PR_SET_PDEATHSIG` fires when the parent *thread* ends).

mod heap;

use std::process::ExitCode;

fn main() -> ExitCode {
    match faasw_shell::spawner::run(faasw_shell::cell::all_rules) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faasw spawner: {error}");
            ExitCode::FAILURE
        }
    }
}

//! The spawner, and the shells that it forks; or the launcher, which forks spawners.
//!
//! The node starts this program once. It stays single-threaded and does nothing
//! but make processes: shells by forking itself, the compile helper by
//! executing it. A forked child becomes a shell: it owns one VM and answers to
//! the node over a socket of its own.
//!
//! Inherited descriptors: [`faasw_shell::NODE_FD`] is the socket to the node,
//! [`faasw_shell::HELPER_FD`] and maybe [`faasw_shell::CARRIER_FD`] the compile helper's program
//! ([`faasw_shell::process::helper_program`]). The spawner ends when the node closes its end,
//! which the kernel does for it however it dies; shells and helpers end with the spawner, which is
//! their parent and has one thread (`PR_SET_PDEATHSIG` fires when the parent *thread* ends).

mod heap;

use std::process::ExitCode;

use faasw_shell::{launcher, process::cell, process::outer, spawner};

fn main() -> ExitCode {
    let is_launcher = std::env::args().any(|word| word == launcher::ARGUMENT);
    let (name, run): (_, fn(_) -> _) = match is_launcher {
        true => ("launcher", launcher::run),
        false => ("spawner", spawner::run),
    };
    match outer::install().and_then(|()| run(cell::all_rules as fn(_) -> _)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faasw {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

//! The spawner, and the sandboxes that it forks; or the launcher, which forks spawners.
//!
//! The node starts this program once. The spawner stays single-threaded and only makes processes:
//! sandboxes by forking itself, the compile helper and workers by executing their programs. A
//! forked child becomes a sandbox: it owns one VM and serves the node over a socket of its own.
//!
//! Inherited descriptors: [`faasw_sandbox::NODE_FD`] is the socket to the node. The descriptors
//! after it are the programs that the spawner executes ([`faasw_sandbox::process::programs`]). The
//! spawner ends when the node's end of the socket is closed, which the kernel does however the node
//! dies. All of its processes end with it, because it is their parent and has one thread
//! (`PR_SET_PDEATHSIG` fires when the parent *thread* ends). With [`launcher::OUTSIDE`] it stays in
//! the host's network and makes only the connector; with [`launcher::REDUCED`] its jails have no
//! namespaces.

mod heap;

use std::process::ExitCode;

use faasw_jail::ConfinementLevel;
use faasw_sandbox::{launcher, process::jail, process::outer, spawner};

fn main() -> ExitCode {
    let has = |argument| std::env::args().any(|word| word == argument);
    let level = if has(launcher::REDUCED) {
        ConfinementLevel::Reduced
    } else {
        ConfinementLevel::Full
    };
    let name = if has(launcher::ARGUMENT) {
        "launcher"
    } else {
        "spawner"
    };
    let ended = outer::install().and_then(|()| match () {
        () if has(launcher::ARGUMENT) => launcher::run(jail::all_rules),
        () if has(launcher::OUTSIDE) => spawner::run_outside(level),
        () => spawner::run(level, jail::all_rules),
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faasw {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

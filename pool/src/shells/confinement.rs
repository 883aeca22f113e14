//! What is round the microVMs of a pool, and who makes their shells accordingly.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::process::Process;
use super::spawner::Spawner;
use super::threads::Threads;
use crate::error::PlatformError;

/// What is round a microVM besides the VM itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confinement {
    /// Each microVM is in a process of its own, in a cell: own user where the host has
    /// one to give, own namespaces, an empty root, a filter of system calls, limits. A
    /// guest that breaks out of its VM finds itself there.
    #[default]
    Jailed,
    /// **Each microVM is a thread of this program, and the VM is all that holds its
    /// guest.** For programs that run functions they trust as far as their own code, or
    /// that may make no processes. What is lost:
    ///
    /// - A guest that breaks out of its VM is in this program: with its memory, its
    ///   secrets, its descriptors and its rights, and next to every other function.
    ///   There is no user of its own, no namespace, no filter and no report of forbidden
    ///   calls.
    /// - A fault in the shell's code that ends a process ends this program. A panic does
    ///   not, unless the program is built with `panic = "abort"`: it ends its microVM.
    /// - The kernel holds no microVM to limits of memory and processors. What a guest
    ///   has of memory is bounded by its function's memory limit; what KVM has for it in
    ///   the kernel counts as this program's.
    /// - All microVMs share this program's limits: 13 descriptors and about 25
    ///   mappings each (`RLIMIT_NOFILE`, `vm.max_map_count`), its address space, and one table of
    ///   pages, whose lock they wait for and whose changes KVM looks at for each VM.
    ///
    /// What stays: clean memory for each request, limits of wall time and of CPU time,
    /// which is counted by thread. Uploads are compiled in a cell all the same, by a
    /// process that is started for the first of them: where the host allows no cells,
    /// functions that were compiled elsewhere still run, and compiling fails and says
    /// why.
    ///
    /// Threads are named `faasw-shell` and get none of the program's signals. Each is
    /// ended with `SIGSTKFLT`, sent to it alone and never delivered: no handler is
    /// installed, and none of the program's is called.
    InProcess,
}

impl Confinement {
    /// Descriptors of this program that each parked microVM takes, its mailbox included; one more while it is
    /// not parked.
    #[must_use]
    pub fn descriptors(self) -> u64 {
        match self {
            Self::Jailed => 3,
            Self::InProcess => 13,
        }
    }
}

/// Who makes shells.
#[derive(Clone, Debug)]
pub enum Maker {
    /// The spawner, by forking.
    Spawner(Arc<Spawner>),
    /// This program.
    Threads(Arc<Threads>),
}

impl Maker {
    /// Makes a shell that talks over `socket` and whose guest signals `progress`; with
    /// `is_ahead` when nothing else wants to run.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn shell(
        &self,
        socket: OwnedFd,
        progress: &OwnedFd,
        is_ahead: bool,
    ) -> Result<Process, PlatformError> {
        match self {
            Self::Spawner(spawner) => spawner.shell(&socket, progress, is_ahead).await,
            Self::Threads(threads) => threads.shell(socket, progress, is_ahead),
        }
    }
}

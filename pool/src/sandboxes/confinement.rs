//! What is round the microVMs of a pool, and who makes their sandboxes accordingly.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use faasw_jail::{ConfinementLevel, has_landlock};

use super::process::Process;
use super::spawner::Spawner;
use super::threads::Threads;
use crate::error::PlatformError;

/// What is round a microVM besides the VM itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confinement {
    /// Each microVM is in a process of its own, in a jail: own user where the host has
    /// one to give, own namespaces, an empty root, a filter of system calls, limits. A
    /// guest that breaks out of its VM finds itself there.
    #[default]
    Jailed,
    /// **As [`Confinement::Jailed`], but without namespaces**, for hosts that allow none. Each
    /// microVM is in a process of its own, with a filter of system calls, limits and no privilege;
    /// with Landlock where the kernel has it; and, where this program has root's privileges, with a
    /// user of its own and an empty root. What is lost:
    ///
    /// - A guest that breaks out of its VM is in the host's network, process and file name spaces.
    ///   The filter keeps it from sockets, files, signals and other processes; where that has a
    ///   gap, only Landlock, the user and the empty root hold, as far as there are any.
    /// - Without root's privileges all processes of microVMs have this program's user: the number
    ///   of them is not limited by the kernel, and users do not keep them apart.
    ///
    /// `docs/threat-model.md` has the whole list. A pool never chooses it by itself.
    Reduced,
    /// **Each microVM is a thread of this program, and the VM is all that holds its
    /// guest.** For programs that run functions they trust as far as their own code, or
    /// that may make no processes. What is lost:
    ///
    /// - A guest that breaks out of its VM is in this program: with its memory, its
    ///   secrets, its descriptors and its rights, and next to every other function.
    ///   There is no user of its own, no namespace, no filter and no report of forbidden
    ///   calls.
    /// - A fault in the sandbox's code that ends a process ends this program. A panic does
    ///   not, unless the program is built with `panic = "abort"`: it ends its microVM.
    /// - The kernel holds no microVM to limits of memory and processors. What a guest
    ///   has of memory is bounded by its function's memory limit; what KVM has for it in
    ///   the kernel counts as this program's.
    /// - All microVMs share this program's limits: 13 descriptors and about 25
    ///   mappings each (`RLIMIT_NOFILE`, `vm.max_map_count`), its address space, and one table of
    ///   pages, whose lock they wait for and whose changes KVM looks at for each VM.
    ///
    /// What stays: clean memory for each request, limits of wall time and of CPU time,
    /// which is counted by thread. Uploads are compiled in a jail all the same, by a
    /// process that is started for the first of them: where the host allows no jails,
    /// functions that were compiled elsewhere still run, and compiling fails and says
    /// why.
    ///
    /// Threads are named `faasw-sandbox` and get none of the program's signals. Each is
    /// ended with `SIGSTKFLT`, sent to it alone and never delivered: no handler is
    /// installed, and none of the program's is called.
    InProcess,
}

impl Confinement {
    /// The name, as in options and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Jailed => "full",
            Self::Reduced => "reduced",
            Self::InProcess => "in-process",
        }
    }

    /// Describes for people what the reduced level loses; `None` for the other kinds.
    #[must_use]
    pub fn loss(self) -> Option<String> {
        let landlock = if has_landlock() {
            "and Landlock alone"
        } else {
            "alone, for this kernel has no Landlock"
        };
        (self == Self::Reduced).then(|| {
            format!(
                "confinement is reduced, as was asked for: the processes of microVMs, compiler \
                 and egress have no namespaces, and system-call filters {landlock} keep them \
                 from the host's network, files and processes (docs/threat-model.md)"
            )
        })
    }

    /// The confinement level of microVMs, compile helpers and egress.
    pub(crate) fn level(self) -> ConfinementLevel {
        match self {
            Self::Jailed | Self::InProcess => ConfinementLevel::Full,
            Self::Reduced => ConfinementLevel::Reduced,
        }
    }

    /// Descriptors of this program that each parked microVM takes, its mailbox included; one more
    /// while it is not parked.
    #[must_use]
    pub fn descriptors(self) -> u64 {
        match self {
            Self::Jailed | Self::Reduced => 3,
            Self::InProcess => 13,
        }
    }
}

/// Who makes sandboxes.
#[derive(Clone, Debug)]
pub enum Maker {
    /// The spawner, by forking.
    Spawner(Arc<Spawner>),
    /// This program.
    Threads(Arc<Threads>),
}

impl Maker {
    /// Makes a sandbox that talks over `socket` and whose guest signals `progress`; with
    /// `is_ahead` when nothing else wants to run.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn sandbox(
        &self,
        socket: OwnedFd,
        progress: &OwnedFd,
        is_ahead: bool,
    ) -> Result<Process, PlatformError> {
        match self {
            Self::Spawner(spawner) => spawner.sandbox(&socket, progress, is_ahead).await,
            Self::Threads(threads) => threads.sandbox(socket, progress, is_ahead),
        }
    }
}

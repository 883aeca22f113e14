//! The confinement of a pool's sandboxes.

use faasw_jail::{ConfinementLevel, has_landlock};

/// The confinement of a sandbox, besides the VM itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confinement {
    /// Each sandbox is a process of its own in a jail: its own user if the host allows it, its own
    /// namespaces, an empty root, a system-call filter, and limits. A guest that breaks out of its
    /// VM is confined there.
    #[default]
    Jailed,
    /// **As [`Confinement::Jailed`], but without namespaces**, for hosts that allow none. Each
    /// sandbox is a process of its own, with a system-call filter, limits and no privileges. It has
    /// Landlock if the kernel supports it. If this program has root's privileges, it also has a
    /// user of its own and an empty root. What is lost:
    ///
    /// - A guest that breaks out of its VM is in the host's network, process and file name spaces.
    ///   The filter keeps it from sockets, files, signals and other processes. If the filter has a
    ///   gap, only Landlock, the user and the empty root hold, as far as they are available.
    /// - Without root's privileges, all sandbox processes have this program's user. The kernel does
    ///   not limit their number, and users do not separate them.
    ///
    /// `docs/threat-model.md` has the whole list. A pool never chooses this level by itself.
    Reduced,
    /// **Each sandbox is a thread of this program, and its guest is confined by the VM alone.** For
    /// programs that trust the functions as much as their own code, or that may not make processes.
    /// This level lacks:
    ///
    /// - A guest that breaks out of its VM is in this program: it has the program's memory,
    ///   secrets, descriptors and rights, and can reach every other function. There is no user of
    ///   its own, no namespace, no filter and no report of forbidden calls.
    /// - A fault in the sandbox's code that ends a process ends this program. A panic only ends its
    ///   sandbox, unless the program is built with `panic = "abort"`.
    /// - The kernel does not limit the memory and processors of sandboxes. A guest's memory is
    ///   bounded by its function's memory limit; KVM's kernel memory for it counts as this
    ///   program's.
    /// - All sandboxes share this program's limits: 13 descriptors and about 25 mappings each
    ///   (`RLIMIT_NOFILE`, `vm.max_map_count`) and its address space. They also share one page
    ///   table: they wait for its lock, and KVM examines its changes for each VM.
    ///
    /// This level keeps: clean memory for each request, and limits of wall time and of CPU time,
    /// which is counted by thread. Uploads are still compiled in a jail, by a process that is
    /// started for the first of them. If the host allows no jails, functions that were compiled
    /// elsewhere still run; compiling fails and reports the reason.
    ///
    /// The threads are named `faasw-sandbox` and receive none of the program's signals. Each is
    /// ended with `SIGSTKFLT`, which is sent to it alone and never delivered: no handler is
    /// installed, and none of the program's is called.
    InProcess,
}

impl Confinement {
    /// Returns the name, as in options and metrics.
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
                "confinement is reduced, as configured: the processes of microVMs, compiler and \
                 egress have no namespaces, and system-call filters {landlock} keep them \
                 from the host's network, files and processes (docs/threat-model.md)"
            )
        })
    }

    /// Returns the confinement level of sandboxes, compile helpers and egress.
    pub(crate) fn level(self) -> ConfinementLevel {
        match self {
            Self::Jailed | Self::InProcess => ConfinementLevel::Full,
            Self::Reduced => ConfinementLevel::Reduced,
        }
    }

    /// Returns how many descriptors of this program each warm sandbox takes, its mailbox
    /// included; it takes one more while it is not warm.
    #[must_use]
    pub fn descriptors(self) -> u64 {
        match self {
            Self::Jailed | Self::Reduced => 3,
            Self::InProcess => 13,
        }
    }
}

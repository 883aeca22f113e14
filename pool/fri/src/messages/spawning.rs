//! The messages between node, launcher and spawner.

use faasw_abi::isa::Isa;
use faasw_jail::egress;
use faasw_jail::{ConfinementLevel, Network, Obstacle, Step};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

use super::{Answer, Kind, Message};

message! {
    /// Node to launcher: make a spawner. Attached: the socket over which it communicates, and an
    /// end of a pair, which is closed once the spawner was reaped. Over the other end, a [`Kill`]
    /// kills the spawner.
    Launch {
        /// The network of its jails: a spawner in the host's network makes only the connector.
        network: Network,
        /// The confinement level of its jails.
        level: ConfinementLevel,
    }
}

message! {
    /// Node to launcher: open the files that define how names are resolved on this host, which a
    /// node that has confined itself cannot open. Attached: the socket for the reply,
    /// [`NamesOpened`]. It is closed without a reply if one of the files exists and cannot be
    /// opened.
    OpenNames {}
}

message! {
    /// Launcher to node: the files that exist. Attached: those files, open for reading.
    NamesOpened {
        /// Whether `/etc/hosts` is attached.
        hosts: Answer,
        /// Whether `/etc/resolv.conf` is attached, after `/etc/hosts`.
        servers: Answer,
    }
}

message! {
    /// Node to spawner: make a sandbox. Attached: the socket over which it communicates, and the
    /// eventfd that its guest's progress doorbell signals.
    SpawnSandbox {
        /// Identifies the process in replies.
        token: u64,
        /// Whether no request waits for it: it makes its VM when nothing else wants to run.
        is_ahead: Answer,
    }
}

message! {
    /// Node to spawner: run the compile helper. Attached: input, output, report.
    SpawnHelper {
        /// Identifies the process in replies.
        token: u64,
        /// Limit of CPU time, in seconds.
        cpu_seconds: u64,
        /// Limit of the helper's own memory, in bytes.
        memory_bytes: u64,
        /// The instruction set to compile for.
        isa: Isa,
    }
}

message! {
    /// Node to spawner: run the connector, which requires a spawner in the host's network, or a
    /// worker, which requires another spawner. Attached: the socket over which the process
    /// communicates; for a worker, also its socket from the connector.
    SpawnEgress {
        /// Identifies the process in replies.
        token: u64,
        /// Connector or worker.
        kind: egress::EgressRole,
    }
}

message! {
    /// Node to spawner: end a process that it made. Unknown tokens are ignored, because the process
    /// may have just ended.
    Kill {
        /// Token with which the process was made.
        token: u64,
    }
}

message! {
    /// Node to spawner: the function of a sandbox is known. From now on the sandbox has the usual
    /// priority, its group has this memory limit, and it shares processors with the other sandboxes
    /// of its function. Unknown tokens are ignored. On hosts without groups only the priority is
    /// set.
    Limit {
        /// Token with which the process was made.
        token: u64,
        /// The function that the sandbox serves; [`NO_FUNCTION`] if it makes a seed.
        function: FunctionNumber,
        /// Bytes, including those of its VM in the kernel.
        memory_bytes: u64,
    }
}

/// The number of a function in its pool, the same for all its versions.
pub type FunctionNumber = u64;

/// Stands for making seeds, which shares processors like one function.
pub const NO_FUNCTION: FunctionNumber = u64::MAX;

message! {
    /// Node to spawner: put a sandbox behind everything else that wants a processor, by its group,
    /// or end that. The reply is [`BackgroundGroupReport`]. Unknown tokens are ignored.
    SetBackgroundGroup {
        /// Token with which the process was made.
        token: u64,
        /// Whether to put it behind everything else.
        background: Answer,
    }
}

message! {
    /// Node to spawner: run a sandbox at the background priority, by its group's weight and its
    /// nice value, or at the usual one. Unknown tokens are ignored.
    SetPriority {
        /// Token with which the process was made.
        token: u64,
        /// Whether to run it at the background priority.
        background: Answer,
    }
}

message! {
    /// Spawner to node: whether a sandbox's group is behind all others now.
    BackgroundGroupReport {
        /// Token with which the process was made.
        token: u64,
        /// Whether it is behind all others.
        background: Answer,
        /// The sandbox should be, and cannot be: no other sandbox can be, either, on this host.
        refused: Answer,
    }
}

message! {
    /// Node to spawner, before all other messages: how to keep control groups. Ignored on hosts
    /// without groups.
    KeepGroups {
        /// The most groups that may wait for the next jails; surplus ones are removed.
        free_max: u64,
        /// Bytes of memory that all jails may take together.
        memory_bytes: u64,
    }
}

/// How the spawner's control groups are used; all zeroes on hosts without groups.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FriGroups {
    /// Groups that wait for a jail.
    pub free: u64,
    /// Groups that have a jail.
    pub used: u64,
    /// The most groups that may wait.
    pub free_max: u64,
    /// Jails that got a group that had waited, since the spawner's start.
    pub hits: u64,
    /// Jails for which a group was made, since the spawner's start.
    pub misses: u64,
}

message! {
    /// Spawner to node, before all other messages: what this host provides for jails. Attached if
    /// there are groups: the file with the memory usage of all of them.
    Introduced {
        /// Whether each jail has a user of its own.
        own_users: Answer,
        /// The control groups that hold jails to their limits.
        groups: GroupVersion,
    }
}

/// Which control groups a host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u64)]
pub enum GroupVersion {
    /// None.
    None = 0,
    /// Version 1.
    One = 1,
    /// Version 2.
    Two = 2,
}

message! {
    /// Spawner to node: the process runs.
    Spawned {
        /// Token of the request.
        token: u64,
        /// The number of the process.
        pid: u64,
        /// Time for finding or making its control group, in nanoseconds.
        group_nanoseconds: u64,
        /// Time for the fork on the spawner's side, in nanoseconds.
        fork_nanoseconds: u64,
        /// Control groups, including that of this process.
        groups: FriGroups,
    }
}

message! {
    /// Spawner to node: the process could not be made.
    SpawnFailed {
        /// Token of the request.
        token: u64,
        /// The kernel's error number.
        errno: u64,
        /// The step that failed.
        step: Step,
        /// The property of this host that is the cause, if it is known.
        obstacle: Obstacle,
    }
}

message! {
    /// Spawner to node: a process has ended and was reaped.
    Ended {
        /// Token with which it was made.
        token: u64,
        /// Signal that ended it, or 0.
        signal: u64,
        /// Exit code, if no signal ended it.
        code: u64,
        /// Whether the kernel killed it because of a memory limit, by its group's count.
        out_of_memory: Answer,
        /// CPU time that it used in all, as the kernel counted it.
        cpu_nanoseconds: u64,
        /// Control groups, without that of this process.
        groups: FriGroups,
    }
}

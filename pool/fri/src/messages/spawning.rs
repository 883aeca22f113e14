//! Between node and spawner.

use faasw_abi::isa::Isa;
use faasw_jail::egress;
use faasw_jail::{ConfinementLevel, Network, Obstacle, Step};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

use super::{Answer, Kind, Message};

message! {
    /// Node to launcher: make a spawner. Attached: the socket that it talks over, and an
    /// end of a pair, which is closed once the spawner was reaped; a [`Kill`] over the other
    /// end has it killed.
    Launch {
        /// Which network its jails are in: one in the host's makes the connector only.
        network: Network,
        /// The confinement level of its jails.
        level: ConfinementLevel,
    }
}

message! {
    /// Node to launcher: open the files that say how names are resolved on this host, which the
    /// node may not. Attached: the socket that [`NamesOpened`] comes by, which is closed without
    /// one where a file is there and cannot be opened.
    OpenNames {}
}

message! {
    /// Launcher to node: what is there. Attached: those files, to be read.
    NamesOpened {
        /// Whether `/etc/hosts` is.
        hosts: Answer,
        /// Whether `/etc/resolv.conf` is, behind it.
        servers: Answer,
    }
}

message! {
    /// Node to spawner: make a sandbox. Attached: the socket that it talks over,
    /// and the eventfd that its guest's progress doorbell signals.
    SpawnSandbox {
        /// Comes back in the answer.
        token: u64,
        /// Whether nobody waits for it: it makes its VM when nothing else wants to run.
        is_ahead: Answer,
    }
}

message! {
    /// Node to spawner: run the compile helper. Attached: input, output, report.
    SpawnHelper {
        /// Comes back in the answer.
        token: u64,
        /// Limit of CPU time, in seconds.
        cpu_seconds: u64,
        /// Limit of address space, in bytes.
        memory_bytes: u64,
        /// What to compile for.
        isa: Isa,
    }
}

message! {
    /// Node to spawner: run the connector, which takes one in the host's network, or a worker,
    /// which takes any other. Attached: the socket that it talks over; a worker's socket from the
    /// connector.
    SpawnEgress {
        /// Comes back in the answer.
        token: u64,
        /// Which of them.
        kind: egress::Kind,
    }
}

message! {
    /// Node to spawner: end a process that it made. Unknown tokens are ignored,
    /// since the process may have just ended.
    Kill {
        /// Token the process was made with.
        token: u64,
    }
}

message! {
    /// Node to spawner: a sandbox may have so much memory from now on, by the kernel's
    /// account of its group, and shares processors with the other sandboxes of its function.
    /// Unknown tokens are ignored, as are hosts without groups.
    Limit {
        /// Token the process was made with.
        token: u64,
        /// The function that the sandbox serves; [`NO_FUNCTION`] if it makes a seed.
        function: u64,
        /// Bytes, those of its VM in the kernel included.
        memory_bytes: u64,
    }
}

/// Stands for the making of seeds, which shares processors as one function does.
pub const NO_FUNCTION: u64 = u64::MAX;

message! {
    /// Node to spawner: whether all that wants a processor comes before a sandbox, by its group.
    /// Answered by [`SteppedAside`]. Unknown tokens are ignored.
    StepAside {
        /// Token the process was made with.
        token: u64,
        /// Whether it does.
        aside: Answer,
    }
}

message! {
    /// Node to spawner: whether a sandbox runs at the background priority, by its group's weight
    /// and its nice value. Unknown tokens are ignored.
    SetPriority {
        /// Token the process was made with.
        token: u64,
        /// Whether it does; else it runs at the usual priority.
        background: Answer,
    }
}

message! {
    /// Spawner to node: whether a sandbox's group comes behind all others now.
    SteppedAside {
        /// Token the process was made with.
        token: u64,
        /// Whether it does.
        aside: Answer,
        /// It should, and cannot: no other can either on this host.
        refused: Answer,
    }
}

message! {
    /// Node to spawner, first of all: how control groups are to be kept. Ignored by hosts
    /// without groups.
    KeepGroups {
        /// Groups that may wait for the next jails; those above are removed.
        free_max: u64,
        /// Bytes of memory that all jails may take together.
        memory_bytes: u64,
    }
}

/// How the spawner's control groups are used; all zeroes on hosts without.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FriGroups {
    /// Groups that wait for a jail.
    pub free: u64,
    /// Groups that have one.
    pub used: u64,
    /// Most that may wait.
    pub free_max: u64,
    /// Jails that got a group that had waited, since the spawner began.
    pub hits: u64,
    /// Jails that had a group made for them, since the spawner began.
    pub misses: u64,
}

message! {
    /// Spawner to node, first of all: what this host gives jails. Attached where there are
    /// groups: the file that tells what all of them take of memory.
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
        /// Its process number.
        pid: u64,
        /// Time that its control group took, found or made, in nanoseconds.
        group_nanoseconds: u64,
        /// Time that the fork took, in nanoseconds, on the spawner's side.
        fork_nanoseconds: u64,
        /// Control groups, now that it has one.
        groups: FriGroups,
    }
}

message! {
    /// Spawner to node: there is no such process.
    SpawnFailed {
        /// Token of the request.
        token: u64,
        /// The system's error number.
        errno: u64,
        /// What failed of making it.
        step: Step,
        /// The property of this host that is the cause, if it is known.
        obstacle: Obstacle,
    }
}

message! {
    /// Spawner to node: a process has ended and was reaped.
    Ended {
        /// Token it was made with.
        token: u64,
        /// Signal that ended it, or 0.
        signal: u64,
        /// Exit code, where no signal ended it.
        code: u64,
        /// Whether the system ended it for want of memory, by its group's account.
        out_of_memory: Answer,
        /// CPU time that it used in all, by the system's account.
        cpu_nanoseconds: u64,
        /// Control groups, now that it has none.
        groups: FriGroups,
    }
}

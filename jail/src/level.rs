//! How strictly a jail confines its process: its level, and its network.

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// The strictness of a jail.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(u64)]
pub enum ConfinementLevel {
    /// Namespaces, an empty root, no privilege, resource limits, a system-call filter, and a user
    /// of its own if the maker may assign one.
    #[default]
    Full = 0,
    /// No privilege, resource limits, a system-call filter, and Landlock where the kernel has it,
    /// for hosts that allow no namespaces. If the maker has root's privileges, also a user of its
    /// own and an empty root.
    Reduced = 1,
}

/// The network of a site's jails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u64)]
pub enum Network {
    /// An empty network: for each process that accesses data of a tenant or of a remote server.
    Empty = 0,
    /// The host's network: for the process that connects, and reads no data from the servers to
    /// which it connects.
    Host = 1,
}

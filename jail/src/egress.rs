//! Starting the egress processes, in jails that they close themselves: the connector and the
//! workers (docs/decisions/0026).

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::process::Pid;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::close::Limits;
use crate::group::{Group, Share, WEIGHT_FULL};
use crate::program::{Program, Start, start};
use crate::site::Site;

/// The socket to the node.
pub const NODE_FD: RawFd = 3;
/// A worker's socket from the connector; the null device in the connector.
pub const CONNECTIONS_FD: RawFd = 4;
/// The descriptor by which the jail is taken over, until it is closed.
pub const JAIL_FD: RawFd = 5;

/// The kind of an egress process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u64)]
pub enum EgressRole {
    /// Resolves names, filters addresses and connects, for all functions of a node. Its maker's
    /// site has the host's network.
    Connector = 0,
    /// Speaks over one function's connections. It has no network.
    Worker = 1,
}

impl EgressRole {
    /// Returns the program's first argument; [`EgressRole::of_argument`] parses it.
    #[must_use]
    pub fn argument(self) -> &'static CStr {
        match self {
            Self::Connector => c"connector",
            Self::Worker => c"worker",
        }
    }

    /// Returns the kind that an argument stands for.
    #[must_use]
    pub fn of_argument(argument: &str) -> Option<Self> {
        let all = [Self::Connector, Self::Worker];
        let mut all = all.into_iter();
        all.find(|kind| kind.argument().to_bytes() == argument.as_bytes())
    }

    /// Returns the resource limits of the process.
    #[must_use]
    pub fn limits(self) -> Limits {
        Limits {
            // A descriptor for each connection, and one for the socket to each worker.
            descriptors: match self {
                Self::Connector => 1024,
                Self::Worker => 512,
            },
            processes: 1,
            address_space: ADDRESS_SPACE,
            file_bytes: 0,
        }
    }

    /// Returns the limits of its control group: a worker's buffers are those of its function, the
    /// connector holds names and addresses.
    fn share(self) -> Share {
        Share {
            memory: match self {
                Self::Connector => 64 << 20,
                Self::Worker => 128 << 20,
            },
            processes: 1,
            weight: WEIGHT_FULL / 2,
        }
    }
}

/// The address space for program, libraries, stack and heap; the group limits how much of it is in
/// memory.
const ADDRESS_SPACE: u64 = 512 << 20;

/// Starts an egress process with its sockets at descriptors 3 and 4, in an open jail that it closes
/// itself once its libraries are loaded.
///
/// # Errors
/// Returns an error if the limits of its group cannot be set, or if the process cannot be forked.
pub fn spawn(
    site: &Site,
    jail: (u32, Option<&Group>),
    program: Program<'_>,
    kind: EgressRole,
    fds: [BorrowedFd<'_>; 2],
) -> io::Result<Pid> {
    let how = Start {
        name: c"faasw-egress",
        arguments: vec![kind.argument().to_owned()],
        environment: Vec::new(),
        descriptors: &fds,
        limits: &[],
        priority: 0,
        share: kind.share(),
    };
    start(site, jail, program, how)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_parsed_from_its_argument() {
        for kind in [EgressRole::Connector, EgressRole::Worker] {
            let argument = kind.argument().to_str().unwrap();
            assert_eq!(EgressRole::of_argument(argument), Some(kind));
        }
        for argument in ["", "work", "workers", "--jail"] {
            assert_eq!(EgressRole::of_argument(argument), None);
        }
    }
}

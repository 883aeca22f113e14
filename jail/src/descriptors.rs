//! Numbers of descriptors.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

/// Numbers from here on are for descriptors of the process that makes jails, so that
/// those of a jail get low ones.
const MAKERS: i32 = 64;

/// A copy of a descriptor with a number that no jail uses.
///
/// # Errors
/// The system's.
pub fn out_of_the_way(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(fd, MAKERS)
}

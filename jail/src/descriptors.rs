//! Numbers of descriptors.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

/// The first number for descriptors of the process that makes jails, so that those of a jail get
/// low numbers.
const FIRST_HIGH_FD: i32 = 64;

/// Duplicates a descriptor to a number that no jail uses.
///
/// # Errors
/// Returns the error of `fcntl`.
pub fn dup_to_high_fd(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(fd, FIRST_HIGH_FD)
}

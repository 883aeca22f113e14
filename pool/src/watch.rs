//! Watching a socket from tokio.

use std::io;
use std::os::fd::OwnedFd;

use faasw_fri::FriError;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Makes a socket non-blocking and has the runtime watch it.
///
/// # Errors
/// The system's.
#[expect(unsafe_code, reason = "tokio cannot check who owns a descriptor")]
pub fn watch(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    // SAFETY: an `OwnedFd` always answers with the same open descriptor, which
    // is closed only after it was taken out of the runtime.
    let watched =
        unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE | Interest::WRITABLE) };
    Ok(watched?)
}

/// A non-blocking socket's "not now" becomes what [`AsyncFd`] waits on.
pub fn into_io(error: FriError) -> io::Error {
    match error {
        FriError::System(errno) => errno.into(),
        FriError::Closed => io::ErrorKind::BrokenPipe.into(),
        FriError::Malformed => io::ErrorKind::InvalidData.into(),
    }
}

//! Watching a socket from Tokio.

use std::io;
use std::os::fd::OwnedFd;

use faasw_fri::FriError;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Makes a socket non-blocking and has the runtime watch it for incoming data. It is not watched
/// for room: the kernel reports that each time the peer receives anything, which would wake the
/// runtime for nothing ([`send_when_writable`]).
///
/// # Errors
/// Returns the error of the system if the socket cannot be watched.
pub fn watch(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    register(socket, Interest::READABLE)
}

#[expect(unsafe_code, reason = "tokio cannot check who owns a descriptor")]
fn register(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` always returns the same open descriptor, which is closed only after it
    // was removed from the runtime.
    let watched = unsafe { AsyncFd::register_with_interest(socket, interest) };
    Ok(watched?)
}

/// Sends over a watched socket as soon as that has room: almost always at once.
///
/// # Errors
/// Returns the error of `send`, except that there is no room, or the error of watching the socket.
pub async fn send_when_writable(
    socket: &AsyncFd<OwnedFd>,
    send: impl Fn(&OwnedFd) -> io::Result<()>,
) -> io::Result<()> {
    match send(socket.get_ref()) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        sent => return sent,
    }
    let room = register(socket.get_ref().try_clone()?, Interest::WRITABLE)?;
    room.async_io(Interest::WRITABLE, send).await
}

/// Converts an error so that a non-blocking socket's "not now" becomes the one that [`AsyncFd`]
/// waits on.
pub fn into_io(error: FriError) -> io::Error {
    match error {
        FriError::System(errno) => errno.into(),
        FriError::Closed => io::ErrorKind::BrokenPipe.into(),
        FriError::Malformed => io::ErrorKind::InvalidData.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::pin::pin;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_message_is_sent_once_the_socket_is_writable() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let ours = watch(ours).unwrap();
        let send = |socket: &OwnedFd| Ok(rustix::io::write(socket, b"order").map(|_| ())?);
        while send(ours.get_ref()).is_ok() {}
        let mut sending = pin!(send_when_writable(&ours, send));
        let soon = timeout(Duration::from_millis(10), sending.as_mut()).await;
        assert!(soon.is_err());
        while rustix::io::read(&theirs, &mut [0; 16]).is_ok() {}
        sending.await.unwrap();
        assert_eq!(rustix::io::read(&theirs, &mut [0; 16]), Ok(5));
        drop(theirs);
        let error = send_when_writable(&ours, send).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}

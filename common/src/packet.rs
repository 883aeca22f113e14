//! Packets with descriptors, over `SOCK_SEQPACKET` sockets of the UNIX domain (`unix(7)`).

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags,
    },
};

/// Maximum number of descriptors in one packet.
pub const FDS_MAX: usize = 18;

/// Whether a receiver takes descriptors from its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptors {
    /// The peer may send descriptors. They are closed on exec.
    Accept,
    /// The peer must not send descriptors: the kernel gets no buffer for them, and drops them.
    Reject,
}

/// The length and the descriptors of a received packet.
#[derive(Debug)]
pub struct Received {
    /// The number of received bytes; 0 at the end of the stream.
    pub length: usize,
    /// The descriptors, in the order in which they were sent.
    pub fds: Vec<OwnedFd>,
    /// Whether the packet was longer than the buffer.
    pub is_truncated: bool,
    /// Whether descriptors were dropped: they were rejected, there were too many, or this process
    /// had no free descriptor.
    pub has_lost_fds: bool,
}

/// Sends a packet that consists of these parts, with descriptors.
///
/// # Errors
/// Returns `INVAL` if there are more than [`FDS_MAX`] descriptors, and otherwise the error of
/// `sendmsg`. A closed peer is `PIPE`, never a signal.
pub fn send(
    socket: impl AsFd,
    parts: &[IoSlice<'_>],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if fds.len() > FDS_MAX {
        return Err(Errno::INVAL);
    }
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let flags = flags | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, parts, &mut ancillary, flags)?;
    Ok(())
}

/// Receives a packet into `buffer`, with its descriptors.
///
/// # Errors
/// Returns the error of `recvmsg`.
pub fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    descriptors: Descriptors,
    flags: RecvFlags,
) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = match descriptors {
        Descriptors::Accept => RecvAncillaryBuffer::new(&mut space),
        Descriptors::Reject => RecvAncillaryBuffer::default(),
    };
    let mut into = [IoSliceMut::new(buffer)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket, &mut into, &mut ancillary, flags)?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(Received {
        length: received.bytes,
        fds,
        is_truncated: received.flags.contains(ReturnFlags::TRUNC),
        has_lost_fds: received.flags.contains(ReturnFlags::CTRUNC),
    })
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        rustix::net::socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn sent(fds: usize) -> Result<OwnedFd, Errno> {
        let (a, b) = pair();
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b"c")];
        send(&a, &parts, &vec![a.as_fd(); fds], SendFlags::empty())?;
        Ok(b)
    }

    fn received(socket: &OwnedFd, room: usize, descriptors: Descriptors) -> (Vec<u8>, Received) {
        let mut buffer = vec![0; room];
        let received = receive(socket, &mut buffer, descriptors, RecvFlags::empty()).unwrap();
        buffer.truncate(received.length);
        (buffer, received)
    }

    #[test]
    fn a_packet_arrives_with_its_descriptors() {
        for fds in [0, 1, FDS_MAX] {
            let (bytes, found) = received(&sent(fds).unwrap(), 3, Descriptors::Accept);
            assert_eq!((&bytes[..], found.fds.len()), (&b"abc"[..], fds));
            assert!(!found.is_truncated && !found.has_lost_fds);
        }
        assert_eq!(sent(FDS_MAX + 1).unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn rejected_descriptors_are_reported_as_lost() {
        let (bytes, found) = received(&sent(1).unwrap(), 3, Descriptors::Reject);
        assert_eq!((&bytes[..], found.fds.len()), (&b"abc"[..], 0));
        assert!(found.has_lost_fds);
    }

    #[test]
    fn a_packet_that_is_too_long_is_reported_as_truncated() {
        let (bytes, found) = received(&sent(0).unwrap(), 2, Descriptors::Accept);
        assert!(&bytes[..] == b"ab" && found.is_truncated);
    }

    #[test]
    fn the_end_of_the_stream_is_an_empty_packet() {
        let (a, b) = pair();
        drop(a);
        assert_eq!(received(&b, 3, Descriptors::Accept).1.length, 0);
        let parts = [IoSlice::new(b"a")];
        let error = send(&b, &parts, &[], SendFlags::empty()).unwrap_err();
        assert_eq!(error, Errno::PIPE);
    }
}

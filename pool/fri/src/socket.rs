//! Packets over sockets: sending, receiving and validating them.

use std::cell::RefCell;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use faasw_common::packet::{self, Descriptors};
use faasw_seedtree::limits::LAYERS_MAX;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use zerocopy::{IntoBytes, TryFromBytes};

use crate::messages::{Fork, Kind, MAGIC, Message, PacketHeader, Sealed, Used};

/// The most descriptors in one packet: mailbox, code, and the layers.
pub const FDS_MAX: usize = 2 + LAYERS_MAX;

const _: () = assert!(FDS_MAX <= packet::FDS_MAX);

/// The largest packet: a fork.
const PACKET_MAX: usize = size_of::<PacketHeader>() + size_of::<Fork>();

/// The largest packet that a sandbox sends.
const REPLY_MAX: usize = size_of::<PacketHeader>()
    + if size_of::<Sealed>() > size_of::<Used>() {
        size_of::<Sealed>()
    } else {
        size_of::<Used>()
    };

/// Why a packet could not be sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FriError {
    /// The other side is gone.
    Closed,
    /// A system call failed; `AGAIN` if a non-blocking call would have to wait.
    System(Errno),
    /// The received data is not a packet of this interface.
    Malformed,
}

impl std::fmt::Display for FriError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("the other side has closed its end"),
            Self::System(errno) => errno.fmt(f),
            Self::Malformed => f.write_str("not a packet of this interface"),
        }
    }
}

impl std::error::Error for FriError {}

impl From<Errno> for FriError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            other => Self::System(other),
        }
    }
}

/// A received packet.
pub struct Packet {
    bytes: Vec<u8>,
    fds: [Option<OwnedFd>; FDS_MAX],
}

impl std::fmt::Debug for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packet")
            .field("kind", &self.kind())
            .finish()
    }
}

impl Packet {
    fn header(&self) -> Option<PacketHeader> {
        let (header, _) = PacketHeader::try_read_from_prefix(&self.bytes).ok()?;
        Some(header)
    }

    /// Returns the kind of the packet; `None` if it is not a packet of this interface.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        let header = self.header()?;
        (header.magic == MAGIC).then_some(header.kind)
    }

    /// Returns the message if the packet has this type and exactly its size.
    ///
    /// # Errors
    /// Returns [`FriError::Malformed`] otherwise.
    pub fn message<M: Message>(&self) -> Result<M, FriError> {
        if self.kind() != Some(M::KIND) {
            return Err(FriError::Malformed);
        }
        let body = self
            .bytes
            .get(size_of::<PacketHeader>()..)
            .ok_or(FriError::Malformed)?;
        M::try_read_from_bytes(body).map_err(|_| FriError::Malformed)
    }

    /// Takes the descriptors that came with the packet.
    pub fn take_fds(&mut self) -> [Option<OwnedFd>; FDS_MAX] {
        std::mem::take(&mut self.fds)
    }
}

/// Creates two connected sockets, closed on exec.
///
/// # Errors
/// Returns the error of `socketpair`.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// Sends a message and up to [`FDS_MAX`] descriptors as one packet.
///
/// # Errors
/// Returns [`FriError::Closed`] if the other side is gone, [`FriError::Malformed`] if there are too
/// many descriptors, and [`FriError::System`] if the system call fails.
pub fn send<M: Message>(
    socket: impl AsFd,
    message: &M,
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), FriError> {
    let header = PacketHeader {
        magic: MAGIC,
        kind: M::KIND,
    };
    if fds.len() > FDS_MAX {
        return Err(FriError::Malformed);
    }
    let parts = [
        IoSlice::new(header.as_bytes()),
        IoSlice::new(message.as_bytes()),
    ];
    packet::send(socket, &parts, fds, flags)?;
    Ok(())
}

/// The size of the largest packet of all.
const ROOM: usize = if PACKET_MAX > REPLY_MAX {
    PACKET_MAX
} else {
    REPLY_MAX
};

thread_local! {
    /// The buffer for packets before their size is known: most are small, and most calls find none.
    static RECEIVED: RefCell<Box<[u8; ROOM]>> = RefCell::new(Box::new([0; ROOM]));
}

/// Receives a packet of up to `most` bytes.
fn receive_into(
    socket: impl AsFd,
    most: usize,
    flags: RecvFlags,
    descriptors: Descriptors,
) -> Result<Packet, FriError> {
    RECEIVED.with_borrow_mut(|buffer| {
        let buffer = buffer.get_mut(..most).ok_or(FriError::Malformed)?;
        let received = packet::receive(socket, buffer, descriptors, flags)?;
        if received.length == 0 {
            return Err(FriError::Closed);
        }
        if received.is_truncated || received.has_lost_fds {
            return Err(FriError::Malformed);
        }
        let bytes = buffer.get(..received.length).ok_or(FriError::Malformed)?;
        let mut packet = Packet {
            bytes: bytes.to_vec(),
            fds: Default::default(),
        };
        for (slot, fd) in packet.fds.iter_mut().zip(received.fds) {
            *slot = Some(fd);
        }
        Ok(packet)
    })
}

/// Receives a packet and its descriptors from a side that is trusted to send some.
///
/// # Errors
/// Returns [`FriError::Closed`] at the end of the stream, [`FriError::Malformed`] if the packet is
/// truncated, and [`FriError::System`] if the system call fails.
pub fn receive(socket: impl AsFd, flags: RecvFlags) -> Result<Packet, FriError> {
    receive_into(socket, PACKET_MAX, flags, Descriptors::Accept)
}

/// Receives a packet from a side that must not send descriptors: the kernel gets no room for them
/// and drops them.
///
/// # Errors
/// Returns the errors of [`receive`], and [`FriError::Malformed`] if descriptors were attached.
pub fn receive_from_untrusted(socket: impl AsFd, flags: RecvFlags) -> Result<Packet, FriError> {
    receive_into(socket, REPLY_MAX, flags, Descriptors::Reject)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Answer, Resume, SpawnSandbox};

    fn sandbox(token: u64) -> SpawnSandbox {
        SpawnSandbox {
            token,
            is_ahead: Answer::No,
        }
    }

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        let (a, b) = pair().unwrap();
        send(&a, &sandbox(7), &[a.as_fd()], SendFlags::empty()).unwrap();
        let mut packet = receive(&b, RecvFlags::empty()).unwrap();
        assert_eq!(packet.kind(), Some(Kind::SpawnSandbox));
        assert_eq!(packet.message::<SpawnSandbox>().unwrap().token, 7);
        assert_eq!(packet.take_fds().iter().flatten().count(), 1);
    }

    #[test]
    fn a_message_is_not_taken_for_another() {
        let (a, b) = pair().unwrap();
        send(&a, &sandbox(7), &[], SendFlags::empty()).unwrap();
        let packet = receive(&b, RecvFlags::empty()).unwrap();
        assert_eq!(
            packet.message::<Resume>().map(|_| ()),
            Err(FriError::Malformed)
        );
    }

    /// Returns a packet like those of [`send`], except for its first words.
    fn packet(magic: u32, kind: u32) -> Vec<u8> {
        let body = sandbox(7);
        [magic.as_bytes(), kind.as_bytes(), body.as_bytes()].concat()
    }

    /// Whether a receiver of [`SpawnSandbox`] accepts these bytes as one.
    fn is_taken(bytes: &[u8]) -> bool {
        let (a, b) = pair().unwrap();
        rustix::net::send(&a, bytes, SendFlags::empty()).unwrap();
        let received = receive_from_untrusted(&b, RecvFlags::empty());
        received.is_ok_and(|packet| packet.message::<SpawnSandbox>().is_ok())
    }

    #[test]
    fn packets_of_a_wrong_size_magic_or_kind_are_refused() {
        let kind = Kind::SpawnSandbox as u32;
        let good = packet(MAGIC, kind);
        assert!(is_taken(&good));
        assert!(!is_taken(&good[..good.len() - 1]));
        assert!(!is_taken(&[&good[..], &[0]].concat()));
        assert!(!is_taken(&good[..3]));
        // A packet of another version.
        assert!(!is_taken(&packet(MAGIC ^ 1 << 24, kind)));
        assert!(!is_taken(&packet(MAGIC, Kind::Resume as u32)));
        assert!(!is_taken(&packet(MAGIC, u32::MAX)));
    }

    #[test]
    fn descriptors_from_an_untrusted_side_do_not_arrive() {
        let (a, b) = pair().unwrap();
        send(&a, &sandbox(7), &[a.as_fd()], SendFlags::empty()).unwrap();
        assert!(matches!(
            receive_from_untrusted(&b, RecvFlags::empty()),
            Err(FriError::Malformed)
        ));
    }

    #[test]
    fn the_end_of_the_other_side_is_seen() {
        let (a, b) = pair().unwrap();
        drop(a);
        assert!(matches!(
            receive(&b, RecvFlags::empty()),
            Err(FriError::Closed)
        ));
    }
}

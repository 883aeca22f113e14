//! Packets with descriptors, over a non-blocking `SOCK_SEQPACKET` socket.
#![allow(unsafe_code, reason = "registering a descriptor needs it")]

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};

use faasw_common::packet;
pub use faasw_common::packet::Descriptors;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::orders::PACKET_MAX;

/// A `SOCK_SEQPACKET` socket.
#[derive(Debug)]
pub struct PacketSocket(AsyncFd<OwnedFd>);

/// A packet, and the descriptor that came with it.
#[cfg_attr(
    not(feature = "program"),
    expect(dead_code, reason = "a node takes no descriptors")
)]
#[derive(Debug)]
pub struct Packet {
    /// The content of the packet.
    pub bytes: Vec<u8>,
    /// The attached descriptor. Also `None` if the kernel dropped it because this process has no
    /// free descriptor.
    pub fd: Option<OwnedFd>,
}

impl PacketSocket {
    /// Takes ownership of a socket and makes it non-blocking. Must be called within a runtime of
    /// tokio.
    ///
    /// # Errors
    /// Returns the system's error if the socket cannot be made non-blocking or registered.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        // SAFETY: an `OwnedFd` keeps the same open descriptor until it is dropped, and it is moved
        // into the `AsyncFd`, which lets no other code take it out.
        let registered = unsafe { AsyncFd::register(socket) };
        Ok(Self(registered?))
    }

    /// Sends a packet, with a descriptor if there is one.
    ///
    /// # Errors
    /// Returns the system's error if the packet cannot be sent.
    pub async fn send(&self, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.0
            .async_io(Interest::WRITABLE, |socket| {
                let fds = fd.as_slice();
                packet::send(socket, &[IoSlice::new(bytes)], fds, SendFlags::DONTWAIT)?;
                Ok(())
            })
            .await
    }

    /// Receives a packet, and the descriptor that is attached to it if the peer may send any.
    /// Returns `None` at the end.
    ///
    /// # Errors
    /// Returns the system's error if receiving fails, and `InvalidData` if the packet is larger
    /// than [`PACKET_MAX`] or has more descriptors than the peer may attach.
    pub async fn receive(&self, descriptors: Descriptors) -> io::Result<Option<Packet>> {
        self.0
            .async_io(Interest::READABLE, |socket| receive(socket, descriptors))
            .await
    }
}

fn receive(socket: &OwnedFd, descriptors: Descriptors) -> io::Result<Option<Packet>> {
    let mut bytes = [0; PACKET_MAX];
    let mut received = packet::receive(socket, &mut bytes, descriptors, RecvFlags::DONTWAIT)?;
    let is_unwanted = received.has_lost_fds && descriptors == Descriptors::Reject;
    if received.is_truncated || is_unwanted || received.fds.len() > 1 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let bytes = bytes.get(..received.length).unwrap_or_default().to_vec();
    let fd = received.fds.pop().filter(|_| !received.has_lost_fds);
    Ok((!bytes.is_empty()).then_some(Packet { bytes, fd }))
}

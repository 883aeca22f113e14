//! Packets with descriptors, over a `SOCK_SEQPACKET` socket that does not block.
#![allow(unsafe_code, reason = "registering a descriptor needs it")]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::orders::PACKET_MAX;

/// A socket of packets.
#[derive(Debug)]
pub struct PacketSocket(AsyncFd<OwnedFd>);

/// A packet, and the descriptor that came with it.
#[cfg_attr(
    not(feature = "program"),
    expect(dead_code, reason = "a node takes no descriptors")
)]
#[derive(Debug)]
pub struct Packet {
    /// What it has.
    pub bytes: Vec<u8>,
    /// What was attached. `None` also where it was lost, because this process has no room for it.
    pub fd: Option<OwnedFd>,
}

impl PacketSocket {
    /// Takes a socket over; within a runtime of tokio.
    ///
    /// # Errors
    /// The system's.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        // SAFETY: an `OwnedFd` has the same open descriptor until it is dropped, and it is moved
        // into the `AsyncFd`, which lets nobody take it out.
        let registered = unsafe { AsyncFd::register(socket) };
        Ok(Self(registered?))
    }

    /// Sends a packet, and a descriptor with it.
    ///
    /// # Errors
    /// The system's.
    pub async fn send(&self, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.0
            .async_io(Interest::WRITABLE, |socket| {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                if let Some(fd) = &fd {
                    ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(fd)));
                }
                let bytes = [IoSlice::new(bytes)];
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                rustix::net::sendmsg(socket, &bytes, &mut ancillary, flags)?;
                Ok(())
            })
            .await
    }

    /// Receives a packet and what is attached; `None` at the end.
    ///
    /// # Errors
    /// The system's; also for what is larger than any packet, or has more than one
    /// descriptor.
    #[cfg(feature = "program")]
    pub async fn receive(&self) -> io::Result<Option<Packet>> {
        self.0
            .async_io(Interest::READABLE, |socket| {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                receive(socket, &mut RecvAncillaryBuffer::new(&mut space), true)
            })
            .await
    }

    /// Receives a packet from a side that has no descriptors to send: the kernel is given no
    /// room for them and drops them.
    ///
    /// # Errors
    /// The system's; also for what is larger than any packet, or where some were attached.
    pub async fn receive_without_fds(&self) -> io::Result<Option<Packet>> {
        self.0
            .async_io(Interest::READABLE, |socket| {
                receive(socket, &mut RecvAncillaryBuffer::default(), false)
            })
            .await
    }
}

fn receive(
    socket: &OwnedFd,
    ancillary: &mut RecvAncillaryBuffer<'_>,
    takes_fds: bool,
) -> io::Result<Option<Packet>> {
    let mut bytes = [0; PACKET_MAX];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut into = [IoSliceMut::new(&mut bytes)];
    let received = rustix::net::recvmsg(socket.as_fd(), &mut into, ancillary, flags)?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let is_lost = received.flags.contains(ReturnFlags::CTRUNC);
    let is_unwanted = is_lost && !takes_fds;
    if received.flags.contains(ReturnFlags::TRUNC) || is_unwanted || fds.len() > 1 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let bytes = bytes.get(..received.bytes).unwrap_or_default().to_vec();
    let fd = fds.pop().filter(|_| !is_lost);
    Ok((!bytes.is_empty()).then_some(Packet { bytes, fd }))
}

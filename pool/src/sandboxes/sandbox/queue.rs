//! The data that waits in a socket for the other side to receive it, by the kernel's account.
//!
//! A sandbox receives orders only while its guest has stopped or waits. So a guest that requests a
//! wake-up and never waits could fill the socket with orders to wake. One order is enough: the wait
//! that receives it ends, and what the guest waits for was there before.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};

use faasw_fri::messages::Wake;
use faasw_fri::{FriError, send};
use rustix::io::Errno;
use rustix::net::SendFlags;

/// Sends an order to wake over `socket`, unless an order waits there that makes the guest check its
/// mailbox anyway.
///
/// # Errors
/// Returns the errors of [`send`].
pub fn wake(socket: impl AsFd) -> Result<(), FriError> {
    if unreceived_bytes(&socket)? > 0 {
        return Ok(());
    }
    send(socket, &Wake { reserved: 0 }, &[], SendFlags::DONTWAIT)
}

/// Returns the memory of the packets that were sent over `socket` and not yet received by the other
/// side; 0 if all were received.
///
/// # Errors
/// Returns `IO` if the kernel does not report it.
#[expect(unsafe_code, reason = "no safe interface asks for it")]
pub fn unreceived_bytes(socket: impl AsFd) -> Result<u32, Errno> {
    /// The memory use of a socket (`SO_MEMINFO`, Linux 4.12): the third word is for sent data.
    const MEMORY: c_int = 55;
    let mut memory = [0_u32; 9];
    let mut bytes = size_of_val(&memory) as libc::socklen_t;
    // SAFETY: the call writes at most so many bytes there, and how many it wrote.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            MEMORY,
            memory.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    match (answer, memory) {
        (0, [_, _, sent, ..]) => Ok(sent),
        _ => Err(Errno::IO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faasw_fri::{Kind, receive};
    use rustix::net::RecvFlags;

    #[test]
    fn one_order_to_wake_waits_at_a_time() {
        let (ours, theirs) = faasw_fri::pair().unwrap();
        for _ in 0..3 {
            for _ in 0..1000 {
                wake(&ours).unwrap();
            }
            let packet = receive(&theirs, RecvFlags::DONTWAIT).unwrap();
            assert_eq!(packet.kind(), Some(Kind::Wake));
            let none = receive(&theirs, RecvFlags::DONTWAIT).unwrap_err();
            assert_eq!(none, FriError::System(Errno::AGAIN));
        }
        drop(theirs);
        assert_eq!(wake(&ours), Err(FriError::Closed));
    }

    #[test]
    fn a_packet_is_untaken_until_the_other_side_has_received_it() {
        let (ours, theirs) = faasw_fri::pair().unwrap();
        assert_eq!(unreceived_bytes(&ours), Ok(0));
        send(&ours, &Wake { reserved: 0 }, &[], SendFlags::DONTWAIT).unwrap();
        assert!(unreceived_bytes(&ours).unwrap() > 0);
        assert_eq!(
            unreceived_bytes(&theirs),
            Ok(0),
            "each way counts by itself"
        );
        receive(&theirs, RecvFlags::empty()).unwrap();
        assert_eq!(unreceived_bytes(&ours), Ok(0));
    }
}

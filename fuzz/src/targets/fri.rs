//! A packet of the Function Runtime Interface, as the node receives it from a sandbox, and as
//! spawner and sandboxes receive it. Input: the packet.

use std::os::fd::OwnedFd;

use faasw_fri::messages::{self, MAGIC, PacketHeader, Used};
use faasw_fri::{
    FriError, Kind, Message, Packet, each_message, pair, receive, receive_from_untrusted,
};
use faasw_pool::fuzzing::{failure_text, preparation_error};
use faasw_seedtree::UsedPages;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use zerocopy::{IntoBytes as _, TryFromBytes as _};

use crate::Target;

/// Memory for the largest packet, and for copies of messages.
pub const TARGET: Target = Target {
    name: "fri",
    read,
    memory: 256 << 10,
    per_byte: 1,
    executions: 50_000,
};

fn read(bytes: &[u8]) -> bool {
    let sockets = pair().unwrap_or_else(|errno| panic!("{errno}"));
    let heard = [
        send_and_receive(&sockets, bytes, |socket| {
            receive_from_untrusted(socket, RecvFlags::DONTWAIT)
        }),
        send_and_receive(&sockets, bytes, |socket| {
            receive(socket, RecvFlags::DONTWAIT)
        }),
    ];
    let mut is_good = false;
    for packet in heard.into_iter().flatten() {
        is_good |= is_message(&packet, bytes);
        interpret_as_node(&packet);
    }
    is_good
}

/// Sends bytes as they are. Returns the packet if the bytes are one.
fn send_and_receive(
    (theirs, ours): &(OwnedFd, OwnedFd),
    bytes: &[u8],
    receive: impl Fn(&OwnedFd) -> Result<Packet, FriError>,
) -> Option<Packet> {
    match rustix::net::send(theirs, bytes, SendFlags::DONTWAIT) {
        Ok(sent) => assert_eq!(sent, bytes.len()),
        // No packet of the interface is that long.
        Err(Errno::MSGSIZE | Errno::AGAIN) => return None,
        Err(errno) => panic!("{errno}"),
    }
    match receive(ours) {
        Ok(packet) => Some(packet),
        // An empty packet looks like the end of the connection.
        Err(FriError::Closed) => {
            assert!(bytes.is_empty());
            None
        }
        Err(FriError::Malformed) => None,
        Err(FriError::System(errno)) => panic!("{errno}"),
    }
}

/// Returns whether the packet is a message. Checks that it is at most one message, and has exactly
/// that message's size.
fn is_message(packet: &Packet, bytes: &[u8]) -> bool {
    let header = PacketHeader::try_read_from_prefix(bytes);
    let mut taken = 0;
    macro_rules! as_message {
        ($($message:ident = $number:literal),* $(,)?) => {$(
            if let Ok(message) = packet.message::<messages::$message>() {
                assert_eq!(packet.kind(), Some(Kind::$message));
                assert_eq!(Some(message.as_bytes()), bytes.get(size_of::<PacketHeader>()..));
                assert!(matches!(header, Ok((header, _)) if header.magic == MAGIC
                    && header.kind == <messages::$message as Message>::KIND));
                taken += 1;
            }
        )*};
    }
    each_message!(as_message);
    assert!(taken <= 1);
    taken == 1
}

/// Interprets a packet as the node does.
fn interpret_as_node(packet: &Packet) {
    // The text is short, whatever the packet contains, and has no control characters for a
    // terminal.
    for text in [failure_text(packet), preparation_error(packet).to_string()] {
        assert!(
            text.len() < 300 && !text.contains(char::is_control),
            "{text:?}"
        );
    }
    if let Ok(used) = packet.message::<Used>() {
        let _ = UsedPages::from(used);
    }
}

//! Messages between node, connector and worker, and answers of name servers. Input: the kind (0: a
//! worker to the node; 1: the node to a worker; 3: a name server's answer; any other: a packet of
//! orders), then the bytes.

use bytes::BytesMut;
use faasw_egress::frames::{Frame, FrameKind, ToWorker, put};
use faasw_egress::fuzzing::{node_handles_frames, reads_name_answer};
use faasw_egress::orders::{
    self, AddWorker, Alive, Cancel, Configure, Connect, Connected, Names, Order, OrderHeader,
    Passed, Probe, RemoveWorker, Unconnected, WireHost, WireNetwork, WireServer,
};

use crate::Target;

/// Bytes are copied when they are received, and again when they are encoded again. Each frame of a
/// call takes an entry in its queue.
pub const TARGET: Target = Target {
    name: "egress",
    read,
    memory: 64 << 10,
    per_byte: 16,
    executions: 50_000,
};

fn read(bytes: &[u8]) -> bool {
    match bytes.split_first() {
        Some((0, said)) => node_handles_frames(said),
        Some((1, said)) => frames::<ToWorker>(said),
        Some((3, message)) => reads_name_answer(message),
        Some((_, packet)) => packets(packet),
        None => false,
    }
}

/// Checks that frames are encoded again to the same bytes, and keep their bounds.
fn frames<K: FrameKind>(said: &[u8]) -> bool {
    let mut received = BytesMut::from(said);
    let mut again = BytesMut::new();
    let is_sane = loop {
        match Frame::<K>::take(&mut received) {
            Ok(Some(frame)) => {
                assert!(frame.kind.bounds().contains(&frame.bytes.len()));
                put(&mut again, frame.call, frame.kind, &frame.bytes);
            }
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    again.extend_from_slice(&received);
    assert_eq!(again, said);
    is_sane && received.is_empty()
}

/// Checks that a packet is at most one order, and that its content has at most one meaning.
fn packets(packet: &[u8]) -> bool {
    let taken = [
        is::<AddWorker>(packet),
        is::<Alive>(packet),
        is::<Cancel>(packet),
        is::<Configure>(packet),
        is::<Connect>(packet),
        is::<Connected>(packet),
        is::<Names>(packet),
        is::<Passed>(packet),
        is::<Probe>(packet),
        is::<RemoveWorker>(packet),
        is::<Unconnected>(packet),
    ];
    let taken = taken.iter().filter(|is_taken| **is_taken).count();
    assert!(taken <= 1);
    if let Ok(order) = orders::read::<Unconnected>(packet) {
        let text = order.failure().text.unwrap_or_default();
        assert!(text.len() < 32 && text.is_ascii());
    }
    if let Ok(order) = orders::read::<Connect>(packet)
        && let Some((host, port)) = order.host.read()
    {
        assert_eq!(WireHost::new(&host, port), Some(order.host));
    }
    if let Ok(order) = orders::read::<Configure>(packet) {
        for network in order.private.into_iter().filter_map(WireNetwork::read) {
            assert_eq!(WireNetwork::from(network).read(), Some(network));
        }
    }
    if let Ok(order) = orders::read::<Names>(packet) {
        for server in order.servers.into_iter().filter_map(WireServer::read) {
            assert_eq!(WireServer::from(server).read(), Some(server));
        }
    }
    taken == 1
}

fn is<O: Order>(packet: &[u8]) -> bool {
    let Ok(order) = orders::read::<O>(packet) else {
        return false;
    };
    assert_eq!(orders::kind(packet), Some(O::KIND));
    let body = packet.get(size_of::<OrderHeader>()..);
    assert_eq!(body, Some(order.as_bytes()));
    assert_eq!(orders::encode(&order), packet);
    true
}

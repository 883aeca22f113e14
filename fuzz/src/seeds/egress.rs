//! Seeds for egress: frames both ways, and a packet of each order.

use std::net::SocketAddr;

use bytes::BytesMut;
use faasw_abi::outgoing::{Answer, Failure, FailureCode, OutgoingHead, Tail};
use faasw_egress::frames::{FrameKind, FromWorker, ToWorker, WorkerOptions, credit_bytes, put};
use faasw_egress::orders::{
    AddWorker, Alive, Cancel, Configure, Connect, Connected, NETWORKS_MAX, Names, Order, Passed,
    Probe, RemoveWorker, SERVERS_MAX, Unconnected, WireHost, WireNetwork, WireServer, encode,
};
use faasw_egress_policy::{AllowPrivate, Host};
use zerocopy::IntoBytes as _;

use super::Seed;

/// Returns all seeds for egress.
pub fn all() -> Vec<Seed> {
    let head = OutgoingHead {
        method: b"POST".to_vec(),
        scheme: b"https".to_vec(),
        authority: b"api.example.com".to_vec(),
        path_and_query: b"/a?b".to_vec(),
        headers: vec![(b"accept".to_vec(), b"*/*".to_vec())],
        ..OutgoingHead::default()
    };
    let failed = Answer::Failed(Failure::with_text(FailureCode::DnsError, "NXDOMAIN")).encode();
    let tail = Tail::Trailers(vec![(b"x-sum".to_vec(), b"1".to_vec())]).encode();
    let host = |text: &str| {
        let host = Host::parse(text).ok();
        host.and_then(|host| WireHost::new(&host, 443))
    };
    let connect = |text| {
        let host = host(text).unwrap_or(WireHost {
            text: [0; _],
            port: 0,
        });
        let (call, worker, timeout) = (7, 1, 30_000_000_000);
        order(&Connect {
            call,
            worker,
            timeout,
            host,
        })
    };
    let unconnected = Unconnected::new(7, FailureCode::DnsError).with_rcode(Some(3));
    vec![
        (
            "egress",
            "answered",
            frames(
                0,
                &[
                    (1, FromWorker::Need, b""),
                    (1, FromWorker::Head, b"head"),
                    (2, FromWorker::Failed, &failed),
                    (1, FromWorker::Data, b"body"),
                    (3, FromWorker::Data, b"of nobody"),
                    (0, FromWorker::Alive, b""),
                    (1, FromWorker::End, &tail),
                ],
            ),
        ),
        (
            "egress",
            "asked",
            frames(
                1,
                &[
                    (0, ToWorker::Authority, b"certificate"),
                    (0, ToWorker::Configure, WorkerOptions::default().as_bytes()),
                    (1, ToWorker::Begin, &head.encode()),
                    (1, ToWorker::Data, b"body"),
                    (1, ToWorker::Unconnected, &failed),
                    (1, ToWorker::Credit, &credit_bytes(1 << 15)),
                    (1, ToWorker::End, &tail),
                    (2, ToWorker::Cancel, b""),
                    (0, ToWorker::Probe, b""),
                ],
            ),
        ),
        ("egress", "configure", order(&configure())),
        ("egress", "names", order(&names())),
        ("egress", "probe", order(&Probe {})),
        ("egress", "alive", order(&Alive {})),
        (
            "egress",
            "add-worker",
            order(&AddWorker {
                worker: 1,
                function: 2,
            }),
        ),
        ("egress", "name-answer", name_answer()),
        (
            "egress",
            "remove-worker",
            order(&RemoveWorker { worker: 1 }),
        ),
        ("egress", "connect-name", connect("api.example.com")),
        ("egress", "connect-address", connect("[2001:db8::1]")),
        ("egress", "cancel", order(&Cancel { call: 7 })),
        ("egress", "connected", order(&Connected { call: 7 })),
        ("egress", "unconnected", order(&unconnected)),
        ("egress", "passed", order(&Passed { call: 7 })),
    ]
}

fn frames<K: FrameKind>(who: u8, frames: &[(u64, K, &[u8])]) -> Vec<u8> {
    let mut bytes = BytesMut::from(&[who][..]);
    for (call, kind, content) in frames {
        put(&mut bytes, *call, *kind, content);
    }
    bytes.to_vec()
}

fn order<O: Order>(order: &O) -> Vec<u8> {
    [&[2][..], &encode(order)].concat()
}

/// Returns an answer to the question of `faasw_egress::fuzzing::reads_name_answer`: an alias, its
/// addresses and the zone in which it is.
fn name_answer() -> Vec<u8> {
    let mut bytes = vec![3, 0, 7, 0x81, 0x80, 0, 1, 0, 2, 0, 1, 0, 0];
    bytes.extend_from_slice(b"\x03www\x01a\x07example\0\0\x01\0\x01");
    bytes.extend_from_slice(b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x04\x01b\xc0\x10");
    bytes.extend_from_slice(b"\x01b\xc0\x10\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01");
    bytes.extend_from_slice(b"\xc0\x10\0\x06\0\x01\0\0\0\x3c\0\x02\0\0");
    bytes
}

fn configure() -> Configure {
    let mut private = [WireNetwork::default(); NETWORKS_MAX];
    let networks = ["10.0.0.0/8", "fd00::/8"].map(AllowPrivate::network);
    for (place, network) in private.iter_mut().zip(networks.into_iter().flatten()) {
        *place = network.into();
    }
    Configure {
        cache_seconds: 60,
        orders_floor: 16,
        orders_shared: 1024,
        private,
    }
}

fn names() -> Names {
    let mut servers = [WireServer::default(); SERVERS_MAX];
    for (place, server) in servers.iter_mut().zip(["127.0.0.53:53", "[::1]:53"]) {
        *place = server
            .parse::<SocketAddr>()
            .map(WireServer::from)
            .unwrap_or_default();
    }
    Names {
        hosts_bytes: 0,
        servers,
    }
}

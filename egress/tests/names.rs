//! Names: each is resolved once, each address is filtered, and rebinding has no effect.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use common::names::{A, AAAA, Names, OK, a, get};
use common::{Egress, Upstream, head, loopback, runtime};
use faasw_abi::outgoing::FailureCode as Code;
use faasw_egress::client::{ConnectorOptions, Worker};
use faasw_egress::frames::WorkerOptions;
use faasw_egress_policy::{Destination, Special};
use rustix::net::{AddressFamily, SocketType};

#[test]
fn a_name_is_resolved_only_once() {
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let port = upstream.address.port();
        // Permitted at first, then private.
        let names = Names::new(|_, kind, before| {
            let address = if before == 0 {
                "127.0.0.1"
            } else {
                "127.0.0.2"
            };
            Some((
                if kind == A {
                    vec![a(address, 0)]
                } else {
                    vec![]
                },
                0,
            ))
        });
        let egress = names.egress(&["127.0.0.1"]);
        assert_eq!(get(&egress, "rebind.example", port).await, None);
        assert_eq!((names.count(A), names.count(AAAA)), (1, 1));
        assert_eq!(upstream.count(), 1);
        // A new connection queries the name again, and receives the private address.
        let refused = get(&egress, "rebind.example", port).await;
        assert_eq!(refused, Some(Code::DestinationIpProhibited));
        assert_eq!(names.count(A), 2);
        assert_eq!(upstream.count(), 1);
    });
}

#[test]
fn private_addresses_are_refused_by_name_and_by_address() {
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let port = upstream.address.port();
        let names = Names::new(|name, kind, _| {
            let six = |text: &str| match text.parse().unwrap() {
                IpAddr::V6(address) => vec![(AAAA, 60, address.octets().to_vec())],
                IpAddr::V4(_) => panic!("{text}"),
            };
            let records = match (name, kind) {
                ("loopback.example", A) => vec![a("127.0.0.1", 60)],
                ("metadata.example", A) => vec![a("169.254.169.254", 60)],
                ("many.example", A) => {
                    vec![a("10.0.0.1", 60), a("192.168.0.1", 60), a("0.0.0.0", 60)]
                }
                ("mapped.example", AAAA) => six("::ffff:127.0.0.1"),
                ("nat64.example", AAAA) => six("64:ff9b::7f00:1"),
                ("six.example", AAAA) => six("::1"),
                _ => vec![],
            };
            Some((records, 0))
        });
        let egress = names.egress(&[]);
        for name in ["loopback", "metadata", "many", "mapped", "nat64", "six"] {
            let refused = get(&egress, &format!("{name}.example"), port).await;
            assert_eq!(refused, Some(Code::DestinationIpProhibited), "{name}");
        }
        for address in [
            "127.0.0.1",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "0.0.0.0",
            "169.254.169.254",
        ] {
            let refused = get(&egress, address, port).await;
            assert_eq!(refused, Some(Code::DestinationIpProhibited), "{address}");
        }
        assert_eq!(upstream.count(), 0);
    });
}

#[test]
fn addresses_are_tried_in_order_and_those_that_are_private_are_left_out() {
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let port = upstream.address.port();
        // No server listens at the second address; the first would be reachable, but is not
        // permitted.
        let names = Names::new(|_, kind, _| match kind {
            A => Some((
                vec![a("127.0.0.1", 60), a("127.9.9.9", 60), a("127.8.0.1", 60)],
                0,
            )),
            _ => Some((vec![], 0)),
        });
        let egress = names.egress(&["127.9.9.9", "127.8.0.0/16"]);
        assert_eq!(
            get(&egress, "many.example", port).await,
            Some(Code::ConnectionRefused)
        );
        assert_eq!(upstream.count(), 0);
        let egress = names.egress(&["127.0.0.0/8"]);
        assert_eq!(get(&egress, "many.example", port).await, None);
        assert_eq!(upstream.count(), 1);
    });
}

#[test]
fn cached_names_expire_by_ttl_or_the_operators_limit() {
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let port = upstream.address.port();
        let names = Names::new(|name, kind, _| {
            let ttl = if name == "kept.example" { 3600 } else { 0 };
            Some((
                if kind == A {
                    vec![a("127.0.0.1", ttl)]
                } else {
                    vec![]
                },
                0,
            ))
        });
        let egress = names.egress(&["127.0.0.1"]);
        for _ in 0..3 {
            assert_eq!(get(&egress, "kept.example", port).await, None);
        }
        assert_eq!(names.count(A), 1);
        for _ in 0..3 {
            assert_eq!(get(&egress, "fresh.example", port).await, None);
        }
        assert_eq!(names.count(A), 4);
        let options = ConnectorOptions {
            cache: Duration::ZERO,
            ..names.options(&["127.0.0.1"])
        };
        let egress = Egress::with(&options, WorkerOptions::default(), &[]);
        for _ in 0..3 {
            assert_eq!(get(&egress, "kept.example", port).await, None);
        }
        assert_eq!(names.count(A), 7);
    });
}

#[test]
fn chains_of_names_are_followed_and_their_end_is_filtered() {
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let port = upstream.address.port();
        const CNAME: u16 = 5;
        let names = Names::new(|name, kind, _| {
            let records = match (name, kind) {
                // The server returns only the next alias, and leaves resolving it to the client.
                ("first.example", _) => {
                    vec![(CNAME, 60, b"\x06second\x07example\0".to_vec())]
                }
                ("second.example", A) => vec![a("127.0.0.1", 60)],
                ("inner.example", _) => vec![(CNAME, 60, b"\x04last\x07example\0".to_vec())],
                ("last.example", A) => vec![a("10.0.0.1", 60)],
                ("round.example", _) => vec![(CNAME, 60, b"\x05round\x07example\0".to_vec())],
                _ => vec![],
            };
            Some((records, 0))
        });
        let egress = names.egress(&["127.0.0.1"]);
        assert_eq!(get(&egress, "first.example", port).await, None);
        let refused = get(&egress, "inner.example", port).await;
        assert_eq!(refused, Some(Code::DestinationIpProhibited));
        let round = get(&egress, "round.example", port).await;
        assert!(
            matches!(round, Some(Code::DnsError | Code::DestinationNotFound)),
            "{round:?}"
        );
    });
}

#[test]
fn names_in_the_hosts_file_are_not_queried() {
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let names = Names::new(|_, _, _| Some((vec![], 3)));
        let options = ConnectorOptions {
            hosts: b"# a comment\n127.0.0.1 upstream.example UP # another\n\xff\xfe bad\n10.0.0.1 \
                 ten\n"
                .to_vec(),
            servers: vec![names.address],
            ..loopback()
        };
        let egress = Egress::with(&options, WorkerOptions::default(), &[]);
        let port = upstream.address.port();
        assert_eq!(get(&egress, "upstream.example", port).await, None);
        assert_eq!(get(&egress, "up", port).await, None);
        assert_eq!(get(&egress, "Up.", port).await, None);
        assert_eq!(
            get(&egress, "ten", port).await,
            Some(Code::DestinationIpProhibited)
        );
        assert_eq!(names.count(A) + names.count(AAAA), 0);
    });
}

#[test]
fn a_connector_makes_no_more_connections_at_once_than_it_may_and_a_function_has_a_share() {
    runtime().block_on(async {
        let names = Names::new(|_, _, _| None);
        let options = ConnectorOptions {
            orders_floor: 2,
            orders_shared: 0,
            ..names.options(&[])
        };
        let egress = Egress::with(&options, WorkerOptions::default(), &[]);
        let request = |name| head("GET", name, "/", &[]);
        let begun = [request("one.example"), request("two.example")];
        let [first, _second] = begun.map(|request| egress.begin(&request));
        // Once the name server has received the queries, the orders are under way.
        while names.count(A) < 2 {
            tokio::task::yield_now().await;
        }
        let third = egress.call(&request("three.example"), b"").await;
        assert_eq!(third.failure(), Some(Code::ConnectionLimitReached));
        // Cancelling an order frees its slot. The next order then waits for its name, and fails by
        // its own timeout.
        drop(first);
        let mut fourth = request("four.example");
        fourth.timeouts.connect = 200_000_000;
        let failed = loop {
            let failed = egress.call(&fourth, b"").await.failure();
            // The cancel reaches the connector independently of the next order.
            if failed != Some(Code::ConnectionLimitReached) {
                break failed;
            }
        };
        assert!(
            matches!(failed, Some(Code::DnsTimeout | Code::ConnectionTimeout)),
            "{failed:?}"
        );
        // The second function has a share of its own.
        let (_process, other) = common::worker(&egress.connector, WorkerOptions::default(), &[]);
        let mut fifth = request("five.example");
        fifth.timeouts.connect = 200_000_000;
        let destination = Destination::of_request(&fifth.scheme, &fifth.authority).unwrap();
        let mut call = other.begin(&fifth, destination).unwrap();
        let failed = common::outcome(&mut call.receiver).await.failure();
        assert!(
            matches!(failed, Some(Code::DnsTimeout | Code::ConnectionTimeout)),
            "{failed:?}"
        );
    });
}

#[test]
fn workers_of_one_function_share_its_orders() {
    runtime().block_on(async {
        let names = Names::new(|_, _, _| None);
        let options = ConnectorOptions {
            orders_floor: 2,
            orders_shared: 0,
            ..names.options(&[])
        };
        let (_process, connector) = common::connector(&options);
        let worker =
            |function| common::worker_of(function, &connector, WorkerOptions::default(), &[]);
        let begin = |worker: &Worker, name: &str| {
            let request = head("GET", name, "/", &[]);
            let destination = Destination::of_request(&request.scheme, &request.authority);
            worker.begin(&request, destination.unwrap()).unwrap()
        };
        let [(_first, old), (_second, new), (_third, other)] = [7, 7, 8].map(worker);
        let _held = [begin(&old, "one.example"), begin(&new, "two.example")];
        while names.count(A) < 2 {
            tokio::task::yield_now().await;
        }
        for worker in [&old, &new] {
            let mut more = begin(worker, "three.example");
            let failed = common::outcome(&mut more.receiver).await.failure();
            assert_eq!(failed, Some(Code::ConnectionLimitReached));
        }
        let before = names.count(A);
        let _more = begin(&other, "four.example");
        while names.count(A) == before {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn an_address_that_the_policy_refuses_is_reported_to_the_node_and_not_to_the_function() {
    runtime().block_on(async {
        let names = Names::new(|name, kind, _| match (name, kind) {
            ("private.example", A) => Some((vec![a("10.0.0.1", 60), a("10.0.0.2", 60)], 0)),
            _ => Some((vec![], 0)),
        });
        let egress = names.egress(&["169.254.0.0/16"]);
        for (host, address, why) in [
            ("private.example", "10.0.0.1", Special::Private),
            ("169.254.169.254", "169.254.169.254", Special::Metadata),
            ("[::1]", "::1", Special::Loopback),
        ] {
            let outcome = egress.call(&head("GET", host, "/", &[]), b"").await;
            assert_eq!(outcome.failure(), Some(Code::DestinationIpProhibited));
            let refused = outcome.refused.unwrap();
            assert_eq!(refused.address, address.parse::<IpAddr>().unwrap());
            assert_eq!(refused.prohibited.unwrap().special, why);
        }
        let outcome = egress
            .call(&head("GET", "none.example", "/", &[]), b"")
            .await;
        assert_eq!(outcome.failure(), Some(Code::DestinationNotFound));
        assert_eq!(outcome.refused, None);
    });
}

/// A socket at 127.0.0.2 with a full backlog, on which no connection is accepted: the kernel drops
/// further connection attempts. Also returns the connections that fill the backlog.
fn black_hole(port: u16) -> (OwnedFd, Vec<TcpStream>) {
    let full = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let address = SocketAddr::new("127.0.0.2".parse().unwrap(), port);
    rustix::net::bind(&full, &address).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let pause = Duration::from_millis(200);
    let connect = || TcpStream::connect_timeout(&address, pause);
    let waiting: Vec<_> = std::iter::from_fn(|| connect().ok()).take(64).collect();
    assert!(waiting.len() < 64);
    (full, waiting)
}

#[test]
fn names_with_many_addresses_that_do_not_answer_take_few_descriptors() {
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let port = upstream.address.port();
        let _hole = black_hole(port);
        let names = Names::new(|name, kind, _| match (name, kind) {
            ("up.example", A) => Some((vec![a("127.0.0.1", 60)], 0)),
            (_, A) => Some((vec![a("127.0.0.2", 60); 16], 0)),
            _ => Some((vec![], 0)),
        });
        let egress = names.egress(&["127.0.0.0/8"]);
        let begun = (0..40).map(|_| {
            let mut request = head("GET", format!("many.example:{port}"), "/", &[]);
            request.timeouts.connect = 3_000_000_000;
            egress.begin(&request)
        });
        let begun: Vec<_> = begun.collect();
        let folder = format!("/proc/{}/fd", egress.connector_process.0.id());
        let count = || std::fs::read_dir(&folder).unwrap().count();
        let mut most = 0;
        while egress.worker.calls() > 0 {
            most = most.max(count());
            tokio::task::yield_now().await;
        }
        assert!(most < 64, "{most}");
        for mut call in begun {
            let failed = common::outcome(&mut call.receiver).await.failure();
            assert_eq!(failed, Some(Code::ConnectionTimeout));
        }
        assert_eq!(get(&egress, "up.example", port).await, None);
    });
}

#[test]
fn an_address_that_does_not_answer_is_passed_over() {
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let port = upstream.address.port();
        let _hole = black_hole(port);
        let names = Names::new(|name, kind, _| match (name, kind) {
            ("both.example", A) => Some((vec![a("127.0.0.2", 60), a("127.0.0.1", 60)], 0)),
            _ => Some((vec![], 0)),
        });
        let options = ConnectorOptions {
            // No query: a slow answer would make the call fail for another reason.
            hosts: b"127.0.0.2 alone.example\n".to_vec(),
            ..names.options(&["127.0.0.0/8"])
        };
        let egress = Egress::with(&options, WorkerOptions::default(), &[]);
        assert_eq!(get(&egress, "both.example", port).await, None);
        let mut alone = head("GET", format!("alone.example:{port}"), "/", &[]);
        alone.timeouts.connect = 300_000_000;
        let failed = egress.call(&alone, b"").await.failure();
        assert_eq!(failed, Some(Code::ConnectionTimeout));
    });
}

//! Names: resolved once, each address filtered, rebinding without effect.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{Egress, Upstream, head, loopback, runtime};
use faasw_abi::outgoing::FailureCode as Code;
use faasw_egress::client::ConnectorOptions;
use faasw_egress::frames::WorkerOptions;
use faasw_egress_policy::{AllowPrivate, Destination};
use rustix::net::{AddressFamily, SocketType};

/// What is asked for.
const A: u16 = 1;
const AAAA: u16 = 28;

/// What a server of names says: records (type, time to live, bytes), and an rcode.
type Answer = (Vec<(u16, u32, Vec<u8>)>, u8);

/// A server of names, and what it has been asked.
struct Names {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, u16)>>>,
}

impl Names {
    /// `answer` gets a name, a type, and how often it was asked for both before; `None`
    /// is silence.
    fn new(answer: impl Fn(&str, u16, usize) -> Option<Answer> + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = asked.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                let (name, kind, end) = question(&bytes[..length]);
                let before = {
                    let mut noted = noted.lock().unwrap();
                    let before = noted
                        .iter()
                        .filter(|seen| **seen == (name.clone(), kind))
                        .count();
                    noted.push((name.clone(), kind));
                    before
                };
                if let Some((records, rcode)) = answer(&name, kind, before) {
                    let reply = reply(&bytes[..end], &records, rcode);
                    socket.send_to(&reply, from).unwrap();
                }
            }
        });
        Self { address, asked }
    }

    fn options(&self, private: &[&str]) -> ConnectorOptions {
        ConnectorOptions {
            servers: vec![self.address],
            private: private
                .iter()
                .map(|it| AllowPrivate::network(it).unwrap())
                .collect(),
            ..ConnectorOptions::default()
        }
    }

    fn egress(&self, private: &[&str]) -> Egress {
        Egress::with(&self.options(private), WorkerOptions::default(), &[])
    }

    fn count(&self, kind: u16) -> usize {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .filter(|(_, asked)| *asked == kind)
            .count()
    }
}

/// Name, type, and where the question ends.
fn question(bytes: &[u8]) -> (String, u16, usize) {
    let mut labels = Vec::new();
    let mut at = 12;
    while bytes[at] != 0 {
        let end = at + 1 + usize::from(bytes[at]);
        labels.push(String::from_utf8(bytes[at + 1..end].to_vec()).unwrap());
        at = end;
    }
    let kind = u16::from_be_bytes([bytes[at + 1], bytes[at + 2]]);
    (labels.join("."), kind, at + 5)
}

fn reply(question: &[u8], records: &[(u16, u32, Vec<u8>)], rcode: u8) -> Vec<u8> {
    let mut reply = question.to_vec();
    reply[2..4].copy_from_slice(&[0x81, 0x80 | rcode]);
    let count = u16::try_from(records.len()).unwrap().to_be_bytes();
    reply[6..12].copy_from_slice(&[count[0], count[1], 0, 0, 0, 0]);
    for (kind, ttl, bytes) in records {
        reply.extend_from_slice(&[0xc0, 12]);
        reply.extend_from_slice(&kind.to_be_bytes());
        reply.extend_from_slice(&[0, 1]);
        reply.extend_from_slice(&ttl.to_be_bytes());
        reply.extend_from_slice(&u16::try_from(bytes.len()).unwrap().to_be_bytes());
        reply.extend_from_slice(bytes);
    }
    reply
}

fn a(address: &str, ttl: u32) -> (u16, u32, Vec<u8>) {
    let address: Ipv4Addr = address.parse().unwrap();
    (A, ttl, address.octets().to_vec())
}

const OK: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi";

async fn get(egress: &Egress, name: &str, port: u16) -> Option<Code> {
    let outcome = egress
        .call(&head("GET", format!("{name}:{port}"), "/", &[]), b"")
        .await;
    outcome.failure()
}

#[test]
fn a_name_that_answers_differently_the_second_time_is_asked_once() {
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let port = upstream.address.port();
        // Permitted at first, private from then on.
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
        // A connection of its own asks again, and is told what is private.
        let refused = get(&egress, "rebind.example", port).await;
        assert_eq!(refused, Some(Code::DestinationIpProhibited));
        assert_eq!(names.count(A), 2);
        assert_eq!(upstream.count(), 1);
    });
}

#[test]
fn what_is_private_is_refused_by_name_and_by_address() {
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
        // Nobody listens at the second; the first would be reached, and is not permitted.
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
fn names_are_kept_as_long_as_their_server_says_and_no_longer_than_the_operator() {
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
                // The next by itself: the server leaves it to who asks.
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

/// A server of names that says this of all, or nothing.
fn says(answer: Option<Answer>) -> Names {
    Names::new(move |_, _, _| answer.clone())
}

#[test]
fn where_a_server_of_names_cannot_say_the_next_is_asked_in_their_order() {
    const A_MOMENT: Duration = Duration::from_secs(1);
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let port = upstream.address.port();
        let knows = |address| {
            Names::new(move |_, kind, _| {
                let records = if kind == A {
                    vec![a(address, 0)]
                } else {
                    vec![]
                };
                Some((records, 0))
            })
        };
        // SERVFAIL, FORMERR, NOTIMP, REFUSED, and one that is not there at all.
        let mut failing: Vec<_> = [2, 1, 4, 5].map(|rcode| says(Some((vec![], rcode)))).into();
        let nobody = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        failing.push(Names {
            address: nobody,
            asked: Arc::default(),
        });
        let (good, behind) = (knows("127.0.0.1"), knows("127.0.0.2"));
        for failing in &failing {
            let options = ConnectorOptions {
                servers: vec![failing.address, good.address, behind.address],
                ..good.options(&["127.0.0.1"])
            };
            let egress = Egress::with(&options, WorkerOptions::default(), &[]);
            for name in ["one.example", "two.example"] {
                assert_eq!(get(&egress, name, port).await, None);
            }
            // However fast another one is, the first is asked first.
            assert!(failing.address == nobody || failing.count(A) >= 2);
        }
        let known = good.count(A);
        assert!(known >= 10 && behind.count(A) == 0, "{known}");
        // What one knows is believed: nobody else is asked for a name that is not there.
        for (rcode, code) in [(3, Code::DnsError), (0, Code::DestinationNotFound)] {
            let knows_of_none = says(Some((vec![], rcode)));
            let options = ConnectorOptions {
                servers: vec![knows_of_none.address, good.address],
                ..good.options(&["127.0.0.1"])
            };
            let egress = Egress::with(&options, WorkerOptions::default(), &[]);
            assert_eq!(get(&egress, "none.example", port).await, Some(code));
        }
        assert_eq!(good.count(A), known);
        // One that is silent is waited for once, and asked behind the others then.
        let silent = says(None);
        let options = ConnectorOptions {
            servers: vec![silent.address, good.address],
            ..good.options(&["127.0.0.1"])
        };
        let egress = Egress::with(&options, WorkerOptions::default(), &[]);
        assert_eq!(get(&egress, "one.example", port).await, None);
        let asked = silent.count(A);
        let begun = std::time::Instant::now();
        assert_eq!(get(&egress, "two.example", port).await, None);
        assert!(begun.elapsed() < A_MOMENT);
        assert_eq!(silent.count(A), asked);
        // Where none can say, that is what is told, whatever others are silent.
        let options = ConnectorOptions {
            servers: vec![silent.address, failing[0].address],
            ..good.options(&["127.0.0.1"])
        };
        let egress = Egress::with(&options, WorkerOptions::default(), &[]);
        assert_eq!(
            get(&egress, "one.example", port).await,
            Some(Code::DnsError)
        );
    });
}

#[test]
fn servers_that_say_nothing_have_no_name_take_long_and_others_are_asked_before_them() {
    const ALTOGETHER: Duration = Duration::from_secs(7);
    const A_WHILE: Duration = Duration::from_secs(5);
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let port = upstream.address.port();
        let good = Names::new(|_, kind, _| {
            let records = if kind == A {
                vec![a("127.0.0.1", 0)]
            } else {
                vec![]
            };
            Some((records, 0))
        });
        let silent = [(); 3].map(|()| says(None));
        let servers = silent.iter().chain([&good]);
        let options = ConnectorOptions {
            servers: servers.map(|names| names.address).collect(),
            ..good.options(&["127.0.0.1"])
        };
        let egress = Egress::with(&options, WorkerOptions::default(), &[]);
        let begun = std::time::Instant::now();
        let failed = get(&egress, "one.example", port).await;
        assert_eq!(failed, Some(Code::DnsTimeout));
        assert!(begun.elapsed() < ALTOGETHER + A_WHILE);
        assert_eq!(good.count(A), 0);
        let begun = std::time::Instant::now();
        assert_eq!(get(&egress, "two.example", port).await, None);
        assert!(begun.elapsed() < A_WHILE);
    });
}

#[test]
fn what_the_host_says_anew_holds_from_then_on() {
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let port = upstream.address.port();
        let knows = |address| {
            Names::new(move |_, kind, _| {
                let records = if kind == A {
                    vec![a(address, 3600)]
                } else {
                    vec![]
                };
                Some((records, 0))
            })
        };
        let (before, after) = (knows("10.0.0.1"), knows("127.0.0.1"));
        let options = ConnectorOptions {
            hosts: b"127.0.0.1 known.example\n".to_vec(),
            ..before.options(&["127.0.0.1"])
        };
        let egress = Egress::with(&options, WorkerOptions::default(), &[]);
        let prohibited = Some(Code::DestinationIpProhibited);
        assert_eq!(get(&egress, "known.example", port).await, None);
        assert_eq!(get(&egress, "asked.example", port).await, prohibited);
        // Another network: other servers, and what those before have said is forgotten.
        let hosts = b"10.0.0.1 known.example\n";
        egress.connector.is_told(hosts, &[after.address]).unwrap();
        assert_eq!(get(&egress, "asked.example", port).await, None);
        assert_eq!((before.count(A), after.count(A)), (1, 1));
        // No network at all.
        egress.connector.is_told(b"", &[]).unwrap();
        let other = Upstream::saying(OK);
        let port = other.address.port();
        assert_eq!(
            get(&egress, "asked.example", port).await,
            Some(Code::DnsError)
        );
        // A file of the largest size is read, and more than that is not.
        let mut large = b"127.0.0.1 first.example\n".to_vec();
        large.resize((4 << 20) - 24, b'\n');
        large.extend_from_slice(b"127.0.0.1 last.example  \n127.0.0.1 beyond.example\n");
        egress.connector.is_told(&large, &[]).unwrap();
        assert_eq!(get(&egress, "first.example", port).await, None);
        assert_eq!(
            get(&egress, "beyond.example", port).await,
            Some(Code::DnsError)
        );
    });
}

#[test]
fn each_answer_of_a_server_of_names_has_its_case() {
    runtime().block_on(async {
        let names = Names::new(|name, _, _| match name {
            "none.example" => Some((vec![], 3)),
            "broken.example" => Some((vec![], 2)),
            "refused.example" => Some((vec![], 5)),
            "empty.example" => Some((vec![], 0)),
            _ => None,
        });
        let egress = names.egress(&["127.0.0.0/8"]);
        for (name, code) in [
            ("none.example", Code::DnsError),
            ("broken.example", Code::DnsError),
            ("refused.example", Code::DnsError),
            ("empty.example", Code::DestinationNotFound),
        ] {
            assert_eq!(get(&egress, name, 80).await, Some(code), "{name}");
        }
        let mut silent = head("GET", "silent.example", "/", &[]);
        silent.timeouts.connect = 200_000_000;
        let failed = egress.call(&silent, b"").await.failure();
        // Whose clock is first: the worker's, or the connector's.
        assert!(
            matches!(failed, Some(Code::DnsTimeout | Code::ConnectionTimeout)),
            "{failed:?}"
        );
    });
}

#[test]
fn what_the_file_of_hosts_has_is_asked_of_nobody() {
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let names = Names::new(|_, _, _| Some((vec![], 3)));
        let options = ConnectorOptions {
            hosts: b"# a comment\n127.0.0.1 upstream.example UP # another\n\xff\xfe bad\n10.0.0.1 ten\n".to_vec(),
            servers: vec![names.address],
            ..loopback()
        };
        let egress = Egress::with(&options, WorkerOptions::default(), &[]);
        let port = upstream.address.port();
        assert_eq!(get(&egress, "upstream.example", port).await, None);
        assert_eq!(get(&egress, "up", port).await, None);
        assert_eq!(get(&egress, "Up.", port).await, None);
        assert_eq!(get(&egress, "ten", port).await, Some(Code::DestinationIpProhibited));
        assert_eq!(names.count(A) + names.count(AAAA), 0);
    });
}

#[test]
fn a_connector_makes_no_more_connections_at_once_than_it_may_and_a_worker_has_a_share() {
    runtime().block_on(async {
        let names = Names::new(|_, _, _| None);
        let options = ConnectorOptions {
            orders_max: 3,
            orders_per_worker: 2,
            ..names.options(&[])
        };
        let egress = Egress::with(&options, WorkerOptions::default(), &[]);
        let request = |name| head("GET", name, "/", &[]);
        let begun = [request("one.example"), request("two.example")];
        let [first, _second] = begun.map(|request| egress.begin(&request));
        // Their orders are under way when somebody is asked for their names.
        while names.count(A) < 2 {
            tokio::task::yield_now().await;
        }
        let third = egress.call(&request("three.example"), b"").await;
        assert_eq!(third.failure(), Some(Code::ConnectionLimitReached));
        // One that is cancelled makes room: it waits for its name now, and fails by its own time.
        drop(first);
        let mut fourth = request("four.example");
        fourth.timeouts.connect = 200_000_000;
        let failed = loop {
            let failed = egress.call(&fourth, b"").await.failure();
            // The cancel takes its own way to the connector.
            if failed != Some(Code::ConnectionLimitReached) {
                break failed;
            }
        };
        assert!(
            matches!(failed, Some(Code::DnsTimeout | Code::ConnectionTimeout)),
            "{failed:?}"
        );
        // Another worker has its own share of those there are.
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

/// A socket at 127.0.0.2 where nobody accepts, with no room for who waits: the system drops what
/// comes. With it, who waits.
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
            (_, A) => Some((vec![a("127.0.0.2", 60)], 0)),
            _ => Some((vec![], 0)),
        });
        let egress = names.egress(&["127.0.0.0/8"]);
        assert_eq!(get(&egress, "both.example", port).await, None);
        let mut alone = head("GET", format!("alone.example:{port}"), "/", &[]);
        alone.timeouts.connect = 300_000_000;
        let failed = egress.call(&alone, b"").await.failure();
        assert_eq!(failed, Some(Code::ConnectionTimeout));
    });
}

//! Name servers: which is queried when, and the outcome of each answer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::net::UdpSocket;
use std::sync::Arc;

use common::names::{A, Answer, Names, OK, a, get};
use common::{Egress, Upstream, head, runtime};
use faasw_abi::outgoing::FailureCode as Code;
use faasw_egress::client::ConnectorOptions;
use faasw_egress::frames::WorkerOptions;

/// Returns whether a client has queried the server for the name. A lookup that waits for a server
/// has queried it before, so no clock is needed to tell that a lookup did not wait.
fn is_queried(server: &Names, name: &str) -> bool {
    let queries = server.asked.lock().unwrap();
    queries.iter().any(|(queried, _)| queried == name)
}

/// A name server that gives this answer to every query, or is silent.
fn says(answer: Option<Answer>) -> Names {
    Names::new(move |_, _, _| answer.clone())
}

#[test]
fn name_servers_are_queried_in_order_until_one_answers() {
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
        // SERVFAIL, FORMERR, NOTIMP, REFUSED, and a server that does not exist.
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
            // The first server is queried first, however fast another one is.
            assert!(failing.address == nobody || failing.count(A) >= 2);
        }
        let known = good.count(A);
        assert!(known >= 10 && behind.count(A) == 0, "{known}");
        // An answer that a name does not exist is conclusive: no other server is queried.
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
        // A silent server is waited for once, and then queried after the others.
        let silent = says(None);
        let options = ConnectorOptions {
            servers: vec![silent.address, good.address],
            ..good.options(&["127.0.0.1"])
        };
        let egress = Egress::with(&options, WorkerOptions::default(), &[]);
        assert_eq!(get(&egress, "one.example", port).await, None);
        assert_eq!(get(&egress, "two.example", port).await, None);
        assert!(is_queried(&silent, "one.example"));
        assert!(!is_queried(&silent, "two.example"));
        // If no server has a conclusive answer, that is the failure, even if other servers are
        // silent.
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
fn silent_name_servers_time_out_and_are_queried_last() {
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
        // A lookup without a time limit of its own would reach the last server, which answers.
        let failed = get(&egress, "one.example", port).await;
        assert_eq!(failed, Some(Code::DnsTimeout));
        assert_eq!(good.count(A), 0);
        // Each of the other two was silent for its whole share of the first lookup.
        assert_eq!(get(&egress, "two.example", port).await, None);
        assert!(!is_queried(&silent[0], "two.example"));
        assert!(!is_queried(&silent[1], "two.example"));
    });
}

#[test]
fn new_host_name_configuration_takes_effect() {
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
        // On another network there are other servers, and the answers of earlier ones are
        // forgotten.
        let hosts = b"10.0.0.1 known.example\n";
        egress
            .connector
            .send_names(hosts, &[after.address])
            .unwrap();
        assert_eq!(get(&egress, "asked.example", port).await, None);
        assert_eq!((before.count(A), after.count(A)), (1, 1));
        // No network at all.
        egress.connector.send_names(b"", &[]).unwrap();
        let other = Upstream::saying(OK);
        let port = other.address.port();
        assert_eq!(
            get(&egress, "asked.example", port).await,
            Some(Code::DnsError)
        );
        // A file of the largest size is read, but no more than that.
        let mut large = b"127.0.0.1 first.example\n".to_vec();
        large.resize((4 << 20) - 24, b'\n');
        large.extend_from_slice(b"127.0.0.1 last.example  \n127.0.0.1 beyond.example\n");
        egress.connector.send_names(&large, &[]).unwrap();
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
        // Either the worker's clock or the connector's expires first.
        assert!(
            matches!(failed, Some(Code::DnsTimeout | Code::ConnectionTimeout)),
            "{failed:?}"
        );
    });
}

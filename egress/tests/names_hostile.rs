//! Hostile functions that look up dead names, and hostile name servers that answer with 64 KiB. No
//! other function may notice.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::names::{A, Names, OK, a};
use common::{Upstream, connector, head, runtime, worker};
use faasw_abi::outgoing::FailureCode as Code;
use faasw_egress::client::{Call, ConnectorOptions, Worker};
use faasw_egress::frames::WorkerOptions;
use faasw_egress_policy::{AllowPrivate, Destination};

fn begin(worker: &Worker, authority: String) -> Call {
    let request = head("GET", authority, "/", &[]);
    let destination = Destination::of_request(&request.scheme, &request.authority);
    worker.begin(&request, destination.unwrap()).unwrap()
}

async fn get(worker: &Worker, authority: String) -> Option<Code> {
    let Call {
        sender,
        mut receiver,
    } = begin(worker, authority);
    sender.finish(b"");
    common::outcome(&mut receiver).await.failure()
}

/// Functions that each look up far more dead names than a function may have under way.
#[test]
fn functions_that_ask_for_dead_names_keep_no_other_waiting_and_deny_none() {
    const FUNCTIONS: usize = 6;
    const NAMES: usize = 200;
    runtime().block_on(async {
        let upstream = Upstream::saying(OK);
        let port = upstream.address.port();
        let names = Names::new(|name, kind, _| {
            if name.ends_with(".dead.example") {
                return None;
            }
            let records = if kind == A {
                vec![a("127.0.0.1", 0)]
            } else {
                vec![]
            };
            Some((records, 0))
        });
        let (_process, connector) = connector(&names.options(&["127.0.0.1"]));
        let new = || worker(&connector, WorkerOptions::default(), &[]);
        let hogs: Vec<_> = (0..FUNCTIONS).map(|_| new()).collect();
        let (_own, victim) = new();
        let mut held = Vec::new();
        for (number, (_, hog)) in hogs.iter().enumerate() {
            for name in 0..NAMES {
                held.push(begin(hog, format!("n{name}.f{number}.dead.example")));
            }
        }
        // Each has begun as many lookups as allowed; further ones were denied.
        for (_, hog) in &hogs {
            while hog.calls() == NAMES {
                tokio::task::yield_now().await;
            }
        }
        for number in 0..20 {
            assert_eq!(
                get(&victim, format!("v{number}.example:{port}")).await,
                None
            );
        }
        assert_eq!(upstream.count(), 20);
        drop(held);
    });
}

/// A name server that answers questions for names below `large.example` with 64 KiB.
fn large_server(records: fn(u16) -> Vec<u8>) -> (SocketAddr, Arc<AtomicUsize>) {
    let (listener, socket) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()) {
            break (listener, socket);
        }
    };
    let address = socket.local_addr().unwrap();
    let answer = move |question: &[u8], is_stream: bool| {
        let kind = u16::from_be_bytes([question[question.len() - 4], question[question.len() - 3]]);
        let mut message = question.to_vec();
        message[2..4].copy_from_slice(&[0x81, 0x80]);
        let is_large = question.windows(7).any(|window| window == b"\x05large\x07");
        if is_large && !is_stream {
            message[2] |= 2;
            return message;
        }
        let record = match (is_large, kind) {
            (true, _) => records(kind),
            (false, A) => [
                &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4][..],
                &[127, 0, 0, 1],
            ]
            .concat(),
            (false, _) => return message,
        };
        let count = if is_large {
            (65_535 - message.len()) / record.len()
        } else {
            1
        };
        message[6..8].copy_from_slice(&u16::try_from(count).unwrap().to_be_bytes());
        message.extend_from_slice(&record.repeat(count));
        message
    };
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    thread::spawn(move || {
        let mut question = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            let message = answer(&question[..length], false);
            socket.send_to(&message, from).unwrap();
        }
    });
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, counted) = (stream.unwrap(), counted.clone());
            thread::spawn(move || {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut question = vec![0; u16::from_be_bytes(length).into()];
                    stream.read_exact(&mut question).unwrap();
                    let message = answer(&question, true);
                    counted.fetch_add(1, Ordering::SeqCst);
                    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
                    let _ = stream.write_all(&[&length[..], &message].concat());
                }
            });
        }
    });
    (address, asked)
}

/// Thousands of aliases of one name, and thousands of its addresses.
#[test]
fn large_answers_take_little_memory_and_do_not_delay_other_names() {
    const FUNCTIONS: usize = 8;
    const NAMES: usize = 40;
    /// Half of the memory limit of the connector's control group.
    const MEMORY: usize = 32 << 20;
    let aliases: fn(u16) -> Vec<u8> = |_| vec![0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 0, 0, 2, 0xc0, 12];
    let addresses: fn(u16) -> Vec<u8> = |kind| {
        let length = if kind == A { 4 } else { 16 };
        let record = [0xc0, 12, 0, kind as u8, 0, 1, 0, 0, 0, 0, 0, length as u8];
        [&record[..], &vec![10; length]].concat()
    };
    for (records, expected) in [
        (aliases, Code::DnsError),
        (addresses, Code::DestinationIpProhibited),
    ] {
        runtime().block_on(async {
            let upstream = Upstream::saying(OK);
            let port = upstream.address.port();
            let (server, asked) = large_server(records);
            let options = ConnectorOptions {
                servers: vec![server],
                private: vec![AllowPrivate::network("127.0.0.1").unwrap()],
                ..ConnectorOptions::default()
            };
            let (process, connector) = connector(&options);
            let new = || worker(&connector, WorkerOptions::default(), &[]);
            let hogs: Vec<_> = (0..FUNCTIONS).map(|_| new()).collect();
            let (_own, victim) = new();
            let long = ["a"; 3].map(|label| label.repeat(60)).join(".");
            let mut held = Vec::new();
            for (_, hog) in &hogs {
                for name in 0..NAMES {
                    held.push(begin(hog, format!("n{name}.{long}.large.example")));
                }
            }
            for number in 0..20 {
                assert_eq!(
                    get(&victim, format!("v{number}.example:{port}")).await,
                    None
                );
            }
            for mut call in held {
                let failed = common::outcome(&mut call.receiver).await.failure();
                assert_eq!(failed, Some(expected));
            }
            assert!(asked.load(Ordering::SeqCst) >= FUNCTIONS * NAMES);
            assert!(!connector.is_closed());
            let memory = process.most_memory();
            assert!(memory < MEMORY, "{memory} bytes");
        });
    }
}

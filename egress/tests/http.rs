//! Calls over HTTP/1.1 to well-behaved servers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::io::{Read as _, Write as _};
use std::sync::{Barrier, mpsc};

use bytes::Bytes;
use common::{
    Egress, LONG, Upstream, fields, head, is_closed, loopback, next, outcome, read_lines,
    read_request, runtime,
};
use faasw_abi::outgoing::{FailureCode, Tail, Timeouts};
use faasw_egress::client::Part;
use faasw_egress::frames::WorkerOptions;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

/// A server that reports the requests that it has received.
fn telling(answer: &'static str) -> (Upstream, mpsc::Receiver<common::Seen>) {
    let (tell, told) = mpsc::channel();
    let upstream = Upstream::new(move |mut stream, _| {
        while let Some(seen) = read_request(&mut stream) {
            tell.send(seen).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (upstream, told)
}

#[test]
fn a_request_is_sent_unchanged_and_its_response_returned() {
    runtime().block_on(async {
        let egress = Egress::start();
        let answer = "HTTP/1.1 201 Created\r\ncontent-length: 2\r\nx-a: 1\r\nX-A: 2\r\n\
                      connection: keep-alive, x-hop\r\nkeep-alive: timeout=5\r\nx-hop: 1\r\n\r\nhi";
        let (upstream, told) = telling(answer);
        let sent = head(
            "GET",
            upstream.address,
            "/a?b=c",
            &[("x-one", "1"), ("host", "evil")],
        );
        let outcome = egress.call(&sent, b"").await;
        let answered = outcome.head.as_ref().unwrap();
        assert_eq!(answered.status, 201);
        let kept = [("content-length", "2"), ("x-a", "1"), ("x-a", "2")];
        assert_eq!(answered.headers, fields(&kept));
        assert_eq!((&outcome.body[..], outcome.tail), (&b"hi"[..], Ok(vec![])));
        let seen = told.recv_timeout(LONG).unwrap();
        let host = upstream.address;
        assert_eq!(
            seen.head,
            format!("GET /a?b=c HTTP/1.1\r\nx-one: 1\r\nhost: {host}\r\n\r\n")
        );
    });
}

#[test]
fn a_body_that_is_there_has_a_length_and_another_has_chunks() {
    runtime().block_on(async {
        let egress = Egress::start();
        let (upstream, told) = telling(OK);
        let post = head("POST", upstream.address, "/", &[]);
        for (body, length) in [(&b""[..], "0"), (b"body", "4")] {
            // On a busy machine the head may leave before the body is there: then it has chunks,
            // and the call is repeated.
            let mut has_length = false;
            for _ in 0..1000 {
                assert_eq!(egress.call(&post, body).await.status(), 200);
                let seen = told.recv_timeout(LONG).unwrap();
                assert_eq!(seen.body, body);
                if seen.header("content-length").is_some() {
                    assert_eq!(seen.header("content-length"), Some(length));
                    assert_eq!(seen.header("transfer-encoding"), None);
                    has_length = true;
                    break;
                }
                assert_eq!(seen.header("transfer-encoding"), Some("chunked"));
            }
            assert!(has_length);
        }
        // The rest follows after the head has arrived, so the length is not known when the head is
        // sent.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut call = egress.begin(&head("POST", listener.local_addr().unwrap(), "/", &[]));
        call.sender.send(Bytes::from_static(b"one")).await.unwrap();
        let accepted = tokio::task::spawn_blocking(move || {
            let (mut accepted, _) = listener.accept().unwrap();
            let head = read_lines(&mut accepted).unwrap();
            (accepted, head)
        });
        let (mut stream, head) = accepted.await.unwrap();
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
        assert!(!head.contains("content-length"), "{head}");
        call.sender.send(Bytes::from_static(b"two")).await.unwrap();
        call.sender.finish(b"");
        let expected = b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n";
        let mut chunks = vec![0; expected.len()];
        stream.read_exact(&mut chunks).unwrap();
        assert_eq!(chunks, expected);
        stream.write_all(OK.as_bytes()).unwrap();
        assert_eq!(outcome(&mut call.receiver).await.status(), 200);
    });
}

#[test]
fn a_declared_length_is_kept_or_the_call_fails() {
    runtime().block_on(async {
        let egress = Egress::start();
        let (upstream, told) = telling(OK);
        let post = head("POST", upstream.address, "/", &[("content-length", "4")]);
        assert_eq!(egress.call(&post, b"four").await.status(), 200);
        assert_eq!(told.recv_timeout(LONG).unwrap().body, b"four");
        for wrong in [&b"thr"[..], b"fives", b""] {
            let failed = egress.call(&post, wrong).await;
            assert_eq!(
                failed.failure(),
                Some(FailureCode::HttpRequestBodySize),
                "{wrong:?}"
            );
        }
        assert!(told.try_recv().is_err());
    });
}

#[test]
fn trailers_pass_both_ways() {
    runtime().block_on(async {
        let egress = Egress::start();
        let (upstream, told) = telling(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-sum: 7\r\n\r\n",
        );
        let mut call = egress.begin(&head("POST", upstream.address, "/", &[]));
        call.sender.send(Bytes::from_static(b"body")).await.unwrap();
        call.sender
            .finish(&Tail::Trailers(fields(&[("x-check", "9")])).encode());
        let outcome = outcome(&mut call.receiver).await;
        assert_eq!(outcome.tail, Ok(fields(&[("x-sum", "7")])));
        assert_eq!(outcome.body, b"hi");
        let seen = told.recv_timeout(LONG).unwrap();
        assert_eq!(seen.header("trailer"), Some("x-check"));
        assert_eq!(seen.trailers, "x-check: 9\r\n\r\n");
    });
}

#[test]
fn a_connection_is_used_again_and_calls_at_once_have_one_each() {
    runtime().block_on(async {
        let egress = Egress::start();
        let (upstream, told) = telling(OK);
        for _ in 0..5 {
            assert_eq!(egress.get(upstream.address, "/").await.body, b"hi");
            told.recv_timeout(LONG).unwrap();
        }
        assert_eq!(upstream.count(), 1);
        // No request is answered before all have arrived.
        let barrier = Barrier::new(8);
        let upstream = Upstream::new(move |mut stream, _| {
            read_request(&mut stream);
            barrier.wait();
            stream.write_all(OK.as_bytes()).unwrap();
        });
        let request = head("GET", upstream.address, "/", &[]);
        let begun = (0..8).map(|_| {
            let call = egress.begin(&request);
            call.sender.finish(b"");
            call.receiver
        });
        for receiver in &mut begun.collect::<Vec<_>>() {
            assert_eq!(outcome(receiver).await.status(), 200);
        }
    });
}

#[test]
fn a_request_on_a_connection_that_turns_out_to_be_closed_is_sent_once_more() {
    runtime().block_on(async {
        let egress = Egress::start();
        // Each connection answers once, and is closed on its second request without an answer.
        let upstream = Upstream::new(|mut stream, _| {
            read_request(&mut stream);
            stream.write_all(OK.as_bytes()).unwrap();
            read_request(&mut stream);
        });
        for expected in 1..=3 {
            assert_eq!(egress.get(upstream.address, "/").await.status(), 200);
            assert_eq!(upstream.count(), expected);
        }
        // A request that may have had an effect is not repeated.
        let post = head("POST", upstream.address, "/", &[]);
        let failed = egress.call(&post, b"order").await;
        assert_eq!(failed.failure(), Some(FailureCode::ConnectionTerminated));
        assert_eq!(upstream.count(), 3);
    });
}

#[test]
fn a_new_connection_that_is_closed_is_not_tried_again() {
    runtime().block_on(async {
        let egress = Egress::start();
        let upstream = Upstream::new(|mut stream, _| drop(read_request(&mut stream)));
        let failed = egress.get(upstream.address, "/").await;
        assert_eq!(failed.failure(), Some(FailureCode::ConnectionTerminated));
        assert_eq!(upstream.count(), 1);
    });
}

#[test]
fn an_answer_before_the_request_is_all_there_is_passed_on() {
    runtime().block_on(async {
        let egress = Egress::start();
        let (tell, told) = mpsc::channel();
        let upstream = Upstream::new(move |mut stream, _| {
            read_lines(&mut stream);
            stream.write_all(OK.as_bytes()).unwrap();
            tell.send(read_until_closed(&mut stream)).unwrap();
        });
        let mut call = egress.begin(&head("POST", upstream.address, "/", &[]));
        call.sender.send(Bytes::from_static(b"some")).await.unwrap();
        let outcome = outcome(&mut call.receiver).await;
        assert_eq!((outcome.status(), outcome.failure()), (200, None));
        // The rest of the request is not accepted, and the connection is not reused.
        let wait = async {
            while call.sender.send(Bytes::from_static(b"more")).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, wait).await.unwrap();
        assert!(told.recv_timeout(LONG).unwrap());
    });
}

fn read_until_closed(stream: &mut std::net::TcpStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn informational_answers_are_skipped_and_another_protocol_is_refused() {
    runtime().block_on(async {
        let egress = Egress::start();
        let upstream = Upstream::saying(format!(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n{OK}"
        ));
        let expecting = head("POST", upstream.address, "/", &[("expect", "100-continue")]);
        let outcome = egress.call(&expecting, b"body").await;
        assert_eq!((outcome.status(), &outcome.body[..]), (200, &b"hi"[..]));
        assert_eq!(outcome.header("link"), None);
        let upstream = Upstream::saying(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        );
        let failed = egress.get(upstream.address, "/").await;
        assert_eq!(failed.failure(), Some(FailureCode::HttpUpgradeFailed));
    });
}

#[test]
fn answers_without_a_body_have_none() {
    runtime().block_on(async {
        let egress = Egress::start();
        let upstream = Upstream::saying("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n");
        let outcome = egress
            .call(&head("HEAD", upstream.address, "/", &[]), b"")
            .await;
        assert_eq!((outcome.status(), outcome.failure()), (200, None));
        assert_eq!(outcome.header("content-length").as_deref(), Some("10"));
        for status in ["204 No Content", "304 Not Modified"] {
            let upstream = Upstream::saying(format!("HTTP/1.1 {status}\r\n\r\n"));
            assert_eq!(egress.get(upstream.address, "/").await.body, b"");
        }
        // Without a length, the body ends with the stream.
        let upstream = Upstream::new(|mut stream, _| {
            read_request(&mut stream);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\n\r\nto the end")
                .unwrap();
        });
        let outcome = egress.get(upstream.address, "/").await;
        assert_eq!(
            (&outcome.body[..], outcome.failure()),
            (&b"to the end"[..], None)
        );
    });
}

#[test]
fn each_time_has_its_case() {
    runtime().block_on(async {
        let egress = Egress::start();
        let upstream = Upstream::new(|mut stream, _| {
            read_request(&mut stream);
            assert!(is_closed(&mut stream));
        });
        const SHORT: u64 = 50_000_000;
        let mut silent = head("GET", upstream.address, "/", &[]);
        silent.timeouts.first_byte = SHORT;
        let failed = egress.call(&silent, b"").await;
        assert_eq!(failed.head.unwrap_err(), FailureCode::ConnectionReadTimeout);
        let upstream = Upstream::new(|mut stream, _| {
            read_request(&mut stream);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
                .unwrap();
            assert!(is_closed(&mut stream));
        });
        let mut half = head("GET", upstream.address, "/", &[]);
        half.timeouts.between_bytes = SHORT;
        let failed = egress.call(&half, b"").await;
        assert_eq!((&failed.body[..], failed.status()), (&b"half"[..], 200));
        assert_eq!(failed.tail, Err(FailureCode::ConnectionReadTimeout));
        // The operator's timeouts limit those of the function.
        let options = WorkerOptions {
            first_byte: SHORT,
            ..WorkerOptions::default()
        };
        let egress = Egress::with(&loopback(), options, &[]);
        silent.timeouts = Timeouts {
            first_byte: u64::MAX,
            ..Timeouts::default()
        };
        let upstream = Upstream::new(|mut stream, _| assert!(read_until_closed(&mut stream)));
        silent.authority = upstream.address.to_string().into_bytes();
        let failed = egress.call(&silent, b"").await;
        assert_eq!(failed.head.unwrap_err(), FailureCode::ConnectionReadTimeout);
    });
}

#[test]
fn a_cancelled_call_closes_its_connection() {
    runtime().block_on(async {
        let egress = Egress::start();
        let (tell, told) = mpsc::channel();
        let upstream = Upstream::new(move |mut stream, _| {
            read_lines(&mut stream);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
                .unwrap();
            tell.send(read_until_closed(&mut stream)).unwrap();
        });
        let mut call = egress.begin(&head("GET", upstream.address, "/", &[]));
        assert!(matches!(
            next(&mut call.receiver).await,
            Some(Part::Head(_))
        ));
        assert!(matches!(
            next(&mut call.receiver).await,
            Some(Part::Data(_))
        ));
        drop(call);
        assert!(told.recv_timeout(LONG).unwrap());
        assert_eq!(egress.worker.calls(), 0);
    });
}

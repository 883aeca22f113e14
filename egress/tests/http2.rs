//! Calls over HTTP/2 to well-behaved servers: protocol selection, and sharing of connections.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::sync::{Arc, mpsc};

use bytes::Bytes;
use common::http2::{IncomingRequest, Server, answer, receive};
use common::tls::{authority, https, trusting, trusting_with};
use common::{Egress, LONG, fields, next, outcome, runtime};
use faasw_abi::outgoing::{FailureCode, OutgoingHead};
use faasw_egress::client::Part;
use faasw_egress::frames::WorkerOptions;
use h2::Reason;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, Method, Response, Uri};
use tokio::sync::{Barrier, Notify};

const HOST: &str = "upstream.example";

fn get(server: &Server, path: &str) -> OutgoingHead {
    with(server, "GET", path)
}

fn with(server: &Server, method: &str, path: &str) -> OutgoingHead {
    OutgoingHead {
        method: method.into(),
        path_and_query: path.into(),
        ..https(HOST, server.address)
    }
}

/// Begins a call without a body.
fn begin(egress: &Egress, head: &OutgoingHead) -> faasw_egress::client::Receiver {
    let call = egress.begin(head);
    call.sender.finish(b"");
    call.receiver
}

/// A request with its whole body, as the server received it.
type ReceivedRequest = (Method, Uri, HeaderMap, Vec<u8>);

/// A server that reports each request, and answers each in the same way.
fn telling(authority: &common::tls::Authority) -> (Server, mpsc::Receiver<ReceivedRequest>) {
    let (tell, told) = mpsc::channel();
    let server = Server::answering(authority, &Builder::new(), move |(request, answering)| {
        let tell = tell.clone();
        async move {
            let (parts, mut body) = request.into_parts();
            let (body, _) = receive(&mut body).await;
            tell.send((parts.method, parts.uri, parts.headers, body))
                .unwrap();
            answer(answering, "hi");
        }
    });
    (server, told)
}

#[test]
fn http2_is_preferred_and_the_request_sent_unchanged() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let (tell, told) = mpsc::channel();
        let server = Server::answering(
            &authority,
            &Builder::new(),
            move |(request, mut answering)| {
                tell.send(request).unwrap();
                async move {
                    let response = Response::builder()
                        .status(201)
                        .header("x-a", "1")
                        .header("X-A", "2")
                        .body(())
                        .unwrap();
                    let mut stream = answering.send_response(response, false).unwrap();
                    stream.send_data("hi".into(), true).unwrap();
                }
            },
        );
        let mut head = get(&server, "/a?b=c");
        head.headers = fields(&[
            ("X-One", "1"),
            ("host", "evil"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
        ]);
        let outcome = egress.call(&head, b"").await;
        let answered = outcome.head.as_ref().unwrap();
        assert_eq!(answered.status, 201);
        assert_eq!(answered.headers, fields(&[("x-a", "1"), ("x-a", "2")]));
        assert_eq!((&outcome.body[..], outcome.tail), (&b"hi"[..], Ok(vec![])));
        let seen = told.recv_timeout(LONG).unwrap();
        assert_eq!(
            seen.uri().to_string(),
            format!("https://{HOST}:{}/a?b=c", server.address.port())
        );
        let expected = [("x-one", "1"), ("te", "trailers")];
        let expected =
            expected.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        assert_eq!(seen.headers(), &HeaderMap::from_iter(expected));
        // A request without a body ends with its head.
        assert!(seen.body().is_end_stream());
    });
}

#[test]
fn known_lengths_are_sent_and_declared_lengths_enforced() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let (server, told) = telling(&authority);
        let post = with(&server, "POST", "/");
        for (body, said) in [(&b""[..], "0"), (b"body", "4")] {
            // If the body is late, as on a busy machine, the head was sent alone.
            let mut is_said = false;
            for _ in 0..1000 {
                assert_eq!(egress.call(&post, body).await.status(), 200);
                let (_, _, headers, received) = told.recv_timeout(LONG).unwrap();
                assert_eq!(received, body);
                if let Some(length) = headers.get("content-length") {
                    assert_eq!(length, said);
                    is_said = true;
                    break;
                }
            }
            assert!(is_said);
        }
        let declared = OutgoingHead {
            headers: fields(&[("content-length", "4")]),
            ..post
        };
        assert_eq!(egress.call(&declared, b"four").await.status(), 200);
        assert_eq!(told.recv_timeout(LONG).unwrap().3, b"four");
        for wrong in [&b"thr"[..], b"fives", b""] {
            let failed = egress.call(&declared, wrong).await.failure();
            assert_eq!(failed, Some(FailureCode::HttpRequestBodySize), "{wrong:?}");
        }
        // The connection still works.
        assert_eq!(egress.call(&get(&server, "/"), b"").await.body, b"hi");
        assert_eq!(server.count(), 1);
    });
}

#[test]
fn requests_at_once_share_a_connection_from_the_first_on() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        // No request is answered before all have arrived.
        let barrier = Arc::new(Barrier::new(16));
        let server = Server::answering(
            &authority,
            &Builder::new(),
            move |(request, answering): IncomingRequest| {
                let barrier = barrier.clone();
                async move {
                    barrier.wait().await;
                    answer(answering, request.uri().path().to_owned());
                }
            },
        );
        for _ in 0..2 {
            let begun = (0..16).map(|at| begin(&egress, &get(&server, &format!("/{at}"))));
            for (at, receiver) in begun.collect::<Vec<_>>().iter_mut().enumerate() {
                let outcome = outcome(receiver).await;
                assert_eq!(
                    outcome.body,
                    format!("/{at}").into_bytes(),
                    "{:?}",
                    outcome.failure()
                );
            }
        }
        assert_eq!(server.count(), 1);
    });
}

#[test]
fn more_requests_than_a_server_takes_at_once_have_other_connections() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let barrier = Arc::new(Barrier::new(9));
        let builder = Builder::new().max_concurrent_streams(3).clone();
        let server = Server::answering(&authority, &builder, move |(_, answering)| {
            let barrier = barrier.clone();
            async move {
                barrier.wait().await;
                answer(answering, "hi");
            }
        });
        for _ in 0..2 {
            let begun = (0..9).map(|_| begin(&egress, &get(&server, "/")));
            for receiver in &mut begun.collect::<Vec<_>>() {
                assert_eq!(outcome(receiver).await.body, b"hi");
            }
            assert_eq!(server.count(), 3);
        }
    });
}

#[test]
fn a_waiting_request_dials_itself_if_the_shared_dial_fails() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        // The first connection is closed without an answer once the other requests wait for it. The
        // only sign that they wait is that no second connection is made meanwhile.
        let config = common::http2::config(&authority);
        let upstream = common::Upstream::new(move |stream, number| {
            if number == 0 {
                return;
            }
            let Some(mut raw) = common::frames::Raw::accept(&config, stream) else {
                return;
            };
            raw.write(&common::frames::frame(common::frames::SETTINGS, 0, 0, &[]));
            while let Some(stream) = raw.request() {
                raw.answer(stream, b"", b"hi");
            }
        });
        let head = https(HOST, upstream.address);
        let begun = (0..4).map(|_| begin(&egress, &head));
        let mut failed = 0;
        for receiver in &mut begun.collect::<Vec<_>>() {
            let outcome = outcome(receiver).await;
            match outcome.failure() {
                Some(code) => {
                    assert_eq!(code, FailureCode::ConnectionTerminated);
                    failed += 1;
                }
                None => assert_eq!(outcome.body, b"hi"),
            }
        }
        assert_eq!(failed, 1);
    });
}

#[test]
fn a_cancelled_call_resets_only_its_own_stream() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let go_on = Arc::new(Notify::new());
        let going = go_on.clone();
        let server = Server::answering(
            &authority,
            &Builder::new(),
            move |(request, mut answering): IncomingRequest| {
                let (tell, go_on) = (tell.clone(), go_on.clone());
                async move {
                    let mut stream = answering.send_response(Response::new(()), false).unwrap();
                    stream.send_data("half".into(), false).unwrap();
                    if request.uri().path() == "/unwanted" {
                        let reset =
                            std::future::poll_fn(|context| stream.poll_reset(context)).await;
                        tell.send(reset.ok()).unwrap();
                    } else {
                        go_on.notified().await;
                        stream.send_data("whole".into(), true).unwrap();
                    }
                }
            },
        );
        let mut wanted = begin(&egress, &get(&server, "/"));
        let mut unwanted = begin(&egress, &get(&server, "/unwanted"));
        for receiver in [&mut wanted, &mut unwanted] {
            assert!(matches!(next(receiver).await, Some(Part::Head(_))));
            assert!(matches!(next(receiver).await, Some(Part::Data(_))));
        }
        drop(unwanted);
        let reset = tokio::time::timeout(LONG, told.recv()).await.unwrap();
        assert_eq!(reset, Some(Some(Reason::CANCEL)));
        going.notify_one();
        let rest = outcome(&mut wanted).await;
        assert_eq!((&rest.body[..], rest.tail), (&b"whole"[..], Ok(vec![])));
        assert_eq!(server.count(), 1);
    });
}

#[test]
fn each_time_has_its_case_and_is_of_one_stream() {
    runtime().block_on(async {
        const SHORT: u64 = 50_000_000;
        let authority = authority();
        let egress = trusting(&authority);
        let go_on = Arc::new(Notify::new());
        let going = go_on.clone();
        let server = Server::answering(
            &authority,
            &Builder::new(),
            move |(request, mut answering): IncomingRequest| {
                let go_on = go_on.clone();
                async move {
                    if request.uri().path() == "/slow" {
                        go_on.notified().await;
                        return answer(answering, "slow");
                    }
                    if request.uri().path() == "/half" {
                        let mut stream = answering.send_response(Response::new(()), false).unwrap();
                        stream.send_data("half".into(), false).unwrap();
                        let _ = std::future::poll_fn(|context| stream.poll_reset(context)).await;
                        return;
                    }
                    let _ = std::future::poll_fn(|context| answering.poll_reset(context)).await;
                }
            },
        );
        // The connection exists beforehand: during a slow handshake further connections would be
        // made.
        let mut warm = get(&server, "/half");
        warm.timeouts.between_bytes = SHORT;
        egress.call(&warm, b"").await;
        let mut slow = begin(&egress, &get(&server, "/slow"));
        let mut silent = get(&server, "/silent");
        silent.timeouts.first_byte = SHORT;
        let failed = egress.call(&silent, b"").await;
        assert_eq!(failed.head.unwrap_err(), FailureCode::ConnectionReadTimeout);
        let mut half = get(&server, "/half");
        // Longer than a busy machine delays the server between its head and its data.
        half.timeouts.between_bytes = 20 * SHORT;
        let failed = egress.call(&half, b"").await;
        assert_eq!((&failed.body[..], failed.status()), (&b"half"[..], 200));
        assert_eq!(failed.tail, Err(FailureCode::ConnectionReadTimeout));
        going.notify_one();
        assert_eq!(outcome(&mut slow).await.body, b"slow");
        assert_eq!(server.count(), 1);
    });
}

#[test]
fn an_unused_connection_is_closed() {
    runtime().block_on(async {
        let authority = authority();
        let options = WorkerOptions {
            idle: 50_000_000,
            ..WorkerOptions::default()
        };
        let egress = trusting_with(&authority, options);
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let server = Server::new(
            &authority,
            &Builder::new(),
            move |mut connection, number| {
                let tell = tell.clone();
                async move {
                    while let Some(Ok((_, answering))) = connection.accept().await {
                        answer(answering, "hi");
                    }
                    tell.send(number).unwrap();
                }
            },
        );
        for number in 0..2 {
            assert_eq!(egress.call(&get(&server, "/"), b"").await.body, b"hi");
            let closed = tokio::time::timeout(LONG, told.recv()).await.unwrap();
            assert_eq!(closed, Some(number));
        }
        // Only as many connections are idle as allowed: one of three that were in use at once.
        let options = WorkerOptions {
            idle_per_origin: 1,
            ..WorkerOptions::default()
        };
        let egress = trusting_with(&authority, options);
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let barrier = Arc::new(Barrier::new(3));
        let builder = Builder::new().max_concurrent_streams(1).clone();
        let server = Server::new(&authority, &builder, move |mut connection, _| {
            let (tell, barrier) = (tell.clone(), barrier.clone());
            async move {
                while let Some(Ok((_, answering))) = connection.accept().await {
                    let barrier = barrier.clone();
                    tokio::spawn(async move {
                        barrier.wait().await;
                        answer(answering, "hi");
                    });
                }
                tell.send(()).unwrap();
            }
        });
        let begun = (0..3).map(|_| begin(&egress, &get(&server, "/")));
        for receiver in &mut begun.collect::<Vec<_>>() {
            assert_eq!(outcome(receiver).await.body, b"hi");
        }
        for _ in 0..2 {
            tokio::time::timeout(LONG, told.recv()).await.unwrap();
        }
        assert!(told.try_recv().is_err());
    });
}

#[test]
fn an_answer_to_head_has_no_body_and_its_length() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let server = Server::answering(
            &authority,
            &Builder::new(),
            |(_, mut answering): (_, SendResponse<Bytes>)| async move {
                let response = Response::builder().header("content-length", "10").body(());
                answering.send_response(response.unwrap(), true).unwrap();
            },
        );
        let outcome = egress.call(&with(&server, "HEAD", "/"), b"").await;
        assert_eq!((outcome.status(), outcome.failure()), (200, None));
        assert_eq!(outcome.header("content-length").as_deref(), Some("10"));
        assert_eq!(outcome.body, b"");
    });
}

//! Bodies and trailers over HTTP/2: in both directions, as fast as the reader reads, and without
//! waiting for other calls.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::http2::{IncomingRequest, Server, answer, receive, send};
use common::tls::{authority, https, trusting};
use common::{LONG, fields, next, outcome, runtime};
use faasw_abi::outgoing::{Failure, FailureCode, OutgoingHead, Tail};
use faasw_egress::client::Part;
use faasw_egress::frames::{PIECE_MIN, WINDOW};
use h2::Reason;
use h2::server::Builder;
use http::{HeaderMap, Response};
use tokio::sync::Semaphore;

fn post(server: &Server) -> OutgoingHead {
    OutgoingHead {
        method: b"POST".to_vec(),
        ..https("upstream.example", server.address)
    }
}

/// An echo handler, for trailers as well.
async fn echo((request, mut answering): IncomingRequest) {
    let mut body = request.into_body();
    let mut stream = answering.send_response(Response::new(()), false).unwrap();
    while let Some(Ok(data)) = body.data().await {
        body.flow_control().release_capacity(data.len()).unwrap();
        if !send(&mut stream, data).await {
            return;
        }
    }
    match body.trailers().await {
        Ok(Some(trailers)) => stream.send_trailers(trailers).unwrap(),
        Ok(None) => stream.send_data(Bytes::new(), true).unwrap(),
        Err(_) => {}
    }
}

#[test]
fn a_response_may_arrive_while_the_request_body_is_sent() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let server = Server::answering(&authority, &Builder::new(), echo);
        let mut call = egress.begin(&post(&server));
        for word in ["one", "two", "three"] {
            call.sender.send(word.into()).await.unwrap();
            loop {
                match next(&mut call.receiver).await {
                    Some(Part::Head(_)) => {}
                    Some(Part::Data(data)) => break assert_eq!(data, word),
                    other => panic!("{other:?}"),
                }
            }
        }
        // Trailers that the head has not announced pass, however late.
        let tail = Tail::Trailers(fields(&[("x-sum", "7"), ("x-sum", "8")]));
        call.sender.finish(&tail.encode());
        let rest = outcome(&mut call.receiver).await;
        assert_eq!(rest.tail, Ok(fields(&[("x-sum", "7"), ("x-sum", "8")])));
    });
}

#[test]
fn trailers_that_are_there_pass_behind_a_declared_length_and_late_ones_are_never_lost() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let go_on = Arc::new(Semaphore::new(0));
        let going = go_on.clone();
        let server = Server::answering(
            &authority,
            &Builder::new(),
            move |(request, answering): IncomingRequest| {
                let go_on = go_on.clone();
                async move {
                    let (parts, mut body) = request.into_parts();
                    let (_, trailers) = receive(&mut body).await;
                    if parts.uri.path() == "/late" {
                        go_on.acquire().await.unwrap().forget();
                    }
                    let trailers = trailers.unwrap().unwrap_or_default();
                    answer(answering, format!("{trailers:?}"));
                }
            },
        );
        let tail = Tail::Trailers(fields(&[("x-sum", "7")])).encode();
        let mut head = post(&server);
        head.headers = fields(&[("content-length", "4")]);
        let mut call = egress.begin(&head);
        call.sender.send("four".into()).await.unwrap();
        call.sender.finish(&tail);
        let outcome_of = outcome(&mut call.receiver).await;
        // The server gets the trailers, unless the end of the body arrived first.
        match outcome_of.failure() {
            None => assert_eq!(outcome_of.body, br#"{"x-sum": "7"}"#),
            code => assert_eq!(code, Some(FailureCode::InternalError)),
        }
        // The server does not wait after the last byte.
        head.path_and_query = b"/late".to_vec();
        let mut call = egress.begin(&head);
        call.sender.send("four".into()).await.unwrap();
        let mut sender = Some(call.sender);
        going.add_permits(1);
        let mut last = None;
        while let Some(part) = next(&mut call.receiver).await {
            if let Some(sender) = sender.take() {
                sender.finish(&tail);
            }
            last = Some(part);
        }
        assert!(matches!(last, Some(Part::End(_))));
    });
}

#[test]
fn a_hundred_mebibytes_each_way_take_little_memory() {
    runtime().block_on(async {
        const TOTAL: usize = 100 << 20;
        let authority = authority();
        let egress = trusting(&authority);
        let server = Server::answering(&authority, &Builder::new(), echo);
        let mut call = egress.begin(&post(&server));
        let sending = tokio::spawn(async move {
            let piece = Bytes::from((0..100_000).map(|at| at as u8).collect::<Vec<_>>());
            let mut left = TOTAL;
            while left > 0 {
                let piece = piece.slice(..left.min(piece.len()));
                left -= piece.len();
                call.sender.send(piece).await.unwrap();
            }
            call.sender.finish(b"");
        });
        let mut received = 0;
        while let Some(part) = next(&mut call.receiver).await {
            match part {
                Part::Head(_) => {}
                Part::Data(data) => {
                    for byte in &data {
                        assert_eq!(*byte, (received % 100_000) as u8);
                        received += 1;
                    }
                }
                Part::End(tail) => assert_eq!(tail, Tail::Trailers(vec![]).encode()),
                Part::Failed(_) | Part::Refused(_) => panic!("{part:?}"),
            }
        }
        sending.await.unwrap();
        assert_eq!(received, TOTAL);
        let most = egress.worker_process.most_memory();
        assert!(most < 32 << 20, "{most}");
    });
}

#[test]
fn backpressure_applies_to_one_stream_only() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let server = Server::answering(
            &authority,
            &Builder::new(),
            move |asked: IncomingRequest| {
                let tell = tell.clone();
                async move {
                    if asked.0.uri().path() == "/echo" {
                        return echo(asked).await;
                    }
                    let (_, mut answering) = asked;
                    let mut stream = answering.send_response(Response::new(()), false).unwrap();
                    let mut sent = 0;
                    let piece = Bytes::from_static(&[7; 1024]);
                    while send(&mut stream, piece.clone()).await {
                        sent += piece.len();
                        tell.send(sent).unwrap();
                    }
                }
            },
        );
        let mut stuck = Vec::new();
        for _ in 0..8 {
            let mut call = egress.begin(&post(&server));
            call.sender.finish(b"");
            assert!(matches!(
                next(&mut call.receiver).await,
                Some(Part::Head(_))
            ));
            stuck.push(call.receiver);
        }
        // A stream's window and its call's credit. The library returns credit to the server only
        // once half a window is due.
        const EACH: usize = 2 * WINDOW;
        let mut sent = 0;
        while sent < 8 * (WINDOW + WINDOW / 2 - 4096) {
            let more = tokio::time::timeout(LONG, told.recv()).await;
            more.unwrap().unwrap();
            sent += 1024;
        }
        // Meanwhile another call is not limited.
        let head = OutgoingHead {
            path_and_query: b"/echo".to_vec(),
            ..post(&server)
        };
        let body = vec![3; 4 << 20];
        let echoed = {
            let mut call = egress.begin(&head);
            let sending = async {
                call.sender.send(body.clone().into()).await.unwrap();
                call.sender.finish(b"");
            };
            tokio::join!(sending, outcome(&mut call.receiver)).1
        };
        assert_eq!((echoed.failure(), echoed.body.len()), (None, body.len()));
        assert_eq!(server.count(), 1);
        while told.try_recv().is_ok() {
            sent += 1024;
        }
        assert!(sent <= 8 * EACH, "{sent}");
        // A caller that reads again receives the rest.
        let mut received = 0;
        while received < 4 * EACH {
            match next(&mut stuck[0]).await {
                Some(Part::Data(data)) => received += data.len(),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn a_stalled_request_body_does_not_block_other_streams() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        // The connection window suffices for all streams that are not read.
        let builder = Builder::new()
            .initial_connection_window_size(8 << 20)
            .clone();
        let server = Server::answering(&authority, &builder, |asked: IncomingRequest| async move {
            if asked.0.uri().path() == "/echo" {
                return echo(asked).await;
            }
            let (request, mut answering) = asked;
            let _ = std::future::poll_fn(|context| answering.poll_reset(context)).await;
            drop(request);
        });
        let mut call = egress.begin(&post(&server));
        let filled = async {
            loop {
                let piece = Bytes::from_static(&[1; 65_536]);
                if call.sender.send(piece).await.is_err() {
                    return;
                }
            }
        };
        let head = OutgoingHead {
            path_and_query: b"/echo".to_vec(),
            ..post(&server)
        };
        let echoed = async {
            for _ in 0..20 {
                assert_eq!(egress.call(&head, b"hello").await.body, b"hello");
            }
        };
        tokio::select! {
            () = filled => panic!("it is taken"),
            () = echoed => {}
        }
        assert_eq!(server.count(), 1);
    });
}

#[test]
fn tiny_pieces_pass_both_ways_however_many_and_however_late_they_are_read() {
    runtime().block_on(async {
        // More pieces than fit in a window.
        const PIECES: usize = 3 * WINDOW / PIECE_MIN;
        let authority = authority();
        let egress = trusting(&authority);
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let server = Server::answering(
            &authority,
            &Builder::new(),
            move |(request, mut answering): IncomingRequest| {
                let tell = tell.clone();
                async move {
                    let mut body = request.into_body();
                    let (received, _) = receive(&mut body).await;
                    let mut stream = answering.send_response(Response::new(()), false).unwrap();
                    for _ in 0..PIECES {
                        assert!(send(&mut stream, Bytes::from_static(b"x")).await);
                        // Each in a frame of its own.
                        tokio::task::yield_now().await;
                    }
                    stream.send_data(Bytes::new(), true).unwrap();
                    tell.send(received.len()).unwrap();
                }
            },
        );
        let mut call = egress.begin(&post(&server));
        for _ in 0..PIECES {
            call.sender.send(Bytes::from_static(b"x")).await.unwrap();
        }
        call.sender.finish(b"");
        // Everything was sent before anything is read.
        let received = tokio::time::timeout(LONG, told.recv()).await.unwrap();
        assert_eq!(received, Some(PIECES));
        let outcome = outcome(&mut call.receiver).await;
        assert_eq!((outcome.failure(), outcome.body.len()), (None, PIECES));
    });
}

#[test]
fn an_answer_before_the_request_is_all_there_is_passed_on_and_the_rest_is_not_sent() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let server = Server::answering(
            &authority,
            &Builder::new(),
            move |(request, answering): IncomingRequest| {
                let tell = tell.clone();
                async move {
                    answer(answering, "hi");
                    let mut body = request.into_body();
                    tell.send(receive(&mut body).await.1).unwrap();
                }
            },
        );
        for _ in 0..2 {
            let mut call = egress.begin(&post(&server));
            // The body is not accepted if the response is already over.
            let _ = call.sender.send(Bytes::from_static(b"some")).await;
            let outcome = outcome(&mut call.receiver).await;
            assert_eq!((&outcome.body[..], outcome.failure()), (&b"hi"[..], None));
            let end = tokio::time::timeout(LONG, told.recv())
                .await
                .unwrap()
                .unwrap();
            assert_eq!(end.unwrap_err().reason(), Some(Reason::CANCEL));
        }
        assert_eq!(server.count(), 1);
    });
}

#[test]
fn a_response_is_delivered_after_the_server_stops_reading_the_request() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let server = Server::answering(
            &authority,
            &Builder::new(),
            |(_, mut answering): IncomingRequest| async move {
                let mut stream = answering.send_response(Response::new(()), false).unwrap();
                // The library itself announces that the rest is not needed (RFC 9113, 8.1).
                stream.send_data("enough".into(), true).unwrap();
            },
        );
        for _ in 0..8 {
            let mut call = egress.begin(&post(&server));
            // The body is not accepted if the response is already over.
            let _ = call.sender.send(Bytes::from_static(b"some")).await;
            let outcome = outcome(&mut call.receiver).await;
            assert_eq!(
                (&outcome.body[..], outcome.failure()),
                (&b"enough"[..], None)
            );
        }
        assert_eq!(server.count(), 1);
    });
}

#[test]
fn an_abandoned_request_body_fails_only_its_own_call() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let server = Server::answering(
            &authority,
            &Builder::new(),
            move |(request, answering): IncomingRequest| {
                let tell = tell.clone();
                async move {
                    let mut body = request.into_body();
                    // The first part of the body has arrived.
                    tell.send(None).unwrap();
                    match receive(&mut body).await.1 {
                        Ok(_) => answer(answering, "hi"),
                        Err(error) => tell.send(error.reason()).unwrap(),
                    }
                }
            },
        );
        for says_why in [true, false] {
            let mut call = egress.begin(&post(&server));
            call.sender.send(Bytes::from_static(b"some")).await.unwrap();
            let begun = tokio::time::timeout(LONG, told.recv()).await.unwrap();
            assert_eq!(begun, Some(None));
            let code = if says_why {
                FailureCode::HttpRequestTrailerSize
            } else {
                FailureCode::InternalError
            };
            if says_why {
                call.sender
                    .finish(&Tail::Failed(Failure::new(code)).encode())
            } else {
                drop(call.sender)
            }
            assert_eq!(outcome(&mut call.receiver).await.failure(), Some(code));
            let reset = tokio::time::timeout(LONG, told.recv()).await.unwrap();
            assert_eq!(reset, Some(Some(Reason::CANCEL)));
        }
        assert_eq!(egress.call(&post(&server), b"body").await.body, b"hi");
        assert_eq!(server.count(), 1);
    });
}

#[test]
fn trailers_of_an_answer_without_a_body_pass() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let server = Server::answering(
            &authority,
            &Builder::new(),
            |(_, mut answering): IncomingRequest| async move {
                let mut stream = answering.send_response(Response::new(()), false).unwrap();
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", "0".parse().unwrap());
                stream.send_trailers(trailers).unwrap();
            },
        );
        let outcome = egress.call(&post(&server), b"").await;
        assert_eq!(outcome.tail, Ok(fields(&[("grpc-status", "0")])));
        assert_eq!(outcome.body, b"");
    });
}

//! HTTP/2 connections that end, or accept no more requests. Calls on them fail with the matching
//! failure, unprocessed requests are sent again, and the next call uses another connection.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::sync::{Arc, mpsc};
use std::task::Poll;

use bytes::Bytes;
use common::frames::{
    DATA, END_HEADERS, GOAWAY, HEADERS, OK, RESET, Raw, SETTINGS, frame, server, setting,
};
use common::http2::{Server, answer, config};
use common::tls::{authority, https, trusting};
use common::{Egress, LONG, Upstream, next, outcome, runtime};
use faasw_abi::outgoing::{FailureCode as Code, OutgoingHead};
use faasw_egress::client::{Part, Receiver};
use h2::server::Builder;
use http::Response;
use tokio::sync::Notify;

/// REFUSED_STREAM and NO_ERROR (RFC 9113, 7).
const REFUSED: [u8; 4] = [0, 0, 0, 7];
const NO_ERROR: [u8; 4] = [0; 4];

fn request(method: &str, upstream: &Upstream) -> OutgoingHead {
    OutgoingHead {
        method: method.into(),
        ..https("upstream.example", upstream.address)
    }
}

fn begin(egress: &Egress, head: &OutgoingHead) -> Receiver {
    let call = egress.begin(head);
    call.sender.finish(b"");
    call.receiver
}

/// A GOAWAY of a server that has processed requests up to `last`.
fn go_away(last: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &NO_ERROR].concat())
}

#[test]
fn after_goaway_started_requests_finish_and_no_new_ones_are_sent() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let go_on = Arc::new(Notify::new());
        let going = go_on.clone();
        let server = Server::new(
            &authority,
            &Builder::new(),
            move |mut connection, number| {
                let go_on = go_on.clone();
                async move {
                    while let Some(Ok((_, mut answering))) = connection.accept().await {
                        if number > 0 {
                            answer(answering, "new");
                            continue;
                        }
                        let mut stream = answering.send_response(Response::new(()), false).unwrap();
                        connection.graceful_shutdown();
                        let go_on = go_on.clone();
                        tokio::spawn(async move {
                            go_on.notified().await;
                            stream.send_data("old".into(), true).unwrap();
                        });
                    }
                }
            },
        );
        let head = https("upstream.example", server.address);
        let mut old = begin(&egress, &head);
        assert!(matches!(next(&mut old).await, Some(Part::Head(_))));
        // The worker may receive the GOAWAY late: requests that it sends until then are refused,
        // and sent again.
        assert_eq!(egress.call(&head, b"").await.body, b"new");
        assert_eq!(egress.call(&head, b"").await.body, b"new");
        assert_eq!(server.count(), 2);
        going.notify_one();
        assert_eq!(outcome(&mut old).await.body, b"old");
    });
}

#[test]
fn an_unprocessed_request_is_retried_whatever_its_method() {
    runtime().block_on(async {
        let authority = authority();
        for refuses in [true, false] {
            let egress = trusting(&authority);
            let upstream = server(&authority, Vec::new(), move |raw, number| {
                while let Some(stream) = raw.request() {
                    if number > 0 || stream == 1 {
                        raw.answer(stream, b"", b"hi");
                    } else if refuses {
                        raw.write(&frame(RESET, 0, stream, &REFUSED));
                    } else {
                        raw.write(&go_away(1));
                    }
                }
            });
            let post = request("POST", &upstream);
            assert_eq!(egress.call(&post, b"").await.body, b"hi");
            assert_eq!(egress.call(&post, b"").await.body, b"hi");
            // The connection that refused still exists, but the repeated request uses another one.
            assert_eq!(upstream.count(), 2);
        }
    });
}

#[test]
fn a_new_connection_that_refuses_is_not_tried_again_and_a_begun_body_neither() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let upstream = server(&authority, Vec::new(), |raw, _| {
            while let Some(stream) = raw.request() {
                raw.write(&frame(RESET, 0, stream, &REFUSED));
            }
        });
        let failed = egress.call(&request("GET", &upstream), b"").await;
        assert_eq!(failed.failure(), Some(Code::ConnectionTerminated));
        assert_eq!(upstream.count(), 1);
        // The server refuses the request after part of the body has arrived.
        let upstream = server(&authority, Vec::new(), |raw, _| {
            while let Some(stream) = raw.request() {
                if stream == 1 {
                    raw.answer(stream, b"", b"hi");
                    continue;
                }
                raw.read_until(DATA);
                raw.write(&frame(RESET, 0, stream, &REFUSED));
            }
        });
        assert_eq!(
            egress.call(&request("GET", &upstream), b"").await.body,
            b"hi"
        );
        let mut call = egress.begin(&request("PUT", &upstream));
        // The request may be refused before this data is sent.
        let _ = call.sender.send(Bytes::from_static(b"some")).await;
        let failed = outcome(&mut call.receiver).await;
        assert_eq!(failed.failure(), Some(Code::ConnectionTerminated));
        assert_eq!(upstream.count(), 1);
    });
}

#[test]
fn a_waiting_request_dials_itself_if_the_shared_dial_hangs() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let config = config(&authority);
        let upstream = Upstream::new(move |stream, number| {
            if number == 0 {
                // The server performs no handshake.
                let _ = std::io::copy(&mut { stream }, &mut std::io::sink());
                return;
            }
            if let Some(mut raw) = Raw::accept(&config, stream) {
                raw.write(&frame(SETTINGS, 0, 0, &[]));
                while let Some(stream) = raw.request() {
                    raw.answer(stream, b"", b"hi");
                }
            }
        });
        let request = request("GET", &upstream);
        let mut hangs = begin(&egress, &request);
        while upstream.count() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(egress.call(&request, b"").await.body, b"hi");
        assert_eq!(upstream.count(), 2);
        let early = std::future::poll_fn(|context| Poll::Ready(hangs.poll_next(context))).await;
        assert!(early.is_pending());
    });
}

#[test]
fn a_broken_connection_fails_its_calls_and_the_next_call_dials() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let (tell, told) = mpsc::channel::<()>();
        let told = std::sync::Mutex::new(told);
        let upstream = server(&authority, Vec::new(), move |raw, number| {
            if number > 0 {
                while let Some(stream) = raw.request() {
                    raw.answer(stream, b"", b"hi");
                }
                return;
            }
            // The first request gets half a response, the other none.
            for _ in 0..2 {
                let stream = raw.request().unwrap();
                if stream == 1 {
                    raw.write(&frame(HEADERS, END_HEADERS, stream, OK));
                    raw.write(&frame(DATA, 0, stream, b"half"));
                }
            }
            told.lock().unwrap().recv().unwrap();
            raw.close();
        });
        let mut half = begin(&egress, &request("GET", &upstream));
        assert!(matches!(next(&mut half).await, Some(Part::Head(_))));
        assert!(matches!(next(&mut half).await, Some(Part::Data(_))));
        let none = begin(&egress, &request("POST", &upstream));
        tell.send(()).unwrap();
        assert_eq!(
            outcome(&mut half).await.tail,
            Err(Code::HttpResponseIncomplete)
        );
        let mut none = none;
        assert_eq!(
            outcome(&mut none).await.failure(),
            Some(Code::ConnectionTerminated)
        );
        assert_eq!(
            egress.call(&request("GET", &upstream), b"").await.body,
            b"hi"
        );
        assert_eq!(upstream.count(), 2);
    });
}

#[test]
fn a_request_on_a_connection_that_turns_out_to_be_closed_is_sent_once_more() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        // Each connection answers once, and is closed on its second request without an answer.
        let upstream = server(&authority, Vec::new(), |raw, _| {
            let stream = raw.request().unwrap();
            raw.answer(stream, b"", b"hi");
            raw.request();
        });
        for expected in 1..=3 {
            assert_eq!(
                egress.call(&request("GET", &upstream), b"").await.body,
                b"hi"
            );
            assert_eq!(upstream.count(), expected);
        }
        // A request that may have had an effect is not repeated.
        let failed = egress.call(&request("POST", &upstream), b"order").await;
        assert_eq!(failed.failure(), Some(Code::ConnectionTerminated));
        assert_eq!(upstream.count(), 3);
    });
}

#[test]
fn each_reset_of_a_server_has_its_case_and_is_of_one_stream() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let (tell, told) = mpsc::channel();
        let told = std::sync::Mutex::new(told);
        let upstream = server(&authority, Vec::new(), move |raw, _| {
            // The first request is answered last.
            let first = raw.request().unwrap();
            raw.write(&frame(HEADERS, END_HEADERS, first, OK));
            while let Ok((reason, has_head)) = told.lock().unwrap().recv() {
                let stream = raw.request().unwrap();
                if has_head {
                    raw.write(&frame(HEADERS, END_HEADERS, stream, OK));
                }
                raw.write(&frame(RESET, 0, stream, &u32::to_be_bytes(reason)));
            }
            raw.write(&frame(DATA, 1, first, b"whole"));
            raw.read_to_end();
        });
        let mut first = begin(&egress, &request("GET", &upstream));
        assert!(matches!(next(&mut first).await, Some(Part::Head(_))));
        for (reason, has_head, code) in [
            (0, false, Code::ConnectionTerminated),
            (1, false, Code::HttpProtocolError),
            (2, false, Code::ConnectionTerminated),
            (8, false, Code::ConnectionTerminated),
            (13, false, Code::HttpProtocolError),
            (0xffff_ffff, false, Code::ConnectionTerminated),
            (0, true, Code::HttpResponseIncomplete),
            (1, true, Code::HttpProtocolError),
            (7, true, Code::HttpResponseIncomplete),
            (8, true, Code::HttpResponseIncomplete),
        ] {
            tell.send((reason, has_head)).unwrap();
            let failed = egress.call(&request("POST", &upstream), b"").await;
            assert_eq!(failed.failure(), Some(code), "{reason} {has_head}");
        }
        drop(tell);
        let rest = outcome(&mut first).await;
        assert_eq!((&rest.body[..], rest.tail), (&b"whole"[..], Ok(vec![])));
        assert_eq!(upstream.count(), 1);
    });
}

#[test]
fn a_server_that_takes_fewer_at_once_from_now_on_is_not_sent_more() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let (tell, told) = mpsc::channel();
        let upstream = server(&authority, setting(3, 8), move |raw, number| {
            if number > 0 {
                while let Some(stream) = raw.request() {
                    raw.answer(stream, b"", b"other");
                }
                return;
            }
            let first = raw.request().unwrap();
            raw.write(&frame(HEADERS, END_HEADERS, first, OK));
            raw.write(&frame(SETTINGS, 0, 0, &setting(3, 1)));
            // The client has handled both settings.
            raw.settle(2);
            tell.send(()).unwrap();
            // A further request would fail this assertion.
            assert_eq!(raw.request(), None);
        });
        let mut first = begin(&egress, &request("GET", &upstream));
        assert!(matches!(next(&mut first).await, Some(Part::Head(_))));
        let heard = tokio::task::spawn_blocking(move || told.recv_timeout(LONG));
        heard.await.unwrap().unwrap();
        for _ in 0..4 {
            assert_eq!(
                egress.call(&request("GET", &upstream), b"").await.body,
                b"other"
            );
        }
        assert!(upstream.count() > 1);
        drop(first);
    });
}

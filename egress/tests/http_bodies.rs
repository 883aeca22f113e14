//! Bodies of calls over HTTP/1.1: late, unfinished, large and in small pieces.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::io::{Read as _, Write as _};
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use common::{Egress, LONG, Upstream, head, next, outcome, read_lines, read_request, runtime};
use faasw_abi::outgoing::{Failure, FailureCode, Tail};
use faasw_egress::client::{Call, Part};
use faasw_egress::frames::{PIECE_MIN, WINDOW};

/// An upstream that reports a request's head, then waits for chunks, and answers with them.
fn chunks() -> (Upstream, mpsc::Receiver<String>) {
    let (tell, told) = mpsc::channel();
    let upstream = Upstream::new(move |mut stream, _| {
        tell.send(read_lines(&mut stream).unwrap()).unwrap();
        if let Some(chunks) = read_lines(&mut stream) {
            let length = chunks.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{chunks}"
            );
        }
    });
    (upstream, told)
}

#[test]
fn a_late_body_is_sent_for_any_method() {
    runtime().block_on(async {
        let egress = Egress::start();
        for method in ["GET", "DELETE", "OPTIONS", "POST"] {
            let (upstream, told) = chunks();
            let mut call = egress.begin(&head(method, upstream.address, "/", &[]));
            let told = tokio::task::spawn_blocking(move || told.recv_timeout(LONG).unwrap());
            let seen = told.await.unwrap();
            assert!(seen.contains("transfer-encoding: chunked\r\n"), "{seen}");
            call.sender.send(Bytes::from_static(b"late")).await.unwrap();
            call.sender.finish(b"");
            let answered = outcome(&mut call.receiver).await;
            assert_eq!(answered.failure(), None, "{method}");
            assert_eq!(answered.body, b"4\r\nlate\r\n0\r\n\r\n", "{method}");
        }
    });
}

#[test]
fn trailers_that_come_late_are_sent_where_the_head_names_them_and_never_lost() {
    runtime().block_on(async {
        let egress = Egress::start();
        for (named, is_sent) in [
            ("x-sum", true),
            ("X-Other, X-Sum", true),
            ("x-other", false),
        ] {
            let (upstream, told) = chunks();
            let fields = [("trailer", named)];
            let mut call = egress.begin(&head("POST", upstream.address, "/", &fields));
            let told = tokio::task::spawn_blocking(move || told.recv_timeout(LONG).unwrap());
            told.await.unwrap();
            call.sender.send(Bytes::from_static(b"late")).await.unwrap();
            let tail = Tail::Trailers(common::fields(&[("x-sum", "1")]));
            call.sender.finish(&tail.encode());
            let answered = outcome(&mut call.receiver).await;
            if is_sent {
                assert_eq!(answered.body, b"4\r\nlate\r\n0\r\nx-sum: 1\r\n\r\n")
            } else {
                assert_eq!(answered.failure(), Some(FailureCode::InternalError))
            }
        }
    });
}

#[test]
fn an_abandoned_request_body_fails_the_call() {
    runtime().block_on(async {
        let egress = Egress::start();
        let upstream = Upstream::new(|mut stream, _| {
            read_request(&mut stream);
        });
        for says_why in [true, false] {
            let mut call = egress.begin(&head("POST", upstream.address, "/", &[]));
            call.sender.send(Bytes::from_static(b"some")).await.unwrap();
            let code = FailureCode::HttpRequestTrailerSize;
            if says_why {
                // The text fits in a tail, but not in a failure.

                let why = Failure::with_text(code, &"ä".repeat(4000));
                call.sender.finish(&Tail::Failed(why).encode());
            } else {
                drop(call.sender)
            }
            let failed = outcome(&mut call.receiver).await.failure();
            let expected = if says_why {
                code
            } else {
                FailureCode::InternalError
            };
            assert_eq!(failed, Some(expected));
        }
    });
}

#[test]
fn a_body_that_is_not_finished_has_no_end_for_its_upstream() {
    type Ends = fn(Call);
    const GIVEN_UP: Ends = |call| drop(call);
    const DROPPED: Ends = |call| {
        drop(call.sender);
        std::mem::forget(call.receiver);
    };
    const FAILED: Ends = |call| {
        let why = Failure::with_text(FailureCode::InternalError, "not finished");
        call.sender.finish(&Tail::Failed(why).encode());
        std::mem::forget(call.receiver);
    };
    const SHORT: Ends = |call| {
        call.sender.finish(b"");
        std::mem::forget(call.receiver);
    };
    runtime().block_on(async {
        for (length, pieces, ends) in [
            (None, 0, GIVEN_UP),
            (None, 0, DROPPED),
            (None, 1, GIVEN_UP),
            (None, 1, DROPPED),
            (None, 3, FAILED),
            (Some("13"), 1, GIVEN_UP),
            (Some("13"), 3, DROPPED),
            (Some("13"), 3, FAILED),
            (Some("13"), 3, SHORT),
            (Some("1"), 0, SHORT),
        ] {
            let egress = Egress::start();
            let (tell, told) = mpsc::channel();
            let upstream = Upstream::new(move |mut stream, _| {
                let mut seen = Vec::new();
                let mut some = [0; 1000];
                while let Ok(count @ 1..) = stream.read(&mut some) {
                    seen.extend_from_slice(&some[..count]);
                    tell.send(Some(seen.clone())).unwrap();
                }
                tell.send(None).unwrap();
            });
            let length: Vec<_> = length
                .iter()
                .map(|length| ("content-length", *length))
                .collect();
            let mut call = egress.begin(&head("POST", upstream.address, "/", &length));
            for _ in 0..pieces {
                call.sender.send(Bytes::from_static(b"some")).await.unwrap();
            }
            let mut seen = Vec::new();
            while pieces > 0 && !seen.ends_with(b"some") && !seen.ends_with(b"some\r\n") {
                seen = told.recv_timeout(LONG).unwrap().unwrap();
            }
            ends(call);
            // If nothing was sent yet, there need be no connection.
            while let Ok(Some(more)) = told.recv_timeout(match pieces {
                0 => Duration::from_millis(500),
                _ => LONG,
            }) {
                seen = more;
            }
            let seen = String::from_utf8(seen).unwrap();
            let body = seen.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            assert!(!body.ends_with("0\r\n\r\n") && body.len() < 40, "{seen:?}");
            if seen.contains("content-length: 13\r\n") {
                assert!(body.len() < 13, "{seen:?}");
            } else {
                assert!(!seen.contains("content-length: 0"), "{seen:?}");
            }
        }
    });
}

#[test]
fn a_hundred_mebibytes_each_way_take_little_memory() {
    runtime().block_on(async {
        const TOTAL: usize = 100 << 20;
        let egress = Egress::start();
        // An echo server.
        let upstream = Upstream::new(|mut stream, _| {
            let head = read_lines(&mut stream).unwrap();
            assert!(
                head.contains(&format!("content-length: {TOTAL}\r\n")),
                "{head}"
            );
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {TOTAL}\r\n\r\n").unwrap();
            let mut bytes = vec![0; 64 << 10];
            let mut left = TOTAL;
            while left > 0 {
                let read = stream.read(&mut bytes).unwrap();
                stream.write_all(&bytes[..read]).unwrap();
                left -= read;
            }
        });
        let length = TOTAL.to_string();
        let fields = [("content-length", length.as_str())];
        let mut call = egress.begin(&head("POST", upstream.address, "/", &fields));
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
                Part::End(tail) => assert_eq!(tail, Bytes::new()),
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
fn tiny_pieces_pass_both_ways_however_many() {
    runtime().block_on(async {
        // More pieces than fit in a window.
        const PIECES: usize = 3 * WINDOW / PIECE_MIN;
        let egress = Egress::start();
        let (tell, told) = mpsc::channel();
        let upstream = Upstream::new(move |mut stream, _| {
            tell.send(read_request(&mut stream).unwrap().body.len())
                .unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                .unwrap();
            for _ in 0..PIECES {
                stream.write_all(b"1\r\nx\r\n").unwrap();
            }
            stream.write_all(b"0\r\n\r\n").unwrap();
        });
        let mut call = egress.begin(&head("POST", upstream.address, "/", &[]));
        for _ in 0..PIECES {
            call.sender.send(Bytes::from_static(b"x")).await.unwrap();
        }
        call.sender.finish(b"");
        let outcome = outcome(&mut call.receiver).await;
        assert_eq!((outcome.failure(), outcome.body.len()), (None, PIECES));
        assert_eq!(told.recv_timeout(LONG).unwrap(), PIECES);
        assert!(!egress.worker.is_closed());
    });
}

#[test]
fn an_unread_response_applies_backpressure() {
    runtime().block_on(async {
        let egress = Egress::start();
        let (tell, told) = mpsc::channel();
        let upstream = Upstream::new(move |mut stream, _| {
            read_lines(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            // Writes until no data is accepted for a while.
            let pause = std::time::Duration::from_millis(300);
            stream.set_write_timeout(Some(pause)).unwrap();
            let mut sent = 0;
            while let Ok(more) = stream.write(&[0; 65_536]) {
                sent += more;
                assert!(sent < 1 << 30);
            }
            tell.send(sent).unwrap();
        });
        let mut call = egress.begin(&head("GET", upstream.address, "/", &[]));
        assert!(matches!(
            next(&mut call.receiver).await,
            Some(Part::Head(_))
        ));
        let told = tokio::task::spawn_blocking(move || told.recv_timeout(LONG).unwrap());
        let sent = told.await.unwrap();
        // At most what the kernel buffers for a connection, and little more.
        assert!(sent < 32 << 20, "{sent}");
        let mut received = 0;
        while let Some(Part::Data(data)) = next(&mut call.receiver).await {
            received += data.len();
        }
        assert_eq!(received, sent);
    });
}

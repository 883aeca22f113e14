//! Upstreams that are hostile or broken. Each ends its call with the matching failure, and does not
//! affect the next call.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::io::{Read as _, Write as _};

use common::{Egress, Upstream, head, read_request, runtime};
use faasw_abi::outgoing::FailureCode as Code;

/// The bytes that an upstream sends before it closes, and the outcome: a failure, or a body.
const ANSWERS: &[(&str, Result<&str, Code>)] = &[
    // The end of a response.
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: \
         chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi!",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2, 3\r\n\r\nhi!",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nhi",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nhi",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 0x2\r\n\r\nhi",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nhi",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nhi",
        Err(Code::HttpResponseTransferCoding),
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        Err(Code::HttpResponseTransferCoding),
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: xchunked\r\n\r\nhi",
        Err(Code::HttpResponseTransferCoding),
    ),
    // Malformed chunks.
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxx\r\nhi\r\n",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\nhi\r\n",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nhi\r\n",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi0\r\n\r\n",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n",
        Err(Code::HttpResponseIncomplete),
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhi",
        Err(Code::HttpResponseIncomplete),
    ),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi",
        Err(Code::HttpResponseIncomplete),
    ),
    // Malformed heads.
    (
        "HTTP/1.1 200 OK\r\nx: 1\r\n folded\r\ncontent-length: 2\r\n\r\nhi",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\nx : 1\r\n\r\n",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\nx\0y: 1\r\n\r\n",
        Err(Code::HttpProtocolError),
    ),
    (
        "HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n",
        Err(Code::HttpProtocolError),
    ),
    ("HTTP/1.1 99 OK\r\n\r\n", Err(Code::HttpProtocolError)),
    ("HTTP/1.1 20 OK\r\n\r\n", Err(Code::HttpProtocolError)),
    ("HTTP/1.1 2000 OK\r\n\r\n", Err(Code::HttpProtocolError)),
    ("HTTP/2.0 200 OK\r\n\r\n", Err(Code::HttpProtocolError)),
    ("HTTP/0.9 200 OK\r\n\r\n", Err(Code::HttpProtocolError)),
    ("ICY 200 OK\r\n\r\n", Err(Code::HttpProtocolError)),
    ("SSH-2.0-OpenSSH_9.6\r\n", Err(Code::HttpProtocolError)),
    ("\x15\x03\x03\0\x02\x02\x28", Err(Code::HttpProtocolError)),
    ("hi", Err(Code::HttpProtocolError)),
    ("", Err(Code::ConnectionTerminated)),
    ("HTTP/1.1 200 OK\r\nx: ", Err(Code::HttpResponseIncomplete)),
    (
        "HTTP/1.1 100 Continue\r\n\r\n",
        Err(Code::HttpResponseIncomplete),
    ),
    // Lenient where every reader agrees: a lone line feed ends a line.
    ("HTTP/1.1 200 OK\ncontent-length: 2\n\nhi", Ok("hi")),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nhi",
        Ok("hi"),
    ),
    ("HTTP/1.0 200 OK\r\n\r\nto the end", Ok("to the end")),
    ("HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nhi", Ok("hi")),
];

#[test]
fn each_broken_answer_has_its_case() {
    runtime().block_on(async {
        let egress = Egress::start();
        for (answer, expected) in ANSWERS {
            let upstream = Upstream::new(move |mut stream, _| {
                read_request(&mut stream);
                stream.write_all(answer.as_bytes()).unwrap();
            });
            let outcome = egress.get(upstream.address, "/").await;
            match expected {
                Ok(body) => assert_eq!(
                    (outcome.failure(), &outcome.body[..]),
                    (None, body.as_bytes()),
                    "{answer:?}"
                ),
                Err(code) => assert_eq!(outcome.failure(), Some(*code), "{answer:?}"),
            }
        }
        assert!(!egress.worker.is_closed());
    });
}

/// Writes until the peer stops reading; no peer accepts more than a mebibyte.
fn write_without_end(stream: &mut std::net::TcpStream, piece: &[u8]) -> usize {
    let mut sent = 0;
    while sent < 64 << 20 && stream.write_all(piece).is_ok() {
        sent += piece.len();
    }
    sent
}

#[test]
fn heads_and_trailers_without_end_are_cut_off() {
    runtime().block_on(async {
        let egress = Egress::start();
        let endless: [(&str, &str, Code); 4] = [
            (
                "HTTP/1.1 200 OK\r\n",
                "x-more: of the same\r\n",
                Code::HttpResponseHeaderSectionSize,
            ),
            (
                "HTTP/1.1 200 OK\r\nx-long: ",
                "aaaaaaaaaaaaaaaa",
                Code::HttpResponseHeaderSectionSize,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
                "x-more: of the same\r\n",
                Code::HttpResponseTrailerSectionSize,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;",
                "extension=of-a-chunk;",
                Code::HttpProtocolError,
            ),
        ];
        for (start, more, code) in endless {
            let upstream = Upstream::new(move |mut stream, _| {
                read_request(&mut stream);
                stream.write_all(start.as_bytes()).unwrap();
                write_without_end(&mut stream, more.repeat(64).as_bytes());
            });
            let outcome = egress.get(upstream.address, "/").await;
            assert_eq!(outcome.failure(), Some(code), "{start:?} {more:?}");
        }
        // Many fields, and a large one, within the bounds.
        let fields: String = (0..200).map(|at| format!("x-{at}: {at}\r\n")).collect();
        let upstream = Upstream::saying(format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{fields}\r\n"
        ));
        let outcome = egress.get(upstream.address, "/").await;
        assert_eq!(outcome.head.unwrap().headers.len(), 201);
        let large = "a".repeat(48 << 10);
        let upstream = Upstream::saying(format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: {large}\r\n\r\n"
        ));
        assert_eq!(
            egress.get(upstream.address, "/").await.header("x"),
            Some(large)
        );
        assert!(egress.worker_process.most_memory() < 64 << 20);
    });
}

#[test]
fn informational_answers_without_end_are_stopped_by_the_time() {
    runtime().block_on(async {
        let egress = Egress::start();
        let upstream = Upstream::new(|mut stream, _| {
            read_request(&mut stream);
            while stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").is_ok() {}
        });
        let mut request = head("GET", upstream.address, "/", &[]);
        request.timeouts.first_byte = 200_000_000;
        let outcome = egress.call(&request, b"").await;
        assert_eq!(outcome.failure(), Some(Code::ConnectionReadTimeout));
    });
}

#[test]
fn an_answer_cut_off_at_each_byte_is_whole_or_fails() {
    const ANSWER: &str =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx: y\r\n\r\n";
    runtime().block_on(async {
        let egress = Egress::start();
        for is_reset in [false, true] {
            for end in 0..=ANSWER.len() {
                let upstream = Upstream::new(move |mut stream, _| {
                    read_request(&mut stream);
                    stream.write_all(&ANSWER.as_bytes()[..end]).unwrap();
                    if is_reset {
                        rustix::net::sockopt::set_socket_linger(
                            &stream,
                            Some(std::time::Duration::ZERO),
                        )
                        .unwrap();
                    }
                });
                let outcome = egress.get(upstream.address, "/").await;
                let failure = outcome.failure();
                match end {
                    // A reset may arrive before the data is read.
                    _ if end == ANSWER.len() => assert!(is_reset || failure.is_none()),
                    _ if is_reset => assert!(
                        matches!(
                            failure,
                            Some(Code::ConnectionTerminated | Code::HttpResponseIncomplete)
                        ),
                        "{end} {failure:?}"
                    ),
                    0 => assert_eq!(failure, Some(Code::ConnectionTerminated)),
                    _ => assert_eq!(failure, Some(Code::HttpResponseIncomplete), "{end}"),
                }
            }
        }
    });
}

#[test]
fn bytes_after_a_response_are_discarded() {
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";
    runtime().block_on(async {
        let egress = Egress::start();
        // The response is followed by the beginning of one that no request is for.
        let upstream = Upstream::new(|mut stream, number| {
            read_request(&mut stream);
            let smuggled = format!("{OK}{number:02}{OK}xx");
            stream.write_all(smuggled.as_bytes()).unwrap();
            // The connection stays open, so that the worker may consider it reusable.
            let _ = stream.read(&mut [0]);
        });
        for number in 0..5 {
            let outcome = egress.get(upstream.address, "/").await;
            assert_eq!(outcome.body, format!("{number:02}").into_bytes());
        }
        assert_eq!(upstream.count(), 5);
        // The result is the same if the data arrives a moment later, while the connection is idle.
        let (tell, told) = std::sync::mpsc::channel();
        let upstream = Upstream::new(move |mut stream, number| {
            read_request(&mut stream);
            stream
                .write_all(format!("{OK}{number:02}").as_bytes())
                .unwrap();
            stream.write_all(format!("{OK}xx").as_bytes()).unwrap();
            // The worker notices the data and closes the connection.
            tell.send(common::is_closed(&mut stream)).unwrap();
        });
        for number in 0..3 {
            let outcome = egress.get(upstream.address, "/").await;
            assert_eq!(outcome.body, format!("{number:02}").into_bytes());
            assert!(told.recv_timeout(common::LONG).unwrap());
        }
    });
}

#[test]
fn text_of_an_upstream_is_truncated_in_failures() {
    runtime().block_on(async {
        let egress = Egress::start();
        let long = "x".repeat(32 << 10);
        let upstream = Upstream::saying(format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: {long}\r\n\r\n"
        ));
        let outcome = egress.get(upstream.address, "/").await;
        assert_eq!(outcome.failure(), Some(Code::HttpResponseTransferCoding));
        assert!(!egress.worker.is_closed());
    });
}

#[test]
fn a_redirect_is_the_functions() {
    runtime().block_on(async {
        let egress = Egress::start();
        let upstream = Upstream::saying(
            "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n",
        );
        let outcome = egress.get(upstream.address, "/").await;
        assert_eq!(outcome.status(), 302);
        assert_eq!(
            outcome.header("location").as_deref(),
            Some("http://169.254.169.254/")
        );
    });
}

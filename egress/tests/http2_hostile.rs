//! HTTP/2 upstreams that are hostile or broken. Each ends its calls with the matching failure, in
//! bounded memory, and other calls go on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::io::Write as _;

use common::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, OK, PING, PUSH, RESET, Raw, SETTINGS,
    WINDOW_UPDATE, field, frame, server, setting,
};
use common::tls::{Authority, authority, https, trusting};
use common::{Egress, Upstream, next, outcome, runtime};
use faasw_abi::outgoing::{FailureCode as Code, OutgoingHead};
use faasw_egress::client::Part;
use faasw_egress::frames::WINDOW;

/// Most memory that an attacked worker may have used.
const MEMORY: usize = 64 << 20;

fn request(upstream: &Upstream) -> OutgoingHead {
    https("upstream.example", upstream.address)
}

/// A server that sends these bytes in reply to a request on stream 1, and reads what the client
/// sends.
fn saying(authority: &Authority, answer: Vec<u8>) -> Upstream {
    server(authority, Vec::new(), move |raw, _| {
        if raw.request().is_some() && raw.write(&answer) {
            raw.read_to_end();
        }
    })
}

/// A server that replies to a request on stream 1 with `start`, and then repeats `flood` without
/// end.
fn flooding(authority: &Authority, start: Vec<u8>, flood: Vec<u8>) -> Upstream {
    server(authority, Vec::new(), move |raw, _| {
        if raw.request().is_some() && raw.write(&start) {
            raw.write_without_end(&flood.repeat(1 + 16_384 / flood.len()));
        }
    })
}

fn head(fields: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, fields)
}

async fn failure_of(egress: &Egress, upstream: &Upstream) -> Option<Code> {
    egress.call(&request(upstream), b"").await.failure()
}

#[test]
fn each_broken_answer_has_its_case() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let with = |fields: &[u8]| head(&[OK, fields].concat());
        let answers: [(&str, Vec<u8>); 19] = [
            (
                "no frame",
                b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi".to_vec(),
            ),
            ("data before a head", frame(DATA, END_STREAM, 1, b"hi")),
            ("a head of no stream", frame(HEADERS, END_HEADERS, 0, OK)),
            (
                "a head of a stream that nobody opened",
                frame(HEADERS, END_HEADERS, 3, OK),
            ),
            (
                "a head of a server's stream",
                frame(HEADERS, END_HEADERS, 2, OK),
            ),
            (
                "a push",
                frame(PUSH, END_HEADERS, 1, &[&[0, 0, 0, 2][..], OK].concat()),
            ),
            ("a head without a status", head(&field("x", "y"))),
            ("a status that is none", head(&field(":status", "20"))),
            ("two statuses", with(OK)),
            ("a large letter", with(&field("X-A", "1"))),
            (
                "a field of a connection",
                with(&field("connection", "close")),
            ),
            ("a coding", with(&field("transfer-encoding", "chunked"))),
            ("a line feed", with(&field("x", "a\nb"))),
            (
                "two lengths",
                with(&[field("content-length", "2"), field("content-length", "3")].concat()),
            ),
            (
                "a length that is none",
                with(&field("content-length", "-2")),
            ),
            ("no index of a table", head(&[0xff, 0xff, 0xff, 0x0f])),
            (
                "a larger frame than is taken",
                frame(DATA, 0, 1, &vec![0; 20_000]),
            ),
            (
                "more data than a length",
                [
                    with(&field("content-length", "1")),
                    frame(DATA, END_STREAM, 1, b"hi"),
                ]
                .concat(),
            ),
            (
                "less data than a length",
                [
                    with(&field("content-length", "3")),
                    frame(DATA, END_STREAM, 1, b"hi"),
                ]
                .concat(),
            ),
        ];
        for (what, answer) in answers {
            let upstream = saying(&authority, answer);
            assert_eq!(
                failure_of(&egress, &upstream).await,
                Some(Code::HttpProtocolError),
                "{what}"
            );
        }
        // A server that has chosen HTTP/2, and does not speak it.
        let config = common::http2::config(&authority);
        let upstream = Upstream::new(move |stream, _| {
            let connection = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.flush();
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        assert_eq!(
            failure_of(&egress, &upstream).await,
            Some(Code::HttpProtocolError)
        );
        assert!(!egress.worker.is_closed());
    });
}

#[test]
fn heads_and_trailers_without_end_are_cut_off() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let more = frame(CONTINUATION, 0, 1, &field("x-more", &"a".repeat(8 << 10)));
        let nothing = frame(CONTINUATION, 0, 1, &[]);
        // An HPACK bomb: a large table entry, and many references to it.
        let entry = [
            &[0x40, 1, b'x'][..],
            &[127, 0x81, 0x1e],
            &[b'a'; 4096 - 128],
        ]
        .concat();
        let bomb = [OK, &entry[..], &vec![0xbe; 4096]].concat();
        let begun = frame(HEADERS, 0, 1, OK);
        let answered = [head(OK), frame(DATA, 0, 1, b"hi")].concat();
        let trailing = [answered.clone(), frame(HEADERS, END_STREAM, 1, &[])].concat();
        let heads: [(&str, Vec<u8>, Vec<u8>, Code); 5] = [
            (
                "fields",
                begun.clone(),
                more.clone(),
                Code::HttpResponseHeaderSectionSize,
            ),
            (
                "nothing",
                begun,
                nothing.clone(),
                Code::HttpResponseHeaderSectionSize,
            ),
            (
                "a bomb",
                head(&bomb),
                Vec::new(),
                Code::HttpResponseHeaderSectionSize,
            ),
            (
                "trailers",
                trailing.clone(),
                more,
                Code::HttpResponseTrailerSectionSize,
            ),
            (
                "trailers of nothing",
                trailing,
                nothing,
                Code::HttpResponseTrailerSectionSize,
            ),
        ];
        for (what, start, flood, code) in heads {
            let upstream = if flood.is_empty() {
                saying(&authority, start)
            } else {
                flooding(&authority, start, flood)
            };
            assert_eq!(failure_of(&egress, &upstream).await, Some(code), "{what}");
        }
        // Just more than can be passed to a function, in bytes and in fields.
        let large = field("x", &"a".repeat(64 << 10));
        let many = (0..257)
            .flat_map(|at| field(&format!("x-{at}"), "1"))
            .collect();
        let chunks = |fields: &[u8], flags| {
            let mut frames = Vec::new();
            let last = fields.chunks(16_384).count() - 1;
            for (at, chunk) in fields.chunks(16_384).enumerate() {
                let ends = if at == last { END_HEADERS } else { 0 };
                match at {
                    0 => frames.extend(frame(HEADERS, ends | flags, 1, chunk)),
                    _ => frames.extend(frame(CONTINUATION, ends, 1, chunk)),
                }
            }
            frames
        };
        for fields in [large, many] {
            let upstream = saying(&authority, chunks(&[OK, &fields].concat(), 0));
            let failed = failure_of(&egress, &upstream).await;
            assert_eq!(failed, Some(Code::HttpResponseHeaderSectionSize));
            let trailers = chunks(&fields, END_STREAM);
            let upstream = saying(&authority, [answered.clone(), trailers].concat());
            let failed = failure_of(&egress, &upstream).await;
            assert_eq!(failed, Some(Code::HttpResponseTrailerSectionSize));
        }
        // Many fields, and a large one, within the bounds.
        let large = "a".repeat(48 << 10);
        let many = (0..200).flat_map(|at| field(&format!("x-{at}"), "1"));
        let fields = [OK.to_vec(), field("x", &large), many.collect()].concat();
        let upstream = saying(&authority, chunks(&fields, END_STREAM));
        let outcome = egress.call(&request(&upstream), b"").await;
        assert_eq!(outcome.header("x"), Some(large));
        assert_eq!(outcome.head.unwrap().headers.len(), 201);
        let most = egress.worker_process.most_memory();
        assert!(most < MEMORY, "{most}");
    });
}

#[test]
fn floods_are_stopped_by_timeouts_and_other_calls_proceed() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let well = server(&authority, Vec::new(), |raw, _| {
            while let Some(stream) = raw.request() {
                raw.answer(stream, b"", b"hi");
            }
        });
        let informational = head(&field(":status", "102"));
        // Fields of one byte each, from the table.
        let entry = [&[0x40, 1, b'x', 1, b'y'][..], &vec![0xbe; 1024]].concat();
        let large = head(&[&field(":status", "103")[..], &entry].concat());
        let floods = [
            ("settings", frame(SETTINGS, 0, 0, &setting(4, 70_000))),
            ("pings", frame(PING, 0, 0, &[7; 8])),
            ("unknown frames", frame(0x42, 0xff, 1, &[7; 8])),
            ("priorities", frame(2, 0, 1, &[0, 0, 0, 0, 1])),
            ("informational heads", informational),
            ("large informational heads", large),
        ];
        for (what, flood) in floods {
            let upstream = flooding(&authority, Vec::new(), flood);
            let mut request_of = request(&upstream);
            request_of.timeouts.first_byte = 300_000_000;
            let flooded = egress.call(&request_of, b"");
            let others = async {
                for _ in 0..10 {
                    let outcome = egress.call(&request(&well), b"").await;
                    assert_eq!(outcome.body, b"hi", "{what}");
                }
            };
            let (flooded, ()) = tokio::join!(flooded, others);
            assert_eq!(
                flooded.failure(),
                Some(Code::ConnectionReadTimeout),
                "{what}"
            );
        }
        let most = egress.worker_process.most_memory();
        assert!(most < MEMORY, "{most}");
    });
}

#[test]
fn windows_that_overflow_and_data_beyond_a_window_end_the_call() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let much = 0x7fff_ffff_u32.to_be_bytes();
        for stream in [0, 1] {
            let answer = frame(WINDOW_UPDATE, 0, stream, &much);
            let upstream = saying(&authority, answer);
            // A stream that is still being sent: the window of any other no longer matters.
            let mut call = egress.begin(&request(&upstream));
            let failed = outcome(&mut call.receiver).await.failure();
            assert_eq!(failed, Some(Code::HttpProtocolError), "{stream}");
        }
        for (stream, increment) in [(0, 0_u32), (1, 0)] {
            let answer = frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
            let upstream = saying(&authority, answer);
            assert_eq!(
                failure_of(&egress, &upstream).await,
                Some(Code::HttpProtocolError)
            );
        }
        // Data beyond the window: more than fits in any buffer on the way.
        let (tell, told) = std::sync::mpsc::channel();
        let upstream = server(&authority, Vec::new(), move |raw, _| {
            raw.request();
            raw.write(&head(OK));
            let piece = frame(DATA, 0, 1, &[7; 16_384]).repeat(64);
            tell.send((0..32).all(|_| raw.write(&piece))).unwrap();
            raw.read_to_end();
        });
        let mut call = egress.begin(&request(&upstream));
        call.sender.finish(b"");
        assert!(matches!(
            next(&mut call.receiver).await,
            Some(Part::Head(_))
        ));
        let told = tokio::task::spawn_blocking(move || told.recv_timeout(common::LONG).unwrap());
        assert!(told.await.unwrap());
        let failed = outcome(&mut call.receiver).await;
        assert_eq!(failed.tail, Err(Code::HttpProtocolError));
        assert!(failed.body.len() <= 2 * WINDOW, "{}", failed.body.len());
        assert!(!egress.worker.is_closed());
        assert!(egress.worker_process.most_memory() < MEMORY);
    });
}

#[test]
fn data_of_nothing_without_end_ends_the_call() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        for (what, flood) in [
            ("empty", frame(DATA, 0, 1, &[])),
            // Padding only: one byte gives its length.
            ("padding", frame(DATA, 8, 1, &[3, 0, 0, 0])),
        ] {
            let upstream = flooding(&authority, head(OK), flood);
            let failed = failure_of(&egress, &upstream).await;
            assert_eq!(failed, Some(Code::HttpProtocolError), "{what}");
        }
        assert!(egress.worker_process.most_memory() < MEMORY);
    });
}

#[test]
fn unread_single_bytes_take_little_memory() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        // Enough data for the windows of several streams allow.
        let upstream = server(&authority, Vec::new(), |raw, _| {
            let streams: Vec<u32> = (0..8).map(|_| raw.request().unwrap()).collect();
            let heads = streams
                .iter()
                .map(|stream| frame(HEADERS, END_HEADERS, *stream, OK));
            raw.write(&heads.collect::<Vec<_>>().concat());
            let bytes = streams.iter().map(|stream| frame(DATA, 0, *stream, b"x"));
            let bytes = bytes.collect::<Vec<_>>().concat();
            for _ in 1..WINDOW / 128 {
                if !raw.write(&bytes.repeat(128)) {
                    return;
                }
            }
            let ends = streams
                .iter()
                .map(|stream| frame(DATA, END_STREAM, *stream, b"."));
            raw.write(&ends.collect::<Vec<_>>().concat());
            raw.read_to_end();
        });
        let begun = (0..8).map(|_| {
            let call = egress.begin(&request(&upstream));
            call.sender.finish(b"");
            call.receiver
        });
        let mut begun: Vec<_> = begun.collect();
        for receiver in &mut begun {
            assert!(matches!(next(receiver).await, Some(Part::Head(_))));
        }
        for receiver in &mut begun {
            let outcome = outcome(receiver).await;
            assert_eq!(
                (outcome.tail, outcome.body.len()),
                (Ok(vec![]), WINDOW - 127)
            );
        }
        let most = egress.worker_process.most_memory();
        assert!(most < MEMORY, "{most}");
    });
}

#[test]
fn a_body_passes_by_windows_of_one_byte() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let upstream = server(&authority, setting(4, 0), |raw, _| {
            let first = raw.request().unwrap();
            raw.answer(first, b"", b"hi");
            // No window has been enlarged by now.
            let stream = raw.request().unwrap();
            let one = 1_u32.to_be_bytes();
            let mut received = Vec::new();
            loop {
                raw.write(&frame(WINDOW_UPDATE, 0, stream, &one));
                let (flags, _, data) = raw.read_until(DATA).unwrap();
                assert!(data.len() <= 1);
                received.extend(data);
                if flags & END_STREAM != 0 {
                    break;
                }
            }
            raw.answer(stream, b"", &received);
            raw.read_to_end();
        });
        assert_eq!(egress.call(&request(&upstream), b"").await.body, b"hi");
        let body: Vec<u8> = (0..2000).map(|at| at as u8).collect();
        let mut head = request(&upstream);
        head.method = b"POST".to_vec();
        assert_eq!(egress.call(&head, &body).await.body, body);
    });
}

#[test]
fn resets_without_end_fail_each_call_and_no_more() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let upstream = server(&authority, Vec::new(), |raw, _| {
            while let Some(stream) = raw.request() {
                let answer = match stream {
                    1 => [head(OK), frame(DATA, END_STREAM, 1, b"hi")].concat(),
                    // These include resets of a stream that is then over.
                    _ => frame(RESET, 0, stream, &[0, 0, 0, 8]).repeat(1000),
                };
                raw.write(&answer);
            }
        });
        assert_eq!(egress.call(&request(&upstream), b"").await.body, b"hi");
        for _ in 0..100 {
            assert_eq!(
                failure_of(&egress, &upstream).await,
                Some(Code::ConnectionTerminated)
            );
        }
        assert_eq!(upstream.count(), 1);
        assert!(egress.worker_process.most_memory() < MEMORY);
    });
}

#[test]
fn an_idle_connection_that_is_flooded_is_closed() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let (tell, told) = std::sync::mpsc::channel();
        let upstream = server(&authority, Vec::new(), move |raw: &mut Raw, _| {
            let stream = raw.request().unwrap();
            raw.answer(stream, b"", b"hi");
            let unknown = frame(0x42, 0, 0, &[7; 16_000]);
            tell.send(raw.write_without_end(&unknown)).unwrap();
        });
        assert_eq!(egress.call(&request(&upstream), b"").await.body, b"hi");
        let told = tokio::task::spawn_blocking(move || told.recv_timeout(common::LONG).unwrap());
        let sent = told.await.unwrap();
        assert!(sent < 128 << 20, "{sent}");
    });
}

#[test]
fn an_answer_cut_off_at_each_byte_is_whole_or_fails() {
    runtime().block_on(async {
        let authority = authority();
        let egress = trusting(&authority);
        let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &field("x", "y"));
        let answer = [head(OK), frame(DATA, 0, 1, b"hi"), trailers].concat();
        for end in 0..=answer.len() {
            let sent = answer[..end].to_vec();
            let upstream = server(&authority, Vec::new(), move |raw, _| {
                raw.request();
                raw.write(&sent);
                raw.close();
            });
            let failure = failure_of(&egress, &upstream).await;
            let has_head = end >= head(OK).len();
            match (end == answer.len(), has_head) {
                (true, _) => assert_eq!(failure, None),
                (false, true) => assert_eq!(failure, Some(Code::HttpResponseIncomplete), "{end}"),
                (false, false) => assert_eq!(failure, Some(Code::ConnectionTerminated), "{end}"),
            }
        }
    });
}

//! Outbound calls of a function: the requests, and the results for the function.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::sync::LazyLock;

use faasw_abi::channel::{CALLS, HEAD_MAX};
use faasw_abi::mailbox::DRAW_CALL;
use faasw_abi::outgoing::{Answer, Failure, FailureCode, OutgoingHead, Tail, Timeouts};
use faasw_abi::wire::ResponseHead;
use faasw_runtime::testing::{MemoryAnswer, MemoryCall};
use support::{HttpComponent, bytes, compile, fixture, get};

static PROBE: LazyLock<Vec<u8>> =
    LazyLock::new(|| compile(HttpComponent, &fixture("tests/fixtures/call-probe.wasm")));

fn response() -> Vec<u8> {
    let head = ResponseHead {
        status: 200,
        headers: Vec::new(),
    };
    Answer::Response(head).encode()
}

/// Returns a response with these pieces.
fn whole(pieces: &[&str]) -> MemoryAnswer {
    MemoryAnswer {
        head: response(),
        pieces: pieces.iter().map(|piece| bytes(piece)).collect(),
        tail: Some(Vec::new()),
        ..MemoryAnswer::default()
    }
}

fn failed(failure: Failure) -> MemoryAnswer {
    MemoryAnswer {
        head: Answer::Failed(failure).encode(),
        tail: Some(Vec::new()),
        ..MemoryAnswer::default()
    }
}

/// Returns the function's response when servers send `answers`, and the requests that they
/// received.
fn called(path: &str, answers: Vec<MemoryAnswer>) -> (String, Vec<MemoryCall>) {
    called_with(path, CALLS, 112 << 10, answers)
}

fn called_with(
    path: &str,
    open: usize,
    ring: usize,
    answers: Vec<MemoryAnswer>,
) -> (String, Vec<MemoryCall>) {
    let call = get(HttpComponent, path);
    let mut ready = call.ready(&PROBE).unwrap();
    let calls = &mut ready.platform_mut().calls;
    (calls.open, calls.ring, calls.answers) = (open, ring, answers.into());
    ready.handle(call.request.clone()).unwrap();
    let told = String::from_utf8(ready.platform().response_body.clone()).unwrap();
    let asked = std::mem::take(&mut ready.platform_mut().calls.asked);
    (told, asked)
}

fn trailers(name: &str, value: &str) -> Tail {
    Tail::Trailers(vec![(bytes(name), bytes(value))])
}

#[test]
fn a_request_is_sent_and_its_response_reported() {
    let mut answer = whole(&["one ", "two"]);
    answer.tail = Some(trailers("x-sum", "7").encode());
    answer.delay = 3;
    let (told, asked) = called("/get/a.example:81/b?c", vec![answer]);
    assert_eq!(told, "200 \"one two\" trailer x-sum=7");
    let head = OutgoingHead {
        method: bytes("GET"),
        scheme: bytes("http"),
        authority: bytes("a.example:81"),
        path_and_query: bytes("/b?c"),
        headers: vec![(bytes("x-probe"), bytes("calls"))],
        timeouts: Timeouts::default(),
    };
    assert_eq!(asked[0].head, head);
    assert!(asked[0].is_whole && asked[0].is_over);
    let (_, asked) = called("/https/a.example/", vec![whole(&[])]);
    assert_eq!(asked[0].head.scheme, b"https");
    let (_, asked) = called("/timeouts/a.example", vec![whole(&[])]);
    let timeouts = Timeouts {
        connect: 1_000_000,
        first_byte: 2_000_000,
        between_bytes: 3_000_000,
    };
    assert_eq!(asked[0].head.timeouts, timeouts);
    // Functions do not see the fields of a connection.
    let head = ResponseHead {
        status: 404,
        headers: vec![
            (bytes("connection"), bytes("close")),
            (bytes("X-A"), bytes("b")),
        ],
    };
    let answer = MemoryAnswer {
        head: Answer::Response(head).encode(),
        ..whole(&[])
    };
    assert_eq!(called("/head/a.example/", vec![answer]).0, "404 x-a=b \"\"");
}

#[test]
fn without_channels_a_request_is_denied() {
    for path in [
        "/get/a/",
        "/invalid/authority",
        "/before/a/3000000",
        "/duplex/a/9",
    ] {
        let (told, asked) = called_with(path, 0, 0, Vec::new());
        assert_eq!(told, "refused ErrorCode::HttpRequestDenied", "{path}");
        assert!(asked.is_empty());
    }
}

#[test]
fn the_log_names_the_grant_that_a_function_without_any_lacks() {
    let answer = get(HttpComponent, "/get/api.example:8080/x").run(&PROBE);
    assert_eq!(answer.text(), "refused ErrorCode::HttpRequestDenied");
    let log = String::from_utf8(answer.err).unwrap();
    assert!(
        log.ends_with(
            "a request to http://api.example:8080 was denied: no grant allows it (deploy with \
             --allow-outbound http://api.example:8080)\n"
        ),
        "{log}"
    );
    // Before a request, no grant would allow it.
    let early = get(HttpComponent, "/at-start").environment("AT_START", "1");
    let answer = early.run(&PROBE);
    assert_eq!(answer.err, b"");
}

#[test]
fn an_unsendable_request_is_refused_before_anything_is_sent() {
    for (what, code) in [
        ("scheme", "HttpProtocolError"),
        ("connect", "HttpRequestMethodInvalid"),
        ("path", "HttpRequestUriInvalid"),
        ("length", "HttpRequestBodySize(Some(0))"),
    ] {
        let (told, asked) = called(&format!("/invalid/{what}"), Vec::new());
        assert_eq!(told, format!("refused ErrorCode::{code}"), "{what}");
        assert!(asked.is_empty());
    }
    for (what, scheme, path) in [
        ("no-path", "http", "/"),
        ("query", "http", "/?a"),
        ("no-scheme", "https", "/"),
    ] {
        let (_, asked) = called(&format!("/invalid/{what}"), vec![whole(&[])]);
        let head = &asked[0].head;
        let sent = (head.scheme.as_slice(), head.path_and_query.as_slice());
        assert_eq!(sent, (scheme.as_bytes(), path.as_bytes()), "{what}");
    }
    // The host decides which server a request without an authority is for.
    let (_, asked) = called("/invalid/authority", vec![whole(&[])]);
    assert_eq!(asked[0].head.authority, b"");
    let long = "x".repeat(HEAD_MAX as usize);
    let (told, asked) = called(&format!("/get/a/{long}"), Vec::new());
    assert!(told.starts_with("refused ErrorCode::HttpRequestHeaderSectionSize(Some("));
    assert!(asked.is_empty());
}

#[test]
fn each_failure_has_its_error_code_before_a_head_and_in_a_body() {
    for (code, told) in cases() {
        let failure = Failure {
            number: Some(40),
            ..Failure::with_text(code, "text")
        };
        let (before, asked) = called("/get/a/", vec![failed(failure.clone())]);
        assert_eq!(before, format!("failed ErrorCode::{told}"));
        assert!(asked[0].is_over);
        let mut answer = whole(&["abc"]);
        answer.tail = Some(Tail::Failed(failure).encode());
        let (within, _) = called("/get/a/", vec![answer]);
        let expected = format!("200 \"abc\" then ErrorCode::{told} trailers ErrorCode::{told}");
        assert_eq!(within, expected);
    }
    let (told, _) = called("/get/a/", vec![failed(Failure::new(FailureCode::DnsError))]);
    assert!(
        told.contains("rcode: None") && told.contains("info-code: None"),
        "{told}"
    );
    let none = Failure::new(FailureCode::HttpRequestHeaderSize);
    let (told, _) = called("/get/a/", vec![failed(none)]);
    assert_eq!(told, "failed ErrorCode::HttpRequestHeaderSize(None)");
    // A node whose answer has no valid encoding.
    let nonsense = MemoryAnswer {
        head: vec![7, 7],
        ..whole(&[])
    };
    let (told, _) = called("/get/a/", vec![nonsense]);
    assert!(
        told.starts_with("failed ErrorCode::InternalError"),
        "{told}"
    );
}

fn cases() -> [(FailureCode, &'static str); 39] {
    use FailureCode as Code;
    [
        (Code::DnsTimeout, "DnsTimeout"),
        (
            Code::DnsError,
            "DnsError(DnsErrorPayload { rcode: Some(\"text\"), info-code: Some(40) })",
        ),
        (Code::DestinationNotFound, "DestinationNotFound"),
        (Code::DestinationUnavailable, "DestinationUnavailable"),
        (Code::DestinationIpProhibited, "DestinationIpProhibited"),
        (Code::DestinationIpUnroutable, "DestinationIpUnroutable"),
        (Code::ConnectionRefused, "ConnectionRefused"),
        (Code::ConnectionTerminated, "ConnectionTerminated"),
        (Code::ConnectionTimeout, "ConnectionTimeout"),
        (Code::ConnectionReadTimeout, "ConnectionReadTimeout"),
        (Code::ConnectionWriteTimeout, "ConnectionWriteTimeout"),
        (Code::ConnectionLimitReached, "ConnectionLimitReached"),
        (Code::TlsProtocolError, "TlsProtocolError"),
        (Code::TlsCertificateError, "TlsCertificateError"),
        (
            Code::TlsAlertReceived,
            "TlsAlertReceived(TlsAlertReceivedPayload \
             { alert-id: Some(40), alert-message: Some(\"text\") })",
        ),
        (Code::HttpRequestDenied, "HttpRequestDenied"),
        (Code::HttpRequestLengthRequired, "HttpRequestLengthRequired"),
        (Code::HttpRequestBodySize, "HttpRequestBodySize(Some(40))"),
        (Code::HttpRequestMethodInvalid, "HttpRequestMethodInvalid"),
        (Code::HttpRequestUriInvalid, "HttpRequestUriInvalid"),
        (Code::HttpRequestUriTooLong, "HttpRequestUriTooLong"),
        (
            Code::HttpRequestHeaderSectionSize,
            "HttpRequestHeaderSectionSize(Some(40))",
        ),
        (
            Code::HttpRequestHeaderSize,
            "HttpRequestHeaderSize(Some(FieldSizePayload \
             { field-name: Some(\"text\"), field-size: Some(40) }))",
        ),
        (
            Code::HttpRequestTrailerSectionSize,
            "HttpRequestTrailerSectionSize(Some(40))",
        ),
        (
            Code::HttpRequestTrailerSize,
            "HttpRequestTrailerSize(FieldSizePayload \
             { field-name: Some(\"text\"), field-size: Some(40) })",
        ),
        (Code::HttpResponseIncomplete, "HttpResponseIncomplete"),
        (
            Code::HttpResponseHeaderSectionSize,
            "HttpResponseHeaderSectionSize(Some(40))",
        ),
        (
            Code::HttpResponseHeaderSize,
            "HttpResponseHeaderSize(FieldSizePayload \
             { field-name: Some(\"text\"), field-size: Some(40) })",
        ),
        (Code::HttpResponseBodySize, "HttpResponseBodySize(Some(40))"),
        (
            Code::HttpResponseTrailerSectionSize,
            "HttpResponseTrailerSectionSize(Some(40))",
        ),
        (
            Code::HttpResponseTrailerSize,
            "HttpResponseTrailerSize(FieldSizePayload \
             { field-name: Some(\"text\"), field-size: Some(40) })",
        ),
        (
            Code::HttpResponseTransferCoding,
            "HttpResponseTransferCoding(Some(\"text\"))",
        ),
        (
            Code::HttpResponseContentCoding,
            "HttpResponseContentCoding(Some(\"text\"))",
        ),
        (Code::HttpResponseTimeout, "HttpResponseTimeout"),
        (Code::HttpUpgradeFailed, "HttpUpgradeFailed"),
        (Code::HttpProtocolError, "HttpProtocolError"),
        (Code::LoopDetected, "LoopDetected"),
        (Code::ConfigurationError, "ConfigurationError"),
        (Code::InternalError, "InternalError(Some(\"text\"))"),
    ]
}

#[test]
fn bodies_pass_at_the_pace_at_which_they_are_taken() {
    let body: Vec<u8> = (0..500_000).map(|at: usize| (at % 251) as u8).collect();
    let answer = MemoryAnswer {
        pieces: body.chunks(1000).map(<[u8]>::to_vec).collect(),
        ..whole(&[])
    };
    let (told, asked) = called_with("/duplex/a/500000", 1, 3000, vec![answer]);
    assert_eq!(told, "sent 500000 got 500000 same true");
    assert!(asked[0].body == body && !asked[0].is_whole);
    assert_eq!(asked[0].tail, Some(Tail::Trailers(Vec::new())));
}

#[test]
fn a_body_written_before_the_request_is_sent_while_the_response_is_awaited() {
    let answer = MemoryAnswer {
        delay: 400,
        ..whole(&["got it"])
    };
    let (told, asked) = called_with("/before/a/1000000", 1, 3000, vec![answer]);
    assert_eq!(told, "200 \"got it\"");
    assert_eq!(asked[0].body.len(), 1_000_000);
    assert_eq!(asked[0].tail, Some(Tail::Trailers(Vec::new())));
    let (told, _) = called("/before/a/1100000", Vec::new());
    assert_eq!(told, "no room behind 1048576");
    // All of the body was present when the request was sent, so nothing follows.
    let (_, asked) = called("/before/a/0", vec![whole(&[])]);
    assert!(asked[0].is_whole);
}

#[test]
fn an_incomplete_body_is_reported() {
    let failure = |asked: &[MemoryCall]| match &asked[0].tail {
        Some(Tail::Failed(failure)) => (failure.code, failure.number),
        other => panic!("{other:?}"),
    };
    let (told, asked) = called("/body/dropped/a", vec![whole(&[])]);
    assert_eq!(told, "200 \"\"");
    assert_eq!(failure(&asked), (FailureCode::InternalError, None));
    let (told, asked) = called("/body/short/a", vec![whole(&[])]);
    assert_eq!(
        told,
        "finished ErrorCode::HttpRequestBodySize(Some(3)), 200 \"\""
    );
    let size = (FailureCode::HttpRequestBodySize, Some(3));
    assert_eq!(failure(&asked), size);
    let (told, asked) = called("/body/long/a", vec![whole(&[])]);
    assert!(told.starts_with("written Some(ErrorCode::HttpRequestBodySize(Some(4))), finished"));
    assert_eq!(failure(&asked).0, FailureCode::HttpRequestBodySize);
    let (_, asked) = called("/body/trailers/a", vec![whole(&[])]);
    assert_eq!(asked[0].tail, Some(trailers("x-end", "yes")));
    let (told, asked) = called("/body/large-trailers/a", vec![whole(&[])]);
    assert!(told.starts_with("finished ErrorCode::HttpRequestTrailerSectionSize(Some("));
    assert_eq!(
        failure(&asked).0,
        FailureCode::HttpRequestTrailerSectionSize
    );
}

#[test]
fn several_are_waited_for_at_once_and_there_are_as_many_as_channels() {
    let answer = |delay, text| MemoryAnswer {
        delay,
        ..whole(&[text])
    };
    let answers = vec![answer(5, "a"), answer(1, "b"), answer(3, "c")];
    let (told, asked) = called_with("/at-once/a/5", 3, 1000, answers);
    let expected = [
        "3 refused ErrorCode::ConnectionLimitReached",
        "4 refused ErrorCode::ConnectionLimitReached",
        "1 200 \"b\"",
        "2 200 \"c\"",
        "0 200 \"a\"",
    ];
    assert_eq!(told, expected.join("\n"));
    assert_eq!(asked.len(), 3);
}

#[test]
fn a_channel_is_used_again_and_one_that_is_still_held_by_the_node_is_waited_for() {
    let answers = (0..50).map(|_| whole(&["x"])).collect();
    let (told, asked) = called_with("/in-turn/a/50", 2, 1000, answers);
    assert_eq!(told, "50 good, last 200 \"x\"");
    assert_eq!(asked.len(), 50);
    let answers = (0..=100).map(|_| whole(&["y"])).collect();
    let (told, asked) = called_with("/flood/a/100", 4, 1000, answers);
    assert_eq!(told, "200 \"y\"");
    assert!(asked.len() == 101 && asked.iter().all(|call| call.is_over));
}

#[test]
fn dropping_the_response_cancels_the_request() {
    for what in ["future", "response", "stream", "trailers"] {
        let endless = MemoryAnswer {
            tail: None,
            ..whole(&["abc"])
        };
        let path = format!("/drop/{what}/a/slow");
        let (told, asked) = called(&path, vec![endless, whole(&["after"])]);
        assert_eq!(told, "written false, 200 \"after\"", "{what}");
        assert!(asked[0].is_over && asked[0].body.is_empty(), "{what}");
        assert_eq!(asked[1].head.path_and_query, b"/after");
    }
}

#[test]
fn before_a_request_a_call_is_a_draw_and_denied() {
    let early = get(HttpComponent, "/at-start").environment("AT_START", "1");
    let ready = early.ready(&PROBE).unwrap();
    assert_eq!(ready.draws().bits(), DRAW_CALL);
    let told = ready.draws().to_string();
    let call = "wasi:http/outgoing-handler#handle: 1 call";
    assert!(told.ends_with(call), "{told}");
    let answer = early.run(&PROBE);
    assert_eq!(answer.text(), "refused ErrorCode::HttpRequestDenied");
    let none = get(HttpComponent, "/at-start").ready(&PROBE).unwrap();
    assert_eq!(none.draws().bits(), 0);
}

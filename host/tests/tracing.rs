//! How requests are identified, over real sockets, with functions that do not run in VMs: the ids
//! that clients and proxies send, hostile fields, refusals, and the records that an embedding
//! program gets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use common::raw::{RawResponse, get, request, send};
use faasw::{AccessRecord, Event, LogLine, NodeBuilder, RequestId};
use http::Request;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The access records of requests, one by one, and the lines of logs.
struct Observed {
    requests: UnboundedReceiver<AccessRecord>,
    lines: Arc<Mutex<Vec<LogLine>>>,
}

impl Observed {
    async fn next(&mut self) -> AccessRecord {
        let next = tokio::time::timeout(common::time_limit(30), self.requests.recv());
        next.await.expect("a record in time").unwrap()
    }
}

fn observe(builder: NodeBuilder) -> (NodeBuilder, Observed) {
    let (sender, requests) = unbounded_channel();
    let lines = Arc::<Mutex<Vec<LogLine>>>::default();
    let observed = Observed {
        requests,
        lines: lines.clone(),
    };
    let builder = builder
        .observe_requests(true)
        .observe(move |event| match event {
            Event::Request { record } => drop(sender.send(record.clone())),
            Event::Log { line, .. } => lines.lock().unwrap().push(line.clone()),
            _ => {}
        });
    (builder, observed)
}

/// Returns the id in a response, which must be one that the node has made.
#[track_caller]
fn made_id(answer: &RawResponse) -> String {
    let fields = answer.headers.iter();
    let ids: Vec<_> = fields.filter(|(name, _)| name == "x-request-id").collect();
    let [(_, id)] = ids.as_slice() else {
        panic!("not one id: {answer:?}");
    };
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    assert!(id.len() == 32 && id.bytes().all(is_digit), "{id}");
    id.clone()
}

/// Returns the values of a field that the function saw.
fn seen(answer: &RawResponse, name: &str) -> Vec<String> {
    let lines = answer.body.lines().filter_map(|line| line.split_once(": "));
    let values = lines.filter(|(other, _)| *other == name);
    values.map(|(_, value)| value.to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_has_an_id_and_problems_repeat_it() {
    let (builder, mut observed) = observe(common::builder());
    let node = common::start(builder).await;
    let address = node.address().unwrap();
    let mut ids = Vec::new();
    for (request, status, function) in [
        ("GET /f/ HTTP/1.1\r\nHost: h\r\n", 200, Some("f")),
        ("HEAD /f/ HTTP/1.1\r\nHost: h\r\n", 200, Some("f")),
        ("GET /healthz HTTP/1.1\r\nHost: h\r\n", 200, None),
        ("OPTIONS * HTTP/1.1\r\nHost: h\r\n", 204, None),
        ("GET /f/trap HTTP/1.1\r\nHost: h\r\n", 502, Some("f")),
        ("GET /f/broken HTTP/1.1\r\nHost: h\r\n", 500, Some("f")),
        ("GET /f/bad-status HTTP/1.1\r\nHost: h\r\n", 502, Some("f")),
        ("GET /nobody/ HTTP/1.1\r\nHost: h\r\n", 404, None),
        ("GET / HTTP/1.1\r\nHost: h\r\n", 404, None),
        ("GET /f/ HTTP/1.1\r\n", 400, None),
        ("CONNECT h:1 HTTP/1.1\r\nHost: h\r\n", 501, None),
        (
            "GET /f HTTP/1.1\r\nHost: h\r\nService-Worker: script\r\n",
            403,
            None,
        ),
    ] {
        let bytes = format!("{request}Connection: close\r\n\r\n");
        let answer = send(address, bytes.as_bytes()).await;
        assert_eq!(answer.status, status, "{request:?} {answer:?}");
        let id = made_id(&answer);
        if status >= 400 {
            assert_eq!(answer.problem("request_id"), id, "{request:?}");
        }
        let record = observed.next().await;
        assert_eq!(record.request_id.as_str(), id, "{request:?}");
        assert_eq!(record.status, Some(status), "{request:?}");
        assert_eq!(record.function.as_deref(), function, "{request:?}");
        assert_eq!(record.problem.is_some(), status >= 400, "{request:?}");
        assert_eq!(record.body_bytes, answer.bytes.len() as u64, "{request:?}");
        assert!(record.is_whole, "{request:?}");
        ids.push(id);
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_trusted_proxy_sets_a_request_id() {
    let proxy = "127.0.0.1/32".parse().unwrap();
    for (builder, is_believed) in [
        (common::builder(), false),
        (common::builder().proxy_request_ids(true), false),
        (common::builder().trusted_proxy(proxy), false),
        (
            common::builder()
                .trusted_proxy(proxy)
                .proxy_request_ids(true),
            true,
        ),
    ] {
        let (builder, mut observed) = observe(builder);
        let node = common::start(builder).await;
        let address = node.address().unwrap();
        let longest = "x".repeat(64);
        for id in ["edge-1", "a.b_c:D", &longest] {
            let field = format!("X-Request-Id: {id}\r\n");
            let answer = request(address, "GET", "/f/", &field, "").await;
            let observed = observed.next().await;
            if is_believed {
                assert_eq!(answer.header("x-request-id"), Some(id));
                assert_eq!(seen(&answer, "x-request-id"), [id]);
                assert_eq!(observed.request_id.as_str(), id);
                assert_eq!(observed.client_request_id, None);
            } else {
                let made = made_id(&answer);
                assert_eq!(seen(&answer, "x-request-id"), std::slice::from_ref(&made));
                assert_eq!(observed.request_id.as_str(), made);
                // The record has the client's id in a field of its own.
                assert_eq!(observed.client_request_id, Some(id.parse().unwrap()));
            }
        }
        // A request with an invalid id, or with two, counts as one without an id.
        let longer = "x".repeat(65);
        let huge = "x".repeat(16 << 10);
        for value in [
            "",
            "a b",
            "a\tb",
            "a,b",
            "a\"b",
            "a\\nb",
            "%0d%0aX: y",
            "\u{202e}abc",
            "\u{1b}[2J",
            "{\"a\":1}",
            "\u{e9}",
            &longer,
            &huge,
        ] {
            let field = format!("X-Request-Id: {value}\r\n");
            let answer = request(address, "GET", "/f/", &field, "").await;
            if value.contains('\u{1b}') {
                // A control character is not valid HTTP, and the node refuses it.
                assert_eq!(answer.status, 400);
                continue;
            }
            let observed = observed.next().await;
            assert_eq!(
                seen(&answer, "x-request-id"),
                [made_id(&answer)],
                "{value:?}"
            );
            assert_eq!(observed.client_request_id, None, "{value:?}");
        }
        let two = "X-Request-Id: a\r\nX-Request-Id: b\r\n";
        let answer = request(address, "GET", "/f/", two, "").await;
        assert_eq!(seen(&answer, "x-request-id"), [made_id(&answer)]);
        node.shutdown().await;
    }
}

/// The HTTP parser decides about a line break in a field: it refuses the request, or ends the
/// field. Neither puts anything into the response's head.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_break_in_an_id_makes_no_field_of_the_response() {
    let node = common::node().await;
    let address = node.address().unwrap();
    for value in [
        "a\rX-Forged: 1",
        "a\nX-Forged: 1",
        "a\r\n X-Forged: 1",
        "a\0b",
        "a\u{b}b",
    ] {
        let field = format!("X-Request-Id: {value}\r\n");
        let answer = request(address, "GET", "/f/", &field, "").await;
        assert_eq!(answer.header("x-forged"), None, "{value:?} {answer:?}");
        match answer.status {
            200 => assert_eq!(seen(&answer, "x-request-id"), [made_id(&answer)]),
            status => assert_eq!(status, 400, "{value:?}"),
        }
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_valid_trace_is_continued() {
    const SENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let (builder, mut observed) = observe(common::builder());
    let node = common::start(builder).await;
    let address = node.address().unwrap();
    let mut ask = async |fields: String| {
        let answer = request(address, "GET", "/f/", &fields, "").await;
        assert_eq!(answer.status, 200, "{fields}");
        let trace = observed.next().await.trace.map(|trace| trace.to_string());
        let seen = (seen(&answer, "traceparent"), seen(&answer, "tracestate"));
        (seen, trace)
    };
    let none = (Vec::<String>::new(), Vec::<String>::new());
    assert_eq!(ask(String::new()).await, (none.clone(), None));
    assert_eq!(
        ask("tracestate: a=1\r\n".into()).await,
        (none.clone(), None)
    );
    let fields = format!("TraceParent: {SENT}\r\nTraceState: congo=t61,a@b=1\r\n");
    let expected = (vec![SENT.to_owned()], vec!["congo=t61,a@b=1".to_owned()]);
    assert_eq!(ask(fields).await, (expected, Some(SENT[3..52].to_owned())));
    for bad in [
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "%0d%0a",
        &"f".repeat(10_000),
    ] {
        let fields = format!("traceparent: {bad}\r\ntracestate: a=1\r\n");
        assert_eq!(ask(fields).await, (none.clone(), None), "{bad}");
    }
    let answer = get(address, "/f/").await;
    for name in ["traceparent", "tracestate", "traceresponse"] {
        assert_eq!(answer.header(name), None);
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejections_for_too_many_requests_have_an_id_too() {
    let mut limits = faasw::Limits::default();
    limits.connections_per_address = 1;
    let builder = common::builder()
        .limits(limits)
        .trusted_proxy("127.0.0.1/32".parse().unwrap());
    let (builder, mut observed) = observe(builder);
    let backend = common::FakeBackend::default();
    let node = common::start_on(builder, &backend).await;
    let address: SocketAddr = node.address().unwrap();
    let ask = async |path: &str| {
        let field = "X-Forwarded-For: 192.0.2.1\r\n";
        request(address, "GET", path, field, "").await
    };
    // Either request may be admitted first, and the other is then refused.
    let held = tokio::spawn({
        let field = "X-Forwarded-For: 192.0.2.1\r\n";
        async move {
            loop {
                let answer = request(address, "GET", "/f/held", field, "").await;
                if answer.status != 429 {
                    break answer;
                }
            }
        }
    });
    let begun = std::time::Instant::now();
    let refused = loop {
        let answer = ask("/f/").await;
        if answer.status == 429 {
            break answer;
        }
        assert!(begun.elapsed() < common::give_up(), "nothing was refused");
    };
    backend.held.notify_one();
    let id = made_id(&refused);
    assert_eq!(refused.problem("request_id"), id);
    let record = loop {
        let record = observed.next().await;
        if record.request_id.as_str() == id {
            break record;
        }
    };
    assert_eq!(record.status, Some(429));
    assert_eq!(record.problem, Some("too-many-requests"));
    assert_eq!(record.remote_address, Some("192.0.2.1".parse().unwrap()));
    assert_eq!(held.await.unwrap().status, 200);
    node.shutdown().await;
}

#[tokio::test]
async fn an_embedding_program_receives_records_and_may_set_ids() {
    let (builder, mut observed) = observe(faasw::Node::builder());
    let node = common::start(builder).await;
    let mine: RequestId = "order:17".parse().unwrap();
    let request = Request::get("/trap").extension(mine);
    let response = node.invoke("f", request.body(String::new()).unwrap()).await;
    assert_eq!(response.headers()["x-request-id"], mine.as_str());
    let body = response.into_body().into_bytes().await.unwrap();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["request_id"], mine.as_str());
    let record = observed.next().await;
    assert_eq!((record.request_id, record.instance), (mine, Some(42)));
    let lines = observed.lines.lock().unwrap().clone();
    let of_request: Vec<_> = lines.iter().map(|line| line.request_id).collect();
    // The line from the creation of the seed belongs to no request. Then follow the function's line
    // and the node's.
    assert_eq!(of_request, [None, Some(mine), Some(mine)]);

    // Without an id of the caller, each request gets a new one, whatever its header fields contain.
    let mut ids = std::collections::HashSet::new();
    for _ in 0..100 {
        let request = Request::get("/").header("x-request-id", mine.as_str());
        let response = node.invoke("f", request.body(String::new()).unwrap()).await;
        let id = response.headers()["x-request-id"].clone();
        assert_ne!(id, mine.as_str());
        assert!(ids.insert(id));
        // The record is sent when the body is dropped.
        drop(response);
        assert!(!observed.next().await.is_whole);
    }
    node.shutdown().await;
}

/// A request whose client goes away before there is an answer is recorded, too.
#[tokio::test]
async fn an_abandoned_request_is_reported() {
    let (builder, mut observed) = observe(faasw::Node::builder());
    let node = common::start(builder).await;
    let request = Request::get("/endless").body(String::new()).unwrap();
    let mut invoking = Box::pin(node.invoke("f", request));
    assert!(is_pending(&mut invoking).await);
    drop(invoking);
    let record = observed.next().await;
    assert_eq!((record.status, record.is_whole), (None, false));
    assert_eq!(
        (record.target.as_str(), record.function.as_deref()),
        ("/endless", Some("f"))
    );
    assert!(record.instance.is_some(), "it was at work");
    node.shutdown().await;
}

/// Returns whether a future is pending after one poll.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|context| {
        let asked = std::pin::Pin::new(&mut *future).poll(context);
        std::task::Poll::Ready(asked.is_pending())
    })
    .await
}

//! Tests of the gateway over real sockets, with functions that do not run in VMs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;

use std::time::Duration;

use common::{
    h2,
    raw::{get, parse_all, request, send},
};
use faasw::{FunctionOptions, Limits, LogLine, LogStream, RequestId};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_reaches_its_function_without_the_name_in_its_path() {
    let node = common::node().await;
    let address = node.address().unwrap();
    let answer = request(address, "POST", "/f/a/b?c=d", "X-One: 1\r\n", "body").await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.body.starts_with("POST /a/b?c=d /f 127.0.0.1 "),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("\nx-one: 1\n") && answer.body.ends_with("\n\nbody"));
    assert!(answer.header("date").is_some());
    for path in ["/f", "/f/"] {
        assert!(get(address, path).await.body.starts_with("GET / "));
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_trusted_proxys_prefix_precedes_the_functions_path() {
    let local = || common::builder().trusted_proxy("127.0.0.1/32".parse().unwrap());
    for (builder, trusted) in [
        (common::builder().proxy_prefixes(true), false),
        (local(), false),
        (local().proxy_prefixes(true), true),
    ] {
        let node = common::start(builder).await;
        let address = node.address().unwrap();
        for (prefix, outer) in [("/api/", "/api"), ("//evil.test", ""), ("/a b", "")] {
            let field = format!("X-Forwarded-Prefix: {prefix}\r\n");
            let answer = request(address, "GET", "/f/x", &field, "").await;
            let own = if trusted { outer } else { "" };
            let expected = format!("GET /x {own}/f 127.0.0.1 ");
            assert!(answer.body.starts_with(&expected), "{}", answer.body);
            // The guest adds the field, of which the node sends the value only once.
            assert!(
                !answer.body.contains("x-forwarded-prefix"),
                "{}",
                answer.body
            );
        }
        node.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_no_url_can_have_is_refused_with_the_reason() {
    let node = common::node().await;
    let address = node.address().unwrap();
    for host in ["h:99999", ":80", "1.2.3.400", "a%zz", "[::g]"] {
        let head = format!("GET /f/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = send(address, head.as_bytes()).await;
        assert_eq!(answer.status, 400, "{host}");
        let detail = answer.problem("detail");
        assert!(
            detail.contains("host and port of a URL"),
            "{host}: {detail}"
        );
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_answers_its_own_paths() {
    let node = common::node().await;
    let address = node.address().unwrap();
    let health = get(address, "/healthz").await;
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    for path in ["/", "/nothere/", "//f", "/v1/node", "/F"] {
        let answer = get(address, path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.problem("type"), "urn:faasw:problem:unknown-function");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_is_a_problem_and_the_next_request_succeeds() {
    let node = common::start(common::builder().verbose_errors(true)).await;
    let address = node.address().unwrap();
    let options = FunctionOptions::default().first_byte(Duration::from_millis(50));
    node.deploy("quick", "module", options).await.unwrap();
    for (path, status, slug, word) in [
        ("/f/trap", 502, "trapped", "trap_here"),
        ("/f/exit", 502, "exited", "code 7"),
        ("/f/none", 502, "no-response", "without a response"),
        ("/quick/endless", 504, "timed-out", "0.05 s"),
        ("/f/busy", 503, "over-capacity", "4 requests at once"),
        ("/f/broken", 500, "platform-failure", "log"),
        ("/f/bad-status", 502, "bad-response", "99"),
    ] {
        let answer = get(address, path).await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.problem("type"), format!("urn:faasw:problem:{slug}"));
        assert!(
            answer.problem("detail").contains(word),
            "{path}: {}",
            answer.body
        );
        assert_eq!(answer.problem("function"), path.split('/').nth(1).unwrap());
        assert_eq!(answer.header("retry-after").is_some(), status == 503);
        assert_eq!(get(address, "/f/").await.status, 200);
    }
    let trapped = get(address, "/f/trap").await;
    assert_eq!(trapped.problem("instance"), "urn:faasw:instance:42");
    let log = node.logs("f", 100).unwrap();
    for text in [
        "about to trap",
        "the function trapped: wasm `unreachable` in trap_here",
    ] {
        assert!(
            log.iter()
                .any(|line| line.text == text && line.instance == 42),
            "{log:?}"
        );
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_receive_the_kind_of_a_failure_and_the_log_has_the_reason() {
    let node = common::node().await;
    let address = node.address().unwrap();
    for (path, slug, reason) in [
        ("/f/trap", "trapped", "in trap_here"),
        ("/f/exit", "exited", "code 7"),
        ("/f/bad-status", "bad-response", "its status is 99"),
    ] {
        let answer = get(address, path).await;
        assert_eq!(answer.status, 502, "{path}");
        assert_eq!(answer.problem("type"), format!("urn:faasw:problem:{slug}"));
        assert!(!answer.body.contains(reason), "{path}: {}", answer.body);
        // The client has the request's id, and the operator finds the reason in the log by that id.
        let id = answer.problem("request_id");
        let log = node.logs("f", 100).unwrap();
        let has_reason = |line: &LogLine| {
            let of_request = line.request_id.as_ref().map(RequestId::as_str) == Some(id.as_str());
            of_request && line.stream == LogStream::Node && line.text.contains(reason)
        };
        assert!(log.iter().any(has_reason), "{path}: {id} {log:?}");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_accepted_up_to_the_limit_however_it_is_sent() {
    let mut limits = Limits::default();
    limits.request_body = 1 << 20;
    let node = common::start(common::builder().limits(limits)).await;
    let address = node.address().unwrap();
    let fits = "x".repeat(1 << 20);
    let answer = request(address, "POST", "/f/length", "", &fits).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "1048576"));
    let large = "x".repeat((1 << 20) + 1);
    let announced = request(address, "POST", "/f/", "", &large).await;
    let chunked = format!(
        "POST /f/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: \
         chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    let chunked = send(address, chunked.as_bytes()).await;
    let asked_first =
        "POST /f/ HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999\r\nExpect: 100-continue\r\n\r\n";
    let asked_first = send(address, asked_first.as_bytes()).await;
    for answer in [announced, chunked, asked_first] {
        assert_eq!(answer.status, 413);
        assert!(
            answer.problem("detail").contains("1048576 bytes"),
            "{}",
            answer.body
        );
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_arrive_as_one_body_of_unknown_length() {
    let node = common::node().await;
    let address = node.address().unwrap();
    let text = "POST /f/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: \
         chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let answer = send(address, text.as_bytes()).await;
    assert!(!answer.body.contains("content-length"), "{}", answer.body);
    assert!(!answer.body.contains("transfer-encoding") && answer.body.ends_with("\n\nabcde"));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_304_passes_on_its_length_and_a_204_has_none() {
    let node = common::node().await;
    let address = node.address().unwrap();
    // On one connection, a wrong length would break the framing of the next response.
    let get = |path: &str, more: &str| format!("GET /f{path} HTTP/1.1\r\nHost: h\r\n{more}\r\n");
    let sent = [
        get("/not-modified", ""),
        get("/no-content", ""),
        get("/teapot", "Connection: close\r\n"),
    ];
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent.concat().as_bytes()).await.unwrap();
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).await.unwrap();
    let answers = parse_all(&answers, &[]);
    let seen: Vec<_> = answers
        .iter()
        .map(|answer| {
            let length = answer.header("content-length");
            (answer.status, length, answer.body.as_str())
        })
        .collect();
    let expected = [
        (304, Some("1234"), ""),
        (204, None, ""),
        (418, Some("15"), "short and stout"),
    ];
    assert_eq!(seen, expected);
    assert_eq!(answers[0].header("etag"), Some("\"v7\""));

    let mut connection = h2::Connection::open(address).await;
    for (path, status, length) in [
        ("/f/not-modified", 304, Some("1234")),
        ("/f/no-content", 204, None),
    ] {
        let answer = connection.get(path).await;
        let announced = answer.headers().get("content-length");
        let announced = announced.map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(announced.as_deref(), length);
        assert_eq!(answer.status(), status);
        assert!(h2::read(answer).await.0.is_empty());
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_too_large_is_431() {
    let node = common::node().await;
    let address = node.address().unwrap();
    let long = format!("X-Long: {}\r\n", "x".repeat(40 << 10));
    let many: String = (0..120)
        .map(|number| format!("X-{number}: 1\r\n"))
        .collect();
    for (headers, word) in [(long, "bytes"), (many, "fields")] {
        let answer = request(address, "GET", "/f/", &headers, "").await;
        assert_eq!(answer.status, 431);
        assert!(answer.problem("detail").contains(word), "{}", answer.body);
    }
    // hyper does not read bodies beyond its own limit, but the node still answers.
    let endless = format!("X-Long: {}\r\n", "x".repeat(1 << 20));
    assert_eq!(
        request(address, "GET", "/f/", &endless, "").await.status,
        431
    );
    assert_eq!(get(address, "/f/").await.status, 200);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_cannot_touch_the_framing() {
    let node = common::node().await;
    let address = node.address().unwrap();
    let forged = get(address, "/f/forged").await;
    assert_eq!(forged.header("transfer-encoding"), None);
    assert_eq!(forged.header("connection"), Some("close"));
    assert_eq!(forged.header("content-length"), Some("5"));
    assert_eq!(forged.body, "0\r\n\r\n");

    let head = request(address, "HEAD", "/f/teapot", "", "").await;
    assert_eq!((head.status, head.body.as_str()), (418, ""));
    let lies = get(address, "/f/lies").await;
    assert_eq!(
        (lies.status, lies.header("content-length")),
        (200, Some("1"))
    );
    let problem = request(address, "HEAD", "/f/trap", "", "").await;
    assert_eq!((problem.status, problem.body.as_str()), (502, ""));
    let empty = get(address, "/f/log").await;
    assert_eq!((empty.status, empty.header("content-length")), (204, None));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_timing_is_sent_on_request_if_the_operator_allows_it() {
    let ask = async |address| request(address, "GET", "/f/", "X-Faasw-Timing: 1\r\n", "").await;
    let closed = common::node().await;
    let answer = ask(closed.address().unwrap()).await;
    assert_eq!((answer.status, answer.header("server-timing")), (200, None));
    assert!(!answer.body.contains("x-faasw-timing"), "{}", answer.body);
    closed.shutdown().await;

    let node = common::start(common::builder().timing(true)).await;
    let address = node.address().unwrap();
    let asked = ask(address).await;
    let timing = asked.header("server-timing").unwrap();
    assert!(timing.starts_with("queue;dur=0.0"), "{timing}");
    assert!(
        timing.ends_with(
            ", fork;dur=0.250, init;dur=0.000, exec;dur=1.500, run;dur=0.000, served;desc=\"made\""
        ),
        "{timing}"
    );
    assert!(!asked.body.contains("x-faasw-timing"), "{}", asked.body);
    assert_eq!(get(address, "/f/").await.header("server-timing"), None);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_are_disconnected() {
    let mut limits = Limits::default();
    limits.request_read = Duration::from_millis(200);
    limits.idle_connection = Duration::from_millis(200);
    let node = common::start(common::builder().limits(limits)).await;
    let address = node.address().unwrap();
    // A head that never ends is no request, and neither is silence or half of HTTP/2's preface: the
    // node closes the connection.
    for begun in [&b"GET /f/ HTTP/1.1\r\nHo"[..], b"", b"PRI * HTTP/2.0\r\n"] {
        let head = tokio::net::TcpStream::connect(address).await.unwrap();
        let closed = async {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            let mut head = head;
            head.write_all(begun).await.unwrap();
            let mut rest = Vec::new();
            let _ = head.read_to_end(&mut rest).await;
        };
        tokio::time::timeout(Duration::from_secs(30), closed)
            .await
            .expect("the connection closes");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_bytes_do_not_harm_the_node() {
    let node = common::node().await;
    let address = node.address().unwrap();
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 tls? no\r\n\r\n"[..],
        b"GET /f/ HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"GET /f/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\nA\x00: b\r\n\r\n",
        b"GET /\x80 HTTP/9.9\r\n\r\n",
    ] {
        let answer = send(address, bytes).await;
        assert!((400..500).contains(&answer.status), "{answer:?}");
    }
    assert_eq!(get(address, "/f/").await.status, 200);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_finishes_requests_and_accepts_no_more() {
    let backend = common::FakeBackend::default();
    let node = common::start_on(common::builder(), &backend).await;
    let address = node.address().unwrap();
    let held = tokio::spawn(async move { get(address, "/f/held").await });
    while node.inspect("f").await.unwrap().under_way == 0 {
        tokio::task::yield_now().await;
    }
    // The shutdown begins before the request may be answered.
    tokio::join!(node.shutdown(), async { backend.held.notify_one() });
    assert_eq!(held.await.unwrap().body, "held");
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    let refused = node.invoke("f", http::Request::new(String::new())).await;
    assert_eq!(refused.status(), 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_last_handle_ends_the_node() {
    let node = common::node().await;
    let address = node.address().unwrap();
    assert_eq!(get(address, "/healthz").await.status, 200);
    drop(node);
    for _ in 0..3000 {
        if tokio::net::TcpStream::connect(address).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the listener is still there");
}

//! Connections: their lifetime, their options, and several requests in a row.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    case::{Case, Continue, Problem, SeenHead, Sees, Status, play},
    common::{self, FakeBackend, give_up, raw::parse_all},
};

const NOT_IMPLEMENTED: crate::case::Answer = Problem(501, "not-implemented");

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_a_row_are_answered_in_order() {
    let get = |path: &str| format!("GET /f/{path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let post = "POST /f/2 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
    let chunked = "POST /f/3 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \
         chunked\r\n\r\n1;x\r\na\r\n0\r\nX: y\r\n\r\n";
    let slow = [
        Sees("GET /slow", ""),
        Sees("POST /2", "abc"),
        Sees("POST /3", "a"),
        SeenHead("HEAD /4"),
        Status(404),
        Sees("GET /6", ""),
    ];
    let head = "HEAD /f/4 HTTP/1.1\r\nHost: h\r\n\r\n";
    let nothere = "GET /nothere/ HTTP/1.1\r\nHost: h\r\n\r\n";
    let all = [&get("slow"), post, chunked, head, nothere, &get("6")].concat();
    let bad = "GET /f/2 HTTP/1.1\r\nHost: h\r\nX : 1\r\n\r\n";
    play([
        Case::new("six, the first of which is the slowest", all, &slow),
        Case::closing(
            "a bad one in the middle is the last",
            [&get("1"), bad, &get("3")].concat(),
            &[Sees("GET /1", ""), Status(400)],
        ),
        Case::closing(
            "a body without an end is the last",
            [
                &get("1"),
                "POST /f/2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                &get("3"),
            ]
            .concat(),
            &[Sees("GET /1", ""), Problem(400, "request-body-unreadable")],
        ),
        Case::closing(
            "nothing comes after the one that closes (RFC 9112, 9.6)",
            [
                "GET /f/1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
                &get("2"),
            ]
            .concat(),
            &[Sees("GET /1", "")],
        ),
        Case::closing(
            "close is close, whatever else is said (RFC 9112, 9.3)",
            [
                "GET /f/1 HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, CLOSE\r\n\
                 Connection: keep-alive\r\n\r\n",
                &get("2"),
            ]
            .concat(),
            &[Sees("GET /1", "")],
        ),
        Case::new(
            "empty lines between them (RFC 9112, 2.2)",
            [&get("1"), "\r\n\r\n", &get("2")].concat(),
            &[Sees("GET /1", ""), Sees("GET /2", "")],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_1_0_clients_get_http_1_0_responses() {
    play([
        Case::closing(
            "the connection ends (RFC 9112, 9.3)",
            "GET /f/1 HTTP/1.0\r\n\r\n",
            &[Sees("GET /1", "")],
        ),
        Case::new(
            "unless it is asked to stay",
            "GET /f/1 HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
            &[Sees("GET /1", "")],
        ),
        Case::new(
            "with a body",
            "POST /f/1 HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc",
            &[Sees("POST /1", "abc")],
        ),
        Case::closing(
            "no 100 (RFC 9110, 10.1.1) and no upgrade (RFC 9110, 7.8)",
            "POST /f/1 HTTP/1.0\r\nExpect: 100-continue\r\nConnection: upgrade\r\nUpgrade: \
             x\r\nContent-Length: 3\r\n\r\nabc",
            &[Sees("POST /1", "abc")],
        )
        .lacks("expect"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_protocol_does_not_change() {
    let get = |fields: &str| format!("GET /f/1 HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
    let seen = Sees("GET /1", "");
    play([
        Case::closing(
            "an upgrade that is wanted",
            get("Connection: Upgrade\r\nUpgrade: websocket"),
            &[NOT_IMPLEMENTED],
        ),
        Case::new(
            "an offer of HTTP/2 is ignored (RFC 9113, 3.1)",
            get(
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \
                 AAMAAABkAAQAoAAAAAIAAAAA",
            ),
            &[seen],
        )
        .lacks("upgrade")
        .lacks("http2-settings"),
        Case::new(
            "one that Connection does not name is none (RFC 9110, 7.8)",
            get("Upgrade: websocket"),
            &[seen],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_expect_100_continue_are_answered_at_once() {
    let post = |fields: &str| format!("POST /f/1 HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
    play([
        Case::new(
            "who does not wait is understood, too",
            post("Expect: 100-continue\r\nContent-Length: 3") + "abc",
            &[Continue, Sees("POST /1", "abc")],
        )
        .lacks("expect"),
        Case::new(
            "in any case (RFC 9110, 10.1.1)",
            post("expect: 100-CONTINUE\r\nTransfer-Encoding: chunked") + "3\r\nabc\r\n0\r\n\r\n",
            &[Continue, Sees("POST /1", "abc")],
        ),
        Case::new(
            "no body, nothing to wait for",
            post("Expect: 100-continue\r\nContent-Length: 0"),
            &[Sees("POST /1", "")],
        ),
        Case::closing(
            "another expectation (RFC 9110, 10.1.1)",
            post("Expect: 200-ok"),
            &[Problem(417, "expectation-failed")],
        ),
        Case::closing(
            "no such function",
            "POST /nothere/ HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: \
             3000\r\n\r\n",
            &[Problem(404, "unknown-function")],
        ),
        Case::closing(
            "too large",
            post("Expect: 100-continue\r\nContent-Length: 9999999999"),
            &[Problem(413, "request-body-too-large")],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_clients_receive_100_continue() {
    let backend = FakeBackend::default();
    let node = common::start_on(common::builder(), &backend).await;
    let mut stream = TcpStream::connect(node.address().unwrap()).await.unwrap();
    let whole = async {
        let head = "POST /f/1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\nExpect: \
             100-continue\r\nContent-Length: 3\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut interim = [0; 25];
        stream.read_exact(&mut interim).await.unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        assert!(backend.take_seen().is_empty());
        stream.write_all(b"abc").await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        rest
    };
    let rest = timeout(give_up(), whole).await.unwrap();
    let responses = parse_all(&rest, &[]);
    assert_eq!(responses.len(), 1);
    assert!(responses[0].body.ends_with("\n\nabc"), "{responses:?}");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_half_closes_is_disconnected() {
    let backend = FakeBackend::default();
    let node = common::start_on(common::builder(), &backend).await;
    let mut stream = TcpStream::connect(node.address().unwrap()).await.unwrap();
    // The node does not answer the request while the client is there.
    let request = b"GET /f/held HTTP/1.1\r\nHost: h\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let began = async {
        while backend.take_seen().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(give_up(), began).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut received = Vec::new();
    let ended = timeout(give_up(), stream.read_to_end(&mut received)).await;
    ended.unwrap().unwrap();
    assert!(received.is_empty(), "{}", received.escape_ascii());
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_response_reaches_the_client() {
    let node = common::node().await;
    // The node reads none of the body, and closes. The client does not read yet.
    let large = format!(
        "POST /f/ HTTP/1.1\r\nHost: h\r\nX : y\r\n\r\n{}",
        "x".repeat(1 << 20)
    );
    let answer = timeout(
        give_up(),
        common::raw::send(node.address().unwrap(), large.as_bytes()),
    );
    assert_eq!(answer.await.unwrap().status, 400);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn head_is_get_without_the_body() {
    let head = |path: &str| format!("HEAD /f{path} HTTP/1.1\r\nHost: h\r\n\r\n");
    play([
        Case::new("of a function", head("/x"), &[SeenHead("HEAD /x")]),
        Case::new(
            "with a request body",
            "HEAD /f/x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
            &[SeenHead("HEAD /x")],
        ),
        Case::new(
            "of a large response",
            head("/large"),
            &[SeenHead("HEAD /large")],
        ),
    ])
    .await;
    let node = common::node().await;
    let address = node.address().unwrap();
    let announced = common::raw::request(address, "HEAD", "/f/lies", "", "").await;
    assert_eq!(
        (announced.body.as_str(), announced.header("content-length")),
        ("", Some("99"))
    );
    for path in ["/f/trap", "/nothere/", "/"] {
        let problem = common::raw::request(address, "HEAD", path, "", "").await;
        assert!(
            problem.status >= 400 && problem.body.is_empty(),
            "{path}: {problem:?}"
        );
        assert!(
            problem.header("content-length").is_some(),
            "{path}: {problem:?}"
        );
    }
    node.shutdown().await;
}

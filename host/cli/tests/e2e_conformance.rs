//! HTTP at the edge with functions in real microVMs: request smuggling, forged responses, old and
//! new protocol versions, and slow clients.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::time::Duration;

use common::{
    give_up,
    h2::{Connection, empty, read, whole},
    raw::{RawResponse, parse_all},
    time_limit,
};
use e2e::BENCH;
use faasw::FunctionOptions;
use http::HeaderMap;
use http_body_util::{BodyExt as _, Full};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{interval, sleep, timeout},
};

const NEXT: &str = "GET /probe/echo/smuggled HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

/// Returns all bytes that arrive until the node closes the connection.
fn bytes_for(sent: &[u8]) -> Vec<u8> {
    BENCH.block_on(async {
        let exchange = async {
            let mut stream = TcpStream::connect(BENCH.address).await.unwrap();
            stream.write_all(sent).await.unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).await.unwrap();
            received
        };
        timeout(give_up(), exchange).await.expect("an end")
    })
}

/// Returns the responses to these bytes and to one more request.
fn answers(sent: &str) -> Vec<RawResponse> {
    parse_all(&bytes_for(format!("{sent}{NEXT}").as_bytes()), &[])
}

fn requests_cannot_be_smuggled() {
    BENCH.probe();
    let post = |fields: &str, body: &str| {
        format!("POST /probe/echo HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n{body}")
    };
    let chunks = "3\r\nabc\r\n0\r\n\r\n";
    for (sent, status) in [
        (post("Content-Length: 3\r\nContent-Length: 4", "abc"), 400),
        (post("Content-Length: +3", "abc"), 400),
        (post("Content-Length : 3", "abc"), 400),
        (post("Transfer-Encoding: chunked, identity", chunks), 400),
        (post("Transfer-Encoding : chunked", chunks), 400),
        (
            post(
                "Content-Length: 3\r\nTransfer-Encoding:\r\n chunked",
                chunks,
            ),
            400,
        ),
        (post("Transfer-Encoding: gzip, chunked", chunks), 501),
        (
            post("Transfer-Encoding: chunked", "+3\r\nabc\r\n0\r\n\r\n"),
            400,
        ),
        (
            post("Transfer-Encoding: chunked", "3\nabc\r\n0\r\n\r\n"),
            400,
        ),
        (
            post("Transfer-Encoding: chunked", "3\r\nabcd\r\n0\r\n\r\n"),
            400,
        ),
        ("GET /probe/echo HTTP/1.1\r\n\r\n".into(), 400),
        (
            "GET /probe/echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into(),
            400,
        ),
    ] {
        let answers = answers(&sent);
        assert_eq!(
            (answers.len(), answers[0].status),
            (1, status),
            "{sent:?}: {answers:?}"
        );
    }
    // The transfer coding takes precedence, and the connection is closed after it (RFC 9112,
    // section 6.3).
    let both = answers(&post(
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        chunks,
    ));
    assert_eq!(both.len(), 1, "{both:?}");
    assert!(both[0].body.starts_with("POST /echo\n") && both[0].body.ends_with("\n\nabc"));
    assert!(!both[0].body.contains("content-length"), "{both:?}");
}

fn requests_in_a_row_have_an_instance_each() {
    BENCH.probe();
    let count = "GET /probe/count HTTP/1.1\r\nHost: h\r\n\r\n";
    let post = "POST /probe/echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \
         chunked\r\n\r\n3;x\r\nabc\r\n0\r\nX: y\r\n\r\n";
    let unread = "POST /probe/hello HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody";
    let answers = answers(&[count, post, count].concat());
    let bodies: Vec<_> = answers.iter().map(|answer| answer.body.as_str()).collect();
    assert_eq!((bodies[0], bodies[2]), ("1\n", "1\n"));
    assert!(bodies[1].ends_with("\n\nabc"), "{bodies:?}");
    assert!(bodies[3].starts_with("GET /echo/smuggled\n"), "{bodies:?}");
    // A body that its function does not read is never interpreted as a request.
    let answers = self::answers(unread);
    assert_eq!(answers[0].body, "hello\n");
    if let Some(next) = answers.get(1) {
        assert!(next.body.starts_with("GET /echo/smuggled\n"), "{next:?}");
    }
}

fn functions_cannot_forge_responses() {
    BENCH.probe();
    BENCH.cgi();
    let get = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        let answers = answers(&request);
        // The next response is where it must be, so no response was split.
        assert_eq!(answers.len(), 2, "{path}: {answers:?}");
        assert!(
            answers[1].body.starts_with("GET /echo/smuggled\n"),
            "{path}: {answers:?}"
        );
        answers.into_iter().next().unwrap()
    };
    let forged = get("/cgi/forged-headers");
    assert_eq!(
        (forged.status, forged.body.as_str()),
        (200, "forged body\n")
    );
    for name in ["transfer-encoding", "keep-alive", "connection"] {
        assert_eq!(forged.header(name), None, "{forged:?}");
    }
    let malformed = get("/cgi/malformed-headers");
    assert!([200, 502].contains(&malformed.status), "{malformed:?}");
    assert_eq!(malformed.header("bad name"), None, "{malformed:?}");
    for length in [5, 20] {
        // The response has its body's real length, or none at all; never the forged one.
        let path = format!("/probe/body/10?content-length={length}");
        let received = bytes_for(
            format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").as_bytes(),
        );
        let answers = parse_all(&received, &[]);
        let honest = answers.len() == 1
            && (answers[0].status == 502
                || answers[0].body == "0123456789"
                || !answers[0].is_whole);
        assert!(honest, "{}", received.escape_ascii());
    }
    let latin = bytes_for(b"GET /probe/headers HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let line = b"x-latin1: caf\xe9\r\n";
    let has_line = latin.windows(line.len()).any(|window| window == line);
    assert!(has_line, "{}", latin.escape_ascii());
    let echoed =
        bytes_for(b"GET /probe/echo HTTP/1.1\r\nHost: h\r\nX-L: \xe9\r\nConnection: close\r\n\r\n");
    assert!(
        echoed.windows(6).any(|window| window == b"x-l: \xe9"),
        "{}",
        echoed.escape_ascii()
    );
}

fn cgi_variables_of_distinct_fields_are_distinct() {
    BENCH.cgi();
    let fields = "X-Real-IP: 1\r\nX_Real_IP: 2\r\nContent_Length: 3\r\nTransfer_Encoding: \
         chunked\r\nProxy: x\r\n";
    let seen = BENCH.request("GET", "/cgi/env", fields, "").body;
    assert!(
        seen.lines().any(|line| line == "HTTP_X_REAL_IP=1"),
        "{seen}"
    );
    for name in [
        "HTTP_CONTENT_LENGTH",
        "HTTP_TRANSFER_ENCODING",
        "HTTP_PROXY",
    ] {
        assert!(!seen.contains(name), "{seen}");
    }
}

fn head_and_old_clients_are_served() {
    BENCH.probe();
    BENCH.function(
        "drip",
        "tests/fixtures/wat/drip.wasm",
        FunctionOptions::default(),
    );
    let head = "HEAD /probe/hello HTTP/1.1\r\nHost: h\r\n\r\n";
    let all = parse_all(&bytes_for(format!("{head}{NEXT}").as_bytes()), &[0]);
    assert_eq!((all.len(), all[0].status), (2, 200));

    let old = parse_all(&bytes_for(b"GET /probe/hello HTTP/1.0\r\n\r\n"), &[]);
    assert_eq!((old[0].status, old[0].body.as_str()), (200, "hello\n"));
    let stays = answers("GET /probe/hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(
        (stays.len(), stays[0].header("connection")),
        (2, Some("keep-alive"))
    );
    // HTTP/1.0 has no chunks: the end of the connection ends the body.
    let stream = parse_all(
        &bytes_for(b"GET /drip/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
        &[],
    );
    assert_eq!(stream[0].header("transfer-encoding"), None);
    assert_eq!(stream[0].body, "drip 1\ndrip 2\ndrip 3\ndrip 4\ndrip 5\n");
}

fn expect_100_continue_is_answered() {
    BENCH.probe();
    BENCH.block_on(async {
        let mut stream = TcpStream::connect(BENCH.address).await.unwrap();
        let head = "POST /probe/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nExpect: \
             100-continue\r\nContent-Length: 3\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut interim = [0; 25];
        let heard = timeout(give_up(), stream.read_exact(&mut interim));
        heard.await.unwrap().unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(b"abc").await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        let answers = parse_all(&rest, &[]);
        assert!(answers[0].body.ends_with("\n\nabc"), "{answers:?}");
        assert!(!answers[0].body.contains("expect"), "{answers:?}");
    });
    let large = "POST /probe/echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: \
         9999999999\r\n\r\n";
    let answers = answers(large);
    assert_eq!((answers.len(), answers[0].status), (1, 413), "{answers:?}");
    let offer = "GET /probe/echo HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, \
         HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    let ignored = self::answers(offer);
    assert_eq!((ignored.len(), ignored[0].status), (2, 200));
    assert!(!ignored[0].body.contains("upgrade"), "{ignored:?}");
}

fn slow_bodies_are_bounded() {
    let options = || {
        FunctionOptions::default()
            .first_byte(time_limit(60))
            .cpu_time(time_limit(60))
    };
    let total = options()
        .total_time(Duration::from_millis(500))
        .idle_client(time_limit(60));
    BENCH.function("total", "tests/fixtures/http-probe.wasm", total);
    let idle = options().idle_client(Duration::from_millis(300));
    BENCH.function("idle", "tests/fixtures/http-probe.wasm", idle);
    let post = |name: &str, drips: bool| {
        let head =
            format!("POST /{name}/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nx");
        BENCH.block_on(async move {
            let stream = TcpStream::connect(BENCH.address).await.unwrap();
            let (mut reader, mut writer) = stream.into_split();
            writer.write_all(head.as_bytes()).await.unwrap();
            let dripping = tokio::spawn(async move {
                let mut ticks = interval(Duration::from_millis(20));
                while drips && writer.write_all(b"x").await.is_ok() {
                    ticks.tick().await;
                }
                writer
            });
            let mut received = Vec::new();
            // Bytes may still be on their way when the node closes.
            let _ = timeout(give_up(), reader.read_to_end(&mut received))
                .await
                .expect("an end");
            drop(dripping.await);
            received
        })
    };
    // The response has begun, because `echo` streams. So it ends by being cut off.
    for (name, drips, slug) in [("total", true, "longer than"), ("idle", false, "client")] {
        let received = post(name, drips);
        let cut = received.is_empty()
            || parse_all(&received, &[])
                .iter()
                .all(|answer| !answer.is_whole || answer.status >= 400);
        assert!(cut, "{name}: {}", received.escape_ascii());
        let log = BENCH.log(name).join("\n");
        assert!(log.contains(slug), "{name}: {log}");
    }
}

fn http2_carries_bodies_and_trailers() {
    BENCH.probe();
    BENCH.block_on(async {
        let mut connection = Connection::open(BENCH.address).await;
        let body = "0123456789abcdef".repeat(40_000);
        let request = connection
            .request("POST", "/probe/echo")
            .body(whole(body.clone()));
        let response = connection.send(request.unwrap()).await.unwrap();
        let (echoed, _) = read(response).await;
        assert!(echoed.ends_with(body.as_bytes()));

        let response = connection.get("/probe/trailers").await;
        let (content, trailers) = read(response).await;
        assert_eq!(content, "body before trailers\n");
        assert_eq!(trailers["x-trailer"], "after the body");

        let mut fields = HeaderMap::new();
        fields.insert("x-t", "1".parse().unwrap());
        let trailers = async move { Some(Ok(fields)) };
        let body = Full::new("abc".into()).with_trailers(trailers).boxed();
        let request = connection
            .request("POST", "/probe/echo")
            .body(body)
            .unwrap();
        let response = connection.send(request).await.unwrap();
        assert!(read(response).await.0.ends_with(b"\n\nabc"));

        let all = (0..8).map(|_| {
            let mut requests = connection.requests.clone();
            let request = connection
                .request("GET", "/probe/count")
                .body(empty())
                .unwrap();
            tokio::spawn(async move { read(requests.send_request(request).await.unwrap()).await.0 })
        });
        for one in all.collect::<Vec<_>>() {
            assert_eq!(one.await.unwrap(), "1\n");
        }
    });
}

async fn under_way(name: &str, count: usize) {
    let reached = async {
        while BENCH.node.inspect(name).await.unwrap().under_way != count {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(give_up(), reached)
        .await
        .unwrap_or_else(|_| panic!("not {count} under way"));
}

fn a_stream_that_is_reset_ends_its_instance() {
    let long = Duration::from_secs(3000);
    let options = FunctionOptions::default()
        .first_byte(long)
        .idle_client(long);
    BENCH.function("sleeper", "tests/fixtures/http-probe.wasm", options);
    BENCH.block_on(async {
        let mut connection = Connection::open(BENCH.address).await;
        // The stream is reset before the response has begun.
        let request = connection
            .request("GET", "/sleeper/sleep/2000000")
            .body(empty());
        let answer = connection.requests.send_request(request.unwrap());
        let asking = tokio::spawn(answer);
        under_way("sleeper", 1).await;
        asking.abort();
        under_way("sleeper", 0).await;
        // The stream is reset in the middle of the response.
        let mut response = connection.get("/sleeper/body/500000000").await;
        response.body_mut().frame().await.unwrap().unwrap();
        under_way("sleeper", 1).await;
        drop(response);
        under_way("sleeper", 0).await;
        assert_eq!(connection.get("/sleeper/hello").await.status(), 200);
        // The stream ends with its connection.
        let _response = connection.get("/sleeper/body/500000000").await;
        under_way("sleeper", 1).await;
        connection.cut();
        under_way("sleeper", 0).await;
    });
}

fn a_slow_client_applies_backpressure_to_the_function() {
    BENCH.probe();
    let options = FunctionOptions::default().idle_client(Duration::from_millis(500));
    BENCH.function("held", "tests/fixtures/http-probe.wasm", options);
    let size = (64 << 20) / time_limit(1).as_secs().max(1) as usize;
    BENCH.block_on(async {
        let mut connection = Connection::open(BENCH.address).await;
        // A response that is read late is complete.
        let mut response = connection.get(&format!("/probe/body/{size}")).await;
        for _ in 0..5 {
            let (count, _) = read(connection.get("/probe/count").await).await;
            assert_eq!(count, "1\n");
        }
        assert!(BENCH.node.inspect("probe").await.unwrap().under_way >= 1);
        let mut length = 0;
        while let Some(frame) = response.body_mut().frame().await {
            length += frame.unwrap().into_data().unwrap().len();
        }
        assert_eq!(length, size);
        // A response that is never read ends by the limit for idle clients, because it is not
        // produced completely in the meantime.
        let response = connection.get(&format!("/held/body/{size}")).await;
        under_way("held", 0).await;
        BENCH.log_once("held", |log| {
            log.iter().any(|line| line.text.contains("client"))
        });
        let broken = timeout(give_up(), response.into_body().collect())
            .await
            .unwrap();
        assert!(broken.is_err());
    });
}

fn main() {
    let tests = tests![
        requests_cannot_be_smuggled,
        requests_in_a_row_have_an_instance_each,
        functions_cannot_forge_responses,
        cgi_variables_of_distinct_fields_are_distinct,
        head_and_old_clients_are_served,
        expect_100_continue_is_answered,
        slow_bodies_are_bounded,
        http2_carries_bodies_and_trailers,
        a_stream_that_is_reset_ends_its_instance,
        a_slow_client_applies_backpressure_to_the_function,
    ];
    e2e::main(tests);
}

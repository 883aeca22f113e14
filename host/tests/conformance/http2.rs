//! HTTP/2 with prior knowledge.

use std::time::{Duration, Instant};

use faasw::Limits;
use http::Version;
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};

use crate::common::{
    self, FakeBackend, give_up,
    h2::{Connection, empty, read, whole},
};

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_bodies_pass() {
    let backend = FakeBackend::default();
    let node = common::start_on(common::builder(), &backend).await;
    let mut connection = Connection::open(node.address().unwrap()).await;
    let body = "x".repeat(300_000);
    let request = connection.request("POST", "/f/a?b=c").header("x-a", "1");
    let request = request.body(whole(body.clone())).unwrap();
    let response = connection.send(request).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.version()),
        (200, Version::HTTP_2)
    );
    let (echoed, _) = read(response).await;
    assert!(echoed.starts_with(b"POST /a?b=c /f 127.0.0.1") && echoed.ends_with(body.as_bytes()));
    let seen = backend.take_seen().remove(0);
    assert_eq!(
        (seen.head.protocol.as_slice(), seen.body.len()),
        (&b"HTTP/2.0"[..], 300_000)
    );
    let address = node.address().unwrap().to_string();
    assert_eq!(seen.head.authority, address.as_bytes());
    let host = (b"host".to_vec(), address.into_bytes());
    assert!(seen.head.headers.contains(&host), "{seen:?}");

    let request = connection.request("HEAD", "/f/lies").body(empty()).unwrap();
    let head = connection.send(request).await.unwrap();
    assert_eq!(head.headers()["content-length"], "99");
    assert!(read(head).await.0.is_empty());
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_in_pieces_are_one_for_the_function() {
    let backend = FakeBackend::default();
    let node = common::start_on(common::builder(), &backend).await;
    let mut connection = Connection::open(node.address().unwrap()).await;
    let request = connection
        .request("GET", "/f/")
        .header("cookie", "a=1")
        .header("cookie", "b=2");
    connection
        .send(request.body(empty()).unwrap())
        .await
        .unwrap();
    let cookie = (b"cookie".to_vec(), b"a=1; b=2".to_vec());
    assert!(backend.take_seen()[0].head.headers.contains(&cookie));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_do_not_wait_for_each_other() {
    const QUICK: usize = 40;
    let backend = FakeBackend::default();
    let node = common::start_on(common::builder(), &backend).await;
    let connection = Connection::open(node.address().unwrap()).await;
    let mut streams = JoinSet::new();
    for number in 0..60 {
        let path = if number % 3 == 0 {
            "/f/held"
        } else {
            "/f/quick"
        };
        let request = connection.request("GET", path).body(empty()).unwrap();
        let mut requests = connection.requests.clone();
        streams.spawn(async move {
            let response = requests.send_request(request).await.unwrap();
            (path, read(response).await.0)
        });
    }
    let mut quick = 0;
    let all_end = async {
        while let Some(ended) = streams.join_next().await {
            let (path, body) = ended.unwrap();
            match path {
                "/f/quick" => assert!(body.starts_with(b"GET /quick")),
                _ => assert_eq!(&body[..], b"held"),
            }
            quick += usize::from(path == "/f/quick");
            // The held requests are answered one by one, after all quick ones.
            if quick == QUICK {
                backend.held.notify_one();
            }
        }
    };
    timeout(give_up(), all_end)
        .await
        .expect("quick ones wait for no others");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_end_their_stream_only() {
    let node = common::node().await;
    let mut connection = Connection::open(node.address().unwrap()).await;
    for (request, status) in [
        (
            connection.request("GET", "/f/").header("host", "other"),
            400,
        ),
        (
            connection
                .request("GET", "/f/")
                .header("host", "a")
                .header("host", "b"),
            400,
        ),
        (
            connection.request("GET", "/f/").header("expect", "other"),
            417,
        ),
        (connection.request("GET", "/nothere/"), 404),
        (connection.request("GET", "/f/trap"), 502),
        (
            connection
                .request("GET", "/f/")
                .header("x", "x".repeat(40_000)),
            431,
        ),
    ] {
        let response = connection
            .send(request.body(empty()).unwrap())
            .await
            .unwrap();
        assert_eq!(response.status(), status);
        assert!(!response.headers().contains_key("connection"));
        assert!(
            read(response)
                .await
                .0
                .starts_with(b"{\"type\":\"urn:faasw:problem:")
        );
    }
    let tunnel = http::Request::builder()
        .method("CONNECT")
        .uri("h:443")
        .body(empty())
        .unwrap();
    assert_eq!(connection.send(tunnel).await.unwrap().status(), 501);
    assert_eq!(connection.get("/f/").await.status(), 200);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unread_http2_response_is_held_back() {
    let node = common::node().await;
    let mut connection = Connection::open(node.address().unwrap()).await;
    let mut held = connection.get("/f/huge").await;
    // The stream's window stays full. The connection's window has room for other streams.
    for _ in 0..10 {
        assert_eq!(connection.get("/f/").await.status(), 200);
    }
    let mut length = 0;
    while let Some(frame) = held.body_mut().frame().await {
        length += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(length, 32 << 20);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_http2_preface_times_out() {
    let mut limits = Limits::default();
    limits.request_read = std::time::Duration::from_millis(200);
    limits.idle_connection = std::time::Duration::from_millis(200);
    let node = common::start(common::builder().limits(limits)).await;
    for begun in [
        &b"PRI * HTTP/2.0\r\n\r\nSM"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(node.address().unwrap()).await.unwrap();
        stream.write_all(begun).await.unwrap();
        let mut received = Vec::new();
        let closed = stream.read_to_end(&mut received);
        let _ = timeout(give_up(), closed).await.expect("the node gives up");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_and_idle_http2_clients_are_disconnected() {
    let mut limits = Limits::default();
    // Longer than a busy machine keeps a client from sending its first request.
    limits.request_read = Duration::from_secs(1);
    limits.idle_connection = Duration::from_secs(1);
    limits.idle_client = Duration::from_secs(1);
    let node = common::start(common::builder().limits(limits)).await;
    let address = node.address().unwrap();
    let mut stalled = Connection::open(address).await;
    // The client keeps this response and does not read it: its window stays full, while it answers
    // pings.
    let held = stalled.get("/f/huge").await;
    stalled.ended().await;
    drop(held);
    let mut idle = Connection::open(address).await;
    assert_eq!(idle.get("/f/").await.status(), 200);
    idle.ended().await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unread_stream_does_not_end_the_others() {
    // Longer than a busy machine takes for another stream.
    let idle = Duration::from_millis(1500);
    let mut limits = Limits::default();
    limits.idle_client = idle;
    let node = common::start(common::builder().limits(limits)).await;
    let mut connection = Connection::open(node.address().unwrap()).await;
    let held = connection.get("/f/huge").await;
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let begun = Instant::now();
    while begun.elapsed() < 2 * idle {
        ticks.tick().await;
        let response = connection.get("/f/").await;
        assert_eq!(response.status(), 200);
        assert!(!read(response).await.0.is_empty());
    }
    // From here on, nothing moves on the connection.
    connection.ended().await;
    drop(held);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_client_is_evicted_for_a_new_one() {
    const MOST: usize = 6;
    let hour = Duration::from_secs(3600);
    let mut limits = Limits::default();
    limits.connections = MOST;
    (limits.idle_client, limits.idle_connection) = (hour, hour);
    let node = common::start(common::builder().limits(limits)).await;
    let address = node.address().unwrap();
    let mut stalled = Vec::new();
    for _ in 0..MOST {
        let mut connection = Connection::with_window(address, 0).await;
        stalled.push((connection.get("/f/").await, connection));
    }
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let served = async {
        loop {
            ticks.tick().await;
            let Ok(mut stream) = TcpStream::connect(address).await else {
                continue;
            };
            let request = b"GET /f/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
            let mut received = Vec::new();
            // The node closes a refused connection without an answer.
            if stream.write_all(request).await.is_ok()
                && stream.read_to_end(&mut received).await.is_ok()
                && received.starts_with(b"HTTP/1.1 200")
            {
                return;
            }
        }
    };
    timeout(give_up(), served).await.expect("one is evicted");
    drop(stalled);
    node.shutdown().await;
}

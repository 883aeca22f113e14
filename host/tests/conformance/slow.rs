//! Clients that keep a connection open and send or read almost nothing.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use faasw::{FunctionOptions, Limits};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, tcp::OwnedReadHalf},
    time::{interval, timeout},
};

use crate::common::{self, FakeBackend, give_up, raw::parse_all};

/// The interval between two bytes of a slow client.
const DRIP: Duration = Duration::from_millis(20);

/// A limit that ends a test soon, but is longer than a busy machine keeps a client from sending a
/// request.
const BRIEF: Duration = Duration::from_secs(1);

/// A limit far beyond the time that the tests wait.
const LONG: Duration = Duration::from_secs(600);

/// Sends a byte at a time until the node closes, and returns the bytes that came back.
async fn drip(address: SocketAddr, head: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let (reader, mut writer) = stream.into_split();
    let dripping = tokio::spawn(async move {
        let mut ticks = interval(DRIP);
        loop {
            ticks.tick().await;
            if writer.write_all(b"x").await.is_err() {
                return;
            }
        }
    });
    let received = timeout(give_up(), read_all(reader)).await;
    dripping.abort();
    received.expect("the node gives up")
}

async fn read_all(mut reader: OwnedReadHalf) -> Vec<u8> {
    let mut received = Vec::new();
    // The node may close while bytes are on their way to it.
    let _ = reader.read_to_end(&mut received).await;
    received
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_head_times_out() {
    let mut limits = Limits::default();
    limits.request_read = BRIEF;
    limits.idle_connection = BRIEF;
    limits.idle_client = LONG;
    let backend = FakeBackend::default();
    let node = common::start_on(common::builder().limits(limits), &backend).await;
    let address = node.address().unwrap();
    let first = "GET /f/ HTTP/1.1\r\nHost: h\r\n\r\n";
    for (begun, answers) in [
        ("", 0),
        ("GET /f/", 0),
        ("GET /f/ HTTP/1.1\r\nHost: h\r\nX-", 0),
        // The limit also holds behind another request.
        (&format!("{first}GET /f/ HTTP/1.1\r\nHost: h\r\nX-"), 1),
    ] {
        let began = Instant::now();
        let received = drip(address, begun).await;
        assert_eq!(parse_all(&received, &[]).len(), answers, "{begun:?}");
        assert!(began.elapsed() >= BRIEF * 5 / 6, "{begun:?}");
        assert_eq!(backend.take_seen().len(), answers);
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_closed() {
    let mut limits = Limits::default();
    limits.request_read = BRIEF;
    limits.idle_connection = BRIEF;
    let node = common::start(common::builder().limits(limits)).await;
    let mut stream = TcpStream::connect(node.address().unwrap()).await.unwrap();
    let request = b"GET /f/ HTTP/1.1\r\nHost: h\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let (reader, _writer) = stream.into_split();
    let received = timeout(give_up(), read_all(reader)).await.unwrap();
    assert_eq!(parse_all(&received, &[]).len(), 1);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_body_of_a_refused_request_is_not_read_for_ever() {
    let mut limits = Limits::default();
    limits.request_read = LONG;
    limits.idle_connection = LONG;
    let node = common::start(common::builder().limits(limits)).await;
    let address = node.address().unwrap();
    for (target, status) in [("/nothere/", 404), ("/f/", 400)] {
        let host = if status == 400 { "" } else { "Host: h\r\n" };
        let head = format!("POST {target} HTTP/1.1\r\n{host}Content-Length: 1000000\r\n\r\n");
        let received = drip(address, &head).await;
        assert_eq!(parse_all(&received, &[])[0].status, status);
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_is_bounded_by_the_functions_limit() {
    let node = common::node().await;
    let address = node.address().unwrap();
    // The fake backend applies this limit to the whole body, as the pool applies the total limit to
    // the exchange.
    let options = FunctionOptions::default().idle_client(Duration::from_millis(200));
    node.deploy("quick", "module", options).await.unwrap();
    let head = "POST /quick/ HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n";
    let answers = parse_all(&drip(address, head).await, &[]);
    assert_eq!((answers.len(), answers[0].status), (1, 408));
    assert_eq!(answers[0].problem("type"), "urn:faasw:problem:idle-client");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unread_response_is_dropped() {
    let mut limits = Limits::default();
    limits.idle_client = Duration::from_millis(200);
    limits.request_read = LONG;
    limits.idle_connection = LONG;
    let backend = FakeBackend::default();
    let node = common::start_on(common::builder().limits(limits), &backend).await;
    let mut stream = TcpStream::connect(node.address().unwrap()).await.unwrap();
    let request = b"GET /f/huge HTTP/1.1\r\nHost: h\r\n\r\n";
    stream.write_all(request).await.unwrap();
    // Writing to a connection fails once the other end has closed it.
    let closed = async {
        let mut ticks = interval(DRIP);
        loop {
            ticks.tick().await;
            if stream.write_all(b"\r\n").await.is_err() {
                return;
            }
        }
    };
    timeout(give_up(), closed).await.expect("the node gives up");
    assert_eq!(backend.take_seen().len(), 1);
    node.shutdown().await;
}

/// The whole response is ready long before the client has read it.
#[tokio::test(flavor = "multi_thread")]
async fn a_slowly_read_response_is_not_cut() {
    let mut limits = Limits::default();
    limits.idle_client = LONG;
    limits.request_read = LONG;
    limits.idle_connection = Duration::from_millis(200);
    let node = common::start(common::builder().limits(limits)).await;
    let mut stream = TcpStream::connect(node.address().unwrap()).await.unwrap();
    let request = b"GET /f/huge HTTP/1.1\r\nHost: h\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut ticks = interval(DRIP * 2);
    let mut received = vec![0; 1 << 20];
    let mut length = 0;
    let begun = Instant::now();
    while length < 32 << 20 {
        ticks.tick().await;
        let read = stream.read(&mut received);
        let count = timeout(give_up(), read).await.unwrap().unwrap();
        assert_ne!(
            count,
            0,
            "cut after {length} bytes and {:?}",
            begun.elapsed()
        );
        length += count;
    }
    assert!(begun.elapsed() > Duration::from_secs(1), "it was not slow");
    // The node closes the connection once the client sends no more requests.
    let (reader, _writer) = stream.into_split();
    timeout(give_up(), read_all(reader)).await.unwrap();
    node.shutdown().await;
}

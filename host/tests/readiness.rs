//! Whether a node is ready, which clients can connect to it before and after that, and how it
//! drains. The functions do not run in VMs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;

use std::{
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use common::{h2, raw::get};
use faasw::{FunctionName, Node, NodeBuilder, Readiness};

fn builder() -> NodeBuilder {
    let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
    common::builder().metrics(free)
}

async fn ready(node: &Node) -> (u16, String) {
    let answer = get(node.metrics_address().unwrap(), "/readyz").await;
    assert_eq!(answer.header("content-type"), Some("text/plain"));
    (answer.status, answer.body)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_opens_later_accepts_no_connection_before() {
    let node = common::start(builder().opens_later(true)).await;
    let address = node.address().unwrap();
    assert!(address.port() != 0 && TcpStream::connect(address).is_err());
    assert_eq!(node.readiness(), Readiness::Starting);
    assert_eq!(ready(&node).await, (503, "starting\n".to_owned()));
    let live = get(node.metrics_address().unwrap(), "/livez").await;
    assert_eq!((live.status, live.body.as_str()), (200, "ok\n"));
    let (waits, opens) = tokio::join!(node.wait_for_readiness(Readiness::Ready), async {
        node.open()
    });
    assert_eq!((waits, opens.unwrap()), (Readiness::Ready, ()));
    // A second call changes nothing.
    node.open().unwrap();
    assert_eq!(get(address, "/f/").await.status, 200);
    assert_eq!(ready(&node).await, (200, "ok\n".to_owned()));
    node.shutdown().await;
    assert_eq!(node.readiness(), Readiness::Stopping);
    assert!(TcpStream::connect(address).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_shut_down_does_not_open() {
    let node = common::start(builder().opens_later(true)).await;
    node.shutdown().await;
    node.open().unwrap();
    assert_eq!(node.readiness(), Readiness::Stopping);
    assert!(TcpStream::connect(node.address().unwrap()).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_node_serves_on_and_is_not_ready() {
    let node = common::start(builder()).await;
    assert_eq!(ready(&node).await, (200, "ok\n".to_owned()));
    let address = node.address().unwrap();
    let draining = tokio::spawn({
        let node = node.clone();
        // Longer than a busy machine needs for three requests.
        async move { node.drain(Duration::from_secs(5)).await }
    });
    assert_eq!(
        node.wait_for_readiness(Readiness::Stopping).await,
        Readiness::Stopping
    );
    assert_eq!(ready(&node).await, (503, "stopping\n".to_owned()));
    assert_eq!(get(address, "/f/").await.status, 200);
    assert!(!draining.is_finished());
    draining.await.unwrap();
    assert!(TcpStream::connect(address).is_err());
}

/// A client that kept its connection would never connect to another node, and would be refused in
/// the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_draining_node_answers_and_then_closes_connections() {
    let node = common::start(builder()).await;
    let address = node.address().unwrap();
    let mut kept = h2::Connection::open(address).await;
    for _ in 0..2 {
        let answer = kept.get("/f/").await;
        assert_eq!(
            (answer.status().as_u16(), kept.requests.is_closed()),
            (200, false)
        );
        h2::read(answer).await;
    }
    let draining = tokio::spawn({
        let node = node.clone();
        async move { node.drain(common::time_limit(30)).await }
    });
    node.wait_for_readiness(Readiness::Stopping).await;
    let answer = kept.get("/f/").await;
    assert_eq!(answer.status(), 200);
    // The node sends GOAWAY and still the whole answer.
    h2::read(answer).await;
    kept.ended().await;
    let new = get(address, "/f/").await;
    assert_eq!((new.status, new.header("connection")), (200, Some("close")));
    assert!(!draining.is_finished(), "it was the answer that ended it");
    draining.abort();
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_function_receives_unchanged_paths() {
    let root = FunctionName::new("f").unwrap();
    let node = common::start(builder().root(root)).await;
    let address = node.address().unwrap();
    for path in ["/", "/g/x?y=z", "/healthz", "/f/", "//"] {
        let answer = get(address, path).await;
        assert!(
            answer.body.starts_with(&format!("GET {path} ")),
            "{path}: {answer:?}"
        );
    }
    node.shutdown().await;
}

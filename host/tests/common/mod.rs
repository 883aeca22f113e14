//! Helpers that the tests with a fake backend share.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod daemon;
pub mod fake;
pub mod h2;
pub mod raw;
pub mod tls;
pub mod trials;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use faasw::{FunctionOptions, Node, NodeBuilder};

pub use fake::FakeBackend;

/// Returns `seconds` times the factor in `FAASW_TEST_SLOWNESS`, by which this machine is slower
/// than bare metal.
pub fn time_limit(seconds: u64) -> Duration {
    let slowness = std::env::var("FAASW_TEST_SLOWNESS").ok();
    let slowness = slowness.and_then(|text| text.parse().ok()).unwrap_or(1);
    Duration::from_secs(seconds) * slowness
}

/// How long a test waits for an event that must happen at some time. Only a failure takes as long:
/// a minute is enough on a machine that does many other things at once.
pub fn give_up() -> Duration {
    time_limit(10).max(Duration::from_secs(60))
}

/// Waits until the condition holds. `what` describes it.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + give_up();
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns a builder whose node serves on a free port.
pub fn builder() -> NodeBuilder {
    Node::builder().listen("127.0.0.1:0".parse().unwrap())
}

/// Starts a node in memory, on the fake backend, with the function `f`.
pub async fn node() -> Node {
    start(builder()).await
}

/// Starts a node with a data directory and an admin socket, with the function `f`.
pub async fn node_in(data_dir: &Path) -> Node {
    start(builder().data_dir(data_dir).admin(true)).await
}

pub async fn start(builder: NodeBuilder) -> Node {
    start_on(builder, &FakeBackend::default()).await
}

/// Starts such a node on a backend that the test inspects.
pub async fn start_on(builder: NodeBuilder, backend: &FakeBackend) -> Node {
    let node = builder.start_on(Arc::new(backend.clone())).await.unwrap();
    node.deploy("f", "module f", FunctionOptions::default())
        .await
        .unwrap();
    node
}

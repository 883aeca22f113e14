//! What the tests with a fake backend share.
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

/// `seconds`, times how much slower than metal this machine is said to be by
/// `FAASW_TEST_SLOWNESS`.
pub fn time_limit(seconds: u64) -> Duration {
    let slowness = std::env::var("FAASW_TEST_SLOWNESS").ok();
    let slowness = slowness.and_then(|text| text.parse().ok()).unwrap_or(1);
    Duration::from_secs(seconds) * slowness
}

/// How long a test waits for what must happen some time. Only a failure takes as long: a minute is
/// enough on a machine that does many other things at once.
pub fn give_up() -> Duration {
    time_limit(10).max(Duration::from_secs(60))
}

/// Waits until it is so, which `what` names.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + give_up();
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A builder whose node serves on a free port.
pub fn builder() -> NodeBuilder {
    Node::builder().listen("127.0.0.1:0".parse().unwrap())
}

/// A node in memory, on the fake backend, with the function `f`.
pub async fn node() -> Node {
    start(builder()).await
}

/// A node with a data directory and an admin socket, with the function `f`.
pub async fn node_in(data_dir: &Path) -> Node {
    start(builder().data_dir(data_dir).admin(true)).await
}

pub async fn start(builder: NodeBuilder) -> Node {
    start_on(builder, &FakeBackend::default()).await
}

/// The same on a backend that the test looks into.
pub async fn start_on(builder: NodeBuilder, backend: &FakeBackend) -> Node {
    let node = builder.start_on(Arc::new(backend.clone())).await.unwrap();
    node.deploy("f", "module f", FunctionOptions::default())
        .await
        .unwrap();
    node
}

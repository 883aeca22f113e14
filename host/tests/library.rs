//! The library as an embedding program uses it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use common::FakeEngine;
use faasw::{DeployError, Event, FunctionOptions, Limits, Node, RemoteAddress, StartError, Timing};
use http::Request;

fn get(path: &str) -> Request<String> {
    Request::get(path).body(String::new()).unwrap()
}

async fn text(node: &Node, name: &str, path: &str) -> String {
    let response = node.invoke(name, get(path)).await;
    String::from_utf8(response.body().as_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn a_node_needs_neither_a_socket_nor_a_disk() {
    let node = common::start(Node::builder()).await;
    assert_eq!((node.address(), node.data_dir()), (None, None));
    let mut request = get("/x");
    request
        .extensions_mut()
        .insert(RemoteAddress("::1".parse().unwrap()));
    let response = node.invoke("f", request).await;
    assert_eq!(response.status(), 200);
    assert!(response.body().as_bytes().starts_with(b"GET /x /f ::1 "));
    assert_eq!(response.extensions().get::<Timing>().unwrap().instance, 42);
    node.shutdown().await;
}

#[tokio::test]
async fn several_nodes_live_in_one_process() {
    let one = common::start(Node::builder()).await;
    let two = common::start(Node::builder()).await;
    one.deploy("only-one", "module", FunctionOptions::default())
        .await
        .unwrap();
    assert_eq!((one.list().len(), two.list().len()), (2, 1));
    one.shutdown().await;
    assert_eq!(two.invoke("f", get("/")).await.status(), 200);
}

#[tokio::test]
async fn a_deployment_says_what_came_of_it() {
    let node = common::start(Node::builder()).await;
    let plain = node
        .deploy("plain", "module", FunctionOptions::default())
        .await
        .unwrap();
    assert!(plain.compile_time.is_some() && plain.notice.is_none());
    assert!(plain.function.frozen_after_init && plain.function.ready);
    assert_eq!(plain.function.memory, 128 << 20);
    assert_eq!(plain.function.time_limit, Duration::from_secs(10));
    let draws = node
        .deploy("draws", "draws", FunctionOptions::default())
        .await
        .unwrap();
    assert!(!draws.function.frozen_after_init);
    assert!(draws.notice.unwrap().contains("--freeze after-init"));
}

#[tokio::test]
async fn a_failed_deployment_leaves_what_was_there() {
    let node = common::start(Node::builder()).await;
    for (name, module, word) in [
        ("f", "bad", "not WebAssembly"),
        ("f", "bad import", "env::mystery"),
        ("f", "trap", "trap_here"),
        ("new", "bad", "not WebAssembly"),
        ("Not-A-Name", "module", "Not-A-Name"),
    ] {
        let error = node
            .deploy(name, module, FunctionOptions::default())
            .await
            .unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    let options = FunctionOptions::default().env("", "x");
    let refused = node.deploy("f", "module", options).await.unwrap_err();
    assert!(matches!(refused, DeployError::Options(_)));
    assert_eq!(text(&node, "f", "/module").await, "module f");
    assert_eq!(node.list().len(), 1);
}

#[tokio::test]
async fn a_module_over_the_limit_is_refused_unread() {
    let mut limits = Limits::default();
    limits.module = 10;
    let node = common::start(Node::builder().limits(limits)).await;
    let refused = node
        .deploy("f", "12345678901", FunctionOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(
        refused,
        DeployError::TooLarge {
            size: 11,
            limit: 10
        }
    ));
}

#[tokio::test]
async fn requests_finish_on_the_function_they_began_with() {
    let node = common::start(Node::builder()).await;
    let begun = {
        let node = node.clone();
        tokio::spawn(async move { node.invoke("f", get("/slow")).await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    node.deploy("f", "module two", FunctionOptions::default())
        .await
        .unwrap();
    assert_eq!(text(&node, "f", "/module").await, "module two");
    node.remove("f").await.unwrap();
    assert_eq!(node.invoke("f", get("/")).await.status(), 404);
    assert_eq!(begun.await.unwrap().status(), 200);
    assert!(node.remove("f").await.is_err());
}

#[tokio::test]
async fn the_observer_sees_deployments_and_logs() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tell = {
        let seen = seen.clone();
        move |event: Event<'_>| {
            let text = match event {
                Event::Compiling { function, .. } => format!("compiling {function}"),
                Event::MakingSeed { function } => format!("seed {function}"),
                Event::Log { function, line } => format!("{function} | {}", line.text),
                _ => return,
            };
            seen.lock().unwrap().push(text);
        }
    };
    let node = common::start(Node::builder().observe(tell)).await;
    node.invoke("f", get("/log")).await;
    let seen = seen.lock().unwrap().clone();
    assert_eq!(
        seen,
        ["compiling f", "seed f", "f | initialising", "f | hello log"]
    );
}

#[tokio::test]
async fn functions_survive_a_restart_without_being_compiled_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = FunctionOptions::default().env("A", "b").memory(1 << 20);
    let node = common::start(Node::builder().data_dir(folder.path())).await;
    node.deploy("g", "module g", options).await.unwrap();
    let before = node.list();
    node.shutdown().await;
    drop(node);

    let engine = FakeEngine::default();
    let builder = Node::builder().data_dir(folder.path());
    let node = builder.start_on(Arc::new(engine.clone())).await.unwrap();
    assert_eq!(text(&node, "g", "/module").await, "module g");
    assert!(
        text(&node, "g", "/env")
            .await
            .contains(&format!("{:?}", b"A".to_vec()))
    );
    assert_eq!(text(&node, "f", "/module").await, "module f");
    assert_eq!(node.list(), before);
    assert_eq!(engine.compiled.load(Ordering::Relaxed), 0);
    assert_eq!(engine.seeds.load(Ordering::Relaxed), 2);
    node.shutdown().await;
}

#[tokio::test]
async fn another_engine_compiles_stored_modules_again() {
    let folder = tempfile::tempdir().unwrap();
    drop(common::start(Node::builder().data_dir(folder.path())).await);
    let engine = FakeEngine {
        version: 1,
        ..FakeEngine::default()
    };
    let builder = Node::builder().data_dir(folder.path());
    let node = builder.start_on(Arc::new(engine.clone())).await.unwrap();
    let (one, two) = tokio::join!(node.invoke("f", get("/")), node.invoke("f", get("/")));
    assert_eq!(
        (one.status(), two.status()),
        (200.try_into().unwrap(), 200.try_into().unwrap())
    );
    assert_eq!(engine.compiled.load(Ordering::Relaxed), 1);
    assert_eq!(engine.seeds.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_same_module_is_compiled_once() {
    let folder = tempfile::tempdir().unwrap();
    let engine = FakeEngine::default();
    let builder = Node::builder().data_dir(folder.path());
    let node = builder.start_on(Arc::new(engine.clone())).await.unwrap();
    node.deploy("a", "module", FunctionOptions::default())
        .await
        .unwrap();
    let options = FunctionOptions::default().env("A", "b");
    let again = node.deploy("b", "module", options).await.unwrap();
    assert_eq!(again.compile_time, None);
    assert_eq!(engine.compiled.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_deployment_that_nobody_waits_for_ends() {
    let node = common::start(Node::builder()).await;
    let slow = node.deploy("slow", "slow", FunctionOptions::default());
    let cut = tokio::time::timeout(Duration::from_millis(50), slow).await;
    assert!(cut.is_err());
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(node.list().len(), 1);
}

#[tokio::test]
async fn what_cannot_be_had_is_said_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let first = common::node_in(folder.path()).await;
    let engine = || Arc::new(FakeEngine::default());
    let taken = Node::builder()
        .listen(first.address().unwrap())
        .start_on(engine())
        .await;
    assert!(matches!(taken, Err(StartError::Listen { .. })));
    let locked = Node::builder()
        .data_dir(folder.path())
        .start_on(engine())
        .await;
    assert!(matches!(locked, Err(StartError::Locked { .. })));
    let nowhere = Node::builder().admin(true).start_on(engine()).await;
    assert!(matches!(nowhere, Err(StartError::AdminNeedsDataDir)));
}

mod service {
    //! Functions as services of the tower stack.

    use bytes::Bytes;
    use http::{HeaderValue, Response};
    use http_body_util::{BodyExt as _, Full};
    use tower::{Service, ServiceBuilder, ServiceExt as _, timeout::error::Elapsed};

    use super::*;

    async fn content(response: Response<faasw::Body>) -> Bytes {
        response.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn a_function_is_a_tower_service() {
        fn shared_between_threads<S: Clone + Send + Sync + 'static>(service: S) -> S {
            service
        }

        let node = common::start(Node::builder()).await;
        let mut service = shared_between_threads(node.service("f"));
        let another = service.clone();
        let texts = service.call(get("/x")).await.unwrap();
        assert!(content(texts).await.starts_with(b"GET /x "));
        // Any body, on any thread.
        let request = Request::post("/length").body(Full::new(Bytes::from("four")));
        let bytes = tokio::spawn(another.oneshot(request.unwrap()));
        assert_eq!(content(bytes.await.unwrap().unwrap()).await, "4");

        node.remove("f").await.unwrap();
        let gone = service.call(get("/x")).await.unwrap();
        assert_eq!(gone.status(), 404);
    }

    #[tokio::test]
    async fn a_function_composes_with_tower_layers() {
        let node = common::start(Node::builder()).await;
        let mut layered = ServiceBuilder::new()
            .concurrency_limit(2)
            .map_request(|mut request: Request<String>| {
                let value = HeaderValue::from_static("added");
                request.headers_mut().insert("x-layer", value);
                request
            })
            .timeout(Duration::from_millis(50))
            .service(node.service("f"));
        let ready = layered.ready().await.unwrap();
        let response = ready.call(get("/")).await.unwrap();
        let echo = String::from_utf8(content(response).await.to_vec()).unwrap();
        assert!(echo.contains("\nx-layer: added"), "{echo}");
        let ready = layered.ready().await.unwrap();
        let late = ready.call(get("/slow")).await.unwrap_err();
        assert!(late.is::<Elapsed>(), "{late}");
    }
}

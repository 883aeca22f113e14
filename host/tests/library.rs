//! The library as an embedding program uses it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;

use std::{
    sync::{Arc, Mutex, atomic::Ordering, mpsc},
    time::Duration,
};

use common::FakeBackend;
use faasw::{
    DeployError, DeployStage, Event, FunctionOptions, Limits, Node, RemoteAddress, RollbackError,
    StartError, Timing,
};
use faasw_abi::store::{Answer, LENGTH_BYTES, OWN_STORE, Operation, Request as StoreRequest};
use faasw_pool::StoreService;
use http::Request;
use tokio::time::timeout;

fn get(path: &str) -> Request<String> {
    Request::get(path).body(String::new()).unwrap()
}

async fn text(node: &Node, name: &str, path: &str) -> String {
    let response = node.invoke(name, get(path)).await;
    String::from_utf8(response.body().as_bytes().unwrap().to_vec()).unwrap()
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
    assert!(
        response
            .body()
            .as_bytes()
            .unwrap()
            .starts_with(b"GET /x /f ::1 ")
    );
    assert_eq!(response.extensions().get::<Timing>().unwrap().instance, 42);
    node.shutdown().await;
}

/// A request that goes on after its function was removed cannot use the store of the function that
/// is deployed under the same name afterwards.
#[tokio::test]
async fn a_store_is_inaccessible_after_its_function_was_removed() {
    let backend = FakeBackend::default();
    let node = common::start_on(Node::builder(), &backend).await;
    let opened = async |store: &Arc<dyn StoreService>| {
        let record = StoreRequest {
            store: OWN_STORE,
            operation: Operation::Open,
        };
        let record = record.encode().unwrap();
        let answer = store.answer(record[LENGTH_BYTES..].to_vec()).await.unwrap();
        match Answer::decode(&answer[LENGTH_BYTES..]).unwrap() {
            Answer::Done => true,
            Answer::Denied => false,
            other => panic!("{other:?}"),
        }
    };
    let deployed = async |module: &'static str| {
        let options = FunctionOptions::default();
        node.deploy("shop", module, options).await.unwrap();
        text(&node, "shop", "/x").await;
        backend.take_seen().pop().unwrap().store
    };
    let first = deployed("keeps").await.unwrap();
    let second = deployed("keeps more").await.unwrap();
    assert!(opened(&first).await && opened(&second).await);
    node.remove("shop").await.unwrap();
    assert!(!opened(&first).await && !opened(&second).await);
    let anothers = deployed("keeps too").await.unwrap();
    assert!(opened(&anothers).await);
    assert!(!opened(&first).await && !opened(&second).await);
    assert!(deployed("module").await.is_none());
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
async fn a_deployment_returns_its_result() {
    let node = common::start(Node::builder()).await;
    let plain = node
        .deploy("plain", "module", FunctionOptions::default())
        .await
        .unwrap();
    assert!(plain.compile_time.is_some() && plain.notice.is_none());
    assert!(plain.function.frozen_after_init && plain.function.ready);
    assert_eq!(plain.function.memory, 128 << 20);
    assert_eq!(plain.function.limits.first_byte, Duration::from_secs(10));
    let draws = node
        .deploy("draws", "draws", FunctionOptions::default())
        .await
        .unwrap();
    assert!(!draws.function.frozen_after_init);
    assert!(draws.notice.unwrap().contains("--freeze after-init"));
}

#[tokio::test]
async fn a_failed_deployment_keeps_the_previous_version() {
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
async fn requests_finish_on_the_version_they_began_with() {
    let backend = FakeBackend::default();
    let node = common::start_on(Node::builder(), &backend).await;
    let begun = {
        let node = node.clone();
        tokio::spawn(async move { node.invoke("f", get("/held")).await })
    };
    while node.inspect("f").await.unwrap().under_way == 0 {
        tokio::task::yield_now().await;
    }
    node.deploy("f", "module two", FunctionOptions::default())
        .await
        .unwrap();
    assert_eq!(text(&node, "f", "/module").await, "module two");
    node.remove("f").await.unwrap();
    assert_eq!(node.invoke("f", get("/")).await.status(), 404);
    backend.held.notify_one();
    assert_eq!(begun.await.unwrap().status(), 200);
    assert!(node.remove("f").await.is_err());
}

/// Dropping a seed takes a while, and the node answers calls meanwhile.
#[tokio::test]
async fn replacing_a_function_does_not_wait_for_its_requests() {
    let backend = FakeBackend::default();
    let node = common::start_on(Node::builder(), &backend).await;
    let looked = Arc::new(Mutex::new(Vec::new()));
    let (looking, all) = (node.clone(), looked.clone());
    backend.when_dropped.set(move || {
        let (node, (sender, answer)) = (looking.clone(), mpsc::channel());
        std::thread::spawn(move || sender.send(node.list().len()));
        all.lock()
            .unwrap()
            .push(answer.recv_timeout(common::give_up()).ok());
    });
    node.deploy("f", "module 2", FunctionOptions::default())
        .await
        .unwrap();
    node.remove("f").await.unwrap();
    assert_eq!(*looked.lock().unwrap(), [Some(1), Some(0)]);
}

/// Versions that wait for their instances hold up no other deployment, and a rollback to such a
/// version hardly waits.
#[tokio::test]
async fn others_are_deployed_while_versions_wait_for_their_instances() {
    let node = common::start(Node::builder()).await;
    let waiting: Vec<_> = (0..4)
        .map(|number| {
            let (node, module) = (node.clone(), format!("lacks {number}"));
            tokio::spawn(async move {
                node.deploy("f", module, FunctionOptions::default())
                    .await
                    .unwrap()
            })
        })
        .collect();
    // Deployments that wait for instances must not hold up others, which would then wait for ever.
    let limit = common::give_up();
    let other = node.deploy("other", "module", FunctionOptions::default());
    timeout(limit, other).await.unwrap().unwrap();
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    for waiting in waiting {
        waiting.abort();
    }

    let first = node.deploy("lacks", "lacks", FunctionOptions::default());
    timeout(limit, first).await.unwrap().unwrap();
    let next = node.deploy("lacks", "module", FunctionOptions::default());
    next.await.unwrap();
    let back = timeout(limit, node.rollback("lacks", None)).await.unwrap();
    assert_eq!(back.unwrap().version, 1);
}

/// The number of concurrent deployments of one function is limited, because they hold memory until
/// their instances are there. Deployments of another function do not wait for them.
#[tokio::test]
async fn four_deployments_of_a_function_run_and_more_wait() {
    let backend = FakeBackend::default();
    let compiled = backend.compiled.clone();
    let node = common::start_on(Node::builder(), &backend).await;
    let before = compiled.load(Ordering::Relaxed);
    let mut waiting: Vec<_> = (0..8)
        .map(|number| {
            let (node, module) = (node.clone(), format!("lacks {number}"));
            tokio::spawn(async move { node.deploy("f", module, FunctionOptions::default()).await })
        })
        .collect();
    let count = || compiled.load(Ordering::Relaxed) - before;
    let stages = |stage| {
        let all = node.deployments().into_iter();
        let its = all.filter(move |one| one.stage == stage);
        its.map(|one| one.queued_behind).collect::<Vec<_>>()
    };
    common::eventually("four wait for their instances", || {
        stages(DeployStage::Storing).len() == 4
    })
    .await;
    let behind: Vec<_> = (0..4).map(Some).collect();
    assert_eq!(stages(DeployStage::Waiting), behind);
    let other = node.deploy("other", "module", FunctionOptions::default());
    other.await.unwrap();
    assert_eq!(count(), 5, "four of the one, and the other");

    // The node stores nothing of the waiting deployments when it ends, and each of them gets an
    // error.
    node.shutdown().await;
    for waiting in &mut waiting {
        let told = timeout(common::give_up(), waiting).await.unwrap();
        assert!(matches!(told.unwrap(), Err(DeployError::ShuttingDown)));
    }
    assert_eq!(node.list()[0].version, 1);
}

/// A version that was about to replace another one is not there after the next start, either.
#[tokio::test]
async fn an_ending_node_stores_no_unreported_version() {
    let folder = tempfile::tempdir().unwrap();
    let backend = FakeBackend::default();
    let seeds = backend.seeds.clone();
    let node = common::start_on(Node::builder().data_dir(folder.path()), &backend).await;
    let before = seeds.load(Ordering::Relaxed);
    let deploying = tokio::spawn({
        let node = node.clone();
        async move { node.deploy("f", "lacks", FunctionOptions::default()).await }
    });
    common::eventually("it has its seed", || seeds.load(Ordering::Relaxed) > before).await;
    node.shutdown().await;
    let told = timeout(common::give_up(), deploying).await.unwrap();
    assert!(matches!(told.unwrap(), Err(DeployError::ShuttingDown)));
    drop(node);
    let builder = Node::builder().data_dir(folder.path());
    let again = builder.start_on(Arc::new(FakeBackend::default())).await;
    let again = again.unwrap();
    assert_eq!(again.inspect("f").await.unwrap().versions.len(), 1);
    again.shutdown().await;
}

#[tokio::test]
async fn versions_count_up_and_can_be_rolled_back() {
    let folder = tempfile::tempdir().unwrap();
    for node in [
        common::start(Node::builder()).await,
        common::start(Node::builder().data_dir(folder.path())).await,
    ] {
        let options = FunctionOptions::default().env("A", "b");
        let again = node.deploy("f", "module f", options).await.unwrap();
        assert_eq!((again.function.version, again.compile_time), (2, None));
        assert_eq!(node.list()[0].version, 2);
        let details = node.inspect("f").await.unwrap();
        let numbers: Vec<_> = details.versions.iter().map(|one| one.version).collect();
        assert_eq!(numbers, [2, 1]);
        assert_eq!(details.versions[0].digest, details.versions[1].digest);
        assert_eq!(details.versions[0].environment, ["A"]);

        let back = node.rollback("f", None).await.unwrap();
        assert!(back.version == 1 && back.environment.is_empty() && back.ready);
        let own = [(b"FAASW_BASE_PATH".to_vec(), b"/f".to_vec())];
        assert_eq!(text(&node, "f", "/env").await, format!("{own:?}"));
        let refused = node.rollback("f", None).await.unwrap_err();
        assert!(matches!(refused, RollbackError::NothingBefore(1)));
        let refused = node.rollback("f", Some(7)).await.unwrap_err().to_string();
        assert!(
            refused.contains("no version 7; stored versions: 1, 2"),
            "{refused}"
        );
        assert_eq!(node.rollback("f", Some(2)).await.unwrap().version, 2);
        node.rollback("f", Some(1)).await.unwrap();
        let next = node.deploy("f", "module g", FunctionOptions::default());
        assert_eq!(next.await.unwrap().function.version, 3);

        node.remove("f").await.unwrap();
        assert!(node.rollback("f", None).await.is_err());
        let first = node.deploy("f", "module f", FunctionOptions::default());
        assert_eq!(first.await.unwrap().function.version, 1);
        node.shutdown().await;
    }
}

#[tokio::test]
async fn a_rolled_back_version_serves_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::start(Node::builder().data_dir(folder.path())).await;
    let options = FunctionOptions::default();
    node.deploy("f", "module two", options).await.unwrap();
    node.rollback("f", None).await.unwrap();
    node.shutdown().await;
    drop(node);
    let builder = Node::builder().data_dir(folder.path());
    let node = builder
        .start_on(Arc::new(FakeBackend::default()))
        .await
        .unwrap();
    assert_eq!(node.list()[0].version, 1);
    assert_eq!(text(&node, "f", "/module").await, "module f");
}

#[tokio::test]
async fn concurrent_requests_follow_the_functions_own_limit() {
    let backend = FakeBackend::default();
    let node = common::start_on(Node::builder(), &backend).await;
    let options = FunctionOptions::default().concurrency(1);
    node.deploy("f", "module f", options.clone()).await.unwrap();
    // The request is under way until the test lets it end.
    let under_way = tokio::spawn({
        let node = node.clone();
        async move { node.invoke("f", get("/held")).await }
    });
    while node.inspect("f").await.unwrap().under_way == 0 {
        tokio::task::yield_now().await;
    }
    let refused = node.invoke("f", get("/")).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "1");
    let problem = String::from_utf8(refused.body().as_bytes().unwrap().to_vec()).unwrap();
    assert!(
        problem.contains("over-capacity") && problem.contains("limit of 1 requests"),
        "{problem}"
    );
    // The limit holds across versions, and the new version's limit counts.
    node.deploy("f", "module two", options).await.unwrap();
    assert_eq!(node.invoke("f", get("/")).await.status(), 503);
    let options = FunctionOptions::default().concurrency(2);
    node.deploy("f", "module three", options).await.unwrap();
    assert_eq!(node.invoke("f", get("/")).await.status(), 200);
    backend.held.notify_one();
    assert_eq!(under_way.await.unwrap().status(), 200);
    assert_eq!(node.inspect("f").await.unwrap().under_way, 0);
}

#[tokio::test]
async fn requests_failures_and_deployments_are_counted() {
    let node = common::start(Node::builder()).await;
    for path in ["/", "/teapot", "/trap"] {
        node.invoke("f", get(path)).await;
    }
    node.invoke("nothere", get("/")).await;
    let text = node.metrics();
    for line in [
        r#"faasw_requests_total{function="f",status="200"} 1"#,
        r#"faasw_requests_total{function="f",status="418"} 1"#,
        r#"faasw_requests_total{function="f",status="502"} 1"#,
        r#"faasw_traps_total{function="f",kind="unreachable"} 1"#,
        r#"faasw_deployments_total{result="done"} 1"#,
        r#"faasw_request_stage_seconds_count{stage="exec"} 2"#,
    ] {
        assert!(
            text.lines().any(|other| other == line),
            "no {line} in {text}"
        );
    }
    assert!(!text.contains("nothere"), "{text}");
    node.remove("f").await.unwrap();
    assert!(!node.metrics().contains("\"f\""));
}

#[tokio::test]
async fn a_log_survives_a_restart_and_a_new_functions_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::start(Node::builder().data_dir(folder.path())).await;
    node.invoke("f", get("/log")).await;
    node.shutdown().await;
    drop(node);
    let builder = Node::builder().data_dir(folder.path());
    let node = builder
        .start_on(Arc::new(FakeBackend::default()))
        .await
        .unwrap();
    let texts = |node: &Node| {
        let lines = node.logs("f", 9).unwrap().into_iter();
        lines.map(|line| line.text).collect::<Vec<_>>()
    };
    assert!(texts(&node).contains(&"hello log".to_owned()));
    node.remove("f").await.unwrap();
    let options = FunctionOptions::default();
    node.deploy("f", "module f", options).await.unwrap();
    assert_eq!(texts(&node), ["initialising"]);
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
async fn an_abandoned_deployment_ends() {
    let backend = FakeBackend::default();
    let node = common::start_on(Node::builder(), &backend).await;
    let before = backend.compiled.load(Ordering::Relaxed);
    let slow = node.deploy("slow", "slow", FunctionOptions::default());
    let has_begun = || backend.compiled.load(Ordering::Relaxed) > before;
    tokio::select! {
        // A compilation that has begun counts, even if the test did not run for a long time.
        biased;
        () = common::eventually("it compiles", has_begun) => {}
        _ = slow => panic!("it is deployed"),
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(node.list().len(), 1);
}

#[tokio::test]
async fn unavailable_resources_are_reported_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let first = common::node_in(folder.path()).await;
    let backend = || Arc::new(FakeBackend::default());
    let taken = Node::builder()
        .listen(first.address().unwrap())
        .start_on(backend())
        .await;
    assert!(matches!(taken, Err(StartError::Listen { .. })));
    let locked = Node::builder()
        .data_dir(folder.path())
        .start_on(backend())
        .await;
    assert!(matches!(locked, Err(StartError::Locked { .. })));
    let nowhere = Node::builder().admin(true).start_on(backend()).await;
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
        // The service accepts any body type, on any thread.
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
            .timeout(Duration::from_secs(1))
            .service(node.service("f"));
        let ready = layered.ready().await.unwrap();
        let response = ready.call(get("/")).await.unwrap();
        let echo = String::from_utf8(content(response).await.to_vec()).unwrap();
        assert!(echo.contains("\nx-layer: added"), "{echo}");
        let ready = layered.ready().await.unwrap();
        // This request is never answered.
        let late = ready.call(get("/held")).await.unwrap_err();
        assert!(late.is::<Elapsed>(), "{late}");
    }
}

//! Tests of the admin API over its real socket, with functions that do not run in VMs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use bytes::Bytes;
use faasw::{
    DeployStage, FreezePolicy, FunctionName, FunctionOptions, Limits, STORE_VALUE_BYTES, Store,
    StoreName,
    admin::{Client, ClientError},
};
use faasw_client::{CONFIGURATION_BYTES, OPTIONS_BYTES};
use http::{Request, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn name(name: &str) -> FunctionName {
    FunctionName::new(name).unwrap()
}

fn refused(error: ClientError) -> (StatusCode, String) {
    match error {
        ClientError::Refused { status, detail } => (status, detail),
        other => panic!("not a refusal: {other}"),
    }
}

/// Sends bytes to the socket and reads the answer to its end.
async fn raw(data_dir: &Path, request: &str) -> String {
    raw_with(data_dir, request, "").await
}

/// Sends a request with these header fields.
async fn raw_with(data_dir: &Path, request: &str, fields: &str) -> String {
    let socket = data_dir.join("faasw.sock");
    let mut stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    let text = format!("{request} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_running_deployment_is_listed_with_its_stage() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let client = Client::new(folder.path());
    assert_eq!(client.deployments().await.unwrap(), []);
    let deploying = tokio::spawn({
        let client = client.clone();
        // The version waits for instances that never come.
        let module = Bytes::from_static(b"lacks");
        async move {
            client
                .deploy(&name("f"), module, &FunctionOptions::default())
                .await
        }
    });
    common::eventually("it waits for its instances", || {
        node.deployments()
            .iter()
            .any(|one| one.stage == DeployStage::Storing)
    })
    .await;
    let listed = client.deployments().await.unwrap();
    assert_eq!(listed, node.deployments());
    assert_eq!((listed.len(), listed[0].function.as_str()), (1, "f"));
    node.shutdown().await;
    deploying.await.unwrap().unwrap_err();
    assert_eq!(node.deployments(), []);
}

#[tokio::test]
async fn the_client_deploys_and_removes_a_function() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let client = Client::new(folder.path());

    let options = FunctionOptions::default()
        .env("A", "b c&d")
        .memory(1 << 20)
        .freeze(FreezePolicy::AfterInit);
    let module = Bytes::from_static(b"draws");
    let deployed = client.deploy(&name("g"), module, &options).await.unwrap();
    let options = deployed.function.options;
    assert_eq!(options.freeze_policy(), FreezePolicy::AfterInit);
    assert!(deployed.compile_time.is_some());
    assert_eq!(client.list().await.unwrap(), node.list());
    assert_eq!(node.list()[1].memory, 1 << 20);

    let request = Request::put("/p?q=r")
        .header("x-a", "1")
        .body(Bytes::from_static(b"data"));
    let answer = client.invoke(&name("g"), request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let text = String::from_utf8(answer.body().to_vec()).unwrap();
    assert!(
        text.starts_with("PUT /p?q=r /g ") && text.ends_with("\n\ndata"),
        "{text}"
    );
    assert!(text.contains("\nx-a: 1\n"), "{text}");

    let request = Request::get("/log").body(Bytes::new()).unwrap();
    let answer = client.invoke(&name("g"), request).await.unwrap();
    let id = answer.headers()["x-request-id"].to_str().unwrap();
    let lines = client.logs(&name("g"), 1).await.unwrap();
    assert_eq!(lines.lines[0].text, "hello log");
    let log = fs::read_to_string(folder.path().join("logs/g.log")).unwrap();
    let last = format!(" 42/{id} out hello log\n");
    assert!(log.ends_with(&last), "{log}");

    client.remove(&name("g")).await.unwrap();
    assert_eq!(node.list().len(), 1);
    assert!(!folder.path().join("logs/g.log").exists());
    node.shutdown().await;
}

#[tokio::test]
async fn stores_are_read_and_written_by_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let client = Client::new(folder.path());
    let own = Store::Function(name("f"));
    let shared = Store::Shared(StoreName::new("users").unwrap());
    assert_eq!(client.stores().await.unwrap(), []);
    // Keys and values may contain any character.
    for (key, value) in [("a b&c=\u{e9}/\n", &b"\0\xff"[..]), ("b", b"")] {
        let set = client.set_store_value(&own, key, Bytes::copy_from_slice(value));
        set.await.unwrap();
        let read = client.store_value(&own, key).await.unwrap();
        assert_eq!(read.as_deref(), Some(value), "{key:?}");
    }
    assert_eq!(client.store_value(&shared, "b").await.unwrap(), None);
    let most = Bytes::from(vec![7; STORE_VALUE_BYTES]);
    client
        .set_store_value(&shared, "k", most.clone())
        .await
        .unwrap();
    let too_large = Bytes::from(vec![7; STORE_VALUE_BYTES + 1]);
    let error = client.set_store_value(&shared, "k", too_large).await;
    assert_eq!(refused(error.unwrap_err()).0, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(client.store_value(&shared, "k").await.unwrap(), Some(most));
    let long = "k".repeat(1025);
    let error = client.set_store_value(&own, &long, Bytes::new()).await;
    let (status, why) = refused(error.unwrap_err());
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(why.contains("1 to 1024 bytes, not 1025"), "{why}");
    let page = client.store_keys(&own, "").await.unwrap();
    assert_eq!((page.keys.len(), page.has_more), (2, false));
    let page = client.store_keys(&own, &page.keys[0]).await.unwrap();
    assert_eq!(page.keys, ["b"]);
    client.remove_store_key(&own, "b").await.unwrap();
    client.remove_store_key(&own, "b").await.unwrap();
    let stores = client.stores().await.unwrap();
    assert_eq!(stores, node.stores().await.unwrap());
    let names: Vec<_> = stores.iter().map(|info| (&info.store, info.keys)).collect();
    assert_eq!(names, [(&own, 1), (&shared, 1)]);
    node.shutdown().await;
}

#[tokio::test]
async fn the_client_lists_versions_and_rolls_back() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let client = Client::new(folder.path());
    let options = FunctionOptions::default().concurrency(3);
    let f = name("f");
    let module = Bytes::from_static(b"module two");
    client.deploy(&f, module, &options).await.unwrap();
    let details = client.inspect(&f).await.unwrap();
    assert_eq!(details, node.inspect("f").await.unwrap());
    assert_eq!(details.function.options.own_concurrency(), Some(3));
    assert_eq!(details.versions.len(), 2);
    assert_eq!(client.rollback(&f, None).await.unwrap().version, 1);
    assert_eq!(client.rollback(&f, Some(2)).await.unwrap().version, 2);
    let (status, detail) = refused(client.rollback(&f, Some(9)).await.unwrap_err());
    assert_eq!((status.as_u16(), detail.contains("1, 2")), (404, true));
    let (status, _) = refused(client.inspect(&name("nothere")).await.unwrap_err());
    assert_eq!(status, 404);
    node.shutdown().await;
}

#[tokio::test]
async fn following_a_log_ends_with_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let mut limits = Limits::default();
    limits.shutdown = Duration::from_secs(3600);
    let builder = common::builder().limits(limits);
    let node = common::start(builder.data_dir(folder.path()).admin(true)).await;
    let client = Client::new(folder.path());
    let f = name("f");
    let page = client.logs(&f, 0).await.unwrap();
    assert!(page.lines.is_empty());
    let following = {
        let (client, f) = (client.clone(), f.clone());
        tokio::spawn(async move { client.logs_after(&f, page.next).await })
    };
    let request = Request::get("/log").body(Bytes::new()).unwrap();
    client.invoke(&f, request).await.unwrap();
    let page = following.await.unwrap().unwrap();
    assert_eq!((page.lines[0].text.as_str(), page.missed), ("hello log", 0));
    let following = {
        let (client, f) = (client.clone(), f.clone());
        tokio::spawn(async move { client.logs_after(&f, page.next).await })
    };
    tokio::task::yield_now().await;
    // The shutdown must not take the hour that it waits at most.
    let ended = tokio::time::timeout(common::give_up(), node.shutdown()).await;
    ended.expect("who follows a log does not hold up the end");
    // The follower either got the page or came too late for one.
    if let Ok(page) = following.await.unwrap() {
        assert!(page.lines.is_empty());
    }
}

#[tokio::test]
async fn metrics_are_served_on_the_socket_and_on_their_own_listener() {
    let folder = tempfile::tempdir().unwrap();
    let builder = common::builder()
        .data_dir(folder.path())
        .admin(true)
        .metrics("127.0.0.1:0".parse().unwrap());
    let node = common::start(builder).await;
    let client = Client::new(folder.path());
    let text = client.metrics().await.unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let address = node.metrics_address().unwrap();
    let answer = common::raw::get(address, "/metrics").await;
    assert_eq!(answer.status, 200);
    let media_type = answer.header("content-type").unwrap();
    assert!(media_type.starts_with("application/openmetrics-text"));
    assert!(answer.body.contains("faasw_functions 1"), "{answer:?}");
    assert_eq!(common::raw::get(address, "/f/").await.status, 404);
    // The metrics are never served on the functions' address.
    let public = common::raw::get(node.address().unwrap(), "/metrics").await;
    assert_eq!(public.status, 404);
    node.shutdown().await;
}

#[tokio::test]
async fn rejections_are_problems_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut limits = Limits::default();
    limits.module = 100;
    let builder = common::builder()
        .data_dir(folder.path())
        .admin(true)
        .limits(limits);
    let node = common::start(builder).await;
    let client = Client::new(folder.path());
    let options = FunctionOptions::default();
    for (module, status, word) in [
        ("bad", 422, "not WebAssembly"),
        ("bad import", 422, "env::mystery"),
        ("trap", 422, "trap_here"),
        (&"x".repeat(101), 413, "101 bytes"),
    ] {
        let module = Bytes::copy_from_slice(module.as_bytes());
        let (found, detail) = refused(
            client
                .deploy(&name("g"), module, &options)
                .await
                .unwrap_err(),
        );
        assert_eq!(found, status);
        assert!(detail.contains(word), "{detail}");
    }
    let tiny = options.memory(1);
    let (status, detail) = refused(
        client
            .deploy(&name("g"), Bytes::new(), &tiny)
            .await
            .unwrap_err(),
    );
    assert_eq!((status.as_u16(), detail.contains("1 bytes")), (400, true));
    let (status, detail) = refused(client.remove(&name("nothere")).await.unwrap_err());
    assert_eq!(
        (status.as_u16(), detail.contains("\"nothere\"")),
        (404, true)
    );
    refused(client.logs(&name("nothere"), 1).await.unwrap_err());
    // A failed deployment of a new function leaves no log behind.
    assert!(!folder.path().join("logs/g.log").exists());
    node.shutdown().await;
}

/// Begins an upload and leaves it unfinished.
async fn uploading(data_dir: &Path, bytes: &str) -> tokio::net::UnixStream {
    let socket = data_dir.join("faasw.sock");
    let mut stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    let text =
        format!("PUT /v1/functions/g HTTP/1.1\r\nHost: h\r\n{bytes}Expect: 100-continue\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    // The node asks for the body once the upload has a slot.
    let mut going_on = [0; 12];
    stream.read_exact(&mut going_on).await.unwrap();
    assert_eq!(&going_on, b"HTTP/1.1 100");
    stream
}

#[tokio::test]
async fn concurrent_uploads_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let client = Client::new(folder.path());
    let options = FunctionOptions::default();
    let g = name("g");
    let deploy = || client.deploy(&g, Bytes::from_static(b"module"), &options);
    // Two uploads of unknown length, then many short ones.
    for (count, bytes) in [
        (2, "Transfer-Encoding: chunked\r\n"),
        (64, "Content-Length: 9\r\n"),
    ] {
        let mut under_way = Vec::new();
        for _ in 0..count {
            under_way.push(uploading(folder.path(), bytes).await);
        }
        let (status, detail) = refused(deploy().await.unwrap_err());
        assert_eq!(status.as_u16(), 503);
        assert!(detail.contains("under way"), "{detail}");
        if count == 64 {
            let answer = raw(folder.path(), "PUT /v1/functions/g").await;
            assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
            assert!(answer.contains("too-many-uploads"), "{answer}");
        }
        // Other requests are answered meanwhile, and an upload that ends makes room.
        assert_eq!(client.list().await.unwrap().len(), 1);
        drop(under_way);
        let deadline = std::time::Instant::now() + common::give_up();
        while deploy().await.is_err() {
            assert!(
                std::time::Instant::now() < deadline,
                "none has given its place back"
            );
        }
        client.remove(&g).await.unwrap();
    }
    node.shutdown().await;
}

#[tokio::test]
async fn paths_methods_and_parameters_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    for (request, status) in [
        ("GET /", 404),
        ("GET /v1/", 404),
        ("GET /v2/node", 404),
        ("GET /v1/functions/f/x", 404),
        ("POST /v1/node", 405),
        ("GET /v1/functions/f", 200),
        ("GET /v1/functions/nothere", 404),
        ("POST /v1/functions/f", 405),
        ("GET /v1/functions/f/rollback", 405),
        ("POST /v1/functions/f/rollback", 404),
        ("POST /v1/functions/f/rollback?version=x", 400),
        ("POST /v1/functions/nothere/rollback", 404),
        ("GET /v1/functions/f/logs?after=x", 400),
        ("GET /metrics", 200),
        ("POST /metrics", 404),
        ("GET /v1/deployments", 200),
        ("POST /v1/deployments", 405),
        ("GET /v1/stats", 200),
        ("POST /v1/stats", 405),
        ("DELETE /v1/functions", 405),
        ("PUT /v1/functions/Bad", 400),
        ("PUT /v1/functions/g?memory=1048576", 400),
        ("GET /v1/functions/f/logs?lines=x", 400),
        ("POST /v1/functions/f/invoke?path=nope", 400),
        ("POST /v1/functions/f/invoke?method=G@T", 400),
        ("POST /v1/functions/nothere/invoke", 404),
        ("POST /v1/functions/f/invoke?path=/teapot", 418),
        ("GET /v1/node", 200),
        ("GET /v1/kv", 200),
        ("POST /v1/kv", 405),
        ("GET /v1/kv/functions", 404),
        ("GET /v1/kv/functions/f", 200),
        ("GET /v1/kv/functions/f?before=k", 400),
        ("PUT /v1/kv/functions/f", 405),
        ("GET /v1/kv/own/f", 400),
        ("GET /v1/kv/shared/default", 400),
        ("GET /v1/kv/functions/f/value", 400),
        ("GET /v1/kv/functions/f/value?key=k", 204),
        ("PUT /v1/kv/functions/f/value?key=", 400),
        ("PUT /v1/kv/functions/nothere/value?key=k", 404),
        ("PUT /v1/kv/shared/s/value?key=k", 204),
        ("DELETE /v1/kv/functions/nothere/value?key=k", 204),
        ("POST /v1/kv/functions/f/value?key=k", 405),
    ] {
        let answer = raw(folder.path(), request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {answer}"
        );
        if status >= 400 && status != 418 {
            assert!(answer.contains("application/problem+json"), "{answer}");
        }
    }
    node.shutdown().await;
}

#[tokio::test]
async fn options_of_a_deployment_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    for (options, part) in [
        (r#"{"memory": "much"}"#, "much"),
        (r#"{"colour": "red"}"#, "colour"),
        (r#"{"configuration": {"\n": "red"}}"#, "configuration"),
        (r#"{"stores": ["default"]}"#, "default"),
        ("{}\r\nx-faasw-options: {}", "twice"),
        ("memory=1048576", "x-faasw-options"),
    ] {
        let field = format!("x-faasw-options: {options}\r\n");
        let answer = raw_with(folder.path(), "PUT /v1/functions/g", &field).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{options}: {answer}");
        let is_named = answer.contains("urn:faasw:problem:bad-options") && answer.contains(part);
        assert!(is_named, "{options}: {answer}");
    }
    // A misspelt field must not deploy the function with the default options.
    for field in ["x-faasw-option", "X-Faasw-Memory"] {
        let line = format!("{field}: {{}}\r\n");
        let answer = raw_with(folder.path(), "PUT /v1/functions/g", &line).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let unknown = field.to_lowercase();
        for part in ["bad-options", &format!("{unknown};"), "x-faasw-options"] {
            assert!(answer.contains(part), "{part}: {answer}");
        }
    }
    assert_eq!(node.list().len(), 1);
    node.shutdown().await;
}

/// The node's limit of a request's head must have room for the largest options.
#[tokio::test]
async fn large_options_reach_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let client = Client::new(folder.path());
    assert_eq!(client.node().await.unwrap().options_limit, OPTIONS_BYTES);
    let value = "b".repeat(OPTIONS_BYTES - 1000);
    let options = FunctionOptions::default().config("a", value);
    let deployed = client.deploy(&name("g"), Bytes::new(), &options).await;
    let (status, detail) = refused(deployed.unwrap_err());
    assert_eq!(status, StatusCode::BAD_REQUEST, "{detail}");
    let limit = CONFIGURATION_BYTES.to_string();
    assert!(detail.contains(&limit), "{detail}");
    node.shutdown().await;
}

#[tokio::test]
async fn the_socket_is_private_and_a_leftover_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("faasw.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let client = Client::new(folder.path());
    assert!(matches!(
        client.list().await,
        Err(ClientError::NotRunning(_))
    ));
    let node = common::node_in(folder.path()).await;
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let info = client.node().await.unwrap();
    assert_eq!((info.pid, info.functions), (std::process::id(), 1));
    assert_eq!(info.address, node.address());
    node.shutdown().await;
    assert!(matches!(
        client.list().await,
        Err(ClientError::NotRunning(_))
    ));
}

//! Compiled code is made once, and made again when needed, as an embedding program sees it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod common;

use std::sync::{Arc, atomic::Ordering};

use common::FakeBackend;
use faasw::{FunctionOptions, Node};
use http::Request;

fn get(path: &str) -> Request<String> {
    Request::get(path).body(String::new()).unwrap()
}

async fn text(node: &Node, name: &str, path: &str) -> String {
    let response = node.invoke(name, get(path)).await;
    String::from_utf8(response.body().as_bytes().unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn functions_survive_a_restart_without_being_compiled_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = FunctionOptions::default().env("A", "b").memory(1 << 20);
    let node = common::start(Node::builder().data_dir(folder.path())).await;
    node.deploy("g", "module g", options).await.unwrap();
    let before = node.inspect("g").await.unwrap();
    node.shutdown().await;
    drop(node);

    let backend = FakeBackend::default();
    let builder = Node::builder().data_dir(folder.path());
    let node = builder.start_on(Arc::new(backend.clone())).await.unwrap();
    assert_eq!(text(&node, "g", "/module").await, "module g");
    assert!(
        text(&node, "g", "/env")
            .await
            .contains(&format!("{:?}", b"A".to_vec()))
    );
    assert_eq!(text(&node, "f", "/module").await, "module f");
    assert_eq!(node.inspect("g").await.unwrap(), before);
    assert_eq!(backend.compiled.load(Ordering::Relaxed), 0);
    assert_eq!(backend.seeds.load(Ordering::Relaxed), 2);
    node.shutdown().await;
}

#[tokio::test]
async fn another_engine_compiles_stored_modules_again() {
    let folder = tempfile::tempdir().unwrap();
    drop(common::start(Node::builder().data_dir(folder.path())).await);
    let backend = FakeBackend {
        version: 1,
        ..FakeBackend::default()
    };
    let builder = Node::builder().data_dir(folder.path());
    let node = builder.start_on(Arc::new(backend.clone())).await.unwrap();
    let (one, two) = tokio::join!(node.invoke("f", get("/")), node.invoke("f", get("/")));
    assert_eq!(
        (one.status(), two.status()),
        (200.try_into().unwrap(), 200.try_into().unwrap())
    );
    assert_eq!(backend.compiled.load(Ordering::Relaxed), 1);
    assert_eq!(backend.seeds.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_same_module_is_compiled_once() {
    let folder = tempfile::tempdir().unwrap();
    let backend = FakeBackend::default();
    let builder = Node::builder().data_dir(folder.path());
    let node = builder.start_on(Arc::new(backend.clone())).await.unwrap();
    node.deploy("a", "module", FunctionOptions::default())
        .await
        .unwrap();
    let options = FunctionOptions::default().env("A", "b");
    let again = node.deploy("b", "module", options).await.unwrap();
    assert_eq!(again.compile_time, None);
    assert_eq!(backend.compiled.load(Ordering::Relaxed), 1);
}

/// The cache that a helper kept under one function's name is used for no other function.
#[tokio::test]
async fn code_compiled_with_a_cache_belongs_to_one_function() {
    let folder = tempfile::tempdir().unwrap();
    let backend = FakeBackend::default();
    let builder = Node::builder().data_dir(folder.path());
    let node = builder.start_on(Arc::new(backend.clone())).await.unwrap();
    let module = |which: u8| {
        let mut module = vec![b' '; 1 << 20];
        module.push(which);
        module
    };
    let deploy =
        |name: &'static str, which| node.deploy(name, module(which), FunctionOptions::default());
    let compiled = || backend.compiled.load(Ordering::Relaxed);
    let begun_with = || backend.take_begun_with();
    deploy("a", 1).await.unwrap();
    deploy("a", 2).await.unwrap();
    assert_eq!(begun_with(), [Some(b"".to_vec()), Some(b"kept".to_vec())]);
    // A second deployment of the same module and name uses the code again.
    deploy("a", 2).await.unwrap();
    assert_eq!(compiled(), 2);
    deploy("b", 2).await.unwrap();
    assert_eq!(begun_with(), [Some(b"".to_vec())]);
    assert_eq!(compiled(), 3);
    // No cache of another module went into that code, so every function may use it.
    deploy("c", 2).await.unwrap();
    deploy("a", 2).await.unwrap();
    assert_eq!(compiled(), 3);
    // A function that gets a removed function's name gets none of its cache.
    node.remove("a").await.unwrap();
    deploy("a", 3).await.unwrap();
    // A small module compiles at once and needs no cache.
    node.deploy("a", "small", FunctionOptions::default())
        .await
        .unwrap();
    assert_eq!(begun_with(), [Some(b"".to_vec()), None]);
}

/// The cached data may be the reason why the compilation failed.
#[tokio::test]
async fn a_failed_compilation_leaves_no_cache() {
    let backend = FakeBackend::default();
    let node = Node::builder().start_on(Arc::new(backend.clone()));
    let node = node.await.unwrap();
    let deploy = |begin: &'static str| {
        let mut module = vec![b' '; 1 << 20];
        module[..begin.len()].copy_from_slice(begin.as_bytes());
        node.deploy("a", module, FunctionOptions::default())
    };
    let [nothing, kept] = [&b""[..], b"kept"].map(|kept| Some(kept.to_vec()));
    for (fails, leaves) in [("bad", &kept), ("bad helper", &nothing), ("trap", &nothing)] {
        deploy("").await.unwrap();
        deploy("other").await.unwrap();
        backend.take_begun_with();
        deploy(fails).await.unwrap_err();
        deploy("again").await.unwrap();
        assert_eq!(backend.take_begun_with(), [kept.clone(), leaves.clone()]);
        node.remove("a").await.unwrap();
    }
}

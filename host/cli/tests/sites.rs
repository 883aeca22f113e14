//! Functions at hosts of their own, and what functions that share a host cannot do.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;

use std::{net::SocketAddr, process::Command};

use common::{
    FakeBackend, h2,
    raw::{self, RawResponse},
};
use faasw::{DeployError, FunctionOptions, HostName, Node, RollbackError};

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

fn with_hosts(hosts: &[&str]) -> FunctionOptions {
    let default = FunctionOptions::default();
    hosts
        .iter()
        .fold(default, |options, name| options.host(host(name)))
}

async fn deploy(node: &Node, name: &str, hosts: &[&str]) -> Result<u64, DeployError> {
    let deployed = node.deploy(name, "module", with_hosts(hosts)).await;
    deployed.map(|deployed| deployed.function.version)
}

async fn get(address: SocketAddr, host: &str, path: &str) -> RawResponse {
    let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    raw::send(address, text.as_bytes()).await
}

/// Asserts what a function has seen of a request: its own path, and the prefix before that.
fn assert_seen(backend: &FakeBackend, path: &str, script_name: &str) {
    let seen = backend.take_seen();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all: Vec<_> = seen
        .iter()
        .map(|seen| {
            (
                text(&seen.head.path_and_query),
                text(&seen.head.script_name),
            )
        })
        .collect();
    assert_eq!(all, [(path.to_owned(), script_name.to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_domain_each_function_has_its_host() {
    let backend = FakeBackend::default();
    let builder = common::builder().domain(host("example.com"));
    let node = common::start_on(builder, &backend).await;
    let address = node.address().unwrap();
    for (host, path) in [
        ("f.example.com", "/x/y?z"),
        ("F.EXAMPLE.com.:8080", "/healthz"),
        ("f.example.com", "/f/"),
    ] {
        assert_eq!(get(address, host, path).await.status, 200, "{host}");
        assert_seen(&backend, path, "");
    }
    // The target's authority is the host, whatever the field says; in HTTP/2 as well.
    let absolute = get(address, "127.0.0.1", "http://f.example.com/a").await;
    assert_eq!(absolute.status, 200);
    assert_seen(&backend, "/a", "");
    let mut connection = h2::Connection::open(address).await;
    let request = http::Request::get("http://f.example.com/b");
    let answer = connection.send(request.body(h2::empty()).unwrap()).await;
    assert_eq!(answer.unwrap().status(), 200);
    assert_seen(&backend, "/b", "");
    // A request with both is refused, so that no proxy can route it by the other one.
    let both = http::Request::get("http://f.example.com/b").header("host", "g.example.com");
    let answer = connection.send(both.body(h2::empty()).unwrap()).await;
    assert_eq!(answer.unwrap().status(), 400);

    // No function is served by path, inside or outside of the domain.
    for host in [
        "example.com",
        "a.f.example.com",
        "127.0.0.1",
        "[::1]:80",
        "g.example.com",
    ] {
        let answer = get(address, host, "/f/").await;
        assert_eq!(answer.status, 404, "{host}");
        assert_eq!(answer.problem("type"), "urn:faasw:problem:unknown-function");
    }
    for host in ["127.0.0.1", "example.com", "other.test"] {
        assert_eq!(get(address, host, "/healthz").await.body, "ok\n", "{host}");
    }
    // An HTTP/1.0 client need not send a host.
    let old = raw::send(address, b"GET /f/ HTTP/1.0\r\n\r\n").await;
    assert_eq!(old.status, 404);
    assert!(backend.take_seen().is_empty());
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_outside_of_the_domain_are_served_if_enabled() {
    let backend = FakeBackend::default();
    let builder = common::builder().domain(host("example.com")).paths(true);
    let node = common::start_on(builder, &backend).await;
    let address = node.address().unwrap();
    assert_eq!(get(address, "127.0.0.1", "/f/x").await.status, 200);
    assert_seen(&backend, "/x", "/f");
    assert_eq!(get(address, "example.com", "/f/x").await.status, 404);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_belongs_to_one_function_across_versions_and_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let backend = FakeBackend::default();
    let builder = || common::builder().data_dir(folder.path());
    let node = common::start_on(builder(), &backend).await;
    let address = node.address().unwrap();
    let serves = async |name: &str| {
        let answer = get(address, "shop.test", "/q/b").await;
        if answer.status == 200 {
            assert_seen(&backend, "/q/b", "");
        }
        let owner = answer.status == 200;
        let mut has = None;
        for listed in node.list() {
            let function = node.inspect(listed.name.as_str()).await.unwrap().function;
            if function.options.hosts().contains(&host("shop.test")) {
                has = Some(function.name);
            }
        }
        assert_eq!(owner, has.is_some());
        has.is_some_and(|owner| owner.as_str() == name)
    };
    assert!(!serves("a").await);
    assert_eq!(
        deploy(&node, "a", &["shop.test", "www.shop.test"])
            .await
            .unwrap(),
        1
    );
    assert!(serves("a").await);
    assert_eq!(get(address, "www.shop.test", "/").await.status, 200);
    backend.take_seen();
    // Functions are also served by path, at hosts that belong to no function; a function's own host
    // serves no other.
    assert_eq!(get(address, "127.0.0.1", "/a/").await.status, 200);
    backend.take_seen();
    assert_eq!(get(address, "shop.test", "/f/").await.status, 200);
    assert_seen(&backend, "/f/", "");

    let taken = deploy(&node, "b", &["x.test", "SHOP.test."])
        .await
        .unwrap_err();
    assert!(matches!(taken, DeployError::HostTaken { .. }), "{taken}");
    assert!(
        taken
            .to_string()
            .contains("shop.test belongs to the function a"),
        "{taken}"
    );
    assert_eq!(get(address, "x.test", "/a/").await.status, 200);
    assert_seen(&backend, "/", "/a");

    // Once its next version does not have the host, another function may take it, and then a
    // rollback fails.
    assert_eq!(deploy(&node, "a", &[]).await.unwrap(), 2);
    assert!(!serves("a").await);
    assert_eq!(deploy(&node, "b", &["shop.test"]).await.unwrap(), 1);
    assert!(serves("b").await);
    let error = node.rollback("a", Some(1)).await.unwrap_err();
    assert!(
        matches!(
            &error,
            RollbackError::NotReady(DeployError::HostTaken { .. })
        ),
        "{error}"
    );
    assert!(serves("b").await);
    node.shutdown().await;
    drop(node);

    let node = builder()
        .start_on(std::sync::Arc::new(backend.clone()))
        .await
        .unwrap();
    let address = node.address().unwrap();
    assert_eq!(get(address, "shop.test", "/a/b").await.status, 200);
    assert_seen(&backend, "/a/b", "");
    node.remove("b").await.unwrap();
    assert_eq!(get(address, "shop.test", "/a/b").await.status, 200);
    assert_seen(&backend, "/b", "/a");
    node.rollback("a", Some(1)).await.unwrap();
    assert_eq!(get(address, "shop.test", "/a/b").await.status, 200);
    assert_seen(&backend, "/a/b", "");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_concurrent_deployments_gets_the_host() {
    let node = common::node().await;
    for round in 0..20 {
        let name = format!("h{round}.test");
        let hosts = [name.as_str()];
        let both = tokio::join!(deploy(&node, "a", &hosts), deploy(&node, "b", &hosts));
        assert!(both.0.is_ok() != both.1.is_ok(), "{both:?}");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_of_the_domain_cannot_be_claimed() {
    let builder = common::builder().domain(host("example.com"));
    let node = common::start(builder).await;
    for name in [
        "f.example.com",
        "g.example.com",
        "a.b.example.com",
        "example.com",
    ] {
        let error = deploy(&node, "g", &[name]).await.unwrap_err();
        assert!(matches!(error, DeployError::HostOfDomain { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_assigns_and_lists_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let module = folder.path().join("shop.wasm");
    std::fs::write(&module, "module").unwrap();
    let module = module.to_str().unwrap();
    let run = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_faasw"))
            .args(words)
            .env("FAASW_DATA_DIR", folder.path())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, ..) = run(&["deploy", module, "--host", "Shop.test", "--host", "b.test"]);
    assert_eq!(code, Some(0));
    let (_, shown, _) = run(&["inspect", "shop"]);
    assert!(
        shown.contains("host           b.test\n                 shop.test\n"),
        "{shown}"
    );
    let (code, _, said) = run(&["deploy", module, "--name", "other", "--host", "b.test"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("b.test belongs to the function shop"),
        "{said}"
    );
    let (code, _, said) = run(&["deploy", module, "--host", "bücher.test"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("xn--"), "{said}");
    node.shutdown().await;
}

/// Lets the function `f` send these fields. Returns the response as a client of this host and path
/// receives it.
async fn sent(address: SocketAddr, host: &str, path: &str, fields: &[(&str, &str)]) -> RawResponse {
    let body: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name}\x1f{value}"))
        .collect();
    let body = body.join("\x1e");
    let text = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: \
         {}\r\n\r\n{body}",
        body.len()
    );
    raw::send(address, text.as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_at_a_path_controls_only_that_path() {
    let node = common::node().await;
    deploy(&node, "own", &["own.test"]).await.unwrap();
    let address = node.address().unwrap();
    let fields = [
        ("Set-Cookie", "sid=1; Path=/; Domain=example.com; Secure"),
        ("set-cookie", "__Host-sid=1; Path=/; Secure"),
        ("SET-COOKIE", "b=2"),
        ("Service-Worker-Allowed", "/"),
        ("Clear-Site-Data", "\"*\""),
        ("NEL", "{}"),
        ("x-other", "1"),
    ];
    let cookies = |answer: &RawResponse| -> Vec<String> {
        let all = answer.headers.iter();
        all.filter(|(name, _)| name == "set-cookie")
            .map(|(_, value)| value.clone())
            .collect()
    };
    let shared = sent(address, "h", "/f/respond", &fields).await;
    assert_eq!(shared.status, 200);
    assert_eq!(
        cookies(&shared),
        ["sid=1; Path=/f/; Secure", "b=2; Path=/f/"]
    );
    for name in ["service-worker-allowed", "clear-site-data", "nel"] {
        assert_eq!(shared.header(name), None);
    }
    assert_eq!(shared.header("x-other"), Some("1"));

    let own = sent(address, "own.test", "/respond", &fields).await;
    assert_eq!(
        cookies(&own),
        [
            "sid=1; Path=/; Secure",
            "__Host-sid=1; Path=/; Secure",
            "b=2"
        ]
    );
    assert_eq!(own.header("service-worker-allowed"), Some("/"));

    // The node does not change responses for an embedding program, which has an origin of its own.
    let request = http::Request::post("/respond").body("set-cookie\x1fa=b; Path=/".to_owned());
    let answer = node.invoke("f", request.unwrap()).await;
    assert_eq!(answer.headers()["set-cookie"], "a=b; Path=/");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_service_worker_is_served_outside_of_the_functions() {
    let node = common::node().await;
    let address = node.address().unwrap();
    let script = "Service-Worker: script\r\n";
    for (path, status) in [("/f", 403), ("/f?x", 403), ("/f/", 200), ("/f/sw.js", 200)] {
        let answer = raw::request(address, "GET", path, script, "").await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(raw::get(address, path).await.status, 200);
    }
    node.shutdown().await;
}

//! A node that warms instances before a request for their function arrives (`--min-warm`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::{fs, net::SocketAddr, path::Path};

use common::raw;
use e2e::{
    Bench, file, limits,
    process::{Running, descendants, told},
    until,
};
use faasw::{FunctionOptions, Node};

/// A node with a data directory and without zygotes, so that every microVM is an instance.
struct Program {
    running: Running,
    address: SocketAddr,
}

impl Program {
    fn start(data_dir: &Path, options: &[&str]) -> Self {
        let usual = ["--timing", "--zygotes", "0"];
        let mut running = Running::serving(data_dir, &[&usual, options].concat());
        let address = running.address();
        Self { running, address }
    }

    /// Returns the number of processes that are microVMs.
    fn sandboxes(&self) -> usize {
        let is_sandbox = |pid: &u32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim_end() == "faasw-sandbox")
        };
        let all = descendants(self.running.child.id());
        all.iter().filter(|pid| is_sandbox(pid)).count()
    }

    /// Returns the kind of instance that served a request of the function, as the node reports it.
    fn served(&self, name: &str) -> String {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let asking = "x-faasw-timing: 1\r\n";
        let path = format!("/{name}/");
        let answer = runtime.block_on(raw::request(self.address, "GET", &path, asking, ""));
        assert_eq!(answer.status, 200, "{answer:?}");
        let timing = answer.header("server-timing").unwrap();
        let (_, served) = timing.split_once("served;desc=\"").unwrap();
        served.split('"').next().unwrap().to_owned()
    }
}

/// Returns how many instances are warm, as the node reports it.
fn warm(data_dir: &Path) -> u64 {
    let stats: serde_json::Value =
        serde_json::from_str(&told(&["stats", "--json"], data_dir)).unwrap();
    stats["microvms"]["warm"].as_u64().unwrap()
}

/// Deploys a version that differs from others in its environment.
fn deploy(version: &str, data_dir: &Path) {
    let module = data_dir.join("hello.wasm");
    fs::write(&module, file("tests/fixtures/wat/hello.wasm")).unwrap();
    let module = module.to_str().unwrap();
    let environment = format!("VERSION={version}");
    told(&["deploy", module, "--env", &environment], data_dir);
}

fn instances_are_there_from_deployment_to_removal() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path();
    let node = Program::start(data_dir, &["--min-warm", "3"]);
    deploy("1", data_dir);
    until("three are warm", || warm(data_dir) == 3);
    assert_eq!(node.sandboxes(), 3);
    assert_eq!(node.served("hello"), "ready");

    // A version has its own instances before it replaces another one.
    deploy("2", data_dir);
    assert_eq!(node.served("hello"), "ready");
    until("the others are gone", || {
        warm(data_dir) == 3 && node.sandboxes() == 3
    });
    // A version that was deployed before waits for its instances only briefly.
    told(&["rollback", "hello"], data_dir);
    until("three are warm of that", || {
        let served = node.served("hello");
        warm(data_dir) == 3 && node.sandboxes() == 3 && ["ready", "warm"].contains(&&*served)
    });

    told(&["rm", "hello"], data_dir);
    until("none is left", || {
        warm(data_dir) == 0 && node.sandboxes() == 0
    });
    assert_eq!(node.running.stop("TERM"), Some(0));
}

fn a_node_that_starts_has_them_before_any_request() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path();
    let node = Program::start(data_dir, &[]);
    deploy("1", data_dir);
    assert_eq!(warm(data_dir), 0);
    assert_eq!(node.running.stop("TERM"), Some(0));
    let node = Program::start(data_dir, &["--min-warm", "2"]);
    until("two are warm", || warm(data_dir) == 2);
    assert_eq!(node.served("hello"), "ready");
    assert_eq!(node.running.stop("TERM"), Some(0));
}

fn what_does_not_fit_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path();
    let node = Program::start(data_dir, &["--min-warm", "5", "--max-warm", "2"]);
    deploy("1", data_dir);
    node.running.said("--max-warm");
    until("two are warm", || warm(data_dir) == 2);
    deploy("2", data_dir);
    until("two are warm again", || {
        warm(data_dir) == 2 && node.sandboxes() == 2
    });
    let said = node.running.stderr();
    assert_eq!(
        said.matches("there is no room to keep").count(),
        1,
        "{said}"
    );
    assert_eq!(node.running.stop("TERM"), Some(0));
}

fn a_deployment_goes_on_when_who_asked_leaves_while_its_instances_are_made() {
    let bench = Bench::start(Node::builder().min_warm(64), limits());
    let module = file("tests/fixtures/wat/hello.wasm");
    bench.deploy("f", &module, FunctionOptions::default());
    let (node, options) = (
        bench.node.clone(),
        FunctionOptions::default().env("VERSION", "2"),
    );
    let deploying = bench
        .runtime()
        .spawn(async move { node.deploy("f", module, options).await });
    until("instances of both versions were made", || {
        let seeds = bench.node.tree().into_iter();
        seeds
            .filter(|seed| seed.name == "f" && seed.forks > 0)
            .count()
            == 2
    });
    deploying.abort();
    until("the second serves", || bench.node.list()[0].version == 2);
    bench.end();
}

fn main() {
    e2e::main(tests![
        instances_are_there_from_deployment_to_removal,
        a_node_that_starts_has_them_before_any_request,
        what_does_not_fit_is_said_once,
        a_deployment_goes_on_when_who_asked_leaves_while_its_instances_are_made,
    ]);
}

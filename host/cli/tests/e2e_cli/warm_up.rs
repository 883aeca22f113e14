//! Warm-up requests from the command line: a path, a method and a path, a file.

use std::fs;

use crate::{e2e::process::Running, good, run};

const PROBE: &str = "tests/fixtures/http-probe.wasm";

pub fn warm_up_requests_come_from_files_too() {
    let data = tempfile::tempdir().unwrap();
    let state = data.path().join("state");
    let node = Running::start(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        state.to_str().unwrap(),
    ]);
    node.said("ready on ");
    let from = |name: &str, text: &str| {
        let file = data.path().join(name);
        fs::write(&file, text).unwrap();
        format!("@{}", file.to_str().unwrap())
    };
    let deploy = |requests: &[&str]| {
        let requests = requests.iter().flat_map(|text| ["--warmup-request", *text]);
        let words: Vec<&str> = ["deploy", PROBE, "--name", "f"]
            .into_iter()
            .chain(requests)
            .collect();
        run(&words, &state)
    };
    let count = || good(run(&["invoke", "f", "--path", "/count"], &state));
    let order = from(
        "order.http",
        "POST /count\r\ncontent-type: text/plain\r\n\r\nübc",
    );
    good(deploy(&["/count", &order, "PUT /count"]));
    assert_eq!(count(), "4\n");
    let inspected = good(run(&["inspect", "f"], &state));
    let told = "by GET /count, POST /count, PUT /count whenever its seed is made";
    assert!(inspected.contains(told), "{inspected}");

    let none = from("none.http", "\n\n");
    let missing = format!("@{}", data.path().join("missing").to_str().unwrap());
    let panics = from("panics.http", "GET /panic\n\n");
    for (request, code, told) in [
        (none.as_str(), 2, "--warmup-request"),
        (missing.as_str(), 2, missing.trim_start_matches('@')),
        (panics.as_str(), 1, "the warm-up request GET /panic: "),
    ] {
        let refused = deploy(&["/count", request]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{said}");
        assert!(said.contains(told), "{said}");
    }
    assert_eq!(count(), "4\n");
    assert_eq!(node.stop("TERM"), Some(0));
}

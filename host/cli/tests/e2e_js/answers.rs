//! A script's answers and errors, as clients and the operator receive them.

use std::process::Stdio;

use super::deploy;
use crate::e2e::{
    BENCH,
    process::{Running, faasw, get, stdout_of},
};

/// A script whose error text contains a secret, as drivers of databases do.
const LEAK: &str = "export default { async fetch(request, env) { \
     throw new Error(`cannot reach postgres://app:${env.PW}@10.0.0.7/db`); } };";

pub fn the_text_of_a_thrown_error_reaches_only_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("leak.js");
    std::fs::write(&script, LEAK).unwrap();
    let data_dir = folder.path().join("data");
    let mut node = Running::serving(&data_dir, &[]);
    let address = node.address();
    let script = script.to_str().unwrap();
    stdout_of(&["deploy", script, "-e", "PW=hunter2"], &data_dir);

    let answer = get(address, "/leak/");
    assert_eq!(answer.status, 502, "{answer:?}");
    let all = format!("{:?} {}", answer.headers, answer.body);
    assert!(
        !all.contains("hunter2") && !all.contains("leak.js"),
        "{all}"
    );
    assert_eq!(answer.problem("type"), "urn:faasw:problem:function-error");
    // The response contains the request's ID, and the log has the reason with that ID.
    let id = answer.problem("request_id");
    let log = stdout_of(&["logs", "leak", "-n", "100"], &data_dir);
    let mut lines = log.lines().filter(|line| line.contains(&id));
    assert!(lines.any(|line| line.contains("hunter2")), "{id}: {log}");

    let invoked = faasw(&["invoke", "leak"])
        .env("FAASW_DATA_DIR", &data_dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8(invoked.stdout).unwrap();
    assert!(shown.contains("hunter2"), "{shown}");
    assert_eq!(node.stop("TERM"), Some(0));

    let mut node = Running::serving(&data_dir, &["--verbose-errors"]);
    let answer = get(node.address(), "/leak/");
    assert!(answer.problem("detail").contains("hunter2"), "{answer:?}");
    assert_eq!(node.stop("TERM"), Some(0));
}

pub fn a_304_keeps_its_content_length() {
    deploy(
        "tagged",
        r#"export default { fetch(request) {
            const fields = { etag: '"v7"', "content-length": "1234" };
            switch (new URL(request.url).pathname) {
                case "/304": return new Response(null, { status: 304, headers: fields });
                case "/204": return new Response(null, { status: 204, headers: fields });
                default: return new Response("x".repeat(1234), { headers: fields });
            }
        } }"#,
    );
    for (path, status, length) in [
        ("/tagged/304", 304, Some("1234")),
        ("/tagged/204", 204, None),
        ("/tagged/", 200, Some("1234")),
    ] {
        let answer = BENCH.get(path);
        let seen = (answer.status, answer.header("content-length"));
        assert_eq!(seen, (status, length), "{answer:?}");
        assert_eq!(answer.header("etag"), Some("\"v7\""));
        let bytes = if status == 200 { 1234 } else { 0 };
        assert_eq!(answer.bytes.len(), bytes, "{path}");
    }
}

//! The permissions and options that an artifact requests.

use faasw::Limits;

use crate::{
    program::{Desk, module, reference},
    registry::Registry,
};

/// Pushes an artifact that requests many permissions.
fn push(desk: &Desk, registry: &Registry) -> String {
    let file = desk.write("a.wasm", module("one"));
    let tag = reference(registry, "a:v1");
    desk.done(&[
        "push",
        &file,
        &tag,
        "-e",
        "A=theirs",
        "-e",
        "B=theirs",
        "--config",
        "k=theirs",
        "--timeout",
        "2s",
        "--memory",
        "512",
        "--allow-outbound",
        "https://theirs.test",
        "--allow-outbound",
        "http://self",
        "--secret",
        "key",
        "--kv",
        "users",
        "--host",
        "theirs.test",
    ]);
    format!("oci://{tag}")
}

pub async fn requests_of_an_artifact_need_accept() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let from = push(&desk, &registry);
    let told = desk.refused(&["deploy", &from]);
    for word in [
        "https://theirs.test",
        "http://self",
        "secret key",
        "kv users",
        "host theirs.test",
        "memory 536870912",
        "--accept hosts,kv,limits,outbound,secrets",
    ] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert!(!desk.done(&["ls"]).contains("a "));

    desk.done(&["deploy", &from, "--accept", "none"]);
    let function = desk.inspected("a");
    assert_eq!(function["limits"]["first_byte_us"], 2_000_000);
    assert_eq!(
        (
            &function["memory"],
            &function["options"]["configuration"]["k"]
        ),
        (&(128 << 20).into(), &"theirs".into())
    );
    for nothing in ["outbound", "hosts", "secrets", "stores"] {
        let found = function["options"]
            .get(nothing)
            .and_then(|list| list.as_array().map(Vec::len));
        assert!(
            found.is_none_or(|count| count == 0),
            "{nothing}: {function}"
        );
    }

    let output = desk.faasw(&["deploy", &from, "--accept", "outbound,limits"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("not granted: host theirs.test, kv users, secret key"),
        "{told}"
    );
    let function = desk.inspected("a");
    assert_eq!(function["options"]["outbound"].as_array().unwrap().len(), 2);
    assert_eq!(function["memory"], 512 << 20);

    desk.done(&["deploy", &from, "--accept", "all"]);
    assert_eq!(desk.inspected("a")["options"]["hosts"][0], "theirs.test");
}

/// The node decides which limits are high, and may have been started with lower ones.
pub async fn limits_above_the_nodes_need_accept() {
    let mut limits = Limits::default();
    limits.memory = 16 << 20;
    let (desk, registry) = (Desk::with(limits).await, Registry::open());
    let file = desk.write("a.wasm", module("one"));
    let tag = reference(&registry, "a:v1");
    desk.done(&["push", &file, &tag, "--memory", "64"]);
    let from = format!("oci://{tag}");
    let told = desk.refused(&["deploy", &from]);
    assert!(told.contains("memory 67108864"), "{told}");
    desk.done(&["deploy", &from, "--accept", "none"]);
    assert_eq!(desk.inspected("a")["memory"], 16 << 20);
    desk.done(&["deploy", &from, "--accept", "limits"]);
    assert_eq!(desk.inspected("a")["memory"], 64 << 20);
}

pub async fn the_command_line_wins() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let from = push(&desk, &registry);
    desk.done(&[
        "deploy",
        &from,
        "-e",
        "A=ours",
        "--config",
        "k=ours",
        "--memory",
        "64",
        "--timeout",
        "3s",
        "--allow-outbound",
        "https://ours.test",
        "--secret",
        "ours",
        "--kv",
        "ours",
        "--host",
        "ours.test",
    ]);
    let function = desk.inspected("a");
    assert_eq!(
        (
            &function["memory"],
            &function["options"]["configuration"]["k"]
        ),
        (&(64 << 20).into(), &"ours".into())
    );
    assert_eq!(function["environment"].as_array().unwrap().len(), 2);
    assert_eq!(
        function["options"]["outbound"],
        serde_json::json!(["https://ours.test"])
    );
    assert_eq!(
        (
            &function["options"]["secrets"],
            &function["options"]["hosts"]
        ),
        (
            &serde_json::json!(["ours"]),
            &serde_json::json!(["ours.test"])
        )
    );
    assert_eq!(function["limits"]["first_byte_us"], 3_000_000);
}

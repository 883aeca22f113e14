//! The program in a container of its own, `faasw pod`: its ports, probes, end and output, and how
//! it uses its container's limits.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../e2e/mod.rs"]
mod e2e;

mod group;
mod user;

use std::{
    fs::OpenOptions,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::Command,
    time::{Duration, Instant},
};

use e2e::{
    pod::{self, HELLO, Pod, event, words},
    process::{Running, faasw, get},
    until,
};
use group::{
    a_limit_that_is_too_small_reports_the_needed_memory,
    a_seed_that_leaves_too_little_memory_is_rejected, an_idle_pod_returns_the_memory_of_its_start,
    full_memory_ends_requests_and_never_the_pod, full_memory_ends_requests_if_microvms_have_groups,
};
use serde_json::Value;
use user::{
    a_runtime_that_forbids_namespaces_is_reported,
    an_unprivileged_user_serves_on_a_read_only_file_system,
};

/// A module that takes seconds to compile.
const LARGE: &str = "examples/go-http/go-http.wasm";

fn connects(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

fn no_connections_are_accepted_before_the_seed_is_ready() {
    let pod = Pod::begin(faasw(&words(LARGE, &[])));
    assert_eq!(pod.probe("/livez"), (200, "ok\n".to_owned()));
    assert_eq!(pod.probe("/readyz"), (503, "starting\n".to_owned()));
    assert!(!connects(pod.address), "a probe by TCP was lied to");
    assert_eq!(get(pod.health, "/metrics").status, 200);
    assert_eq!(get(pod.health, "/").status, 404);
    event(&pod.node, "ready");
    assert_eq!(pod.probe("/readyz"), (200, "ok\n".to_owned()));
    assert_eq!(get(pod.address, "/").status, 200);
    assert_eq!(pod.node.stop("TERM"), Some(0));
}

fn the_function_has_all_paths() {
    let pod = Pod::of("tests/fixtures/http-probe.wasm", &["--drain-delay", "0"]);
    for path in ["/healthz", "/readyz", "/http-probe/x", "/"] {
        let answer = get(pod.address, path);
        assert!(
            !answer.body.contains("unknown-function") && answer.body != "ok\n",
            "{path}: {answer:?}"
        );
    }
    let text = get(pod.health, "/metrics").body;
    assert!(text.contains("function=\"http-probe\""), "{text}");
    assert_eq!(pod.node.stop("TERM"), Some(0));
}

/// The first process of a container receives only the signals that it has handlers for. The program
/// installs these before anything that takes long, such as reading its file.
fn a_signal_that_comes_early_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("hello.wasm");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let file = fifo.to_str().unwrap();
    let up = ["up", file, "--listen", "127.0.0.1:0"];
    for words in [words(file, &[]), up.to_vec()] {
        let mut node = Running::start_command(faasw(&words));
        // The open returns when the program has opened the file, and waits for its content.
        let mut content = OpenOptions::new().write(true).open(&fifo).unwrap();
        node.signal("TERM");
        content.write_all(&e2e::file(HELLO)).unwrap();
        drop(content);
        let (code, said) = (node.ended(), node.stderr());
        assert!(
            code == Some(0) && !said.contains("ready"),
            "{code:?} {said}"
        );
    }
}

fn a_stopping_pod_serves_during_its_drain_delay() {
    // The pod serves for as long as this test runs.
    let pod = Pod::of(HELLO, &["--drain-delay", "1h"]);
    let mut kept = TcpStream::connect(pod.address).unwrap();
    pod.node.signal("TERM");
    until("it is not ready any more", || {
        pod.probe("/readyz") == (503, "stopping\n".to_owned())
    });
    // The pod serves on an existing connection, and on new ones.
    kept.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    kept.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // A later request on this connection could come too late, so the response closes it.
    let answer = answer.to_ascii_lowercase();
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert_eq!(get(pod.address, "/").status, 200);
    assert_eq!(pod.probe("/livez").0, 200);
    assert_eq!(pod.node.stop("INT"), Some(1));
}

fn a_stopping_pod_ends_after_its_drain_delay() {
    let delay = Duration::from_secs(2);
    let Pod { node, address, .. } = Pod::of(HELLO, &["--drain-delay", "2s"]);
    let told = Instant::now();
    node.signal("TERM");
    until("it accepts no more", || !connects(address));
    assert!(told.elapsed() >= delay);
    let mut node = node;
    until("it ends", || node.child.try_wait().unwrap().is_some());
    assert_eq!(node.child.wait().unwrap().code(), Some(0));
}

fn a_second_signal_ends_the_pod_at_once() {
    let pod = Pod::of(HELLO, &["--drain-delay", "1h"]);
    pod.node.signal("TERM");
    until("it is not ready any more", || pod.probe("/readyz").0 == 503);
    assert_eq!(pod.node.stop("INT"), Some(1));
}

/// This holds before the seed exists, too.
fn a_signal_during_the_start_ends_the_pod() {
    let pod = Pod::begin(faasw(&words(LARGE, &["--drain-delay", "1h"])));
    assert_eq!(pod.node.stop("TERM"), Some(0));
}

fn the_port_comes_from_the_environment_or_an_option() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut command = faasw(&[
        "pod",
        HELLO,
        "--log-format",
        "json",
        "--health-listen",
        "127.0.0.1:0",
    ]);
    command.env("PORT", port.to_string());
    let (pod, _) = Pod::start(command);
    assert_eq!(pod.address.port(), port);
    assert!(pod.address.ip().is_unspecified());
    assert_eq!(get(([127, 0, 0, 1], port).into(), "/").status, 200);
    assert_eq!(pod.node.stop("TERM"), Some(0));

    let mut command = faasw(&words(HELLO, &[]));
    command.env("PORT", port.to_string());
    let (pod, _) = Pod::start(command);
    assert_ne!(pod.address.port(), port);
    drop(pod);
    for senseless in ["", "http", "65536", "-1"] {
        let output = faasw(&["pod", HELLO]).env("PORT", senseless).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

/// Each line that the function writes is a record on the pod's own streams, and can forge no other.
fn the_output_of_the_function_is_the_output_of_the_pod() {
    let forged = "{\"stream\":\"node\",\"text\":\"forged\"}";
    let function = format!(
        r#"(module
          (import "wasi_snapshot_preview1" "fd_write"
            (func $fd_write (param i32 i32 i32 i32) (result i32)))
          (memory (export "memory") 1)
          (data (i32.const 0) "\20\00\00\00\14\00\00\00")
          (data (i32.const 8) "\80\00\00\00\{length:02x}\00\00\00")
          (data (i32.const 32) "Content-Type: a/b\0a\0ax")
          (data (i32.const 128) "\1b[2Jone\0d\0a{text}\0a")
          (func (export "_start")
            (drop (call $fd_write (i32.const 2) (i32.const 8) (i32.const 1) (i32.const 16)))
            (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"#,
        length = 9 + forged.len() + 1,
        text = forged.replace('"', "\\22"),
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("writes.wat");
    std::fs::write(&file, function).unwrap();
    let pod = Pod::of(file.to_str().unwrap(), &["--drain-delay", "0"]);
    assert_eq!(get(pod.address, "/").status, 200);
    pod.node.said("forged");
    let said = pod.node.stderr();
    let records: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no record: {line}")))
        .collect();
    assert!(!said.contains('\u{1b}'));
    let written = records.iter().filter(|record| record["stream"] == "err");
    let texts: Vec<_> = written
        .map(|record| record["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].contains("one") && texts[1] == forged, "{texts:?}");
    assert!(records.iter().all(|record| record["stream"] != "node"));
    assert_eq!(pod.node.stop("TERM"), Some(0));
}

fn main() {
    let no_user = pod::no_user();
    let no_groups = group::cannot();
    let everywhere = tests![
        no_connections_are_accepted_before_the_seed_is_ready,
        the_function_has_all_paths,
        a_signal_that_comes_early_is_not_lost,
        a_stopping_pod_serves_during_its_drain_delay,
        a_stopping_pod_ends_after_its_drain_delay,
        a_second_signal_ends_the_pod_at_once,
        a_signal_during_the_start_ends_the_pod,
        the_port_comes_from_the_environment_or_an_option,
        the_output_of_the_function_is_the_output_of_the_pod,
        a_runtime_that_forbids_namespaces_is_reported,
    ];
    let as_user = tests![an_unprivileged_user_serves_on_a_read_only_file_system];
    let in_groups = tests![
        a_limit_that_is_too_small_reports_the_needed_memory,
        a_seed_that_leaves_too_little_memory_is_rejected,
        full_memory_ends_requests_if_microvms_have_groups,
        an_idle_pod_returns_the_memory_of_its_start,
    ];
    let as_user_in_groups = tests![full_memory_ends_requests_and_never_the_pod];
    e2e::main_of(&[
        (everywhere, None),
        (as_user, no_user),
        (in_groups, no_groups),
        (as_user_in_groups, no_user.or(no_groups)),
    ]);
}

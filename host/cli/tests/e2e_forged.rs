//! Names and output of hostile modules cannot forge a log line, control a terminal, or pass through
//! a problem body unescaped. The tests use real modules in real microVMs, and check every place
//! where such text appears.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::{
    path::Path,
    process::{Output, Stdio},
};

use e2e::process::{Running, faasw, get};

/// A line in the format of the node's own log, with the event that is never a false alarm.
const FORGED: &str = "2026-01-01T00:00:00.000000Z ERROR faasw_pool::spawner: a process made a \
     forbidden system call and was ended";

/// Characters that a terminal, a log or its reader would interpret, with Wat's escapes.
const HOSTILE: &str = r"\u{2028}\u{2029}\u{85}\u{202e}\u{2066}\u{200b}\u{feff}\1b[2J\0d\07\u{9b}";

/// Returns a text that tries all of this at once.
fn hostile() -> String {
    format!(r"x\0a{FORGED}{HOSTILE}\0a{FORGED}\0a")
}

/// Returns a command that writes the text, and then traps in a function of that name.
fn traps() -> String {
    let text = hostile();
    format!(
        r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "{text}")
  (data (i32.const 0) "\10\00\00\00\40\01\00\00")
  (func $named (@name "{text}") unreachable)
  (func (export "_start")
    (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
    (call $named)))"#
    )
}

/// Returns a command whose start function has that name and traps.
fn does_not_start() -> String {
    let text = hostile();
    format!(
        r#"(module
  (memory (export "memory") 1)
  (func $named (@name "{text}") unreachable)
  (func (export "_start"))
  (start $named))"#
    )
}

/// Returns a command with an import of that name.
fn imports() -> String {
    let text = hostile();
    format!(r#"(module (import "{text}" "{text}" (func)) (func (export "_start")))"#)
}

/// Asserts that no line of `text` is forged, and that it contains no control characters.
fn is_clean(what: &str, text: &str) {
    let escaped = text.escape_debug();
    assert!(
        text.contains("\\n2026") || text.contains("2026-01-01"),
        "{what} does not have the text at all: {escaped}"
    );
    for line in text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']) {
        assert!(!line.starts_with("2026-01-01"), "{what}: {escaped}");
    }
    let obeyed = |character: char| {
        character.is_control() && !matches!(character, '\n' | '\t')
            || "\u{2028}\u{2029}\u{202e}\u{2066}\u{200b}\u{feff}".contains(character)
    };
    assert!(!text.contains(obeyed), "{what}: {escaped}");
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(format!("{name}.wat"));
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Runs a test with a node for each format of the log.
fn on_nodes(test: impl Fn(&mut Running, std::net::SocketAddr, &Path)) {
    for format in ["text", "json"] {
        let folder = tempfile::tempdir().unwrap();
        let words = [
            "serve",
            "--data-dir",
            folder.path().to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
            "--log-format",
            format,
            // Problem bodies then contain text of the function, too.
            "--verbose-errors",
            "--json",
        ];
        let mut node = Running::start(&words);
        let address = node.address();
        test(&mut node, address, folder.path());
        assert_eq!(node.stop("TERM"), Some(0));
    }
}

fn run(words: &[&str], data_dir: &Path) -> Output {
    faasw(words)
        .env("FAASW_DATA_DIR", data_dir)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn a_function_that_traps_forges_no_line_anywhere() {
    on_nodes(|node, address, folder| {
        let file = write(folder, "forge", &traps());
        let run = |words: &[&str]| run(words, folder);
        assert!(run(&["deploy", &file]).status.success());

        let answer = get(address, "/forge/");
        assert_eq!(answer.status, 502);
        is_clean("the problem body", &answer.body);
        is_clean(
            "the problem's detail",
            &format!(" {}", answer.problem("detail")),
        );
        node.said("request failed");
        is_clean("the node's log", &node.stderr());

        is_clean("logs", &stdout(&run(&["logs", "forge"])));
        let json = stdout(&run(&["logs", "forge", "--json"]));
        is_clean("logs --json", &json);
        let lines: serde_json::Value = serde_json::from_str(&json).unwrap();
        let streams: Vec<_> = lines.as_array().unwrap().iter().collect();
        assert!(
            streams.iter().any(|line| line["stream"] == "err")
                && streams.iter().any(|line| line["stream"] == "node"),
            "{json}"
        );
        let file = std::fs::read_to_string(folder.join("logs/forge.log")).unwrap();
        is_clean("the log's file", &file);
        is_clean("invoke", &stdout(&run(&["invoke", "forge"])));
        is_clean(
            "invoke --json",
            &stdout(&run(&["invoke", "forge", "--json"])),
        );
    });
}

fn a_rejected_module_forges_no_line_anywhere() {
    on_nodes(|node, _, folder| {
        for (name, text) in [("start", does_not_start()), ("imports", imports())] {
            let file = write(folder, name, &text);
            let refused = run(&["deploy", &file], folder);
            assert_eq!(refused.status.code(), Some(1), "{refused:?}");
            is_clean("deploy", &stderr(&refused));
        }
        node.said("deployment failed");
        is_clean("the node's log", &node.stderr());
    });
}

fn a_function_forges_no_line_of_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "forge", &traps());
    let mut up = Running::start(&["up", &file, "--listen", "127.0.0.1:0", "--json"]);
    let address = up.address();
    assert_eq!(get(address, "/forge/").status, 502);
    up.said("forge | the function trapped: ");
    is_clean("up", &up.stderr());
    assert_eq!(up.stop("TERM"), Some(0));

    let file = write(folder.path(), "start", &does_not_start());
    let refused = run(&["up", &file, "--listen", "127.0.0.1:0"], folder.path());
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    is_clean("up of what does not start", &stderr(&refused));
}

fn main() {
    e2e::main(tests![
        a_function_that_traps_forges_no_line_anywhere,
        a_rejected_module_forges_no_line_anywhere,
        a_function_forges_no_line_of_up,
    ]);
}

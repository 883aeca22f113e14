//! Tests the program's client commands against a node without VMs, and its errors where it cannot
//! run a node.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "cli/terminal.rs"]
mod terminal;

#[path = "../../tests/common/mod.rs"]
mod common;

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

fn faasw(words: &[&str], data_dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_faasw"))
        .args(words)
        .env("FAASW_DATA_DIR", data_dir)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn deploy_ls_invoke_logs_and_rm_work_on_the_running_node() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let module = folder.path().join("My_Func.wasm");
    std::fs::write(&module, "draws").unwrap();
    let run = |words: &[&str]| faasw(words, folder.path());

    let module = module.to_str().unwrap();
    let deployed = run(&[
        "deploy",
        module,
        "--env",
        "A=b",
        "--memory",
        "64",
        "--timeout",
        "2s",
    ]);
    assert_eq!(code(&deployed), 0, "{deployed:?}");
    assert!(
        stdout(&deployed).starts_with("my-func: version 1, compiled in "),
        "{deployed:?}"
    );
    assert!(
        stdout(&deployed).contains("--freeze after-init"),
        "{deployed:?}"
    );

    let listed = stdout(&run(&["ls"]));
    assert!(
        listed.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.starts_with(&[
                "my-func",
                "1",
                "http-component",
                "64.0",
                "MiB",
                "2.00",
                "s",
                "before-init",
            ])
        }),
        "{listed}"
    );
    let listed: serde_json::Value = serde_json::from_str(&stdout(&run(&["ls", "--json"]))).unwrap();
    assert_eq!(listed[1]["name"], "my-func");
    // Fields that may be long are elsewhere.
    assert!(listed[1].get("environment").is_none(), "{listed}");
    let details = stdout(&run(&["inspect", "my-func", "--json"]));
    let details: serde_json::Value = serde_json::from_str(&details).unwrap();
    assert_eq!(details["function"]["environment"][0], "A");

    let words = [
        "invoke", "my-func", "--path", "/p?q", "-H", "X-A: 1", "-d", "data", "-v",
    ];
    let invoked = run(&words);
    assert_eq!(code(&invoked), 0);
    assert!(stdout(&invoked).starts_with("POST /p?q "), "{invoked:?}");
    assert!(stdout(&invoked).ends_with("\n\ndata"), "{invoked:?}");
    assert!(stderr(&invoked).starts_with("200 OK\n"), "{invoked:?}");
    assert!(
        stderr(&invoked).contains("\nserver-timing: queue;dur="),
        "{invoked:?}"
    );

    let said = stderr(&run(&["invoke", "my-func", "--path", "/log", "-v"]));
    let mut fields = said.lines().filter_map(|line| line.split_once(": "));
    let (_, id) = fields.find(|(name, _)| *name == "x-request-id").unwrap();
    let logs = stdout(&run(&["logs", "my-func", "-n", "1"]));
    let last = format!(" 42/{id} out hello log\n");
    assert!(logs.ends_with(&last), "{logs}");

    assert_eq!(code(&run(&["rm", "my-func"])), 0);
    let gone = run(&["rm", "my-func"]);
    assert_eq!(code(&gone), 1);
    assert!(
        stderr(&gone).contains("no function named \"my-func\""),
        "{gone:?}"
    );
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_comes_from_files_and_options() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let module = file("configured.wasm", "draws");
    let toml = file("c.toml", "colour = 'red'\nurl = \"http://a\"\n");
    let json = file("c.json", r#"{"colour": "green", "Key": "a\nb"}"#);
    let deploy = |words: &[&str]| {
        let words = [&["deploy", &module], words].concat();
        faasw(&words, folder.path())
    };

    let words = ["--config", "url=http://b?c=d", "--config-file", &toml];
    let deployed = deploy(&[&words, &["--config-file", &json, "--config", "x="][..]].concat());
    assert_eq!(code(&deployed), 0, "{deployed:?}");
    let run = |words: &[&str]| stdout(&faasw(words, folder.path()));
    let found = run(&["invoke", "configured", "--path", "/config"]);
    assert_eq!(found, "Key=a\nb\ncolour=green\nurl=http://b?c=d\nx=\n");
    let shown = run(&["inspect", "configured"]);
    assert!(shown.contains("\n  config         Key=a\\nb\n"), "{shown}");
    assert!(
        shown.contains("\n                 colour=green\n"),
        "{shown}"
    );
    let shown = run(&["inspect", "configured", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let expected = serde_json::json!({
        "Key": "a\nb", "colour": "green", "url": "http://b?c=d", "x": "",
    });
    assert_eq!(shown["function"]["options"]["configuration"], expected);

    let words = [
        "--env",
        "colour=blue",
        "--env-file",
        &toml,
        "--env-file",
        &json,
    ];
    assert_eq!(code(&deploy(&words)), 0);
    let shown = run(&["inspect", "configured", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let names = serde_json::json!(["url", "Key", "colour"]);
    assert_eq!(shown["function"]["environment"], names);

    let large = format!("large={}", "\u{e9}".repeat(8 << 10));
    for (words, part) in [
        (["--config", "a"], "not of the form KEY=VALUE"),
        (["--config", "=a"], "not of the form KEY=VALUE"),
        (["--config-file", &module], "must end in .toml or .json"),
        (["--env-file", &module], "must end in .toml or .json"),
        (
            ["--config", &large],
            "takes 16389 bytes; keys and values take 16384 at most",
        ),
    ] {
        let refused = deploy(&words);
        assert_ne!(code(&refused), 0, "{words:?}");
        assert!(stderr(&refused).contains(part), "{refused:?}");
    }
    // The largest configuration is accepted, however it is escaped.
    let largest = format!("k={}", "\u{1}".repeat((16 << 10) - 1));
    let deployed = deploy(&["--config", &largest]);
    assert_eq!(code(&deployed), 0, "{}", stderr(&deployed));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inspect_rollback_and_stats_report_the_state() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let module = folder.path().join("f.wasm");
    std::fs::write(&module, "draws").unwrap();
    let run = |words: &[&str]| faasw(words, folder.path());
    let deployed = run(&["deploy", module.to_str().unwrap(), "--concurrency", "9"]);
    assert!(
        stdout(&deployed).starts_with("f: version 2, compiled in "),
        "{deployed:?}"
    );
    let shown = stdout(&run(&["inspect", "f"]));
    for part in [
        "f version 2\n",
        "before-init, requested: auto",
        "get-random-bytes: 16 bytes",
        "first byte 10.0 s",
        "under way    0\n",
        "\noptions\n  concurrency    9\n",
        "\n*     2  ",
        "\n      1  ",
    ] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    let shown: serde_json::Value =
        serde_json::from_str(&stdout(&run(&["inspect", "f", "--json"]))).unwrap();
    assert_eq!(shown["versions"][1]["version"], 1);

    let back = run(&["rollback", "f"]);
    assert_eq!(stdout(&back), "f: version 1 serves now\n");
    let back = run(&["rollback", "f"]);
    assert_eq!(code(&back), 1);
    assert!(stderr(&back).contains("f was not rolled back: no version before 1"));
    assert!(stderr(&back).contains("faasw inspect"), "{back:?}");
    let json = stdout(&run(&["rollback", "f", "2", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["version"], 2);

    run(&["invoke", "f"]);
    run(&["invoke", "f", "--path", "/trap"]);
    let stats = stdout(&run(&["stats"]));
    for part in ["f: 1 200, 1 502", "traps: 1 unreachable", "exec ", "250 µs"] {
        assert!(stats.contains(part), "no {part:?} in {stats}");
    }
    let stats: serde_json::Value =
        serde_json::from_str(&stdout(&run(&["stats", "--json"]))).unwrap();
    assert_eq!(stats["by_function"]["f"]["requests"]["200"], 1);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_follow_until_interrupted() {
    use std::io::{BufRead as _, BufReader};

    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let mut following = Command::new(env!("CARGO_BIN_EXE_faasw"))
        .args(["logs", "f", "-f", "--json"])
        .env("FAASW_DATA_DIR", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    // The earlier lines come first, then new ones.
    assert!(next().contains("initialising"));
    let (_, line) = tokio::join!(
        node.invoke("f", http::Request::get("/log").body(String::new()).unwrap()),
        async { next() }
    );
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&line["text"], &line["stream"], &line["instance"]),
        (&"hello log".into(), &"out".into(), &42.into())
    );
    following.kill().unwrap();
    following.wait().unwrap();
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_status_shows_in_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let run = |words: &[&str]| faasw(words, folder.path());
    let teapot = run(&["invoke", "f", "--path", "/teapot"]);
    assert_eq!(
        (code(&teapot), stdout(&teapot).as_str()),
        (22, "short and stout")
    );
    let trapped = run(&["invoke", "f", "--path", "/trap", "--json"]);
    assert_eq!(code(&trapped), 22);
    let printed: serde_json::Value = serde_json::from_str(&stdout(&trapped)).unwrap();
    assert_eq!(printed["status"], 502);
    assert!(printed["body"].as_str().unwrap().contains("trap_here"));
    assert_eq!(code(&run(&["invoke", "nothere"])), 22);
    assert_eq!(code(&run(&["invoke", "f", "--path", "nope"])), 2);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_module_is_named_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let module = folder.path().join("m.wasm");
    std::fs::write(&module, "bad import").unwrap();
    let refused = faasw(&["deploy", module.to_str().unwrap()], folder.path());
    assert_eq!(code(&refused), 1);
    assert!(
        stderr(&refused).contains("m was not deployed: the import env::mystery"),
        "{refused:?}"
    );
    let missing = faasw(&["deploy", "/nonexistent/m.wasm"], folder.path());
    assert_eq!(code(&missing), 1);
    assert!(
        stderr(&missing).contains("/nonexistent/m.wasm cannot be read"),
        "{missing:?}"
    );
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn image_commands_without_an_image_or_export_fail() {
    let folder = tempfile::tempdir().unwrap();
    let node = common::node_in(folder.path()).await;
    let run = |words: &[&str]| faasw(words, folder.path());
    let export = folder.path().join("f.faasw");
    let export = export.to_str().unwrap();
    for words in [
        &["image", "inspect", "f"][..],
        &["image", "export", "f", "-o", export],
    ] {
        let output = run(words);
        assert_eq!(code(&output), 1, "{output:?}");
        let said = stderr(&output);
        assert!(said.contains("f has no func-image"), "{said}");
        assert!(said.contains("in a moment"), "{said}");
        assert!(!Path::new(export).exists());
    }
    std::fs::write(export, "no export").unwrap();
    let refused = run(&["image", "import", export]);
    assert_eq!(code(&refused), 1);
    assert!(
        stderr(&refused).contains("not an export of faasw; `faasw image export` makes one"),
        "{refused:?}"
    );
    let missing = run(&["image", "import", "/nonexistent/f.faasw"]);
    assert!(
        stderr(&missing).contains("/nonexistent/f.faasw cannot be read"),
        "{missing:?}"
    );
    let inspected = stdout(&run(&["inspect", "f"]));
    assert!(
        inspected.contains("in memory, without a func-image"),
        "{inspected}"
    );
    node.shutdown().await;
}

#[test]
fn without_a_node_commands_hint_how_to_start_one() {
    let folder = tempfile::tempdir().unwrap();
    for words in [
        &["ls"][..],
        &["rm", "f"],
        &["invoke", "f"],
        &["logs", "f"],
        &["stats"],
        &["inspect", "f"],
        &["rollback", "f"],
        &["image", "inspect", "f"],
        &["image", "export", "f", "-o", "/nonexistent/f"],
        &["image", "import", "/dev/null"],
    ] {
        let output = faasw(words, folder.path());
        assert_eq!(code(&output), 3, "{output:?}");
        let expected = format!("faasw serve --data-dir {}", folder.path().display());
        assert!(stderr(&output).contains(&expected), "{output:?}");
    }
}

#[test]
fn a_wrong_command_line_has_its_own_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    for words in [
        &["up"][..],
        &["up", "a.wasm", "b.wasm", "--name", "x"],
        &["deploy", "__.wasm"],
        &["rm", "Not-A-Name"],
        &["frobnicate"],
    ] {
        assert_eq!(code(&faasw(words, folder.path())), 2, "{words:?}");
    }
}

#[test]
fn help_explains_the_exit_codes() {
    let help = stdout(&faasw(&["--help"], Path::new("/")));
    for line in [
        "3   no node runs",
        "4   this host cannot run microVMs",
        "22  invoke",
    ] {
        assert!(help.contains(line), "{help}");
    }
}

#[test]
fn without_kvm_nothing_runs_and_a_hint_is_given() {
    if Path::new("/dev/kvm").exists() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let module = folder.path().join("m.wat");
    std::fs::write(&module, "(module)").unwrap();
    let data_dir = folder.path().join("data");
    let up = faasw(
        &["up", module.to_str().unwrap(), "--listen", "127.0.0.1:0"],
        &data_dir,
    );
    let serve = faasw(&["serve", "--listen", "127.0.0.1:0"], &data_dir);
    for output in [&up, &serve] {
        assert_eq!(code(output), 4, "{output:?}");
        assert!(stderr(output).contains("/dev/kvm is missing"), "{output:?}");
        assert!(stderr(output).contains("firmware"), "{output:?}");
    }
    assert!(!data_dir.exists());
    let doctor = faasw(&["doctor", "--json"], &data_dir);
    assert_eq!(code(&doctor), 4, "{doctor:?}");
    let report: serde_json::Value = serde_json::from_str(&stdout(&doctor)).unwrap();
    assert!(
        report["failure"].as_str().unwrap().contains("/dev/kvm"),
        "{report}"
    );
}

#[test]
fn scripts_are_prepared_in_a_process_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let deploy = |name: &str, source: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, source).unwrap();
        let done = faasw(&["deploy", path.to_str().unwrap()], folder.path());
        (code(&done), stderr(&done))
    };
    // A complete script fails later, because no node runs.
    let (exit, text) = deploy("app.ts", "export default (a: number) => new Response('a');");
    assert_eq!(exit, 3, "{text}");
    assert!(text.starts_with("app: deploying "), "{text}");
    for (source, expected) in [
        (
            "import 'none';",
            "app.ts:1: the import of \"none\" cannot be resolved",
        ),
        ("\nlet a: = 1;", "app.ts:2:8: "),
        (
            &*"(".repeat(8 << 20),
            "app.ts cannot be parsed: it is nested too deeply",
        ),
    ] {
        let (exit, text) = deploy("app.ts", source);
        assert_eq!(exit, 1, "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

//! The program as users run it, on real KVM: `up`, `serve` and its clients, `doctor`, restarts, and
//! what remains when a node dies.

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

mod files;
mod log_flood;
mod scripts;
mod warm_up;
mod watching;

use std::{
    io::{Read as _, Write as _},
    path::Path,
    process::{Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use common::{give_up, time_limit};
use e2e::process::{Running, descendants, faasw, get, is_alive};
use files::{a_folder_is_deployed_with_its_function, up_watches_the_folder_of_its_function};
use log_flood::repeated_failures_are_summarised_in_the_nodes_log;
use scripts::{
    a_new_folder_is_a_function, scripts_run_by_engines_that_the_command_adds,
    up_runs_a_folder_and_watches_it, up_runs_the_readmes_first_example,
};
use warm_up::warm_up_requests_come_from_files_too;
use watching::{
    up_continues_without_a_reader_of_its_output, up_deploys_a_file_again_when_it_changes,
};

fn run(words: &[&str], data_dir: &Path) -> Output {
    faasw(words)
        .env("FAASW_DATA_DIR", data_dir)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn good(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn up_prints_a_command_line_that_works() {
    let words = [
        "up",
        "examples/hello/hello.wasm",
        "tests/fixtures/wat/hello.wasm",
        "--listen",
        "127.0.0.1:0",
    ];
    // Two files of one name are refused before anything starts.
    let refused = faasw(&words).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");

    let mut up = Running::start(&["up", "examples/hello/hello.wasm", "--listen", "127.0.0.1:0"]);
    let line = up.line();
    let url = line
        .strip_prefix("  curl http://")
        .and_then(|rest| rest.strip_suffix("/hello/\n"));
    let address = url
        .unwrap_or_else(|| panic!("{line:?} {}", up.stderr()))
        .parse()
        .unwrap();
    assert!(
        get(address, "/hello/")
            .body
            .starts_with("Hello from a microVM")
    );
    assert_eq!(get(address, "/healthz").status, 200);
    // The arguments for other commands are printed to be pasted, too.
    up.said("--data-dir ");
    let said = up.stderr();
    let words = said
        .lines()
        .find_map(|line| line.strip_prefix("  faasw logs hello -f "));
    let words: Vec<&str> = words.unwrap().split(' ').collect();
    let run = |command: &str| {
        let command: Vec<&str> = [command].into_iter().chain(words.iter().copied()).collect();
        good(faasw(&command).output().unwrap())
    };
    assert!(run("ls").contains("\nhello "), "{}", run("ls"));
    assert!(run("stats").contains("hello"));
    let folder = Path::new(words[1]);
    assert!(folder.join("faasw.sock").exists());
    for text in [
        "hello: compiling ",
        "hello: making the seed",
        "hello: version 1, compiled in ",
        "ready on ",
    ] {
        up.said(text);
    }
    let folder = folder.to_owned();
    assert_eq!(up.stop("TERM"), Some(0));
    assert!(!folder.exists());
}

fn up_shows_the_functions_logs() {
    let words = [
        "up",
        "tests/fixtures/cgi-probe.wasm",
        "--name",
        "probe",
        "--listen",
        "127.0.0.1:0",
        "--json",
    ];
    let mut up = Running::start(&words);
    let address = up.address();
    assert_eq!(get(address, "/probe/stderr").status, 200);
    up.said("probe | stderr first");
    // A developer sees at once why the request failed.
    let trapped = get(address, "/probe/trap").problem("detail");
    assert!(trapped.contains("trap_unreachable"), "{trapped}");
    up.said("probe | the function trapped: ");
    let mut rest = String::new();
    up.signal("INT");
    up.stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert_eq!(up.child.wait().unwrap().code(), Some(0));
}

fn a_used_port_is_an_error_with_a_hint() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = faasw(&["up", "tests/fixtures/wat/hello.wasm", "--listen", &address])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains(&address) && stderr.contains("--listen 127.0.0.1:0"),
        "{stderr}"
    );
}

fn a_file_that_is_not_deployed_ends_up() {
    let words = [
        "up",
        "tests/fixtures/wat/unknown-import.wasm",
        "--listen",
        "127.0.0.1:0",
    ];
    let output = faasw(&words).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("unknown-import was not deployed"),
        "{stderr}"
    );
    assert!(stderr.contains("mystery_call"), "{stderr}");
}

fn serve_and_its_clients_work_and_functions_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().to_str().unwrap();
    let words = [
        "serve",
        "--data-dir",
        data_dir,
        "--listen",
        "127.0.0.1:0",
        "--json",
    ];
    let mut node = Running::start(&words);
    node.address();
    let run = |words: &[&str]| run(words, folder.path());
    let deployed = good(run(&[
        "deploy",
        "tests/fixtures/cgi-probe.wasm",
        "-e",
        "A=b",
        "--timeout",
        "600s",
    ]));
    assert!(
        deployed.starts_with("cgi-probe: version 1, compiled in "),
        "{deployed}"
    );

    let invoked = run(&[
        "invoke",
        "cgi-probe",
        "--path",
        "/env?x",
        "-d",
        "data",
        "-v",
    ]);
    let stderr = String::from_utf8_lossy(&invoked.stderr).into_owned();
    assert!(stderr.contains("server-timing: queue;dur="), "{stderr}");
    let seen = good(invoked);
    for line in [
        "A=b",
        "REQUEST_METHOD=POST",
        "QUERY_STRING=x",
        "CONTENT_LENGTH=4",
    ] {
        assert!(
            seen.lines().any(|other| other == line),
            "no {line} in {seen}"
        );
    }
    assert_eq!(
        run(&["invoke", "cgi-probe", "--path", "/trap"])
            .status
            .code(),
        Some(22)
    );
    let log = good(run(&["logs", "cgi-probe"]));
    assert!(log.contains("trap_unreachable"), "{log}");

    // A second node on the same directory reports which process holds it.
    let pid = node.child.id().to_string();
    let second = run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&second.stderr).contains(&pid),
        "{second:?}"
    );

    node.stop("KILL");
    assert_eq!(run(&["ls"]).status.code(), Some(3));
    let mut node = Running::start(&words);
    let address = node.address();
    assert_eq!(get(address, "/cgi-probe/count").body, "1\n");
    let seen = good(run(&["invoke", "cgi-probe", "--path", "/env"]));
    assert!(seen.contains("A=b\n"), "{seen}");
    let listed: serde_json::Value = serde_json::from_str(&good(run(&["ls", "--json"]))).unwrap();
    assert_eq!(listed[0]["timeout_us"], 600_000_000_u64);
    good(run(&["rm", "cgi-probe"]));
    assert_eq!(get(address, "/cgi-probe/count").status, 404);
    assert_eq!(node.stop("INT"), Some(0));
}

fn requests_in_progress_end_on_their_version_and_before_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().to_str().unwrap();
    let words = [
        "serve",
        "--data-dir",
        data_dir,
        "--listen",
        "127.0.0.1:0",
        "--timeout",
        "600s",
        "--idle-client",
        "600s",
        "--log-format",
        "json",
        "--json",
    ];
    let mut node = Running::start(&words);
    let address = node.address();
    let run = |words: &[&str]| good(run(words, folder.path()));
    let probe = ["deploy", "tests/fixtures/http-probe.wasm", "--name", "f"];
    let inspected = |member: &str| {
        let text = run(&["inspect", "f", "--json"]);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()[member].clone()
    };
    let sleeping = |time: Duration| {
        let millis = time.as_millis();
        let asking = thread::spawn(move || get(address, &format!("/f/sleep/{millis}")));
        while inspected("under_way") == 0 {
            thread::yield_now();
        }
        asking
    };
    run(&probe);
    // The request is under way until the test sends the rest of its body.
    let post =
        "POST /f/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\na";
    let mut old = e2e::start_request(address, post);
    e2e::until("it is under way", || inspected("under_way") == 1);
    run(&["deploy", "tests/fixtures/wat/hello.wasm", "--name", "f"]);
    assert_eq!(get(address, "/f/sleep/1").body, "hello from wat\n");
    let stats: serde_json::Value = serde_json::from_str(&run(&["stats", "--json"])).unwrap();
    assert!(stats["microvms"]["busy"].as_u64() >= Some(1), "{stats}");
    let takes = &stats["zygotes"]["takes"];
    assert!(takes["hit"].as_u64() >= Some(1), "{stats}");
    let groups = &stats["groups"];
    let used = groups["count"]["used"].as_u64();
    assert!(groups["free_max"] == 0 || used >= Some(1), "{stats}");
    old.write_all(b"b").unwrap();
    let mut answer = Vec::new();
    old.read_to_end(&mut answer).unwrap();
    let answers = common::raw::parse_all(&answer, &[]);
    assert_eq!((answers.len(), answers[0].status), (1, 200));
    assert!(answers[0].body.ends_with("ab"), "{answers:?}");
    let stats: serde_json::Value = serde_json::from_str(&run(&["stats", "--json"])).unwrap();
    assert_eq!(stats["by_function"]["f"]["requests"]["200"], 2);
    assert_eq!(inspected("function")["version"], 2);
    assert_eq!(
        inspected("function")["limits"]["first_byte_us"],
        600_000_000
    );

    // The rollback to the first version survives a restart.
    assert_eq!(run(&["rollback", "f"]), "f: version 1 serves now\n");
    // Less than the 10 s that a node waits when it stops.
    let last = sleeping(time_limit(3).min(Duration::from_secs(5)));
    node.signal("TERM");
    assert_eq!(last.join().unwrap().status, 200);
    let begun = Instant::now();
    while is_alive(node.child.id()) {
        assert!(begun.elapsed() < give_up(), "{}", node.stderr());
        thread::sleep(Duration::from_millis(20));
    }
    for line in node.stderr().lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(event["level"].is_string(), "{line}");
    }
    assert!(node.stderr().contains(r#""message":"rolled back""#));

    let mut node = Running::start(&words);
    let address = node.address();
    assert_eq!(get(address, "/f/sleep/1").status, 200);
    assert_ne!(get(address, "/f/").body, "hello from wat\n");
    assert_eq!(node.stop("TERM"), Some(0));
}

fn a_killed_node_leaves_no_processes() {
    // Not SEGV: the standard library's handler swallows one that was sent.
    for signal in ["KILL", "ABRT", "TERM"] {
        let words = [
            "up",
            "tests/fixtures/wat/loop.wasm",
            "--listen",
            "127.0.0.1:0",
            "--timeout",
            "1h",
            "--json",
        ];
        let mut up = Running::start(&words);
        let address = up.address();
        // This request keeps one instance busy; the other instances are idle.
        let busy = thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async move {
                let stream = tokio::net::TcpStream::connect(address).await.unwrap();
                let request = b"GET /loop/ HTTP/1.1\r\nHost: h\r\n\r\n";
                stream.writable().await.unwrap();
                stream.try_write(request).unwrap();
                stream
            })
        });
        let _stream = busy.join().unwrap();
        thread::sleep(time_limit(1) / 4);
        let below = descendants(up.child.id());
        assert!(!below.is_empty(), "no sandboxes");
        up.signal(signal);
        if signal == "TERM" {
            // After the first TERM the node waits for the request; after the second it does not.
            thread::sleep(time_limit(1) / 4);
            up.signal(signal);
        }
        up.child.wait().unwrap();
        let begun = Instant::now();
        let left = |pids: &[u32]| {
            pids.iter()
                .copied()
                .filter(|pid| is_alive(*pid))
                .collect::<Vec<_>>()
        };
        while !left(&below).is_empty() {
            assert!(
                begun.elapsed() < give_up(),
                "{signal}: left {:?} of {below:?}",
                left(&below)
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn wizen_replaces_a_file_atomically() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("ready.wasm");
    let to = out.to_str().unwrap();
    let wizen = |words: &[&str]| {
        let words: Vec<&str> = ["wizen"].iter().chain(words).copied().collect();
        faasw(&words).output().unwrap()
    };
    let drawing = "host/cli/tests/e2e/initialised.wat";
    good(wizen(&["host/cli/tests/e2e/wizened.wat", "-o", to]));
    let made = std::fs::read(&out).unwrap();
    assert_eq!(made, e2e::file("tests/fixtures/wizened/module.wasm"));
    for (words, told) in [
        (
            &["examples/hello-wat/hello.wat", "-o", to][..],
            "wizer-initialize",
        ),
        (&[drawing, "-o", to, "--init", "traps"], "unreachable"),
        (
            &[drawing, "-o", to, "--init", "prepare-by-chance"],
            "--allow-draws",
        ),
        (
            &[drawing, "-o", "/nonexistent/out", "--init", "prepare"],
            "/nonexistent",
        ),
    ] {
        let refused = wizen(words);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains(told), "{said}");
    }
    assert_eq!(std::fs::read(&out).unwrap(), made);
    let allowed = ["--init", "prepare-by-chance", "--allow-draws"];
    good(wizen(&[&[drawing, "-o", to][..], &allowed].concat()));
    assert_ne!(std::fs::read(&out).unwrap(), made);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

fn doctor_runs_a_guest() {
    let folder = tempfile::tempdir().unwrap();
    let text = good(run(&["doctor"], folder.path()));
    for line in [
        "KVM",
        "ok    compile",
        "ok    make the seed",
        "ok    answer a request",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let report: serde_json::Value =
        serde_json::from_str(&good(run(&["doctor", "--json"], folder.path()))).unwrap();
    assert!(report["failure"].is_null(), "{report}");
}

fn main() {
    e2e::main(tests![
        up_prints_a_command_line_that_works,
        up_shows_the_functions_logs,
        a_used_port_is_an_error_with_a_hint,
        a_file_that_is_not_deployed_ends_up,
        serve_and_its_clients_work_and_functions_survive_a_kill,
        up_deploys_a_file_again_when_it_changes,
        up_continues_without_a_reader_of_its_output,
        requests_in_progress_end_on_their_version_and_before_the_node,
        a_killed_node_leaves_no_processes,
        wizen_replaces_a_file_atomically,
        scripts_run_by_engines_that_the_command_adds,
        a_new_folder_is_a_function,
        up_runs_a_folder_and_watches_it,
        up_runs_the_readmes_first_example,
        warm_up_requests_come_from_files_too,
        a_folder_is_deployed_with_its_function,
        up_watches_the_folder_of_its_function,
        repeated_failures_are_summarised_in_the_nodes_log,
        doctor_runs_a_guest,
    ]);
}

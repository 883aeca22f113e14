//! The program with its key-value stores on a real Redis server: confined, and used by functions in
//! real microVMs. Without `redis-server` the tests are ignored.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;
#[path = "../../tests/redis/server.rs"]
mod server;

use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use e2e::{
    data_dir::TestDataDir,
    process::{Running, descendants, faasw, get},
    until,
};
use server::Server;

const PROBE: &str = "tests/fixtures/kv-probe.wasm";
const PASSWORD: &str = "hush-dd7b1c";

/// Starts a node that gets the address of its Redis server from the environment.
fn serve(data_dir: &Path, url: &str, options: &[&str]) -> (Running, SocketAddr) {
    let data_dir = data_dir.to_str().unwrap();
    let words = [
        "serve",
        "--data-dir",
        data_dir,
        "--listen",
        "127.0.0.1:0",
        "--json",
    ];
    let mut command = faasw(&[&words[..], options].concat());
    command.env("FAASW_KV_SERVER", url);
    let mut node = Running::start_command(command);
    let address = node.address();
    (node, address)
}

fn named(pid: u32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
}

/// Returns the process that connects to the server for a node.
fn dialer(node: &Running) -> Option<u32> {
    let mut all = descendants(node.child.id()).into_iter();
    all.find(|pid| named(*pid, "faasw-dial"))
}

fn two_nodes_share_a_server_across_its_restart() {
    let mut redis = Server::with(&["--requirepass", PASSWORD]);
    let url = format!("redis://:{PASSWORD}@localhost:{}/1", redis.port);
    let places = [TestDataDir::new(), TestDataDir::new()];
    let nodes: Vec<_> = places
        .iter()
        .map(|place| serve(place.folder.path(), &url, &[]))
        .collect();
    for place in &places {
        place.says(&["deploy", PROBE, "--name", "kept", "--kv", "users"]);
    }
    for (round, (_, address)) in nodes.iter().enumerate() {
        let counted = get(*address, "/kept/draft2/default/increment/n/1");
        assert_eq!(counted.body, (round + 1).to_string());
    }
    assert_eq!(
        get(nodes[0].1, "/kept/spin/users/set/alice/here").body,
        "done"
    );
    assert_eq!(
        get(nodes[1].1, "/kept/draft/users/get/alice").body,
        "some here"
    );
    places[1].says(&["kv", "set", "kept", "by hand", "a value"]);
    assert_eq!(places[0].says(&["kv", "get", "kept", "by hand"]), "a value");
    assert_eq!(places[0].says(&["kv", "ls", "kept"]), "by hand\nn\n");
    let stores = places[0].json(&["kv", "ls"]);
    assert_eq!(stores, places[1].json(&["kv", "ls"]));

    redis.kill();
    let away = "error Error::Other(\"the key-value store cannot be reached\")";
    assert_eq!(get(nodes[0].1, "/kept/draft2/default/get/n").body, away);
    let refused = places[1].refused(&["kv", "get", "kept", "n"]);
    let shown = format!("redis://localhost:{}/1", redis.port);
    assert!(refused.contains(&shown), "{refused}");
    redis.run();
    for (round, (node, address)) in nodes.iter().enumerate() {
        let counted = get(*address, "/kept/draft2/default/increment/n/1");
        assert_eq!(counted.body, (round + 3).to_string());
        node.said("unavailable to functions");
    }
    assert_eq!(places[0].says(&["kv", "rm", "kept", "--all"]), "");
    assert_eq!(places[1].says(&["kv", "ls", "kept"]), "");

    // The password appears in no output, and the connecting process does not know it.
    for (place, (node, _)) in places.iter().zip(&nodes) {
        let told = [
            node.stderr(),
            refused.clone(),
            place.says(&["inspect", "kept"]),
        ];
        assert!(told.iter().all(|told| !told.contains(PASSWORD)), "{told:?}");
        let pid = dialer(node).unwrap();
        for file in ["cmdline", "environ"] {
            // The user of the process may not read these files; root may.
            let Ok(bytes) = fs::read(format!("/proc/{pid}/{file}")) else {
                continue;
            };
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(PASSWORD), "{file}: {text}");
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let has = |line: &str| status.lines().any(|each| each.replace('\t', " ") == line);
        assert!(
            has("CapEff: 0000000000000000") && has("NoNewPrivs: 1"),
            "{status}"
        );
        assert!(has("Seccomp: 2"), "{status}");
    }
    for (node, _) in nodes {
        let pid = dialer(&node).unwrap();
        assert_eq!(node.stop("TERM"), Some(0));
        until("what connects is gone", || !named(pid, "faasw-dial"));
    }
}

fn a_socket_and_a_password_in_a_file() {
    let redis = Server::with(&["--requirepass", PASSWORD, "--unixsocketperm", "700"]);
    let place = TestDataDir::new();
    let password = place.path("password");
    fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    let options = ["--kv-password-file", password.to_str().unwrap()];
    let data_dir = place.path("data");
    let (node, address) = serve(&data_dir, &redis.url(), &options);
    let deployed = faasw(&["deploy", PROBE, "--name", "kept"])
        .env("FAASW_DATA_DIR", &data_dir)
        .output()
        .unwrap();
    assert!(deployed.status.success(), "{deployed:?}");
    assert_eq!(get(address, "/kept/draft2/default/increment/n/7").body, "7");
    let cut = redis.tell_with_password(PASSWORD, "CLIENT KILL TYPE normal SKIPME yes");
    assert!(cut.starts_with(':'), "{cut}");
    assert_eq!(get(address, "/kept/draft2/default/get/n").body, "some 7");
    assert_eq!(node.stop("TERM"), Some(0));
}

fn a_node_does_not_start_without_its_server() {
    let place = TestDataDir::new();
    let data_dir = place.folder.path().to_str().unwrap();
    let words = ["serve", "--data-dir", data_dir, "--listen", "127.0.0.1:0"];
    for (url, code, told) in [
        (
            "redis://:hush@127.0.0.1:1",
            1,
            "redis://127.0.0.1:1 cannot be reached",
        ),
        (
            "redis://:hush@store.invalid",
            1,
            "redis://store.invalid:6379 cannot be reached",
        ),
        (
            "unix:///nowhere/redis.sock",
            1,
            "unix:///nowhere/redis.sock cannot be reached",
        ),
        (
            "http://:hush@127.0.0.1",
            2,
            "--kv-server is not of the form",
        ),
    ] {
        let by_option = [&words[..], &["--kv-server", url]].concat();
        for mut command in [faasw(&by_option), with_environment(&words, url)] {
            let output = command.output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(code), "{said}");
            assert!(said.contains(told) && !said.contains("hush"), "{said}");
        }
    }
}

fn with_environment(words: &[&str], url: &str) -> Command {
    let mut command = faasw(words);
    command.env("FAASW_KV_SERVER", url);
    command
}

fn a_node_that_loses_its_dialer_ends() {
    let redis = Server::start();
    let place = TestDataDir::new();
    let (mut node, _) = serve(place.folder.path(), &redis.tcp(), &[]);
    let pid = dialer(&node).unwrap().to_string();
    let killed = Command::new("kill").args(["-KILL", &pid]).status();
    assert!(killed.unwrap().success());
    until("the node ends", || node.child.try_wait().unwrap().is_some());
    node.said("faasw-dial, which connects to the key-value server, has ended");
}

fn main() {
    let tests = tests![
        two_nodes_share_a_server_across_its_restart,
        a_socket_and_a_password_in_a_file,
        a_node_does_not_start_without_its_server,
        a_node_that_loses_its_dialer_ends,
    ];
    e2e::main_where(server::is_missing(), tests);
}

//! The daemon's confinement, seen from outside: the kernel's information about its threads, and
//! that other processes do what it cannot do any more, or that it is not done.

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
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use common::give_up;
use e2e::process::{Running, descendants, faasw, get, is_alive};

/// `CAP_NET_BIND_SERVICE`, as the kernel prints capability sets.
const BIND: &str = "0000000000000400";
const NOTHING: &str = "0000000000000000";
const SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];

fn serve(data_dir: &Path, listen: &str) -> (Running, SocketAddr) {
    let data_dir = data_dir.to_str().unwrap();
    let mut node = Running::start(&[
        "serve",
        "--data-dir",
        data_dir,
        "--listen",
        listen,
        "--json",
    ]);
    let address = node.address();
    (node, address)
}

/// Deploys the smallest function, and sends a request to it.
fn hello(data_dir: &Path, address: SocketAddr) {
    let deployed = faasw(&["deploy", "tests/fixtures/wat/hello.wasm"])
        .env("FAASW_DATA_DIR", data_dir)
        .output()
        .unwrap();
    assert!(deployed.status.success(), "{deployed:?}");
    assert_eq!(get(address, "/hello/").status, 200);
}

type Status = BTreeMap<String, String>;

fn fields(text: &str) -> Status {
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(field).collect()
}

fn status(pid: u32) -> Status {
    fields(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap())
}

/// Returns the kernel's status of every thread.
fn threads(pid: u32) -> Vec<Status> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread that ends in the meantime has no status.
    let texts = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("status")));
    texts
        .map_while(Result::ok)
        .map(|text| fields(&text))
        .collect()
}

/// Returns a living child of a process. Names do not identify children, because a fork has its
/// parent's name until it sets its own.
fn child(parent: u32) -> Option<u32> {
    descendants(parent).into_iter().find(|pid| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        fields(&text).get("PPid") == Some(&parent.to_string()) && is_alive(*pid)
    })
}

fn launcher(node: u32) -> Option<u32> {
    child(node)
}

fn spawner(node: u32) -> Option<u32> {
    child(launcher(node)?)
}

fn kill(pid: u32) {
    let killed = Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status();
    assert!(killed.unwrap().success());
}

fn is_root() -> bool {
    status(std::process::id())["Uid"].starts_with("0\t")
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < give_up(), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asserts that every thread of a node has the capabilities `kept`, and no others.
fn is_confined(pid: u32, kept: &str) {
    let threads = threads(pid);
    assert!(threads.len() > 2, "a node has workers: {threads:?}");
    for thread in threads {
        assert_eq!((&*thread["NoNewPrivs"], &*thread["Seccomp"]), ("1", "2"));
        for set in SETS {
            let expected = match set {
                "CapPrm" | "CapEff" => kept,
                // An unprivileged process cannot reduce this set, and cannot gain anything by it.
                "CapBnd" if !is_root() => continue,
                _ => NOTHING,
            };
            assert_eq!(thread[set], expected, "{set} of {thread:?}");
        }
    }
}

fn every_thread_of_a_serving_node_is_confined() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address) = serve(folder.path(), "127.0.0.1:0");
    let pid = node.child.id();
    is_confined(pid, NOTHING);
    // Threads that start later, for deployments and files, are confined, too.
    hello(folder.path(), address);
    is_confined(pid, NOTHING);
    assert_eq!(node.stop("TERM"), Some(0));

    let mut up = Running::start(&[
        "up",
        "tests/fixtures/wat/hello.wasm",
        "--listen",
        "127.0.0.1:0",
        "--json",
    ]);
    let address = up.address();
    assert_eq!(get(address, "/hello/").status, 200);
    is_confined(up.child.id(), NOTHING);
    assert_eq!(up.stop("INT"), Some(0));
}

fn the_launcher_keeps_its_rights_behind_a_filter() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address) = serve(folder.path(), "127.0.0.1:0");
    hello(folder.path(), address);
    let own = status(std::process::id());
    let pid = node.child.id();
    let both = [launcher(pid), spawner(pid)];
    for (name, pid) in ["launcher", "spawner"].into_iter().zip(both) {
        let status = status(pid.unwrap());
        assert_eq!(
            (&*status["NoNewPrivs"], &*status["Seccomp"]),
            ("1", "2"),
            "{name}"
        );
        if is_root() {
            assert_eq!(status["CapBnd"], own["CapBnd"], "{name}");
        }
    }
    let launcher = launcher(pid).unwrap();
    assert_eq!(status(launcher)["Name"], "faasw-launcher");
    assert_eq!(node.stop("TERM"), Some(0));
    eventually("the launcher ends with its node", || !is_alive(launcher));
}

fn a_privileged_port_keeps_only_its_capability() {
    let folder = tempfile::tempdir().unwrap();
    // An address that no other program here uses.
    let (node, address) = serve(folder.path(), "127.213.77.9:80");
    is_confined(node.child.id(), BIND);
    hello(folder.path(), address);
    assert_eq!(node.stop("TERM"), Some(0));
}

/// Returns the path of the program that helpers are started from, by the launcher's descriptor.
fn helper_program(node: u32) -> PathBuf {
    format!("/proc/{}/fd/4", launcher(node).unwrap()).into()
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Returns the sizes in bytes of the non-empty in-memory files with the compiler that a node and
/// its processes hold.
fn compilers_in_memory(node: u32) -> Vec<u64> {
    let processes = descendants(node).into_iter().chain([node]);
    let files = processes.flat_map(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"));
        files.into_iter().flatten().flatten()
    });
    let is_compiler = |path: &PathBuf| {
        let name = fs::read_link(path).unwrap_or_default();
        name.to_string_lossy().contains("faasw-compiler")
    };
    let paths = files.map(|file| file.path()).filter(is_compiler);
    // A file that was closed in the meantime holds nothing.
    let sizes = paths.filter_map(|path| fs::metadata(path).ok());
    sizes
        .map(|file| file.len())
        .filter(|bytes| *bytes > 0)
        .collect()
}

/// The compiler is most of the program's code, and a node seldom needs it.
fn the_compiler_is_in_memory_only_during_compilation() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address) = serve(folder.path(), "127.0.0.1:0");
    let program = helper_program(node.child.id());
    let name = fs::read_link(&program).unwrap();
    if !name.to_string_lossy().starts_with("/memfd:") {
        println!("NO FILES IN MEMORY are executed here: {name:?}");
        return;
    }
    assert_eq!(size(&program), 0);
    // Several deployments may need it at once.
    let deploying = ["a", "b", "c"].map(|name| {
        let data_dir = folder.path().to_owned();
        thread::spawn(move || {
            let words = ["deploy", "tests/fixtures/wat/hello.wat", "--name", name];
            let deployed = faasw(&words).env("FAASW_DATA_DIR", data_dir).output();
            assert!(deployed.as_ref().unwrap().status.success(), "{deployed:?}");
        })
    });
    for deploying in deploying {
        deploying.join().unwrap();
    }
    for name in ["a", "b", "c"] {
        assert_eq!(get(address, &format!("/{name}/")).body, "hello from wat\n");
    }
    assert_eq!(size(&program), 0);
    eventually("the compiler is in no memory any more", || {
        compilers_in_memory(node.child.id()).is_empty()
    });
    // A new spawner has the compiler, too.
    kill(spawner(node.child.id()).unwrap());
    eventually("a function is deployed by another spawner", || {
        let words = ["deploy", "tests/fixtures/wat/hello.wat", "--name", "d"];
        let deployed = faasw(&words).env("FAASW_DATA_DIR", folder.path()).output();
        deployed.unwrap().status.success()
    });
    assert_eq!(node.stop("TERM"), Some(0));

    // The compiled code is stored, so the compiler is not needed.
    let (node, address) = serve(folder.path(), "127.0.0.1:0");
    assert_eq!(get(address, "/a/").body, "hello from wat\n");
    assert_eq!(size(&helper_program(node.child.id())), 0);
    assert_eq!(node.stop("TERM"), Some(0));
}

fn a_killed_spawner_is_replaced_by_a_working_one() {
    let folder = tempfile::tempdir().unwrap();
    let (node, address) = serve(folder.path(), "127.0.0.1:0");
    hello(folder.path(), address);
    let pid = node.child.id();
    let before = launcher(pid);
    for _ in 0..3 {
        let killed = spawner(pid).unwrap();
        let capabilities = status(killed)["CapEff"].clone();
        kill(killed);
        // The spawner is replaced on demand; an instance that existed before may give the first
        // answer.
        let mut other = killed;
        eventually("the function answers by another spawner", || {
            let answers = get(address, "/hello/").status == 200;
            other = spawner(pid).unwrap_or(killed);
            answers && other != killed
        });
        assert_eq!(status(other)["CapEff"], capabilities);
        // A deployment makes the spawner's processes, too.
        hello(folder.path(), address);
    }
    assert_eq!(launcher(pid), before);
    is_confined(pid, NOTHING);
    assert_eq!(node.stop("TERM"), Some(0));
}

fn a_node_that_loses_its_launcher_reports_it_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (mut node, address) = serve(folder.path(), "127.0.0.1:0");
    hello(folder.path(), address);
    let processes = descendants(node.child.id());
    kill(launcher(node.child.id()).unwrap());
    let mut ended = None;
    eventually("the node ends", || {
        ended = node.child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(1));
    node.said("the launcher, which makes microVMs, has ended");
    eventually("all that it started has ended", || {
        !processes.iter().any(|pid| is_alive(*pid))
    });
}

/// Whether this host can restrict files (`faasw doctor`).
fn has_landlock() -> bool {
    let told = faasw(&["doctor", "--json"]).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let findings = told["findings"].as_array().unwrap();
    let files = findings
        .iter()
        .find(|one| one["what"] == "files of the node");
    files.unwrap()["state"] == "good"
}

/// A watched file becomes a link to a file elsewhere, which the node must not read.
fn a_node_reads_only_files_of_its_own_folders() {
    let has_landlock = has_landlock();
    println!("Landlock: {has_landlock}");
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let hello = String::from_utf8(e2e::file("tests/fixtures/wat/hello.wat")).unwrap();
    let version = |number| hello.replace("hello from wat\\n", &format!("hello number {number}\\n"));
    let file = own.path().join("f.wat");
    fs::write(&file, version(1)).unwrap();
    let mut up = Running::start(&[
        "up",
        file.to_str().unwrap(),
        "--watch",
        "--listen",
        "127.0.0.1:0",
        "--json",
    ]);
    let address = up.address();
    assert_eq!(get(address, "/f/").body, "hello number 1\n");

    // Replaces the file as editors do: by renaming another file onto it.
    let next = own.path().join("next");
    fs::write(&next, version(2)).unwrap();
    fs::rename(&next, &file).unwrap();
    eventually("the new file serves", || {
        get(address, "/f/").body == "hello number 2\n"
    });

    let elsewhere = other.path().join("f.wat");
    fs::write(&elsewhere, version(3)).unwrap();
    symlink(&elsewhere, &next).unwrap();
    fs::rename(&next, &file).unwrap();
    if has_landlock {
        up.said("Permission denied");
        assert_eq!(get(address, "/f/").body, "hello number 2\n");
    } else {
        eventually("the linked file serves", || {
            get(address, "/f/").body == "hello number 3\n"
        })
    }
    assert_eq!(up.stop("INT"), Some(0));
}

/// A node with few rights renames the file of its access log, and creates it anew.
fn a_confined_node_rotates_its_access_log() {
    const FULL: u64 = 64 << 20;
    println!("Landlock: {}", has_landlock());
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    fs::create_dir(&logs).unwrap();
    let (path, old) = (logs.join("access.log"), logs.join("access.log.1"));
    // The file has the largest permitted size, without occupying disk space.
    fs::File::create(&path).unwrap().set_len(FULL).unwrap();
    let options = ["--access-log", path.to_str().unwrap()];
    let mut node = Running::serving(&folder.path().join("data"), &options);
    let address = node.address();
    is_confined(node.child.id(), NOTHING);
    let asks = |target: &str| {
        assert_eq!(get(address, target).status, 404);
        eventually("the request is in a file that has begun with it", || {
            let text = fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            text.starts_with('{') && text.contains(target) && text.lines().count() == 1
        });
    };
    asks("/full/");
    assert_eq!(size(&old), FULL);
    // The new old file replaces the one before.
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(FULL)
        .unwrap();
    asks("/full-again/");
    assert!(fs::read(&old).unwrap().starts_with(b"{"));
    fs::rename(&path, logs.join("taken")).unwrap();
    asks("/taken-away/");
    assert_eq!(
        node.stderr().matches("access log").count(),
        0,
        "{}",
        node.stderr()
    );
    assert_eq!(node.stop("TERM"), Some(0));
}

fn main() {
    // The kernel's settings decide whether other users can have such a port.
    let not_root = (!is_root()).then_some("not root");
    let of_root = tests![a_privileged_port_keeps_only_its_capability];
    let of_all = tests![
        every_thread_of_a_serving_node_is_confined,
        the_launcher_keeps_its_rights_behind_a_filter,
        the_compiler_is_in_memory_only_during_compilation,
        a_killed_spawner_is_replaced_by_a_working_one,
        a_node_that_loses_its_launcher_reports_it_and_ends,
        a_node_reads_only_files_of_its_own_folders,
        a_confined_node_rotates_its_access_log,
    ];
    e2e::main_of(&[(of_root, not_root), (of_all, None)]);
}

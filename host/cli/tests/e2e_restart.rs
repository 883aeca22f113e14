//! A node that starts again with functions that take long to initialise: seeds that requests wait
//! for are not made behind those that no request waits for.

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
    collections::BTreeSet,
    net::{SocketAddr, TcpListener},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use common::{give_up, time_limit};
use e2e::process::{Running, descendants, get, stdout_of};

/// A node with a data directory.
struct Node {
    running: Running,
    address: SocketAddr,
}

impl Node {
    /// Starts a node without images, because most of these tests are about making seeds anew.
    fn start(data_dir: &Path) -> Self {
        Self::with(data_dir, &["--image-disk", "0"])
    }

    fn with(data_dir: &Path, options: &[&str]) -> Self {
        let mut running = Running::serving(data_dir, options);
        let address = running.address();
        Self { running, address }
    }
}

/// Returns whether a function's seed exists, and whether it is frozen after initialisation.
fn is_ready(name: &str, data_dir: &Path) -> (bool, bool) {
    let text = stdout_of(&["inspect", name, "--json"], data_dir);
    let details: serde_json::Value = serde_json::from_str(&text).unwrap();
    let of = |member: &str| details["function"][member].as_bool().unwrap();
    (of("ready"), of("frozen_after_init"))
}

/// Returns how long the slow functions initialise: long compared with everything else in a test.
/// The first time is enough on a machine without other work. On a busy machine the rest of the test
/// may take as long, which proves nothing, so the test is repeated with the next time. Each is less
/// than the minute that an initialisation may take.
fn slow_times() -> [Duration; 3] {
    [4, 12, 48].map(|seconds| time_limit(seconds).min(Duration::from_secs(50)))
}

/// Returns a function that answers, after a start function that computes for `time`.
fn slow_module(time: Duration) -> String {
    let hello = String::from_utf8(e2e::file("tests/fixtures/wat/hello.wat")).unwrap();
    let import = r#"(memory (export "memory") 1)"#;
    assert!(hello.contains(import));
    let spinning = format!(
        r#"(import "wasi_snapshot_preview1" "clock_time_get"
    (func $now (param i32 i64 i32) (result i32)))
  {import}
  (func $spin (local $end i64)
    (drop (call $now (i32.const 1) (i64.const 0) (i32.const 512)))
    (local.set $end (i64.add (i64.load (i32.const 512)) (i64.const {})))
    (loop $again
      (drop (call $now (i32.const 1) (i64.const 0) (i32.const 512)))
      (br_if $again (i64.lt_u (i64.load (i32.const 512)) (local.get $end)))))
  (start $spin)"#,
        time.as_nanos()
    );
    hello.replace(import, &spinning)
}

/// Makes a data directory with a quick function, and with functions that initialise for `slow`,
/// whose names come before it and after it.
fn deployed(options: &[&str], slow: Duration) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path());
    let file = folder.path().join("slow.wat");
    std::fs::write(&file, slow_module(slow)).unwrap();
    let file = file.to_str().unwrap();
    for name in ["a-slow", "b-slow", "z-slow"] {
        let words = [&["deploy", file, "--name", name], options].concat();
        stdout_of(&words, folder.path());
    }
    stdout_of(
        &["deploy", "tests/fixtures/wat/hello.wat", "--name", "quick"],
        folder.path(),
    );
    assert_eq!(node.running.stop("TERM"), Some(0));
    folder
}

fn a_request_waits_only_for_its_own_seed() {
    let is_sooner = slow_times().into_iter().any(answers_before_slow_ones);
    assert!(is_sooner, "a request waits for other functions' seeds");
}

/// Returns whether a request was answered long before functions that initialise for `slow` had
/// their seeds.
fn answers_before_slow_ones(slow: Duration) -> bool {
    let folder = deployed(&[], slow);
    let began = Instant::now();
    let node = Node::start(folder.path());
    let answer = get(node.address, "/quick/");
    let took = began.elapsed();
    assert_eq!(answer.body, "hello from wat\n");
    // The other functions are far from ready.
    let slow_ones = ["a-slow", "b-slow", "z-slow"];
    let are_ready = slow_ones.map(|name| is_ready(name, folder.path()).0);
    let stats = stdout_of(&["stats", "--json"], folder.path());
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let by_ancestor = &stats["by_function"]["quick"]["served"]["ancestor"];
    println!(
        "{took:?} beside initialisations of {slow:?}: ready {are_ready:?}, {by_ancestor} by an \
         ancestor"
    );
    let is_sooner = took < slow / 2 && !are_ready.contains(&true) && *by_ancestor == 1;
    assert_eq!(node.running.stop("TERM"), Some(0));
    is_sooner
}

fn slow_seeds_are_built_concurrently_and_once() {
    let do_not_add_up = slow_times().into_iter().any(takes_less_than_two);
    assert!(do_not_add_up, "one is made after the other");
}

/// Returns whether requests to two functions that initialise for `slow` are answered in less than
/// twice that time.
fn takes_less_than_two(slow: Duration) -> bool {
    // Less CPU time than the initialisation takes, which is not charged to requests.
    let folder = deployed(&["--cpu-time", "1s"], slow);
    let node = Node::start(folder.path());
    let address = node.address;
    let began = Instant::now();
    // The functions are called in reverse order of their names.
    let asking: Vec<_> = ["z-slow", "b-slow", "z-slow", "z-slow", "b-slow"]
        .map(|name| thread::spawn(move || get(address, &format!("/{name}/"))))
        .into_iter()
        .collect();
    for asked in asking {
        let answer = asked.join().unwrap();
        assert_eq!(answer.body, "hello from wat\n", "{answer:?}");
    }
    let took = began.elapsed();
    println!("{took:?} for two initialisations of {slow:?}");
    // No request waits for this seed; it is made all the same.
    let begun = Instant::now();
    while !is_ready("a-slow", folder.path()).0 {
        assert!(begun.elapsed() < slow + give_up());
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(node.running.stop("TERM"), Some(0));
    took < slow * 2
}

/// Returns what an initialisation of `init-draws` drew.
fn drawn_first(address: SocketAddr, name: &str) -> String {
    let body = get(address, &format!("/{name}/")).body;
    let drawn = body.lines().find(|line| line.starts_with("init-random "));
    drawn.unwrap_or_else(|| panic!("{body}")).to_owned()
}

fn the_freeze_point_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path());
    let module = "tests/fixtures/init-draws.wasm";
    stdout_of(&["deploy", module, "--name", "own"], folder.path());
    let words = [
        "deploy",
        module,
        "--name",
        "shared",
        "--freeze",
        "after-init",
    ];
    stdout_of(&words, folder.path());
    assert_eq!(node.running.stop("TERM"), Some(0));

    let node = Node::start(folder.path());
    // Whether from an ancestor or a seed, every request draws its own value.
    let mut drawn = BTreeSet::new();
    for _ in 0..4 {
        assert!(drawn.insert(drawn_first(node.address, "own")));
    }
    assert!(!is_ready("own", folder.path()).1);
    let begun = Instant::now();
    while !is_ready("shared", folder.path()).0 {
        assert!(begun.elapsed() < give_up());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(is_ready("shared", folder.path()).1);
    // These come from the seed, whose initialisation is shared by option.
    let drawn = [0; 3].map(|_| drawn_first(node.address, "shared"));
    assert!(drawn.iter().all(|one| *one == drawn[0]), "{drawn:?}");
    assert_eq!(node.running.stop("TERM"), Some(0));
}

/// Returns the number of forks of each seed that all functions share, by name. A fork means that
/// something was made from the seed.
fn shared_forks(data_dir: &Path) -> Vec<(String, u64)> {
    let tree: serde_json::Value =
        serde_json::from_str(&stdout_of(&["tree", "--json"], data_dir)).unwrap();
    let seeds = tree.as_array().unwrap().iter();
    let shared = seeds.filter(|seed| seed["level"].as_u64().unwrap() < 2);
    shared
        .map(|seed| {
            let name = seed["name"].as_str().unwrap().to_owned();
            (name, seed["forks"].as_u64().unwrap())
        })
        .collect()
}

/// Requests arrive at the moment at which the node reports that it is ready. The seed that answers
/// them is being read from its image, or was.
fn the_first_requests_after_a_restart_use_images() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::with(folder.path(), &[]);
    stdout_of(&["deploy", "tests/fixtures/wat/hello.wat"], folder.path());
    assert_eq!(get(node.address, "/hello/").body, "hello from wat\n");
    assert_eq!(node.running.stop("TERM"), Some(0));
    for sandboxes in ["4", "1", "0"] {
        for _ in 0..4 {
            let node = Node::with(folder.path(), &["--zygotes", sandboxes]);
            let address = node.address;
            let asking = [(); 3].map(|()| thread::spawn(move || get(address, "/hello/")));
            for asked in asking {
                assert_eq!(asked.join().unwrap().body, "hello from wat\n");
            }
            let forks = shared_forks(folder.path());
            let names: Vec<_> = forks.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["guest", "linkers"]);
            assert!(forks.iter().all(|(_, forks)| *forks == 0), "{forks:?}");
            assert_eq!(node.running.stop("TERM"), Some(0));
        }
    }
}

/// Returns the processes that descend from this one.
fn own_processes() -> BTreeSet<u32> {
    descendants(std::process::id()).into_iter().collect()
}

/// The node starts its first microVM before it knows whether it can listen on its address.
fn a_node_that_cannot_start_leaves_no_process() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let before = own_processes();
    for _ in 0..3 {
        let builder = faasw::Node::builder()
            .data_dir(folder.path())
            .listen(taken.local_addr().unwrap());
        let refused = runtime.block_on(builder.start()).unwrap_err().to_string();
        assert!(refused.contains("cannot listen on"), "{refused}");
        assert_eq!(own_processes(), before);
    }
    // A start that is dropped at any moment is not waited for, and all processes that it began end.
    for milliseconds in [0, 0, 0, 1, 2, 4, 8, 16, 32, 64] {
        let builder = faasw::Node::builder().data_dir(folder.path());
        runtime.block_on(async {
            let starting = tokio::spawn(builder.start());
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            starting.abort();
            // A node that has started by then ends in the same way.
            drop(starting.await);
        });
        let begun = Instant::now();
        while own_processes() != before {
            assert!(begun.elapsed() < give_up(), "after {milliseconds} ms");
            thread::sleep(Duration::from_millis(10));
        }
    }
    // The next node can use the directory.
    let builder = faasw::Node::builder().data_dir(folder.path());
    let node = runtime.block_on(builder.start()).unwrap();
    runtime.block_on(node.shutdown());
    assert_eq!(own_processes(), before);
}

fn main() {
    e2e::main(tests![
        a_request_waits_only_for_its_own_seed,
        slow_seeds_are_built_concurrently_and_once,
        the_freeze_point_survives_a_restart,
        the_first_requests_after_a_restart_use_images,
        a_node_that_cannot_start_leaves_no_process,
    ]);
}

//! More memory than there is: many guests at once take all that they can. The kernel kills their
//! microVMs, never the node. Their clients receive an error, and no other function is affected.

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
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use common::{give_up, raw};
use e2e::process::{Running, descendants};
use faasw::{FunctionName, FunctionOptions, admin::Client, metrics::NodeSummary};
use tokio::{runtime::Runtime, task::JoinSet};

/// A function that takes all the memory it can, touches every page, and then touches them all
/// again, for ever.
const HOG: &str = r#"
(module $hog
  (memory (export "memory") 1)
  (func $touch_all
    (local $at i32)
    (local $end i32)
    (local.set $end (i32.mul (memory.size) (i32.const 65536)))
    (loop $again
      (i32.store (local.get $at) (i32.add (i32.load (local.get $at)) (i32.const 1)))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $again (i32.lt_u (local.get $at) (local.get $end)))))
  (func (export "_start")
    (loop $grow
      (br_if $grow (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
    (loop $touch
      (call $touch_all)
      (br $touch))))
"#;

const MIB: u64 = 1 << 20;
/// Memory limit of each hog, in MiB.
const EACH: u64 = 128;
/// Number of hogs at once.
const HOGS: usize = 8;
/// Less memory than all of them would take, and more than two would, in MiB.
const ROOM: u64 = 400;

/// Returns the directory of this process's memory group in the hierarchy with that controller, and
/// the names of its files for the limit and for the usage.
fn own_group() -> (PathBuf, &'static str, &'static str) {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let one = own.lines().find_map(|line| line.split_once(":memory:"));
    let two = own.lines().find_map(|line| line.strip_prefix("0::"));
    match (one, two) {
        (Some((_, path)), _) => (
            below("/sys/fs/cgroup/memory", path),
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
        ),
        (None, Some(path)) => (
            below("/sys/fs/cgroup", path),
            "memory.max",
            "memory.current",
        ),
        (None, None) => panic!("no memory group: {own}"),
    }
}

fn below(mount: &str, path: &str) -> PathBuf {
    Path::new(mount).join(path.trim_start_matches('/'))
}

/// Returns the node's group of all microVMs.
fn group_of_all(node: u32) -> PathBuf {
    let (own, ..) = own_group();
    let is_sandbox = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("faasw-sandbox"))
    };
    let sandbox = descendants(node).into_iter().find(is_sandbox).unwrap();
    let text = fs::read_to_string(format!("/proc/{sandbox}/cgroup")).unwrap();
    let name = text
        .lines()
        .flat_map(|line| line.split('/'))
        .find(|part| part.starts_with("faasw-"))
        .expect("a sandbox is in a group of ours");
    // With version 2 the group may be further up.
    own.ancestors()
        .map(|folder| folder.join(name))
        .find(|folder| folder.is_dir())
        .unwrap()
}

fn number(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap();
    text.trim().parse().unwrap_or(u64::MAX)
}

/// A node with a hog and a harmless function.
struct Scene {
    node: Running,
    address: SocketAddr,
    client: Client,
    runtime: Runtime,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn new(start: impl FnOnce(&[&str]) -> Running) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // No hog reaches these limits: the test ends those that the kernel leaves.
        let seconds = format!("{}s", 4 * give_up().as_secs());
        let mut node = start(&[
            "serve",
            "--data-dir",
            folder.path().to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
            "--zygotes",
            "2",
            "--instance-memory",
            "6000",
            "--timeout",
            &seconds,
            "--cpu-time",
            &seconds,
            "--json",
        ]);
        let address = node.address();
        let runtime = Runtime::new().unwrap();
        let client = Client::new(folder.path());
        let hello = e2e::file("tests/fixtures/wat/hello.wasm");
        for (name, module, memory) in [("hello", hello, 16), ("hog", HOG.into(), EACH)] {
            let options = FunctionOptions::default().memory(memory * MIB);
            let name = FunctionName::new(name).unwrap();
            let deploying = client.deploy(&name, module.into(), &options);
            runtime.block_on(deploying).unwrap();
        }
        Self {
            node,
            address,
            client,
            runtime,
            _folder: folder,
        }
    }

    fn metrics(&self) -> NodeSummary {
        self.runtime.block_on(self.client.stats()).unwrap()
    }

    /// Runs all hogs at once, until `enough` of them ran out of memory, and cancels the others.
    /// Sends requests to a neighbour meanwhile. Returns how many hogs ran out of memory.
    fn run_hogs(&self, enough: usize) -> usize {
        let address = self.address;
        let (answers, ended) = self.runtime.block_on(async {
            let mut hogs = JoinSet::new();
            for _ in 0..HOGS {
                hogs.spawn(raw::get(address, "/hog/"));
            }
            let (mut answers, mut ended) = (0, 0);
            let begun = Instant::now();
            while ended < enough {
                let answer = raw::get(address, "/hello/").await;
                assert_eq!(answer.status, 200, "a neighbour noticed: {answer:?}");
                answers += 1;
                assert!(begun.elapsed() < 2 * give_up(), "only {ended} hogs ended");
                while let Some(hog) = hogs.try_join_next() {
                    let answer = hog.unwrap();
                    let problem = (answer.status, answer.problem("type"));
                    assert_eq!(problem, (503, "urn:faasw:problem:out-of-memory".to_owned()));
                    assert!(answer.header("retry-after").is_some(), "{answer:?}");
                    ended += 1;
                }
            }
            (answers, ended)
        });
        println!("{answers} answers of the neighbour, {ended} hogs ended");
        ended
    }

    /// Asserts that the node and its processes are still the same, and that the node serves.
    fn ends_well(mut self) {
        assert_eq!(
            self.node.child.try_wait().unwrap(),
            None,
            "{}",
            self.node.stderr()
        );
        let answer = self.runtime.block_on(raw::get(self.address, "/hello/"));
        assert_eq!(answer.status, 200);
        assert!(!self.node.stderr().contains("the spawner has ended"));
        assert_eq!(self.node.stop("TERM"), Some(0));
    }
}

fn the_control_group_of_all_microvms_enforces_its_limit() {
    let scene = Scene::new(Running::start);
    let (_, limit, usage) = own_group();
    let group = group_of_all(scene.node.child.id());
    assert_eq!(number(&group.join(limit)), 6000 * MIB);
    let before = scene.metrics();
    assert_eq!(before.instance_memory["max"], 6000 * MIB);
    assert!(before.instance_memory["used"] > MIB);
    assert_eq!(before.out_of_memory, 0);

    // Lowers the limit below the configured one, as if seeds and warm instances took the rest.
    let room = number(&group.join(usage)) + ROOM * MIB;
    fs::write(group.join(limit), room.to_string()).unwrap();
    // While more hogs than fit are running, the kernel has to end one of them.
    let enough = HOGS - (ROOM / EACH) as usize - 1;
    let ended = scene.run_hogs(enough) as u64;
    let after = scene.metrics();
    assert!(after.out_of_memory >= ended, "{after:?}");
    // A cancelled hog may have run out of memory before.
    let problems = after.by_function["hog"].problems["out-of-memory"];
    let possible = ended..=HOGS as u64;
    assert!(possible.contains(&problems), "{after:?}");
    assert_eq!(after.forbidden_calls, 0);
    scene.node.said("for lack of memory");
    scene.ends_well();
}

/// A control group with a limit, for a node and all that it starts.
struct Narrow(PathBuf);

impl Narrow {
    fn new(bytes: u64) -> Self {
        let (own, limit, _) = own_group();
        let folder = own.join(format!("narrow-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let narrow = Self(folder);
        fs::write(narrow.0.join(limit), bytes.to_string()).unwrap();
        narrow
    }

    fn start(&self, words: &[&str]) -> Running {
        let procs = self.0.join("cgroup.procs");
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"echo $$ > "$0" && exec "$@""#])
            .arg(procs)
            .arg(env!("CARGO_BIN_EXE_faasw"))
            .args(words)
            .current_dir(e2e::root());
        Running::start_command(command)
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        let begun = Instant::now();
        // The processes in it are ending.
        while fs::remove_dir(&self.0).is_err() && begun.elapsed() < give_up() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The node is configured for more memory than its own group allows: the kernel has to choose among
/// the node, its spawner and its sandboxes.
fn sandboxes_are_killed_before_the_node_in_a_shared_group() {
    let (_, limit, usage) = own_group();
    // Enough memory to compile; the limit is lowered below.
    let narrow = Narrow::new(3000 * MIB);
    let scene = Scene::new(|words| narrow.start(words));
    let room = number(&narrow.0.join(usage)) + ROOM * MIB;
    fs::write(narrow.0.join(limit), room.to_string()).unwrap();
    let pid = scene.node.child.id();
    let spawner = descendants(pid);
    scene.run_hogs(1);
    let still = descendants(pid);
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    for one in spawner {
        if name(&one).starts_with("faasw-spawner") {
            assert!(still.contains(&one), "the spawner was ended");
        }
    }
    scene.ends_well();
}

/// Returns the reason if groups below this process's own have no limits. With version 2, a group
/// with processes does not delegate controllers.
fn no_limits_below() -> Option<&'static str> {
    let (own, limit, _) = own_group();
    let subtree = fs::read_to_string(own.join("cgroup.subtree_control"));
    let passes = subtree.is_ok_and(|names| names.contains("memory"));
    (limit == "memory.max" && !passes).then_some("no limits in groups below the test's own")
}

fn main() {
    e2e::main_of(&[
        (
            tests![the_control_group_of_all_microvms_enforces_its_limit],
            None,
        ),
        (
            tests![sandboxes_are_killed_before_the_node_in_a_shared_group],
            no_limits_below(),
        ),
    ]);
}

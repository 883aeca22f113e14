//! Whichever process is killed, and whenever: the node continues, what it acknowledged stays, and
//! nothing else does.
//!
//! A node under load receives SIGKILL for its sandboxes, its compile helper and its spawner at
//! random moments, and at last for itself. `FAASW_TEST_SEED` repeats the choices of a run,
//! `FAASW_KILLS` sets the number of kills.

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
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{give_up, raw, time_limit};
use e2e::process::{Running, descendants, get};
use e2e::random::{self, number};
use faasw::{FunctionName, FunctionOptions, admin::Client};

/// The files that a data directory may contain (docs/operating.md).
const FILES: [&str; 11] = [
    "registry.redb",
    "modules",
    "artifacts",
    "compiled",
    "images",
    "image.key",
    "secrets.key",
    "logs",
    "reserve",
    "faasw.sock",
    "lock",
];

fn start(data_dir: &Path) -> (Running, SocketAddr) {
    let mut node = Running::start(&[
        "serve",
        "--data-dir",
        data_dir.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--zygotes",
        "2",
        "--json",
    ]);
    let address = node.address();
    (node, address)
}

fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

fn is_there(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn named(node: u32, name: &str) -> Vec<u32> {
    let mut found = descendants(node);
    found.retain(|pid| name_of(*pid).starts_with(name) && is_there(*pid));
    found
}

/// Kills a process by its ID; an error means that it has ended already.
fn kill(pid: u32) {
    let killed = Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .stderr(std::process::Stdio::null())
        .status();
    killed.unwrap();
}

/// Returns the directories of control groups that belong to these processes' jails.
fn group_folders(pids: &[u32]) -> BTreeSet<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut folders = BTreeSet::new();
    for pid in pids {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        for path in groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)) {
            let Some(at) = path.find("/faasw-") else {
                continue;
            };
            let end = path[at + 1..]
                .find('/')
                .map_or(path.len(), |end| at + 1 + end);
            for mount in mounts.lines().filter(|line| line.contains(" - cgroup")) {
                let fields: Vec<_> = mount.split(' ').collect();
                let below = path[..end].strip_prefix(fields[3]).unwrap_or(&path[..end]);
                let folder = Path::new(fields[4]).join(below.trim_start_matches('/'));
                if folder.is_dir() {
                    folders.insert(folder);
                }
            }
        }
    }
    folders
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < give_up(), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the smallest function, whose answer contains its number.
fn module(number: u64) -> Bytes {
    let text = String::from_utf8(e2e::file("tests/fixtures/wat/hello.wat")).unwrap();
    let answer = format!("version {number:06}\\n");
    text.replace("hello from wat\\n", &answer).into()
}

/// Requests and deployments until `stop` is set.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    /// The acknowledged deployments, by their versions.
    deployed: Arc<std::sync::Mutex<BTreeMap<u64, u64>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(runtime: &tokio::runtime::Runtime, address: SocketAddr, data_dir: &Path) -> Self {
        let mut load = Self {
            stop: Arc::default(),
            answered: Arc::default(),
            refused: Arc::default(),
            deployed: Arc::default(),
            tasks: Vec::new(),
        };
        for _ in 0..4 {
            let (stop, answered) = (load.stop.clone(), load.answered.clone());
            let refused = load.refused.clone();
            load.tasks.push(runtime.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let answer = tokio::time::timeout(time_limit(30), raw::get(address, "/hello/"));
                    // A node that does not answer in time hangs.
                    match answer.await.unwrap().status {
                        200 => answered.fetch_add(1, Ordering::Relaxed),
                        _ => refused.fetch_add(1, Ordering::Relaxed),
                    };
                }
            }));
        }
        let (stop, deployed) = (load.stop.clone(), load.deployed.clone());
        let client = Client::new(data_dir);
        load.tasks.push(runtime.spawn(async move {
            let name = FunctionName::new("changing").unwrap();
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                let options = FunctionOptions::default();
                let done = client.deploy(&name, module(number), &options).await;
                if let Ok(done) = done {
                    deployed
                        .lock()
                        .unwrap()
                        .insert(done.function.version, number);
                }
            }
        }));
        load
    }
}

fn the_node_survives_the_kill_of_any_of_its_processes() {
    let slow = time_limit(1) > Duration::from_secs(1);
    let kills = number("FAASW_KILLS").unwrap_or(if slow { 6 } else { 40 });
    let seed = random::seed();
    println!("FAASW_TEST_SEED={seed} FAASW_KILLS={kills}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounted = mounts();

    let folder = tempfile::tempdir().unwrap();
    let (mut node, address) = start(folder.path());
    let pid = node.child.id();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = Client::new(folder.path());
    runtime.block_on(async {
        let hello = e2e::file("examples/hello/hello.wasm");
        let name = FunctionName::new("hello").unwrap();
        let options = FunctionOptions::default();
        client.deploy(&name, hello.into(), &options).await.unwrap();
    });
    let load = Load::start(&runtime, address, folder.path());
    let mut killed: BTreeMap<&str, u64> = BTreeMap::new();
    let mut groups = BTreeSet::new();
    for _ in 0..kills {
        let victim = [
            "faasw-sandbox",
            "faasw-sandbox",
            "memfd:faasw-com",
            "faasw-spawner",
        ][rng.usize(..4)];
        std::thread::sleep(Duration::from_millis(rng.u64(..80)) * time_limit(1).as_secs() as u32);
        let there = named(pid, victim);
        groups.extend(group_folders(&there));
        if let Some(one) = there.get(rng.usize(..there.len().max(1))) {
            kill(*one);
            *killed.entry(victim).or_default() += 1;
        }
    }
    // The node answers as before, and each singular process exists once.
    eventually("it answers", || get(address, "/hello/").status == 200);
    eventually("one spawner is left", || {
        named(pid, "faasw-spawner").len() == 1
    });
    eventually("the ended are reaped", || {
        descendants(pid).into_iter().all(is_there)
    });

    // The node itself is killed, in the middle of its work.
    let processes = descendants(pid);
    groups.extend(group_folders(&processes));
    assert!(!processes.is_empty());
    let counts = (
        load.answered.clone(),
        load.refused.clone(),
        load.deployed.clone(),
    );
    for task in load.tasks {
        // A task whose request hung, or had an invalid answer, has panicked by now.
        assert!(!task.is_finished(), "{:?}", runtime.block_on(task));
        task.abort();
        let ended = runtime.block_on(task).unwrap_err();
        assert!(ended.is_cancelled(), "{ended}");
    }
    node.child.kill().unwrap();
    node.child.wait().unwrap();
    eventually("every process has ended with it", || {
        !processes.iter().any(|pid| name_of(*pid).contains("faasw"))
    });
    eventually("every control group has gone with it", || {
        !groups.iter().any(|folder| folder.exists())
    });
    drop(node);

    let (node, address) = start(folder.path());
    let functions = runtime.block_on(client.list()).unwrap();
    let (answered, refused, deployed) = counts;
    let deployed = deployed.lock().unwrap().clone();
    let changing = functions.iter().find(|one| one.name.as_str() == "changing");
    if let Some((version, number)) = deployed.last_key_value() {
        // The node may have completed one more deployment, whose answer was cut off.
        let now = changing
            .expect("an acknowledged deployment is lost")
            .version;
        assert!(now == *version || now == version + 1, "{now} {deployed:?}");
        if now == *version {
            let answer = get(address, "/changing/");
            assert_eq!(answer.body, format!("version {number:06}\n"));
        }
    }
    assert_eq!(get(address, "/hello/").status, 200);
    assert_eq!(node.stop("TERM"), Some(0));
    for entry in fs::read_dir(folder.path()).unwrap().flatten() {
        let name = entry.file_name();
        let name = name.to_str().unwrap();
        assert!(FILES.contains(&name), "{name} is left");
    }
    assert_eq!(mounts(), mounted);
    assert!(!killed.is_empty() && !deployed.is_empty());
    assert!(answered.load(Ordering::Relaxed) > 0);
    println!(
        "killed {killed:?}; answered {}, refused {}, deployed {}",
        answered.load(Ordering::Relaxed),
        refused.load(Ordering::Relaxed),
        deployed.len()
    );
}

fn main() {
    e2e::main(tests![the_node_survives_the_kill_of_any_of_its_processes,]);
}

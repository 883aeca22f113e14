//! Checks the jails of connector and workers as the kernel shows them; that the node notices when
//! one of these processes ends; and that none of them remains, however the node ends.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored. They are ignored for users
//! other than root, too, because only root may inspect the jails.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use faasw_pool::{EgressProcess, Launcher, Pool, PoolOptions};

use support::jails::{
    self, assert_closed, assert_closed_but_for_its_network, descriptors, filters, groups, is_left,
    namespace, soft_limit, status, threads, user,
};
use support::processes::{has_ended, kill, name_of, our_processes, sandboxes};
use support::{Bench, give_up};

/// Arguments that make this program a node: without a launcher, and with one.
const NODE: &str = "--node";
const LAUNCHED: &str = "--launched-node";

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some(NODE) => return be_a_node(None),
        Some(LAUNCHED) => return be_a_node(Some(Arc::new(Launcher::start().unwrap()))),
        _ => {}
    }
    let not_root = !jails::may_look();
    support::main(|skip| {
        trials![skip || not_root;
            a_worker_has_nothing_and_no_network,
            a_connector_has_the_hosts_network_and_nothing_else,
            workers_are_apart_from_each_other_and_from_sandboxes,
            the_files_for_name_resolution_are_passed_on,
            the_end_of_an_egress_process_is_noticed_and_another_can_be_made,
            dropped_egress_processes_end,
            a_spawner_ends_with_all_that_it_made,
            a_pool_that_is_shut_down_leaves_no_egress_process,
            a_killed_node_leaves_no_egress_process,
            a_killed_node_with_a_launcher_leaves_no_egress_process,
        ]
    });
}

/// Whether a process of ours has closed its jail: installing its own filter, in addition to those
/// that it inherits, is the last thing it does.
fn is_closed(pid: u32) -> bool {
    let parent = std::fs::read_to_string(format!("/proc/{pid}/status")).ok();
    let parent = parent.and_then(|text| {
        let mut lines = text.lines();
        let parent = lines.find_map(|line| line.strip_prefix("PPid:"))?;
        Some(parent.trim().to_owned())
    });
    parent.is_some_and(|parent| filters(&pid.to_string()) > filters(&parent))
}

/// Returns the processes of ours with this name that have closed their jails.
fn closed(name: &str) -> Vec<u32> {
    let mut all = our_processes();
    all.retain(|pid| name_of(*pid) == name && is_closed(*pid));
    all.sort_unstable();
    all
}

async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + give_up();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns the only process of ours with this name, once its jail is closed.
async fn the(name: &str) -> u32 {
    eventually(name, || match closed(name).as_slice() {
        [pid] => Some(*pid),
        _ => None,
    })
    .await
}

const WORKER: &str = "faasw-worker";
const CONNECTOR: &str = "faasw-connector";
const SPAWNER: &str = "faasw-spawner";
const OUTSIDE: &str = "faasw-outside";

/// Asserts that a process has only sockets, descriptors of its runtime, and the null device as its
/// standard streams.
fn assert_bare(pid: u32, fourth: &str) {
    let descriptors = descriptors(pid);
    for number in 0..3 {
        assert_eq!(descriptors[&number], "/dev/null");
    }
    assert!(descriptors[&3].starts_with("socket:"), "{descriptors:?}");
    assert!(descriptors[&4].starts_with(fourth), "{descriptors:?}");
    for (_, target) in descriptors.range(5..) {
        let is_the_runtimes = ["anon_inode:[eventpoll]", "anon_inode:[eventfd]"];
        assert!(is_the_runtimes.contains(&&**target), "{descriptors:?}");
    }
    assert_eq!(threads(pid).len(), 1);
    assert_eq!(soft_limit(pid, "Max locked memory"), "0");
    assert_eq!(soft_limit(pid, "Max core file size"), "0");
    assert_eq!(soft_limit(pid, "Max file size"), "0");
    assert_eq!(soft_limit(pid, "Max processes"), "1");
}

async fn a_worker_has_nothing_and_no_network(bench: &Bench) {
    let _worker = bench.pool.egress().worker().await.unwrap();
    let pid = the(WORKER).await;
    assert_closed(pid);
    assert_bare(pid, "socket:");
    assert_eq!(soft_limit(pid, "Max open files"), "512");
    bench
        .settles("one is ready", |stats| stats.zygotes == 1)
        .await;
    let (own, sandbox) = (pid.to_string(), sandboxes()[0].to_string());
    assert_eq!(namespace(&own, "net"), namespace(&sandbox, "net"));
}

async fn a_connector_has_the_hosts_network_and_nothing_else(bench: &Bench) {
    let _connector = bench.pool.egress().connector().await.unwrap();
    let pid = the(CONNECTOR).await;
    assert_closed_but_for_its_network(pid);
    let own = pid.to_string();
    assert_eq!(namespace(&own, "net"), namespace("self", "net"));
    assert_bare(pid, "/dev/null");
    // The only process beside it with the host's network is its spawner, which has no other
    // children.
    let outside = the(OUTSIDE).await;
    let parent = outside.to_string();
    let in_it: Vec<u32> = our_processes()
        .into_iter()
        .filter(|pid| status(*pid)["PPid"] == parent)
        .collect();
    assert_eq!(in_it, [pid]);
}

async fn workers_are_apart_from_each_other_and_from_sandboxes(bench: &Bench) {
    let egress = bench.pool.egress();
    let _two = [
        egress.worker().await.unwrap(),
        egress.worker().await.unwrap(),
    ];
    let _connector = egress.connector().await.unwrap();
    let workers = eventually("two workers", || {
        Some(closed(WORKER)).filter(|workers| workers.len() == 2)
    });
    let mut all = workers.await;
    all.push(the(CONNECTOR).await);
    bench
        .settles("one is ready", |stats| stats.zygotes == 1)
        .await;
    all.extend(sandboxes());
    for (at, one) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            assert_ne!(user(*one), user(*other));
            let (first, second) = (one.to_string(), other.to_string());
            for kind in ["user", "pid", "mnt", "uts"] {
                assert_ne!(namespace(&first, kind), namespace(&second, kind), "{kind}");
            }
            let [of_one, of_other] = [groups(*one), groups(*other)];
            assert!(of_one != of_other || of_one.is_empty(), "{of_one:?}");
        }
    }
}

/// Files that a confined node cannot open are opened by the launcher, which started before the node
/// confined itself.
async fn the_files_for_name_resolution_are_passed_on(bench: &Bench) {
    let launched = bench.another(PoolOptions {
        launcher: Some(Arc::new(Launcher::start().unwrap())),
        ..PoolOptions::default()
    });
    let launched = launched.await;
    for bench in [bench, &launched] {
        for _ in 0..3 {
            let files = bench.pool.egress().names().await.unwrap();
            for (file, path) in files.into_iter().zip(["/etc/hosts", "/etc/resolv.conf"]) {
                let read = file.map(|file| {
                    let mut text = String::new();
                    File::from(file).read_to_string(&mut text).unwrap();
                    text
                });
                assert_eq!(read, std::fs::read_to_string(path).ok(), "{path}");
            }
        }
    }
    // The files are handed over read-only.
    let [hosts, _] = launched.pool.egress().names().await.unwrap();
    if let Some(hosts) = hosts {
        assert!(File::from(hosts).write_all(b"# not here").is_err());
    }
    launched.pool.shutdown().await;
}

async fn the_end_of_an_egress_process_is_noticed_and_another_can_be_made(bench: &Bench) {
    let egress = bench.pool.egress();
    for _ in 0..3 {
        let mut worker = egress.worker().await.unwrap();
        kill(the(WORKER).await);
        assert_eq!(worker.process.ended().await, "signal 9 ended it");
        let mut connector = egress.connector().await.unwrap();
        kill(the(CONNECTOR).await);
        assert_eq!(connector.process.ended().await, "signal 9 ended it");
    }
    // A worker ends by itself when its socket closes.
    let mut worker = egress.worker().await.unwrap();
    drop(worker.socket);
    assert_eq!(worker.process.ended().await, "it exited with code 0");
}

async fn dropped_egress_processes_end(bench: &Bench) {
    let egress = bench.pool.egress();
    let made = (
        egress.worker().await.unwrap(),
        egress.connector().await.unwrap(),
    );
    let pids = [the(WORKER).await, the(CONNECTOR).await];
    let sockets = (made.0.socket, made.0.passing, made.1.socket);
    drop((made.0.process, made.1.process));
    for pid in pids {
        eventually("it ends", || has_ended(pid).then_some(())).await;
    }
    drop(sockets);
}

/// Returns a new egress process and its sockets. Without the sockets it would end by itself.
async fn make(bench: &Bench, name: &str) -> (EgressProcess, Vec<OwnedFd>) {
    let egress = bench.pool.egress();
    if name == WORKER {
        let made = egress.worker().await.unwrap();
        (made.process, vec![made.socket, made.passing])
    } else {
        let made = egress.connector().await.unwrap();
        (made.process, vec![made.socket])
    }
}

async fn a_spawner_ends_with_all_that_it_made(bench: &Bench) {
    for (spawner, name) in [(SPAWNER, WORKER), (OUTSIDE, CONNECTOR)] {
        let (mut process, _sockets) = make(bench, name).await;
        let pid = the(name).await;
        let spawners = our_processes().into_iter();
        let spawners: Vec<u32> = spawners.filter(|pid| name_of(*pid) == spawner).collect();
        assert_eq!(spawners.len(), 1);
        kill(spawners[0]);
        let ended = process.ended().await;
        assert!(ended.contains("spawner process has ended"), "{ended}");
        eventually("it goes with its spawner", || has_ended(pid).then_some(())).await;
        // A new spawner makes a new process.
        let _made = make(bench, name).await;
        assert_ne!(the(name).await, pid);
    }
}

async fn a_pool_that_is_shut_down_leaves_no_egress_process(bench: &Bench) {
    let egress = bench.pool.egress();
    let made = (
        egress.worker().await.unwrap(),
        egress.connector().await.unwrap(),
    );
    let groups = [groups(the(WORKER).await), groups(the(CONNECTOR).await)];
    if groups[0].is_empty() {
        println!("this host has no control groups for us");
    } else {
        assert!(groups.iter().all(|groups| is_left(groups)));
    }
    bench.pool.shutdown().await;
    assert_eq!(our_processes(), Vec::<u32>::new());
    assert!(
        !groups
            .iter()
            .any(|groups| !groups.is_empty() && is_left(groups))
    );
    for failed in [egress.worker().await.err(), egress.connector().await.err()] {
        assert!(failed.is_some(), "after the end nothing is made");
    }
    drop(made);
}

async fn a_killed_node_leaves_no_egress_process(_: &Bench) {
    assert_nothing_stays(NODE).await;
}

async fn a_killed_node_with_a_launcher_leaves_no_egress_process(_: &Bench) {
    assert_nothing_stays(LAUNCHED).await;
}

async fn assert_nothing_stays(word: &str) {
    let mut node = Command::new("/proc/self/exe")
        .arg(word)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = String::new();
    let mut output = BufReader::new(node.stdout.take().unwrap());
    output.read_line(&mut told).unwrap();
    assert_eq!(told, "ready\n");
    let pids = [the(WORKER).await, the(CONNECTOR).await];
    let launchers = || {
        our_processes()
            .into_iter()
            .map(name_of)
            .filter(|name| name == "faasw-launcher")
    };
    assert_eq!(launchers().count(), usize::from(word == LAUNCHED));
    let groups = pids.map(groups);
    node.kill().unwrap();
    node.wait().unwrap();
    for pid in pids {
        eventually("it ends with its node", || has_ended(pid).then_some(())).await;
    }
    for groups in groups.iter().filter(|groups| !groups.is_empty()) {
        eventually("groups go", || (!is_left(groups)).then_some(())).await;
    }
}

/// Starts a worker and a connector, prints `ready`, and waits for ever.
fn be_a_node(launcher: Option<Arc<Launcher>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let options = PoolOptions {
            launcher,
            ..support::usual()
        };
        let pool = Pool::start(options).await.unwrap();
        let egress = pool.egress();
        let _worker = egress.worker().await.unwrap();
        let _connector = egress.connector().await.unwrap();
        println!("ready");
        std::future::pending::<()>().await;
    });
}

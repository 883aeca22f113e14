//! A node, an attack on it, and what must hold during the attack and afterwards.

use std::{
    fs,
    future::Future,
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    common::{give_up, tls::Files},
    e2e::process::{Running, faasw},
    neighbour::{Neighbour, get},
    wire::{HOST, Target},
};

/// Duration of an attack.
pub const ATTACK: Duration = Duration::from_secs(4);

/// Duration of the honest load without an attack, as a reference for this machine.
const CALM: Duration = Duration::from_secs(1);

/// The protocol of attackers and neighbour.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Plain,
    Tls,
}

/// The most that an attack may cost.
pub struct Bounds {
    /// Additional resident memory of the node's own process, in MiB.
    pub memory: u64,
    /// Additional descriptors of the node's own process.
    pub descriptors: usize,
}

/// The bounds of an attack without significant effect.
pub const HARMLESS: Bounds = Bounds {
    memory: 64,
    descriptors: 600,
};

/// Resources of the node's process, now or at most.
#[derive(Clone, Copy, Debug, Default)]
struct ResourceUse {
    /// Resident memory in KiB.
    memory: u64,
    descriptors: usize,
    /// Open connections, whichever side opened them.
    connections: usize,
}

impl ResourceUse {
    fn now(pid: u32, port: u16) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.unwrap().trim().trim_end_matches(" kB");
        Self {
            memory: resident.parse().unwrap(),
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(),
            connections: connections(port),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            descriptors: self.descriptors.max(other.descriptors),
            connections: self.connections.max(other.connections),
        }
    }
}

/// Returns how many connections at the node's port the node has not closed: established ones, and
/// those that only the client has closed.
fn connections(port: u16) -> usize {
    const OPEN: [&str; 2] = ["01", "08"];
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let is_open = |line: &&str| {
        let mut columns = line.split_ascii_whitespace().skip(1);
        let local = columns.next().unwrap_or_default();
        let state = columns.nth(1).unwrap_or_default();
        local == format!("0100007F:{port:04X}") && OPEN.contains(&state)
    };
    table.lines().filter(is_open).count()
}

/// Records the most that a process uses.
struct Watching {
    stop: Arc<AtomicBool>,
    watching: thread::JoinHandle<ResourceUse>,
}

impl Watching {
    fn begin(pid: u32, port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let watching = thread::spawn(move || {
            let mut most = ResourceUse::default();
            while !stopped.load(Ordering::Relaxed) {
                most = most.max(ResourceUse::now(pid, port));
                thread::sleep(Duration::from_millis(20));
            }
            most
        });
        Self { stop, watching }
    }

    fn end(self) -> ResourceUse {
        self.stop.store(true, Ordering::Relaxed);
        self.watching.join().unwrap()
    }
}

/// Deploys the functions that attacks call: one that answers by its path, and one with a large
/// head.
fn deploy(data_dir: &str) {
    let heads = format!("{data_dir}/heads.wat");
    fs::write(&heads, large_head()).unwrap();
    for (file, name) in [
        ("tests/fixtures/wat/hello.wat", "neighbour"),
        ("tests/fixtures/http-probe.wasm", "probe"),
        (heads.as_str(), "heads"),
    ] {
        let output = faasw(&["deploy", file, "--name", name, "--data-dir", data_dir])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    }
}

/// Returns a command whose response head has almost the largest allowed size.
fn large_head() -> String {
    let fields: String = (0..7)
        .map(|number| format!("X-{number}: {}\\n", "x".repeat(7 << 10)))
        .collect();
    let head = format!("Status: 200 OK\\n{fields}\\n");
    let length = head.replace("\\n", "\n").len();
    format!(
        r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 1024) "{head}")
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 1024))
    (i32.store (i32.const 4) (i32.const {length}))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#
    )
}

/// Starts a node, with or without a certificate.
fn start(wire: Wire, folder: &Path) -> (Running, Target) {
    let files = Files::new(folder, HOST);
    let data_dir = folder.to_str().unwrap();
    let mut words = vec![
        "serve",
        "--data-dir",
        data_dir,
        "--listen",
        "127.0.0.1:0",
        // Instances that are kept for later requests would count as a cost of the attack.
        "--keep-alive",
        "1s",
        "--json",
    ];
    let certificate = (wire == Wire::Tls).then(|| files.write(&[HOST]));
    if certificate.is_some() {
        words.extend(["--tls-cert", files.certificate.to_str().unwrap()]);
        words.extend(["--tls-key", files.key.to_str().unwrap()]);
    }
    let mut node = Running::start(&words);
    let address = node.address();
    deploy(data_dir);
    (
        node,
        Target {
            address,
            certificate,
        },
    )
}

/// Runs an attack on a node of its own, and checks the bounds: the neighbour is served throughout,
/// and memory and descriptors stay within their bounds and are released.
pub fn withstands<A, F>(wire: Wire, name: &str, bounds: &Bounds, attack: A)
where
    A: FnOnce(Target) -> F,
    F: Future<Output = ()>,
{
    let folder = tempfile::tempdir().unwrap();
    let (node, target) = start(wire, folder.path());
    // These requests make the node allocate its one-time resources before the measurement.
    for path in ["/neighbour/", "/probe/hello", "/heads/", "/healthz"] {
        assert_eq!(get(&target, path).unwrap(), 200, "{path}");
    }
    let (pid, port) = (node.child.id(), target.address.port());
    let calm = Neighbour::begin(&target, pid);
    thread::sleep(CALM);
    let calm = calm.end();
    let before = ResourceUse::now(pid, port);

    let watching = Watching::begin(pid, port);
    let neighbour = Neighbour::begin(&target, pid);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        // An attack that the node has cut off is over; the honest load continues.
        let _ = tokio::time::timeout(ATTACK * 2, attack(target.clone())).await;
        tokio::time::sleep_until(neighbour.began() + ATTACK / 2).await;
    });
    let served = neighbour.end();
    let most = watching.end();
    // All connections of the attack end here.
    drop(runtime);

    let began = Instant::now();
    let settled = loop {
        let now = ResourceUse::now(pid, port);
        // Memory that the allocator keeps, and zygotes, are not the attack's.
        if now.connections == 0
            && now.descriptors <= before.descriptors + 150
            && now.memory <= before.memory + (48 << 10)
        {
            break Ok(now);
        }
        if began.elapsed() > give_up() {
            break Err(now);
        }
        thread::sleep(Duration::from_millis(50));
    };
    eprintln!(
        "{name}: {served}; memory {} MiB, at most {}; descriptors {}, at most {}; connections at \
         most {}; after {:.1?}: {settled:?}",
        before.memory >> 10,
        most.memory >> 10,
        before.descriptors,
        most.descriptors,
        most.connections,
        began.elapsed(),
    );
    assert_eq!(get(&target, "/healthz").unwrap(), 200);
    served.is_good(&calm);
    assert!(
        most.memory <= before.memory + (bounds.memory << 10),
        "{most:?}, before: {before:?}"
    );
    assert!(
        most.descriptors <= before.descriptors + bounds.descriptors,
        "{most:?}, before: {before:?}"
    );
    assert!(settled.is_ok(), "{settled:?}, before: {before:?}");
    assert_eq!(node.stop("TERM"), Some(0));
}

//! Support for tests in real microVMs: one node per program, and the rule that without KVM no test
//! passes silently.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod archives;
pub mod data_dir;
pub mod init_functions;
pub mod pod;
pub mod process;
pub mod random;
pub mod upstream;

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    io::Write as _,
    net::{SocketAddr, TcpStream},
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex},
    time::{Duration, Instant},
};

use faasw::{DeployOutcome, FunctionOptions, Limits, LogLine, Node, script};
use libtest_mimic::Arguments;
use tokio::runtime::Runtime;

use crate::common::{
    give_up,
    raw::{self, RawResponse},
    time_limit,
    trials::{Group, Test, trials},
};

/// Returns the repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns a file of the repository, such as `tests/fixtures/http-probe.wasm`.
pub fn file(path: &str) -> Vec<u8> {
    std::fs::read(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Waits for a condition that has no event, by checking it again and again.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + give_up();
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the only artifact in a data directory.
#[track_caller]
pub fn artifact(data_dir: &Path) -> PathBuf {
    let files = std::fs::read_dir(data_dir.join("artifacts")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

/// Returns a command in CGI style, as text. Its memory has `mebibytes` MiB, and each page is filled
/// with different content before the first request.
pub fn filled(mebibytes: u32) -> Vec<u8> {
    let (pages, end) = (mebibytes * 16, u64::from(mebibytes) << 20);
    let text = format!(
        r#"(module
          (import "wasi_snapshot_preview1" "fd_write"
            (func $fd_write (param i32 i32 i32 i32) (result i32)))
          (memory (export "memory") {pages})
          (data (i32.const 0) "\20\00\00\00\21\00\00\00")
          (data (i32.const 32) "Content-Type: text/plain\n\nfilled\n")
          (func $fill (local $at i32)
            (local.set $at (i32.const 4096))
            (loop $next
              (i32.store (local.get $at) (local.get $at))
              (local.set $at (i32.add (local.get $at) (i32.const 4096)))
              (br_if $next (i32.lt_u (local.get $at) (i32.const {end})))))
          (start $fill)
          (func (export "_start")
            (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"#
    );
    text.into_bytes()
}

/// Starts an import at the node of a data directory, with the first `sent` bytes of an export.
pub fn start_import(data_dir: &Path, export: &[u8], sent: usize) -> UnixStream {
    let mut client = UnixStream::connect(data_dir.join("faasw.sock")).unwrap();
    let head = format!(
        "POST /v1/import HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        export.len()
    );
    client.write_all(head.as_bytes()).unwrap();
    client.write_all(&export[..sent]).unwrap();
    client
}

/// Sends a request without waiting for its response.
pub fn start_request(address: SocketAddr, request: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    client
}

/// Returns a script with these files.
pub fn bundle(files: &[(&str, &str)]) -> Vec<u8> {
    let files: Vec<script::File<'_>> = files
        .iter()
        .map(|(path, content)| (*path, content.as_bytes()))
        .collect();
    script::write(&files).unwrap()
}

/// Returns every value of a byte, first in order, then 300 KiB of them mixed and a little more. The
/// result is no text, and its size is no multiple of any buffer's.
pub fn binary() -> Vec<u8> {
    let mixed = (0..(300_u32 << 10) + 7).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 24) as u8);
    (0..=u8::MAX).chain(mixed).collect()
}

/// Returns the inodes of the files of compiled code that this program's nodes hold. MicroVMs map
/// these, and no other code.
pub fn code_files() -> HashSet<u64> {
    let mut inodes = HashSet::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let path = entry.unwrap().path();
        // A descriptor may have been closed since it was listed.
        let (Ok(name), Ok(file)) = (std::fs::read_link(&path), std::fs::metadata(&path)) else {
            continue;
        };
        if name.to_string_lossy().starts_with("/memfd:faasw-code") {
            inodes.insert(file.ino());
        }
    }
    inodes
}

/// A node in this program, on real KVM, with its gateway.
pub struct Bench {
    runtime: Runtime,
    pub node: Node,
    pub address: SocketAddr,
    deployed: Mutex<HashMap<String, DeployOutcome>>,
}

/// The node that most tests of a program share, because starting one takes seconds if KVM is
/// emulated.
pub static BENCH: LazyLock<Bench> = LazyLock::new(|| {
    at_end(|| BENCH.end());
    Bench::start(Node::builder().timing(true), limits())
});

/// Functions that run after the last test.
static AT_END: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// Registers a function that runs after the last test, for example to stop a shared node.
pub fn at_end(end: fn()) {
    AT_END.lock().unwrap().push(end);
}

/// Returns the default limits, with times for a slow machine.
pub fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.first_byte = time_limit(10);
    limits.cpu_time = time_limit(10);
    limits.compile_cpu = time_limit(120);
    limits.instantiation = time_limit(60);
    limits
}

impl Bench {
    pub fn start(builder: faasw::NodeBuilder, limits: Limits) -> Self {
        let runtime = Runtime::new().unwrap();
        let builder = builder
            .limits(limits)
            // Tests check the reason of a failure in problem bodies.
            .verbose_errors(true)
            .zygotes(2)
            .listen("127.0.0.1:0".parse().unwrap());
        let node = runtime.block_on(builder.start()).unwrap();
        Self {
            address: node.address().unwrap(),
            runtime,
            node,
            deployed: Mutex::default(),
        }
    }

    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Returns the runtime, on which clients can run beside the test.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Deploys a function once per name.
    pub fn function(&self, name: &str, path: &str, options: FunctionOptions) -> DeployOutcome {
        let mut deployed = self
            .deployed
            .lock()
            .unwrap_or_else(|error| error.into_inner());
        if let Some(done) = deployed.get(name) {
            return done.clone();
        }
        let done = self.deploy(name, &file(path), options);
        deployed.insert(name.into(), done.clone());
        done
    }

    /// Deploys a version.
    pub fn deploy(&self, name: &str, module: &[u8], options: FunctionOptions) -> DeployOutcome {
        let done = self.block_on(self.node.deploy(name, module.to_vec(), options));
        done.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Deploys the component that has a behaviour for every path.
    pub fn probe(&self) {
        let options = FunctionOptions::default().env("COLOUR", "green");
        self.function("probe", "tests/fixtures/http-probe.wasm", options);
    }

    /// Deploys the probe as a command in CGI style.
    pub fn cgi(&self) {
        let options = FunctionOptions::default().env("COLOUR", "green");
        self.function("cgi", "tests/fixtures/cgi-probe.wasm", options);
    }

    pub fn get(&self, path: &str) -> RawResponse {
        self.block_on(raw::get(self.address, path))
    }

    /// Returns the body of a response whose status must be 200.
    pub fn text(&self, path: &str) -> String {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.body
    }

    /// Sends a request. Each line of `headers` ends in a line break.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: impl AsRef<[u8]>,
    ) -> RawResponse {
        self.block_on(raw::request(self.address, method, path, headers, body))
    }

    /// Sends binary data to a path whose function echoes it, and checks the response.
    pub fn assert_echoes_bytes(&self, path: &str) {
        let body = binary();
        let answer = self.request("POST", path, "", &body);
        let (status, size) = (answer.status, answer.bytes.len());
        assert_eq!((status, size), (200, body.len()), "{path}");
        let differs = answer.bytes.iter().zip(&body).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{path}");
    }

    /// Returns the texts of a function's log.
    pub fn log(&self, name: &str) -> Vec<String> {
        let lines = self.node.logs(name, usize::MAX).unwrap();
        lines.into_iter().map(|line| line.text).collect()
    }

    /// Returns a function's log once `complete` accepts it. If a response streams, the log may
    /// arrive after its last byte.
    pub fn log_once(&self, name: &str, complete: impl Fn(&[LogLine]) -> bool) -> Vec<LogLine> {
        let deadline = Instant::now() + give_up();
        loop {
            let lines = self.node.logs(name, usize::MAX).unwrap();
            if complete(&lines) {
                return lines;
            }
            assert!(Instant::now() < deadline, "{lines:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn end(&self) {
        self.block_on(self.node.shutdown());
    }
}

/// Runs tests one after the other. Without KVM all tests are ignored, with a notice.
pub fn main(tests: &[Test]) {
    main_of(&[(tests, None)]);
}

/// Runs tests that have another requirement. If `has_all` is an error, they are ignored for that
/// reason.
pub fn main_where(has_all: Result<(), &str>, tests: &[Test]) {
    main_of(&[(tests, has_all.err())]);
}

/// Raises the soft limit of open files. Nodes of this process fit their limits to it, and clients'
/// connections are open in this process, too.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: now.maximum,
        ..now
    };
    setrlimit(Resource::Nofile, most).unwrap();
}

/// Runs groups of tests, each with an optional reason to ignore it.
pub fn main_of(groups: &[Group<'_>]) {
    raise_open_files();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let kvm = faasw::host::check_kvm().err();
    if let Some(error) = &kvm {
        eprintln!("{error}");
    }
    let of_all = kvm.map(|_| "no /dev/kvm");
    let groups = groups
        .iter()
        .map(|(tests, missing)| (*tests, of_all.or(*missing)));
    let conclusion = libtest_mimic::run(&arguments, trials(&arguments, groups));
    let ends = std::mem::take(&mut *AT_END.lock().unwrap());
    for end in ends {
        end();
    }
    conclusion.exit();
}

/// Lists tests by their functions.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), $name as fn())),*]
    };
}

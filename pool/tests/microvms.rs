//! The pool against real KVM: processes that start and end, guests that
//! misbehave at the boundary, and what a fork shares and does not.
//!
//! Without `/dev/kvm` every test here says so and counts as ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use faasw_pool::{
    Call, Compiled, FreezePolicy, FunctionKind, FunctionSpec, InvokeError, LogSink, LogStream,
    Pool, PoolOptions, Reply, RequestHead, Seed, SeedError,
};
use libtest_mimic::{Arguments, Failed, Trial};

#[derive(Debug, Default)]
struct Log(Mutex<Vec<String>>);

impl LogSink for Log {
    fn line(&self, _: u64, _: LogStream, line: &[u8]) {
        let line = String::from_utf8_lossy(line).into_owned();
        self.0.lock().unwrap().push(line);
    }
}

fn module(path: &str) -> Bytes {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    Bytes::from(fs::read(root.join(path)).unwrap())
}

/// How many times slower than metal this machine is said to be.
fn slowness() -> u32 {
    std::env::var("FAASW_TEST_SLOWNESS")
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(1)
}

fn spec(freeze: FreezePolicy) -> FunctionSpec {
    FunctionSpec {
        name: "test".to_owned(),
        memory_limit: 128 << 20,
        environment: vec![(b"COLOUR".to_vec(), b"green".to_vec())],
        freeze,
        log: Arc::new(Log::default()),
    }
}

fn call(path: &str) -> Call {
    Call {
        head: RequestHead {
            method: b"GET".to_vec(),
            scheme: b"http".to_vec(),
            authority: b"localhost".to_vec(),
            path_and_query: path.as_bytes().to_vec(),
            script_name: b"/test".to_vec(),
            remote_address: b"127.0.0.1".to_vec(),
            protocol: b"HTTP/1.1".to_vec(),
            headers: Vec::new(),
        },
        body: Bytes::new(),
        time_limit: Duration::from_secs(10) * slowness(),
        log: Arc::new(Log::default()),
    }
}

struct Bench {
    pool: Pool,
}

impl Bench {
    async fn start() -> Self {
        let pool = Pool::start(PoolOptions {
            shells_ready: 1,
            ..PoolOptions::default()
        })
        .await
        .unwrap();
        Self { pool }
    }

    /// Compiles a file once for all tests: compiling is slow where the machine is.
    async fn compile(&self, path: &str) -> Compiled {
        static KEPT: tokio::sync::Mutex<BTreeMap<String, (FunctionKind, Vec<u8>)>> =
            tokio::sync::Mutex::const_new(BTreeMap::new());
        let mut kept = KEPT.lock().await;
        if let Some((kind, artifact)) = kept.get(path) {
            return self.pool.load_code(*kind, artifact).await.unwrap();
        }
        let compiled = self.pool.compile(module(path)).await.unwrap();
        let artifact = compiled.bytes().unwrap();
        kept.insert(path.to_owned(), (compiled.kind, artifact));
        compiled
    }

    async fn seed(&self, path: &str, freeze: FreezePolicy) -> Result<Seed, SeedError> {
        let compiled = self.compile(path).await;
        let (seed, _) = self.pool.make_seed(&spec(freeze), &compiled).await?;
        Ok(seed)
    }

    async fn get(&self, seed: &Seed, path: &str) -> Result<Reply, InvokeError> {
        self.pool.invoke(seed, call(path)).await
    }

    async fn text(&self, seed: &Seed, path: &str) -> String {
        let reply = self.get(seed, path).await.unwrap();
        String::from_utf8_lossy(&reply.body).into_owned()
    }
}

/// Processes whose name begins with `faasw-` and whose parent line leads here.
fn our_processes() -> Vec<u32> {
    let mut found = Vec::new();
    let own = std::process::id();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let mut at: u32 = pid;
        while at > 1 {
            let Ok(status) = fs::read_to_string(format!("/proc/{at}/status")) else {
                break;
            };
            let parent = status
                .lines()
                .find_map(|line| line.strip_prefix("PPid:"))
                .and_then(|parent| parent.trim().parse().ok())
                .unwrap_or(0);
            if parent == own {
                found.push(pid);
                break;
            }
            at = parent;
        }
    }
    found
}

async fn a_component_answers_from_a_fresh_vm_each_time(bench: &Bench) {
    let seed = bench
        .seed("fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    for _ in 0..3 {
        assert_eq!(bench.text(&seed, "/count").await.trim(), "1");
    }
}

async fn a_small_request_leaves_the_vm_once(bench: &Bench) {
    let seed = bench
        .seed("examples/hello/hello.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut told = Vec::new();
    for _ in 0..9 {
        let timing = bench.get(&seed, "/").await.unwrap().timing;
        assert_eq!(timing.exits, 1, "{timing:?}");
        told.push(timing);
    }
    // For whoever measures; nothing is asserted of times.
    told.sort_by_key(|timing| timing.run);
    println!("median request: {:?}", told[told.len() / 2]);
}

async fn a_command_answers_in_cgi_style(bench: &Bench) {
    let seed = bench
        .seed("fixtures/cgi-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let reply = bench.get(&seed, "/env").await.unwrap();
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert_eq!(reply.head.status, 200);
    assert!(text.contains("COLOUR=green"), "{text}");
    assert!(text.contains("GATEWAY_INTERFACE=CGI/1.1"), "{text}");
}

async fn no_two_instances_draw_the_same_randomness(bench: &Bench) {
    let seed = bench
        .seed("fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut drawn = Vec::new();
    for _ in 0..8 {
        let text = bench.text(&seed, "/random").await;
        drawn.extend(text.lines().map(str::to_owned));
    }
    let before = drawn.len();
    drawn.sort();
    drawn.dedup();
    assert_eq!(drawn.len(), before);
}

async fn traps_are_told_with_the_functions_name(bench: &Bench) {
    let seed = bench
        .seed("fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    for (path, expected) in [
        ("/trap/unreachable", "trap_unreachable"),
        ("/trap/oob", "trap_oob"),
        ("/trap/div0", "trap_div0"),
        ("/trap/indirect", "indirect call"),
        ("/trap/recurse", "stack"),
        ("/host-recurse", "stack"),
    ] {
        match bench.get(&seed, path).await {
            Err(InvokeError::Trap { report }) => {
                assert!(report.contains(expected), "{path}: {report}");
            }
            other => panic!("{path}: {other:?}"),
        }
        assert_eq!(bench.text(&seed, "/count").await.trim(), "1");
    }
}

async fn a_guest_that_loops_is_ended_with_its_process(bench: &Bench) {
    let seed = bench
        .seed("fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut order = call("/loop");
    order.time_limit = Duration::from_millis(300) * slowness();
    let started = Instant::now();
    let ended = bench.pool.invoke(&seed, order).await;
    assert!(matches!(ended, Err(InvokeError::TimedOut(_))), "{ended:?}");
    assert!(started.elapsed() < Duration::from_secs(5) * slowness());
    assert_eq!(bench.text(&seed, "/count").await.trim(), "1");
}

async fn a_killed_shell_fails_its_request_and_no_other(bench: &Bench) {
    let seed = bench
        .seed("fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let victim = tokio::spawn({
        let (pool, seed) = (bench.pool.clone(), seed.clone());
        async move { pool.invoke(&seed, call("/loop")).await }
    });
    // The one that burns processor time is the one in the loop.
    let deadline = Instant::now() + Duration::from_secs(8) * slowness();
    let pid = loop {
        assert!(Instant::now() < deadline, "no shell is running");
        let busy = our_processes()
            .into_iter()
            .find(|pid| name_of(*pid) == "faasw-shell" && cpu_ticks(*pid) > 10);
        match busy {
            Some(pid) => break pid,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    kill(pid);
    let ended = victim.await.unwrap();
    assert!(
        matches!(&ended, Err(InvokeError::Platform(error)) if error.to_string().contains("signal 9")),
        "{ended:?}"
    );
    assert_eq!(bench.text(&seed, "/count").await.trim(), "1");
}

async fn a_killed_spawner_is_replaced(bench: &Bench) {
    let seed = bench
        .seed("fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let spawner = our_processes()
        .into_iter()
        .find(|pid| name_of(*pid) == "faasw-spawner")
        .unwrap();
    kill(spawner);
    // A request may meet the moment before its end is known, never a later one.
    let mut answers = 0;
    for _ in 0..20 {
        if let Ok(reply) = bench.get(&seed, "/count").await {
            assert_eq!(&reply.body[..1], b"1");
            answers += 1;
        }
    }
    assert!(answers >= 18, "{answers} of 20 answered");
}

async fn an_initialisation_that_draws_entropy_is_not_shared(bench: &Bench) {
    let compiled = bench.compile("fixtures/init-draws.wasm").await;
    let drawn = |text: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix("init-random "))
            .unwrap()
            .to_owned()
    };
    for (freeze, after_init, shared) in [
        (FreezePolicy::Auto, false, false),
        (FreezePolicy::BeforeInit, false, false),
        (FreezePolicy::AfterInit, true, true),
    ] {
        let (seed, report) = bench
            .pool
            .make_seed(&spec(freeze), &compiled)
            .await
            .unwrap();
        assert_eq!(report.after_init, after_init);
        assert!(report.drew_entropy);
        assert!(
            report.drawn.contains("get-random-bytes"),
            "{}",
            report.drawn
        );
        let first = bench.text(&seed, "/").await;
        let second = bench.text(&seed, "/").await;
        assert_eq!(drawn(&first) == drawn(&second), shared, "{freeze:?}");
    }
}

async fn a_function_that_fails_to_start_is_refused_with_the_reason(bench: &Bench) {
    for (file, expected) in [
        ("fixtures/wat/start-trap.wat", "unreachable"),
        ("fixtures/wat/big-memory.wat", "128 MiB"),
        ("fixtures/wat/data-out-of-range.wat", "out of bounds"),
    ] {
        match bench.seed(file, FreezePolicy::Auto).await {
            Err(SeedError::Function(error)) => {
                assert!(error.to_string().contains(expected), "{file}: {error}");
            }
            other => panic!("{file}: {other:?}"),
        }
    }
}

async fn the_pool_leaves_no_process_behind(bench: &Bench) {
    let seed = bench
        .seed("examples/hello/hello.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    bench.get(&seed, "/").await.unwrap();
    bench.pool.shutdown().await;
    let deadline = Instant::now() + Duration::from_secs(1) * slowness();
    while !our_processes().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", our_processes());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name in brackets: state is field 0, user time 11, system time 12.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    [11, 12]
        .iter()
        .filter_map(|at| fields.get(*at)?.parse::<u64>().ok())
        .sum()
}

fn kill(pid: u32) {
    let status = std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

macro_rules! trials {
    ($skip:expr; $($name:ident),* $(,)?) => {
        vec![$(
            Trial::test(stringify!($name), || {
                run(|bench| Box::pin(async move { $name(bench).await }))
            })
            .with_ignored_flag($skip)
        ),*]
    };
}

type Body = for<'a> fn(&'a Bench) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Runs a test with a pool of its own, and a time limit, in a runtime of its own.
fn run(body: Body) -> Result<(), Failed> {
    let limit = Duration::from_secs(60) * slowness();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let test = tokio::spawn(async move {
            let bench = Bench::start().await;
            body(&bench).await;
            bench.pool.shutdown().await;
        });
        tokio::time::timeout(limit, test).await
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(panic)) => Err(Failed::from(panic.to_string())),
        Err(_) => Err(Failed::from(format!("took longer than {limit:?}"))),
    }
}

fn main() {
    let mut arguments = Arguments::from_args();
    // Process tables are looked at: one pool at a time.
    arguments.test_threads = Some(1);
    let skip = match faasw_pool::check_kvm() {
        Ok(()) => false,
        Err(why) => {
            eprintln!("WITHOUT KVM: the tests of this file are ignored. {why}");
            true
        }
    };
    let trials = trials![skip;
        a_component_answers_from_a_fresh_vm_each_time,
        a_small_request_leaves_the_vm_once,
        a_command_answers_in_cgi_style,
        no_two_instances_draw_the_same_randomness,
        traps_are_told_with_the_functions_name,
        a_guest_that_loops_is_ended_with_its_process,
        a_killed_shell_fails_its_request_and_no_other,
        a_killed_spawner_is_replaced,
        an_initialisation_that_draws_entropy_is_not_shared,
        a_function_that_fails_to_start_is_refused_with_the_reason,
        the_pool_leaves_no_process_behind,
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

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
use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use faasw_pool::{
    Call, CallLimits, ClientError, Compiled, FreezePolicy, FunctionKind, FunctionSpec, InvokeError,
    LogSink, LogStream, Part, Pool, PoolOptions, Reply, ReplyBody, RequestBody, RequestHead,
    ResponseStream, Seed, SeedError, Timing,
};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::sync::{Notify, mpsc};

#[derive(Debug, Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    ended: Mutex<Option<Result<Timing, InvokeError>>>,
    has_ended: Notify,
}

impl LogSink for Log {
    fn line(&self, _: u64, _: LogStream, line: &[u8]) {
        let line = String::from_utf8_lossy(line).into_owned();
        self.lines.lock().unwrap().push(line);
    }

    fn stream_ended(&self, result: Result<&Timing, &InvokeError>) {
        let result = result.copied().map_err(InvokeError::clone);
        *self.ended.lock().unwrap() = Some(result);
        self.has_ended.notify_one();
    }
}

impl Log {
    /// How the stream ended, once it has.
    async fn stream_result(&self) -> Result<Timing, InvokeError> {
        self.has_ended.notified().await;
        self.ended.lock().unwrap().clone().unwrap()
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
        body: whole(b""),
        limits: limits(),
        log: Arc::new(Log::default()),
    }
}

fn limits() -> CallLimits {
    let default = CallLimits::default();
    CallLimits {
        cpu: default.cpu * slowness(),
        first_byte: default.first_byte * slowness(),
        idle_client: default.idle_client * slowness(),
        idle_guest: default.idle_guest * slowness(),
        total: None,
    }
}

/// A body that is there at once.
fn whole(bytes: &[u8]) -> RequestBody {
    let bytes = Bytes::copy_from_slice(bytes);
    RequestBody::new(Full::new(bytes).map_err(|never| match never {}))
}

type Frames = mpsc::Sender<Result<Frame<Bytes>, ClientError>>;

/// A body that comes as the test sends it.
fn arriving() -> (Frames, RequestBody) {
    struct Arriving(mpsc::Receiver<Result<Frame<Bytes>, ClientError>>);
    impl http_body::Body for Arriving {
        type Data = Bytes;
        type Error = ClientError;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, ClientError>>> {
            self.0.poll_recv(context)
        }
    }
    let (sender, receiver) = mpsc::channel(4);
    (sender, RequestBody::new(Arriving(receiver)))
}

async fn next_part(stream: &mut ResponseStream) -> Option<Result<Part, InvokeError>> {
    poll_fn(|context| stream.poll_part(context)).await
}

/// The whole body, however it comes.
async fn bytes_of(body: ReplyBody) -> Result<Vec<u8>, InvokeError> {
    let mut stream = match body {
        ReplyBody::Whole { bytes, .. } => return Ok(bytes.to_vec()),
        ReplyBody::Stream(stream) => stream,
    };
    let mut all = Vec::new();
    while let Some(part) = next_part(&mut stream).await {
        if let Part::Data(bytes) = part? {
            all.extend_from_slice(&bytes);
        }
    }
    Ok(all)
}

/// Where the time went, which a stream says when it has ended.
async fn timing_of(reply: Reply, log: &Log) -> Timing {
    if let ReplyBody::Whole { .. } = reply.body {
        return reply.timing;
    }
    bytes_of(reply.body).await.unwrap();
    log.stream_result().await.unwrap()
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
        String::from_utf8(bytes_of(reply.body).await.unwrap()).unwrap()
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
        let mut order = call("/");
        let log = Arc::new(Log::default());
        order.log = log.clone();
        let reply = bench.pool.invoke(&seed, order).await.unwrap();
        let timing = timing_of(reply, &log).await;
        assert_eq!(timing.exits, 1, "{timing:?}");
        told.push(timing);
    }
    // For whoever measures; nothing is asserted of times.
    told.sort_by_key(|timing| timing.run);
    println!("median request: {:?}", told[told.len() / 2]);
}

/// Whether the system can say which pages of a process are its own.
fn has_page_scan() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
    version >= (6, 7)
}

async fn what_the_first_instance_wrote_is_filled_in_for_the_next(bench: &Bench) {
    let seed = bench
        .seed("examples/hello/hello.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut faults = Vec::new();
    for _ in 0..6 {
        let mut order = call("/");
        let log = Arc::new(Log::default());
        order.log = log.clone();
        let reply = bench.pool.invoke(&seed, order).await.unwrap();
        faults.push(timing_of(reply, &log).await.page_faults);
    }
    if has_page_scan() {
        // The second may have come before the first was asked.
        assert!(faults[5] < faults[0], "{faults:?}");
    }
    // What was filled in is the seed's, not the first instance's.
    let probe = bench
        .seed("fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    for _ in 0..6 {
        assert_eq!(bench.text(&probe, "/count").await.trim(), "1");
    }
}

async fn a_command_answers_in_cgi_style(bench: &Bench) {
    let seed = bench
        .seed("fixtures/cgi-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let reply = bench.get(&seed, "/env").await.unwrap();
    assert_eq!(reply.head.status, 200);
    let text = String::from_utf8(bytes_of(reply.body).await.unwrap()).unwrap();
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
    order.limits.first_byte = Duration::from_millis(300) * slowness();
    let started = Instant::now();
    let ended = bench.pool.invoke(&seed, order).await;
    assert!(matches!(ended, Err(InvokeError::TimedOut(_))), "{ended:?}");
    assert!(started.elapsed() < Duration::from_secs(5) * slowness());
    assert_eq!(bench.text(&seed, "/count").await.trim(), "1");
}

async fn a_chunk_is_seen_when_it_is_flushed(bench: &Bench) {
    let seed = bench
        .seed("fixtures/wat/drip.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let reply = bench.get(&seed, "/").await.unwrap();
    let ReplyBody::Stream(mut stream) = reply.body else {
        panic!("the response was held back to its end");
    };
    let mut seen = Vec::new();
    while let Some(part) = next_part(&mut stream).await {
        match part.unwrap() {
            Part::Data(bytes) => seen.push(String::from_utf8(bytes.to_vec()).unwrap()),
            Part::End { timing, .. } => assert!(timing.exec >= Duration::from_millis(400)),
        }
    }
    let expected: Vec<String> = (1..=5).map(|number| format!("drip {number}\n")).collect();
    assert_eq!(seen, expected);
}

async fn an_echo_comes_back_while_the_request_still_arrives(bench: &Bench) {
    let seed = bench
        .seed("fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let (client, body) = arriving();
    let mut order = call("/echo");
    order.head.method = b"POST".to_vec();
    order.body = body;
    let invoking = tokio::spawn({
        let (pool, seed) = (bench.pool.clone(), seed.clone());
        async move { pool.invoke(&seed, order).await }
    });
    client.send(Ok(Frame::data("first ".into()))).await.unwrap();
    let ReplyBody::Stream(mut stream) = invoking.await.unwrap().unwrap().body else {
        panic!("the response was held back to its end");
    };
    let mut seen = String::new();
    for word in ["first ", "second ", "third"] {
        if word != "first " {
            client.send(Ok(Frame::data(word.into()))).await.unwrap();
        }
        while !seen.ends_with(word) {
            match next_part(&mut stream).await.unwrap().unwrap() {
                Part::Data(bytes) => seen.push_str(std::str::from_utf8(&bytes).unwrap()),
                Part::End { .. } => panic!("{seen}"),
            }
        }
    }
    drop(client);
    let end = next_part(&mut stream).await.unwrap().unwrap();
    assert!(matches!(end, Part::End { .. }), "{end:?}");
    assert!(next_part(&mut stream).await.is_none());
}

async fn bodies_larger_than_a_guest_pass_through_it(bench: &Bench) {
    // Several times what the rings and all buffers between them hold.
    const BYTES: usize = 40 << 20;
    let seed = bench
        .seed("fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let byte = |number: usize| (number * 7 % 251) as u8;
    let (client, body) = arriving();
    let mut order = call("/echo");
    order.head.method = b"POST".to_vec();
    order.body = body;
    order.limits.cpu = Duration::from_secs(60) * slowness();
    let sending = tokio::spawn(async move {
        let mut at = 0;
        let mut size = 1;
        while at < BYTES {
            size = (size * 31 % 300_007 + 1).min(BYTES - at);
            let bytes: Vec<u8> = (at..at + size).map(byte).collect();
            if client.send(Ok(Frame::data(bytes.into()))).await.is_err() {
                return;
            }
            at += size;
        }
    });
    let reply = bench.pool.invoke(&seed, order).await.unwrap();
    let ReplyBody::Stream(mut stream) = reply.body else {
        panic!("more than a ring was held back");
    };
    let mut head = Vec::new();
    let mut received = 0;
    while let Some(part) = next_part(&mut stream).await {
        let Part::Data(mut bytes) = part.unwrap() else {
            continue;
        };
        if received == 0 && !head.ends_with(b"\n\n") {
            // The probe tells the request's head first.
            head.extend_from_slice(&bytes);
            let Some(end) = head.windows(2).position(|two| two == b"\n\n") else {
                continue;
            };
            bytes = Bytes::copy_from_slice(&head[end + 2..]);
            head.truncate(end + 2);
        }
        let right = bytes
            .iter()
            .copied()
            .eq((received..).take(bytes.len()).map(byte));
        assert!(right, "other bytes near {received}");
        received += bytes.len();
    }
    assert_eq!(received, BYTES);
    sending.await.unwrap();
}

async fn a_client_that_takes_nothing_holds_the_guest_back_and_then_loses_it(bench: &Bench) {
    let seed = bench
        .seed("fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut order = call("/body/100000000");
    order.limits.idle_client = Duration::from_millis(500) * slowness();
    order.limits.cpu = Duration::from_secs(60) * slowness();
    let ended = Arc::new(Log::default());
    order.log = ended.clone();
    let reply = bench.pool.invoke(&seed, order).await.unwrap();
    let ReplyBody::Stream(mut stream) = reply.body else {
        panic!("a hundred megabytes were held back");
    };
    let result = ended.stream_result().await;
    assert!(
        matches!(result, Err(InvokeError::IdleClient(_))),
        "{result:?}"
    );
    // What was on its way is there, and then the body is cut, not ended.
    let mut received = 0;
    let last = loop {
        match next_part(&mut stream).await {
            Some(Ok(Part::Data(bytes))) => received += bytes.len(),
            other => break other,
        }
    };
    assert!(matches!(last, Some(Err(_))), "{last:?}");
    assert!(received < 4 << 20, "{received}");
}

async fn a_client_that_leaves_ends_its_instance(bench: &Bench) {
    let seed = bench
        .seed("fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut order = call("/body/100000000");
    let ended = Arc::new(Log::default());
    order.log = ended.clone();
    let reply = bench.pool.invoke(&seed, order).await.unwrap();
    drop(reply);
    let result = ended.stream_result().await;
    assert!(matches!(result, Err(InvokeError::ClientGone)), "{result:?}");
}

async fn a_guest_that_falls_silent_is_cut_off(bench: &Bench) {
    let seed = bench
        .seed("fixtures/wat/drip.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut order = call("/");
    // It is silent for 100 ms at a time, on any machine.
    order.limits.idle_guest = Duration::from_millis(20);
    let reply = bench.pool.invoke(&seed, order).await.unwrap();
    let cut = bytes_of(reply.body).await;
    assert!(matches!(cut, Err(InvokeError::IdleGuest(_))), "{cut:?}");
}

async fn cpu_time_is_bounded_apart_from_wall_time(bench: &Bench) {
    let probe = bench
        .seed("fixtures/http-probe.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut order = call("/loop");
    order.limits.cpu = Duration::from_millis(200) * slowness();
    let ended = bench.pool.invoke(&probe, order).await;
    assert!(matches!(ended, Err(InvokeError::CpuLimit(_))), "{ended:?}");
    // Sleeping costs none.
    let mut order = call("/sleep/600");
    order.limits.cpu = Duration::from_millis(500) * slowness();
    let slept = bench.pool.invoke(&probe, order).await.unwrap();
    assert_eq!(slept.head.status, 200);
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
            assert_eq!(bytes_of(reply.body).await.unwrap()[..1], *b"1");
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
        what_the_first_instance_wrote_is_filled_in_for_the_next,
        a_command_answers_in_cgi_style,
        no_two_instances_draw_the_same_randomness,
        traps_are_told_with_the_functions_name,
        a_guest_that_loops_is_ended_with_its_process,
        a_chunk_is_seen_when_it_is_flushed,
        an_echo_comes_back_while_the_request_still_arrives,
        bodies_larger_than_a_guest_pass_through_it,
        a_client_that_takes_nothing_holds_the_guest_back_and_then_loses_it,
        a_client_that_leaves_ends_its_instance,
        a_guest_that_falls_silent_is_cut_off,
        cpu_time_is_bounded_apart_from_wall_time,
        a_killed_shell_fails_its_request_and_no_other,
        a_killed_spawner_is_replaced,
        an_initialisation_that_draws_entropy_is_not_shared,
        a_function_that_fails_to_start_is_refused_with_the_reason,
        the_pool_leaves_no_process_behind,
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

//! Support for tests in real microVMs: a pool for each test, requests, bodies, and the rule that
//! without KVM no test passes silently.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod hot;
pub mod jails;
pub mod processes;
pub mod random;
pub mod servers;

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
    ClientError, CompiledFunction, Confinement, Effort, FreezePolicy, FunctionKind, FunctionSpec,
    FunctionVersion, InvocationLimits, InvocationRequest, InvokeError, LogSink, LogStream, Pool,
    PoolOptions, PoolStats, Reply, ReplyBody, RequestBody, RequestHead, ResponsePart,
    ResponseStream, SealedCode, SeedError, Timing,
};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::sync::{Notify, mpsc};

#[derive(Debug, Default)]
pub struct Log {
    pub lines: Mutex<Vec<String>>,
    ended: Mutex<Option<Result<Timing, InvokeError>>>,
    has_ended: Notify,
    effort: Mutex<Option<Effort>>,
    has_retired: Notify,
    charges: Mutex<Vec<Duration>>,
    is_charged: Notify,
}

impl LogSink for Log {
    fn line(&self, _: u64, _: LogStream, line: &[u8]) {
        let line = String::from_utf8_lossy(line).into_owned();
        self.lines.lock().unwrap().push(line);
    }

    fn retired(&self, _: u64, effort: &Effort) {
        *self.effort.lock().unwrap() = Some(*effort);
        self.has_retired.notify_one();
    }

    fn charged(&self, _: u64, cpu: Duration) {
        self.charges.lock().unwrap().push(cpu);
        self.is_charged.notify_one();
    }

    fn stream_ended(&self, result: Result<&Timing, &InvokeError>) {
        let result = result.copied().map_err(InvokeError::clone);
        *self.ended.lock().unwrap() = Some(result);
        self.has_ended.notify_one();
    }
}

impl Log {
    /// Returns the instance's use of resources, once it is warm or ended.
    pub async fn effort(&self) -> Effort {
        self.has_retired.notified().await;
        self.effort.lock().unwrap().unwrap()
    }

    /// Returns the CPU time that the request was charged, once it is over.
    pub async fn charge(&self) -> Duration {
        self.is_charged.notified().await;
        let charges = self.charges.lock().unwrap();
        assert_eq!(charges.len(), 1, "a request is charged once: {charges:?}");
        charges[0]
    }

    /// Returns how the stream ended, once it has.
    pub async fn stream_result(&self) -> Result<Timing, InvokeError> {
        self.has_ended.notified().await;
        self.ended.lock().unwrap().clone().unwrap()
    }
}

pub fn module(path: &str) -> Bytes {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    Bytes::from(fs::read(root.join(path)).unwrap())
}

/// Returns how many times slower than bare metal this machine is, by `FAASW_TEST_SLOWNESS`.
pub fn slowness() -> u32 {
    std::env::var("FAASW_TEST_SLOWNESS")
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(1)
}

/// Returns how long a test waits for an event that must happen. Only a failure takes that long: a
/// minute is enough on a machine that does many other things at once.
pub fn give_up() -> Duration {
    Duration::from_secs(60).max(Duration::from_secs(10) * slowness())
}

pub fn spec(freeze: FreezePolicy) -> FunctionSpec {
    FunctionSpec {
        name: "test".to_owned(),
        memory_limit: 128 << 20,
        environment: vec![(b"COLOUR".to_vec(), b"green".to_vec())],
        configuration: vec![(b"colour".to_vec(), b"blue".to_vec())],
        secrets: Vec::new(),
        stores: Vec::new(),
        freeze,
        poll: None,
        init: None,
        script: None,
        arguments: Vec::new(),
        files: None,
        warm_ups: Vec::new(),
        has_entry: false,
        image: None,
        log: Arc::new(Log::default()),
    }
}

pub fn call(path: &str) -> InvocationRequest {
    InvocationRequest {
        head: RequestHead {
            method: b"GET".to_vec(),
            scheme: b"http".to_vec(),
            authority: b"localhost".to_vec(),
            path_and_query: path.as_bytes().to_vec(),
            // Empty for a function at a host of its own: components list no prefix.
            script_name: Vec::new(),
            remote_address: b"127.0.0.1".to_vec(),
            protocol: b"HTTP/1.1".to_vec(),
            headers: Vec::new(),
        },
        body: whole(b""),
        limits: limits(),
        log: Arc::new(Log::default()),
        client: faasw_pool::RequestClient::default(),
        store: None,
        secrets: None,
        outbound: None,
        caller_permit: faasw_pool::CallerPermit::default(),
    }
}

pub fn limits() -> InvocationLimits {
    let default = InvocationLimits::default();
    InvocationLimits {
        cpu: default.cpu * slowness(),
        cpu_check: default.cpu_check,
        first_byte: default.first_byte * slowness(),
        idle_client: default.idle_client * slowness(),
        idle_guest: default.idle_guest * slowness(),
        total: None,
        calls: default.calls,
        idle_call: default.idle_call * slowness(),
        upstream: default.upstream * slowness(),
    }
}

/// Returns a body that is present at once.
pub fn whole(bytes: &[u8]) -> RequestBody {
    let bytes = Bytes::copy_from_slice(bytes);
    RequestBody::new(Full::new(bytes).map_err(|never| match never {}))
}

/// A trailer or header: its name and value.
pub type Pair = (Vec<u8>, Vec<u8>);

pub type Frames = mpsc::Sender<Result<Frame<Bytes>, ClientError>>;

/// Returns a body that arrives as the test sends it.
pub fn arriving() -> (Frames, RequestBody) {
    struct ChannelBody(mpsc::Receiver<Result<Frame<Bytes>, ClientError>>);
    impl http_body::Body for ChannelBody {
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
    (sender, RequestBody::new(ChannelBody(receiver)))
}

pub async fn next_part(stream: &mut ResponseStream) -> Option<Result<ResponsePart, InvokeError>> {
    poll_fn(|context| stream.poll_part(context)).await
}

/// Returns the whole body, streamed or not.
pub async fn bytes_of(body: ReplyBody) -> Result<Vec<u8>, InvokeError> {
    Ok(body_and_trailers(body).await?.0)
}

/// Returns the whole body with its trailers, streamed or not.
pub async fn body_and_trailers(body: ReplyBody) -> Result<(Vec<u8>, Vec<Pair>), InvokeError> {
    let mut stream = match body {
        ReplyBody::Whole { bytes, trailers } => return Ok((bytes.to_vec(), trailers)),
        ReplyBody::Stream(stream) => stream,
    };
    let mut all = Vec::new();
    loop {
        match next_part(&mut stream).await.unwrap()? {
            ResponsePart::Data(bytes) => all.extend_from_slice(&bytes),
            ResponsePart::End { trailers, .. } => return Ok((all, trailers)),
        }
    }
}

/// Returns the timing of a reply, which a stream reports when it has ended.
pub async fn timing_of(reply: Reply, log: &Log) -> Timing {
    if let ReplyBody::Whole { .. } = reply.body {
        return reply.timing;
    }
    bytes_of(reply.body).await.unwrap();
    log.stream_result().await.unwrap()
}

pub struct Bench {
    pub pool: Pool,
    pub confinement: Confinement,
}

/// The confinements in which most tests are to pass.
pub const EACH: [Confinement; 2] = [Confinement::Jailed, Confinement::InProcess];

/// Returns the pool options of most tests.
pub fn usual() -> PoolOptions {
    PoolOptions {
        zygotes: 1,
        ..PoolOptions::default()
    }
}

/// Returns code of which [`CompiledFunction::bytes`] is `artifact`.
pub fn load_code(kind: FunctionKind, artifact: &[u8]) -> CompiledFunction {
    let code = SealedCode::copy_of(artifact).unwrap();
    CompiledFunction::unstored(kind, Arc::new(code))
}

impl Bench {
    pub async fn start(options: PoolOptions) -> Self {
        let confinement = options.confinement;
        let pool = Pool::start(options).await.unwrap();
        Self { pool, confinement }
    }

    /// Starts another bench with the same confinement.
    pub async fn another(&self, options: PoolOptions) -> Self {
        Self::start(PoolOptions {
            confinement: self.confinement,
            ..options
        })
        .await
    }

    /// Compiles each file once for all tests, because compiling is slow on a slow machine.
    pub async fn compile(&self, path: &str) -> CompiledFunction {
        static KEPT: tokio::sync::Mutex<BTreeMap<String, (FunctionKind, Vec<u8>)>> =
            tokio::sync::Mutex::const_new(BTreeMap::new());
        let mut kept = KEPT.lock().await;
        if let Some((kind, artifact)) = kept.get(path) {
            return load_code(*kind, artifact);
        }
        let compiled = self.pool.compile(module(path)).await.unwrap();
        let artifact = compiled.bytes().unwrap();
        kept.insert(path.to_owned(), (compiled.kind, artifact));
        compiled
    }

    pub async fn seed(
        &self,
        path: &str,
        freeze: FreezePolicy,
    ) -> Result<FunctionVersion, SeedError> {
        self.seed_of(path, &spec(freeze)).await
    }

    pub async fn seed_of(
        &self,
        path: &str,
        spec: &FunctionSpec,
    ) -> Result<FunctionVersion, SeedError> {
        let compiled = self.compile(path).await;
        Ok(self.pool.make_seed(spec, &compiled).await?.version)
    }

    pub async fn get(&self, seed: &FunctionVersion, path: &str) -> Result<Reply, InvokeError> {
        self.pool.invoke(seed, call(path)).await
    }

    /// Sends a request and waits until its instance is warm or ended. Returns the body, the
    /// timing, and the instance's use of resources.
    pub async fn through(
        &self,
        seed: &FunctionVersion,
        mut order: InvocationRequest,
    ) -> (Vec<u8>, Timing, Effort) {
        let log = Arc::new(Log::default());
        order.log = log.clone();
        let reply = self.pool.invoke(seed, order).await.unwrap();
        let timing = reply.timing;
        let body = bytes_of(reply.body).await.unwrap();
        (body, timing, log.effort().await)
    }

    /// Sends `count` requests at once. Returns their bodies.
    pub async fn at_once(&self, seed: &FunctionVersion, count: usize, path: &str) -> Vec<Vec<u8>> {
        let asking: Vec<_> = (0..count)
            .map(|_| {
                let (pool, seed, order) = (self.pool.clone(), seed.clone(), call(path));
                tokio::spawn(async move { pool.invoke(&seed, order).await })
            })
            .collect();
        let mut bodies = Vec::new();
        for asked in asking {
            let reply = asked.await.unwrap().unwrap();
            bodies.push(bytes_of(reply.body).await.unwrap());
        }
        bodies
    }

    /// Waits until `holds` is true; `what` names the condition in the error.
    pub async fn settles(&self, what: &str, holds: impl Fn(PoolStats) -> bool) {
        let deadline = Instant::now() + give_up();
        while !holds(self.pool.stats()) {
            let told = (self.pool.stats(), processes::sandboxes());
            assert!(Instant::now() < deadline, "{what}: {told:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Sends requests until exactly one instance is warm. Returns its process ID. The seed's
    /// working set is known then, and there is no other sandbox.
    pub async fn warm_one(&self, seed: &FunctionVersion, path: &str) -> u32 {
        // An instance that recorded the working set is not warm, and each request before the set
        // is known may have to record it.
        for _ in 0..4 {
            let (_, _, effort) = self.through(seed, call(path)).await;
            self.settles("the request ends", |stats| stats.busy == 0)
                .await;
            if effort.reset.is_some() {
                break;
            }
        }
        self.settles("one is warm", |stats| {
            stats.warm == 1 && processes::sandboxes().len() == 1
        })
        .await;
        processes::sandboxes()[0]
    }

    pub async fn text(&self, seed: &FunctionVersion, path: &str) -> String {
        let reply = self.get(seed, path).await.unwrap();
        String::from_utf8(bytes_of(reply.body).await.unwrap()).unwrap()
    }
}

/// Lists tests by their functions, each with its pool options unless those are the usual ones. The
/// tests run in jails unless the caller passes another confinement.
#[macro_export]
macro_rules! trials {
    ($skip:expr; $($rest:tt)*) => {
        trials![$skip, faasw_pool::Confinement::Jailed; $($rest)*]
    };
    ($skip:expr, $confinement:expr; $($name:ident $(in $options:expr)?),* $(,)?) => {
        vec![$(
            libtest_mimic::Trial::test(support::named(stringify!($name), $confinement), move || {
                let options = None$(.or(Some($options)))?;
                let options = options.unwrap_or_else(support::usual);
                let options = faasw_pool::PoolOptions { confinement: $confinement, ..options };
                support::run(options, |bench| Box::pin(async move { $name(bench).await }))
            })
            .with_ignored_flag($skip)
        ),*]
    };
}

/// Returns the name of a test.
pub fn named(name: &str, confinement: Confinement) -> String {
    match confinement {
        Confinement::Jailed => name.to_owned(),
        Confinement::Reduced => format!("reduced::{name}"),
        Confinement::InProcess => format!("in_process::{name}"),
    }
}

pub type Body = for<'a> fn(&'a Bench) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Runs a test with a pool and a runtime of its own, and a time limit. The limit is for tests that
/// never end: ten minutes are more than any test takes on a busy machine.
pub fn run(options: PoolOptions, body: Body) -> Result<(), Failed> {
    let limit = Duration::from_secs(600).max(Duration::from_secs(60) * slowness());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (ended, forbidden) = runtime.block_on(async {
        let bench = Bench::start(options).await;
        let pool = bench.pool.clone();
        let test = tokio::spawn(async move { body(&bench).await });
        let ended = tokio::time::timeout(limit, test).await;
        // A failed test must leave nothing behind either, because other tests inspect processes.
        pool.shutdown().await;
        (ended, pool.stats().forbidden_calls)
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    match ended {
        Ok(Ok(())) if forbidden > 0 => {
            let what = "the filters forbid what is needed: see the kernel's log";
            Err(Failed::from(what))
        }
        Ok(Ok(())) => Ok(()),
        Ok(Err(panic)) => Err(Failed::from(panic.to_string())),
        Err(_) => Err(Failed::from(format!("took longer than {limit:?}"))),
    }
}

/// Runs tests, one pool at a time. Without KVM all tests are ignored, with a notice.
pub fn main(trials: impl FnOnce(bool) -> Vec<Trial>) {
    let mut arguments = Arguments::from_args();
    // Tests inspect the process table, so they must not run at once.
    arguments.test_threads = Some(1);
    let skip = match faasw_pool::check_kvm() {
        Ok(()) => false,
        Err(why) => {
            eprintln!("WITHOUT KVM: the tests of this file are ignored. {why}");
            true
        }
    };
    libtest_mimic::run(&arguments, trials(skip)).exit();
}

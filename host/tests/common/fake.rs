//! A backend whose functions behave by path, without a VM.

use std::{
    fmt, io,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use faasw::backend::{
    Backend, BackendFuture, Code, CompileResult, SeedResult, ServableVersion, StoredCodeInfo,
};
use faasw::{FunctionKind, LogStream};
use faasw_abi::files::upload;
use faasw_abi::wire::{Pair, RequestHead, ResponseHead};
use faasw_pool::{
    Compilation, CompileError, FreezeReport, FunctionSpec, InvocationRequest, InvokeError,
    PlatformError, Reply, ReplyBody, SeedError, StoreService, Timing, TrapKind,
};
use http_body_util::BodyExt as _;
use tokio::sync::Notify;

/// A backend that counts compilations, loads and seeds.
#[derive(Clone, Debug, Default)]
pub struct FakeBackend {
    pub compiled: Arc<AtomicUsize>,
    pub loaded: Arc<AtomicUsize>,
    /// The cache of earlier compilations that each compilation received.
    pub begun_with: Arc<Mutex<Vec<Option<Vec<u8>>>>>,
    pub seeds: Arc<AtomicUsize>,
    /// The requests that functions received whole, in the order in which they ended.
    pub seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// Part of its generation.
    pub version: usize,
    /// Called while a seed is dropped.
    pub when_dropped: WhenDropped,
    /// Lets one request of `/held` be answered.
    pub held: Arc<Notify>,
}

/// An action that is set later, at most once.
#[derive(Clone, Default)]
pub struct WhenDropped(Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>);

impl WhenDropped {
    pub fn set(&self, done: impl Fn() + Send + Sync + 'static) {
        assert!(self.0.set(Box::new(done)).is_ok());
    }
}

impl fmt::Debug for WhenDropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WhenDropped").finish_non_exhaustive()
    }
}

/// A request as its function received it.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub head: RequestHead,
    pub body: Bytes,
    /// The service on the channel of the function's store, if it has a store.
    pub store: Option<Arc<dyn StoreService>>,
}

impl ReceivedRequest {
    /// Returns the method and the path.
    pub fn line(&self) -> String {
        let text = |bytes| String::from_utf8_lossy(bytes);
        format!(
            "{} {}",
            text(&self.head.method),
            text(&self.head.path_and_query)
        )
    }
}

impl FakeBackend {
    /// Takes what the compilations since the last call got as their caches.
    pub fn take_begun_with(&self) -> Vec<Option<Vec<u8>>> {
        std::mem::take(&mut self.begun_with.lock().unwrap())
    }

    /// Takes the requests that were seen since the last call.
    pub fn take_seen(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl Backend for FakeBackend {
    fn generation(&self) -> String {
        format!("fake-{}", self.version)
    }

    fn pack<'a>(
        &'a self,
        _owner: &'a str,
        files: Bytes,
    ) -> BackendFuture<'a, Result<Bytes, CompileError>> {
        let packed = upload::pack(&files).map(Bytes::from);
        let packed = packed.map_err(|error| CompileError::Unsupported(error.to_string()));
        Box::pin(async { packed })
    }

    /// Refuses modules that begin with `bad`. Modules with `slow` take long, those with `lacks`
    /// never get their instances, and those with `keeps` import a store.
    fn compile(&self, work: Compilation) -> BackendFuture<'_, CompileResult> {
        Box::pin(async move {
            let module = work.upload;
            self.compiled.fetch_add(1, Ordering::Relaxed);
            let earlier = work.cache.as_ref().map(|cache| cache.to_vec());
            self.begun_with.lock().unwrap().push(earlier);
            if module.starts_with(b"slow") {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            if module.starts_with(b"bad import") {
                return Err(CompileError::UnknownImports {
                    message: "the import env::mystery is not supported".into(),
                    imports: vec!["env::mystery".into()],
                });
            }
            if module.starts_with(b"bad helper") {
                return Err(CompileError::Helper("killed".into()));
            }
            if module.starts_with(b"bad") {
                return Err(CompileError::Malformed("not WebAssembly".into()));
            }
            let kept = work.cache.map(|_| Bytes::from_static(b"kept"));
            Ok((self.code(module.to_vec()), kept.unwrap_or_default()))
        })
    }

    fn load(
        &self,
        stored: StoredCodeInfo,
    ) -> BackendFuture<'_, Result<Option<Arc<dyn Code>>, PlatformError>> {
        Box::pin(async move {
            let read = match stored.here {
                Some(code) => Some(code),
                None => {
                    let read = stored.source.read(None).await;
                    read.map(|read| Arc::new(read.code))
                }
            };
            Ok(read.map(|code| {
                self.loaded.fetch_add(1, Ordering::Relaxed);
                self.code(code.read().unwrap())
            }))
        })
    }

    fn shutdown(&self) -> BackendFuture<'_, ()> {
        Box::pin(async {})
    }
}

impl FakeBackend {
    fn code(&self, bytes: Vec<u8>) -> Arc<dyn Code> {
        let imports = if bytes.starts_with(b"keeps") {
            vec!["wasi:keyvalue/store@0.2.0-draft#open".to_owned()]
        } else {
            Vec::new()
        };
        Arc::new(FakeCode {
            imports,
            bytes,
            seeds: self.seeds.clone(),
            seen: self.seen.clone(),
            when_dropped: self.when_dropped.clone(),
            held: self.held.clone(),
        })
    }
}

#[derive(Debug)]
struct FakeCode {
    imports: Vec<String>,
    bytes: Vec<u8>,
    seeds: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    when_dropped: WhenDropped,
    held: Arc<Notify>,
}

impl Code for FakeCode {
    fn kind(&self) -> FunctionKind {
        FunctionKind::HttpComponent
    }

    fn imports(&self) -> &[String] {
        &self.imports
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        Ok(self.bytes.clone())
    }

    fn seed<'a>(&'a self, spec: &'a FunctionSpec) -> BackendFuture<'a, SeedResult> {
        Box::pin(async {
            self.seeds.fetch_add(1, Ordering::Relaxed);
            spec.log.line(0, LogStream::Err, b"initialising");
            if self.bytes.starts_with(b"trap") {
                return Err(SeedError::Function(trap()));
            }
            let drew_entropy = self.bytes.starts_with(b"draws");
            let report = FreezeReport {
                at_entry: false,
                after_init: !drew_entropy,
                drew_entropy,
                drawn: "wasi:random/random get-random-bytes: 16 bytes".into(),
                instantiation: Duration::from_micros(70),
                layer_bytes: 1 << 20,
            };
            let seed = FakeSeed {
                module: String::from_utf8_lossy(&self.bytes).into_owned(),
                spec: spec.clone(),
                seen: self.seen.clone(),
                when_dropped: self.when_dropped.clone(),
                held: self.held.clone(),
            };
            Ok((Arc::new(seed) as Arc<dyn ServableVersion>, report))
        })
    }
}

#[derive(Debug)]
struct FakeSeed {
    module: String,
    spec: FunctionSpec,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    when_dropped: WhenDropped,
    held: Arc<Notify>,
}

impl Drop for FakeSeed {
    fn drop(&mut self) {
        if let Some(done) = self.when_dropped.0.get() {
            done();
        }
    }
}

fn trap() -> InvokeError {
    InvokeError::Trap {
        kind: TrapKind::Unreachable,
        report: "wasm `unreachable` in trap_here".into(),
    }
}

impl ServableVersion for FakeSeed {
    fn provided(&self) -> BackendFuture<'_, ()> {
        Box::pin(async {
            if self.module.starts_with("lacks") {
                std::future::pending::<()>().await;
            }
        })
    }

    fn invoke(&self, call: InvocationRequest) -> BackendFuture<'_, Result<Reply, InvokeError>> {
        Box::pin(async move {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let InvocationRequest {
                head,
                body,
                limits,
                log,
                store,
                // Held until the answer is there.
                caller_permit: _caller_permit,
                ..
            } = call;
            // The pool limits each part of the body. Here the whole body is one part.
            let body = tokio::time::timeout(limits.idle_client, body.collect())
                .await
                .map_err(|_| InvokeError::IdleClient(limits.idle_client))??
                .to_bytes();
            self.seen.lock().unwrap().push(ReceivedRequest {
                head: head.clone(),
                body: body.clone(),
                store,
            });
            let path = text(&head.path_and_query);
            if path == "/respond" {
                return Ok(reply(dictated(&body)?, Bytes::new()));
            }
            let (status, headers, answer) = match path.as_str() {
                "/trap" => {
                    log.begins(42);
                    log.line(42, LogStream::Err, b"about to trap");
                    return Err(trap());
                }
                "/exit" => return Err(InvokeError::Exit { code: 7 }),
                "/none" => return Err(InvokeError::NoResponse),
                "/slow" => {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    (200, vec![], "slow".into())
                }
                "/held" => {
                    self.held.notified().await;
                    (200, vec![], "held".into())
                }
                "/endless" => {
                    log.begins(43);
                    tokio::time::sleep(limits.first_byte).await;
                    return Err(InvokeError::TimedOut(limits.first_byte));
                }
                "/busy" => return Err(InvokeError::OverCapacity(4)),
                "/broken" => return Err(PlatformError::SpawnerGone.into()),
                "/teapot" => (418, vec![("x-tea", "green")], "short and stout".into()),
                "/bad-status" => (99, vec![], String::new()),
                // The fields that a proxy passes on from its origin.
                "/not-modified" => (
                    304,
                    vec![("content-length", "1234"), ("etag", "\"v7\"")],
                    String::new(),
                ),
                "/no-content" => (204, vec![("content-length", "4")], String::new()),
                "/lies" => (200, vec![("content-length", "99")], "x".into()),
                "/forged" => (
                    200,
                    vec![("transfer-encoding", "chunked"), ("connection", "upgrade")],
                    "0\r\n\r\n".into(),
                ),
                "/large" => (200, vec![], "x".repeat(1 << 20)),
                "/huge" => (200, vec![], "x".repeat(32 << 20)),
                "/log" => {
                    log.line(42, LogStream::Out, b"hello log");
                    (204, vec![], String::new())
                }
                "/length" => (200, vec![], body.len().to_string()),
                "/module" => (200, vec![], self.module.clone()),
                "/env" => (200, vec![], format!("{:?}", self.spec.environment)),
                "/config" => (200, vec![], as_text(&self.spec.configuration)),
                _ => (
                    200,
                    vec![("content-type", "text/plain")],
                    echo(&head, &body),
                ),
            };
            let pair = |(name, value): (&str, &str)| (name.into(), value.into());
            let head = ResponseHead {
                status,
                headers: headers.into_iter().map(pair).collect(),
            };
            Ok(reply(head, answer.into()))
        })
    }
}

/// Returns one line per pair.
fn as_text(pairs: &[Pair]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let lines = pairs
        .iter()
        .map(|(name, value)| format!("{}={}\n", text(name), text(value)));
    lines.collect()
}

fn reply(head: ResponseHead, bytes: Bytes) -> Reply {
    Reply {
        head,
        body: ReplyBody::Whole {
            bytes,
            trailers: vec![],
        },
        timing: Timing {
            instance: 42,
            fork: Duration::from_micros(250),
            exec: Duration::from_micros(1_500),
            ..Timing::default()
        },
    }
}

/// Returns the head that a request's body describes. Byte 0x1F separates a name from its value, and
/// byte 0x1E separates pairs, so that names and values may contain line breaks.
fn dictated(body: &[u8]) -> Result<ResponseHead, InvokeError> {
    let pairs = body.split(|byte| *byte == 0x1e);
    let headers = pairs.map(|pair| {
        let mut parts = pair.splitn(2, |byte| *byte == 0x1f);
        let mut part = || parts.next().map(Vec::from);
        part().zip(part()).ok_or(InvokeError::NoResponse)
    });
    Ok(ResponseHead {
        status: 200,
        headers: headers.collect::<Result<_, _>>()?,
    })
}

/// Returns the request line, the client, the header fields and the body, as the function receives
/// them.
fn echo(head: &RequestHead, body: &[u8]) -> String {
    let mut text = String::new();
    for part in [
        &head.method,
        &head.path_and_query,
        &head.script_name,
        &head.remote_address,
    ] {
        text.push_str(&String::from_utf8_lossy(part));
        text.push(' ');
    }
    for (name, value) in &head.headers {
        let (name, value) = (
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(value),
        );
        text.push_str(&format!("\n{name}: {value}"));
    }
    text.push_str("\n\n");
    text.push_str(&String::from_utf8_lossy(body));
    text
}

//! A function version that behaves by path.

use std::time::Duration;

use bytes::Bytes;
use faasw::LogStream;
use faasw::backend::{BackendFuture, ServableVersion};
use faasw_abi::wire::{Pair, RequestHead, ResponseHead};
use faasw_pool::{
    FunctionSpec, ImageError, ImageInfo, InvocationRequest, InvokeError, PermitShare,
    PlatformError, Reply, ReplyBody, SeedError, Timing, TrapKind, WarmShortfall,
};
use http_body_util::BodyExt as _;

use super::{FakeBackend, ReceivedRequest};

#[derive(Debug)]
pub struct FakeVersion {
    pub module: String,
    pub spec: FunctionSpec,
    pub backend: FakeBackend,
}

impl Drop for FakeVersion {
    fn drop(&mut self) {
        if let Some(done) = self.backend.when_dropped.0.get() {
            done();
        }
    }
}

/// Returns the failure of a function that traps.
pub fn trap() -> InvokeError {
    InvokeError::Trap {
        kind: TrapKind::Unreachable,
        report: "wasm `unreachable` in trap_here".into(),
    }
}

impl ServableVersion for FakeVersion {
    fn has_free_permit(&self) -> bool {
        true
    }

    fn share(&self) -> Option<PermitShare> {
        None
    }

    fn evict(&self) -> bool {
        false
    }

    fn is_in_memory(&self) -> bool {
        true
    }

    fn ensure_in_memory(&self) -> BackendFuture<'_, Result<bool, SeedError>> {
        Box::pin(async { Ok(false) })
    }

    fn prewarm_seed(&self) {}

    fn provision(&self) {}

    fn shortfall(&self) -> Option<WarmShortfall> {
        None
    }

    fn shrink_to_budget(&self) {}

    fn image_bytes(&self) -> Option<u64> {
        None
    }

    fn describe_image(&self) -> BackendFuture<'_, Result<Option<ImageInfo>, ImageError>> {
        Box::pin(async { Ok(None) })
    }

    fn ensure_image(&self) -> BackendFuture<'_, ()> {
        Box::pin(async {})
    }

    fn provision_and_wait(&self) -> BackendFuture<'_, ()> {
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
            self.backend.seen.lock().unwrap().push(ReceivedRequest {
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
                    self.backend.held.notified().await;
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

//! Random damage: functions see through the gateway the requests that a plain hyper server sees in
//! the same bytes, except those that the gateway's documentation says it refuses. They never see
//! one request more, or another body.
//!
//! The node gets each stream over a socket, in random pieces. Plain hyper gets it in memory and at
//! once, without a clock, so that its result is the same every time. A connection that waits for
//! more ends by the node's short limits.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future as _,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake},
    time::Duration,
};

use bytes::Bytes;
use faasw::{FunctionOptions, Limits};
use fastrand::Rng;
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::TcpSocket,
    task::JoinSet,
    time::timeout,
};

use crate::{
    common::{self, FakeBackend, fake::ReceivedRequest, time_limit},
    damage::stream,
};

/// How many streams are sent at once. Each takes as long as the node waits for more of it.
const AT_ONCE: usize = 128;

/// How long the node waits for more of a head or a body.
const WAIT: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread")]
async fn functions_receive_the_same_requests_as_plain_hyper() {
    let seed = std::env::var("FAASW_TEST_SEED").ok();
    let seed = seed.map_or_else(|| fastrand::u64(..), |text| text.parse().unwrap());
    let slow = std::env::var_os("FAASW_TEST_SLOWNESS").is_some();
    let count = if slow { 300 } else { 6_000 };
    eprintln!("{count} streams of FAASW_TEST_SEED={seed}");

    let mut limits = Limits::default();
    limits.request_read = WAIT;
    limits.idle_connection = WAIT;
    limits.connections = 2 * AT_ONCE;
    let backend = FakeBackend::default();
    let node = common::start_on(common::builder().limits(limits), &backend).await;
    let options = FunctionOptions::default().idle_client(WAIT);
    node.deploy("f", "module f", options).await.unwrap();
    let address = node.address().unwrap();

    let mut rng = Rng::with_seed(seed);
    let streams: Vec<Vec<u8>> = (0..count).map(|_| stream(&mut rng)).collect();
    let mut answered: Vec<Vec<u8>> = vec![Vec::new(); streams.len()];
    let mut playing = JoinSet::new();
    for (number, bytes) in streams.iter().enumerate() {
        if playing.len() == AT_ONCE {
            let (number, bytes) = playing.join_next().await.unwrap().unwrap();
            answered[number] = bytes;
        }
        let (bytes, rng) = (bytes.clone(), rng.fork());
        playing.spawn(async move { (number, play(address, number, &bytes, rng).await) });
    }
    while let Some(ended) = playing.join_next().await {
        let (number, bytes) = ended.unwrap();
        answered[number] = bytes;
    }

    let mut by_client: HashMap<String, Vec<ReceivedRequest>> = HashMap::new();
    for seen in backend.take_seen() {
        let client = String::from_utf8(seen.head.remote_address.clone()).unwrap();
        by_client.entry(client).or_default().push(seen);
    }
    let mut tally = Tally::default();
    for (number, bytes) in streams.iter().enumerate() {
        let seen = by_client.remove(&client(number).to_string());
        let seen = seen.unwrap_or_default();
        let plain = plain_hyper(bytes);
        if let Err(why) = compare(&plain, &seen, &mut tally) {
            panic!(
                "{why}\nstream {number} of FAASW_TEST_SEED={seed}: {}\nplain hyper: \
                 {plain:#?}\nfunctions: {seen:#?}\nanswers: {}",
                bytes.escape_ascii(),
                answered[number].escape_ascii()
            );
        }
    }
    assert!(by_client.is_empty());
    eprintln!("{tally:?}");
    // Mutations that break every request, or none, would test nothing.
    assert!(
        tally.same > count / 2 && tally.refused > count / 100,
        "{tally:?}"
    );
    node.shutdown().await;
}

#[derive(Debug, Default)]
struct Tally {
    /// Requests that both servers saw.
    same: usize,
    /// Requests that the gateway refused.
    refused: usize,
    /// Requests that name no function.
    elsewhere: usize,
}

/// Returns the stream's own client address, which functions see.
fn client(number: usize) -> IpAddr {
    let number = u32::try_from(number).unwrap();
    let base = u32::from(Ipv4Addr::new(127, 1, 0, 1));
    Ipv4Addr::from(base + number).into()
}

async fn play(address: SocketAddr, number: usize, bytes: &[u8], mut rng: Rng) -> Vec<u8> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(client(number), 0)).unwrap();
    let stream = socket.connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let writing = async {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rng.usize(1..=rest.len()));
            if writer.write_all(piece).await.is_err() {
                break;
            }
            rest = after;
            tokio::task::yield_now().await;
        }
        writer
    };
    let mut received = Vec::new();
    let reading = reader.read_to_end(&mut received);
    let both = async { tokio::join!(writing, reading).1 };
    // A reset also ends the connection. The requests that functions saw are what counts.
    let _ = timeout(time_limit(60), both)
        .await
        .expect("the node closes");
    received
}

/// A request as plain hyper passed it to its service.
#[derive(Debug)]
struct Plain {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    body: Bytes,
}

/// The documented outcome of a request at the gateway. This repeats the documentation,
/// independently of the gateway's code.
enum Documented {
    /// A function sees this path.
    Seen(String),
    /// The gateway answers it without a function.
    Elsewhere,
    /// The gateway refuses it and closes the connection.
    Refused,
}

impl Plain {
    fn documented(&self) -> Documented {
        let hosts: Vec<_> = self.headers.get_all("host").iter().collect();
        let target = self.uri.to_string();
        let is_path = target.starts_with('/');
        let is_whole = ["http", "https"]
            .into_iter()
            .any(|scheme| self.uri.scheme_str() == Some(scheme));
        let asterisk = target == "*" && self.method == Method::OPTIONS;
        let lists = |name: &str, word: &str| {
            let values = self.headers.get_all(name).into_iter();
            values
                .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
                .any(|token| token.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
        };
        let is_only = |name: &str, word: &str| {
            let values: Vec<_> = self.headers.get_all(name).iter().collect();
            values.is_empty()
                || values.len() == 1 && values[0].as_bytes().eq_ignore_ascii_case(word.as_bytes())
        };
        let is_11 = self.version == Version::HTTP_11;
        let refused = self.method == Method::CONNECT
            || !(is_path || is_whole || asterisk)
            || self
                .uri
                .authority()
                .is_some_and(|it| it.as_str().contains('@'))
            || hosts.len() > 1
            || hosts.is_empty() && is_11
            || hosts.iter().any(|host| !is_host(host.as_bytes()))
            || !is_only("transfer-encoding", "chunked")
            || is_11
                && !self
                    .headers
                    .get_all("expect")
                    .iter()
                    .all(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
            || is_11
                && lists("connection", "upgrade")
                && self.headers.contains_key("upgrade")
                && !lists("upgrade", "h2c");
        if refused {
            return Documented::Refused;
        }
        let path = self.uri.path_and_query().map_or("", |path| path.as_str());
        // The mutations seldom make other spellings of the name.
        let name = ["/f", "/%66"].into_iter().find(|name| {
            path.strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
        });
        let Some(rest) = name.and_then(|name| path.strip_prefix(name)) else {
            return Documented::Elsewhere;
        };
        let slash = if rest.starts_with('/') { "" } else { "/" };
        Documented::Seen(format!("{slash}{rest}"))
    }

    /// Returns how many header fields a function sees.
    fn visible(&self) -> usize {
        const HIDDEN: [&str; 12] = [
            "connection",
            "expect",
            "http2-settings",
            "keep-alive",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "content-length",
        ];
        let values = self.headers.get_all("connection").into_iter();
        let named: Vec<String> = values
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .map(|token| String::from_utf8_lossy(token).trim().to_lowercase())
            .collect();
        let absolute = self.uri.authority().is_some();
        let passing = self.headers.iter().filter(|(name, _)| {
            let name = name.as_str();
            let replaced = name == "host" && absolute;
            !HIDDEN.contains(&name) && !named.iter().any(|other| other == name) && !replaced
        });
        let has_length = self.headers.contains_key("content-length");
        // The node adds the field with the request's id.
        let id = 1;
        passing.count() + usize::from(absolute) + usize::from(has_length) + id
    }
}

fn is_host(value: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(value) else {
        return false;
    };
    let url = format!("http://{text}/");
    text.is_empty()
        || url.parse::<Uri>().is_ok_and(|uri| {
            let port = text
                .rsplit_once(':')
                .filter(|(_, port)| !port.ends_with(']'));
            uri.authority().is_some_and(|it| it.as_str() == text)
                && !text.contains('@')
                && port.is_none_or(|(host, port)| {
                    port.bytes().all(|byte| byte.is_ascii_digit())
                        && (!host.contains(':') || host.ends_with(']'))
                })
        })
}

fn compare(plain: &[Plain], seen: &[ReceivedRequest], tally: &mut Tally) -> Result<(), String> {
    let mut seen = seen.iter();
    for request in plain {
        let path = match request.documented() {
            Documented::Refused => {
                tally.refused += 1;
                break;
            }
            Documented::Elsewhere => {
                tally.elsewhere += 1;
                // If the client sent `Expect`, the node reads nothing more from it.
                if request.version == Version::HTTP_11 && request.headers.contains_key("expect") {
                    break;
                }
                continue;
            }
            Documented::Seen(path) => path,
        };
        let Some(seen) = seen.next() else {
            return Err(format!("no function saw {} {path}", request.method));
        };
        let line = format!("{} {path}", request.method);
        if seen.line() != line {
            return Err(format!("{} is not {line}", seen.line()));
        }
        if seen.body != request.body {
            return Err(format!("the body of {line} is another one"));
        }
        if seen.head.headers.len() != request.visible() {
            return Err(format!(
                "{line} has {} fields, not {}",
                seen.head.headers.len(),
                request.visible()
            ));
        }
        tally.same += 1;
    }
    match seen.next() {
        Some(more) => Err(format!(
            "a function saw {}, which is not there",
            more.line()
        )),
        None => Ok(()),
    }
}

/// Returns the requests that a plain hyper server sees in a connection's bytes.
fn plain_hyper(bytes: &[u8]) -> Vec<Plain> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let saw = seen.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let seen = saw.clone();
        async move {
            let (parts, body) = request.into_parts();
            if let Ok(body) = body.collect().await {
                seen.lock().unwrap().push(Plain {
                    method: parts.method,
                    uri: parts.uri,
                    version: parts.version,
                    headers: parts.headers,
                    body: body.to_bytes(),
                });
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let io = TokioIo::new(Script(Bytes::copy_from_slice(bytes)));
    let mut connection = pin!(http1::Builder::new().serve_connection(io, service));
    // Nothing outside wakes the connection. Once it does not wake itself, it waits for bytes that
    // never come.
    let woken = Arc::new(WakeFlag(AtomicBool::new(true)));
    let waker = woken.clone().into();
    while woken.0.swap(false, Ordering::Relaxed) {
        let polled = connection.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            break;
        }
    }
    let mut seen = seen.lock().unwrap();
    std::mem::take(&mut *seen)
}

struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client that sends these bytes, then sends nothing more, and reads everything.
struct Script(Bytes);

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return Poll::Pending;
        }
        let count = self.0.len().min(buffer.remaining());
        buffer.put_slice(&self.0.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

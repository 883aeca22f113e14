//! A request finds exactly its seed's state, and nothing of the request before it.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use faasw_abi::mailbox::MAILBOX_BYTES;
use faasw_pool::{FunctionVersion, InvocationRequest, RequestBody, Served};
use fastrand::Rng;
use http::{HeaderMap, HeaderValue};
use http_body::Frame;

use crate::support::random::{bytes, seeded};
use crate::support::{Bench, Log, Pair, arriving, body_and_trailers, call, slowness};

pub async fn every_request_sees_the_state_of_the_seed(bench: &Bench) {
    let seed = crate::probe(bench).await;
    let mut warm = 0;
    let requests = (600 / slowness()).max(20);
    for number in 0..requests {
        let (text, timing, _) = bench.through(&seed, call("/count")).await;
        assert_eq!(text, b"1\n", "request {number}, {timing:?}");
        warm += u32::from(timing.served == Served::Warm);
    }
    assert!(warm >= requests - 5, "{warm} of {requests}");
}

/// The expected response and log lines of a request.
struct Expected {
    body: Vec<u8>,
    trailers: Vec<Pair>,
    lines: Vec<String>,
}

impl Expected {
    fn text(body: &str) -> Self {
        Self::bytes(body.into())
    }

    fn bytes(body: Vec<u8>) -> Self {
        Self {
            body,
            trailers: Vec::new(),
            lines: Vec::new(),
        }
    }
}

/// Returns a body that arrives in several parts, with optional trailers behind it.
fn in_parts(bytes: &[u8], trailer: Option<String>) -> RequestBody {
    let (client, body) = arriving();
    let parts: Vec<Bytes> = bytes.chunks(200_000).map(Bytes::copy_from_slice).collect();
    tokio::spawn(async move {
        for part in parts {
            // A function that is done takes no more of it.
            let _ = client.send(Ok(Frame::data(part))).await;
        }
        if let Some(trailer) = trailer {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-secret", HeaderValue::from_str(&trailer).unwrap());
            let _ = client.send(Ok(Frame::trailers(trailers))).await;
        }
    });
    body
}

fn echo(random: &mut Rng, size: usize) -> (InvocationRequest, Expected) {
    let path = format!("/echo/{:x}?{:x}", random.u64(..), random.u64(..));
    let mark = format!("{:x}", random.u64(..)).repeat(random.usize(..40) + 1);
    let body = bytes(random, size);
    let mut order = call(&path);
    order.head.method = b"POST".to_vec();
    order.head.headers = vec![(b"x-mark".to_vec(), mark.clone().into())];
    order.body = in_parts(&body, random.bool().then(|| mark.repeat(4)));
    let mut expected = format!("POST {path}\nx-mark: {mark}\n\n").into_bytes();
    expected.extend(body);
    (order, Expected::bytes(expected))
}

/// Returns a random request that the probe answers well.
fn any(random: &mut Rng) -> (InvocationRequest, Expected) {
    let largest = (4 << 20) / slowness() as usize;
    match random.usize(..12) {
        0 => (call("/count"), Expected::text("1\n")),
        1 => (call("/hello"), Expected::text("hello\n")),
        // A request without a body has none in its echo.
        2 => echo(random, 0),
        3 => (call("/stdin"), Expected::text("stdin 0\n")),
        4 => {
            let size = random.usize(..1000);
            echo(random, size)
        }
        5 => {
            let size = largest / 2 + random.usize(..largest);
            echo(random, size)
        }
        // The function never reads this body.
        6 => {
            let mut order = call("/count");
            let size = random.usize(..largest);
            order.body = in_parts(&bytes(random, size), Some("unread".to_owned()));
            (order, Expected::text("1\n"))
        }
        7 => {
            let size = random.usize(..largest);
            let mut pattern = b"0123456789abcdef".repeat(size / 16 + 1);
            pattern.truncate(size);
            (call(&format!("/body/{size}")), Expected::bytes(pattern))
        }
        8 => {
            let mut expected = Expected::text("body before trailers\n");
            expected.trailers = vec![(b"x-trailer".to_vec(), b"after the body".to_vec())];
            (call("/trailers"), expected)
        }
        9 => {
            let count = random.usize(..40_000 / slowness() as usize);
            let mut expected = Expected::text(&format!("logged {count}\n"));
            expected.lines = (1..=count)
                .map(|line| format!("flood line {line} of {count}"))
                .collect();
            (call(&format!("/log-flood/{count}")), expected)
        }
        10 => (call("/env"), Expected::text("COLOUR=green\narg test\n")),
        // Memory that grew has its former size again.
        _ => {
            let pages = random.usize(..300) + 1;
            (call(&format!("/grow/{pages}")), Expected::text("old "))
        }
    }
}

pub async fn nothing_passes_from_one_request_to_the_next(bench: &Bench) {
    let seed = crate::probe(bench).await;
    bench.warm_one(&seed, "/hello").await;
    let mut random = seeded("nothing_passes_from_one_request_to_the_next");
    let mut old_size = None;
    let mut warm = 0;
    let requests = (200 / slowness()).max(24);
    for number in 0..requests {
        let (order, expected) = any(&mut random);
        let path = String::from_utf8(order.head.path_and_query.clone()).unwrap();
        let what = format!("request {number}, {path}");
        warm += u32::from(invocation(bench, &seed, order, expected, &mut old_size, &what).await);
    }
    println!("{warm} of {requests} requests met a warm instance");
    assert!(warm > requests / 2, "{warm}");
}

/// Sends one request, and checks its response and what it left. Returns whether a warm instance
/// served it.
async fn invocation(
    bench: &Bench,
    seed: &FunctionVersion,
    mut order: InvocationRequest,
    expected: Expected,
    old_size: &mut Option<Vec<u8>>,
    what: &str,
) -> bool {
    let log = Arc::new(Log::default());
    order.log = log.clone();
    let reply = bench.pool.invoke(seed, order).await.unwrap();
    let served = reply.timing.served;
    let (mut body, trailers) = body_and_trailers(reply.body).await.unwrap();
    if expected.body == b"old " {
        // All requests find memory of the same size as the first.
        body.truncate(body.iter().rposition(|byte| *byte == b'n').unwrap());
        let first = old_size.get_or_insert(body.clone());
        assert_eq!(body, *first, "{what}");
    } else {
        let same = body == expected.body;
        let start =
            |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        assert!(
            same,
            "{what}: {} bytes {:?} instead of {} bytes {:?}",
            body.len(),
            start(&body),
            expected.body.len(),
            start(&expected.body)
        );
    }
    assert_eq!(trailers, expected.trailers, "{what}");
    let effort = log.effort().await;
    let lines = log.lines.lock().unwrap().clone();
    let same = lines == expected.lines;
    assert!(same, "{what}: {} lines, {:?}", lines.len(), lines.first());
    bench.settles(what, |stats| stats.busy == 0).await;
    assert_eq!(
        bench.pool.stats().warm == 1,
        effort.reset.is_some(),
        "{what}"
    );
    for mailbox in mailboxes() {
        let is_wiped = mailbox == vec![0; mailbox.len()];
        assert!(is_wiped, "{what}: its mailbox is not wiped");
    }
    served == Served::Warm
}

/// Returns the contents of all instances' mailboxes, while none is at work. The page behind a
/// mailbox is not included, because no guest has it.
fn mailboxes() -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let is_mailbox = fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().contains("faasw-mailbox"));
        if is_mailbox {
            let file = fs::File::open(entry.path()).unwrap();
            let mut bytes = vec![0; MAILBOX_BYTES as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            found.push(bytes);
        }
    }
    found
}

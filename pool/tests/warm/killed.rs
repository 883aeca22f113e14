//! Sandboxes that were ended while they waited: others serve their requests, without loss or
//! duplication.
//!
//! The tests stop processes to hold short moments still: a stopped spawner does not report that a
//! sandbox has ended, and a stopped sandbox does not run its guest.

use std::time::Duration;

use bytes::Bytes;
use faasw_pool::{FunctionVersion, InvocationRequest, InvokeError, Served};
use http::{HeaderMap, HeaderValue};
use http_body::Frame;

use crate::probe;
use crate::support::processes::{has_ended, kill, name_of, our_processes, sandboxes, signal};
use crate::support::{Bench, arriving, bytes_of, call, slowness};

/// Sizes of bodies: none, a few bytes, exactly the ring, and more than the ring.
const BODIES: [usize; 5] = [0, 5, 1 << 20, (1 << 20) + 1, 5 << 19];

/// How much of the body is sent before the sandbox has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SentPart {
    All,
    Half,
}

pub fn spawner() -> u32 {
    let mut processes = our_processes().into_iter();
    processes
        .find(|pid| name_of(*pid) == "faasw-spawner")
        .unwrap()
}

/// Kills a process and waits until it has ended, without letting the spawner reap it.
pub async fn kill_unnoticed(bench: &Bench, pid: u32) {
    signal(spawner(), "STOP");
    kill(pid);
    bench.settles("it ends", |_| has_ended(pid)).await;
}

/// Waits for longer than the momentary steps in these tests take.
pub async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(50) * slowness()).await;
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at / 3 % 251) as u8).collect()
}

/// Returns an echo request whose body arrives in parts. Parts after the first `sent` wait for
/// `go_on`.
fn echo(
    size: usize,
    sent: SentPart,
    go_on: tokio::sync::oneshot::Receiver<()>,
) -> InvocationRequest {
    let (client, body) = arriving();
    let parts: Vec<Bytes> = pattern(size)
        .chunks(150_000)
        .map(Bytes::copy_from_slice)
        .collect();
    let early = match sent {
        SentPart::All => parts.len(),
        SentPart::Half => parts.len() / 2,
    };
    tokio::spawn(async move {
        let mut go_on = Some(go_on);
        for (at, part) in parts.into_iter().enumerate() {
            if at == early
                && let Some(go_on) = go_on.take()
            {
                go_on.await.unwrap();
            }
            client.send(Ok(Frame::data(part))).await.unwrap();
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-end", HeaderValue::from_static("yes"));
        client.send(Ok(Frame::trailers(trailers))).await.unwrap();
    });
    let mut order = call("/echo");
    order.head.method = b"POST".to_vec();
    order.body = body;
    order
}

/// Sends an echo request while `end` ends a sandbox. Returns how the request was served.
async fn echo_while(
    bench: &Bench,
    seed: &FunctionVersion,
    size: usize,
    sent: SentPart,
    end: impl AsyncFnOnce(),
) -> Served {
    let (go_on, waits) = tokio::sync::oneshot::channel();
    let order = echo(size, sent, waits);
    let (pool, function) = (bench.pool.clone(), seed.clone());
    let invoking = tokio::spawn(async move {
        let reply = pool.invoke(&function, order).await?;
        let served = reply.timing.served;
        Ok::<_, InvokeError>((served, bytes_of(reply.body).await?))
    });
    // No sandbox can serve the request before `end`, so it is under way until then.
    bench
        .settles("the request is under way", |stats| stats.busy == 1)
        .await;
    a_moment().await;
    end().await;
    a_moment().await;
    // The whole body may have been sent by now.
    let _ = go_on.send(());
    let (served, body) = invoking.await.unwrap().unwrap();
    let expected = [b"POST /echo\n\n".to_vec(), pattern(size)].concat();
    assert!(
        body == expected,
        "{size} {sent:?}: {} bytes instead of {}",
        body.len(),
        expected.len()
    );
    served
}

pub async fn a_warm_sandbox_that_has_just_ended_fails_no_request(bench: &Bench) {
    let seed = probe(bench).await;
    for size in BODIES {
        for sent in [SentPart::All, SentPart::Half] {
            let instance = bench.warm_one(&seed, "/count").await;
            kill_unnoticed(bench, instance).await;
            let served = echo_while(bench, &seed, size, sent, async || {
                signal(spawner(), "CONT");
            })
            .await;
            assert_eq!(served, Served::Made, "{size} {sent:?}");
            bench
                .settles("another is warm", |stats| {
                    stats.warm == 1 && stats.busy == 0
                })
                .await;
            assert!(!sandboxes().contains(&instance));
            let (text, _, _) = bench.through(&seed, call("/count")).await;
            assert_eq!(text, b"1\n");
            bench.settles("it is over", |stats| stats.busy == 0).await;
        }
    }
}

pub async fn a_request_survives_a_warm_sandbox_that_ends_before_its_guest_runs(bench: &Bench) {
    let seed = probe(bench).await;
    for size in BODIES {
        for sent in [SentPart::All, SentPart::Half] {
            let instance = bench.warm_one(&seed, "/count").await;
            signal(instance, "STOP");
            let served = echo_while(bench, &seed, size, sent, async || {
                assert_eq!(bench.pool.stats().busy, 1);
                kill(instance);
            })
            .await;
            assert_eq!(served, Served::Made, "{size} {sent:?}");
            bench
                .settles("another is warm", |stats| {
                    stats.warm == 1 && stats.busy == 0
                })
                .await;
            let (text, _, _) = bench.through(&seed, call("/count")).await;
            assert_eq!(text, b"1\n");
            bench.settles("it is over", |stats| stats.busy == 0).await;
        }
    }
}

/// Sandboxes that are known to have ended are skipped; one that is not yet known to is replaced.
pub async fn sandboxes_of_the_stock_that_have_ended_fail_no_request(bench: &Bench) {
    let seed = probe(bench).await;
    bench
        .settles("the stock is full", |stats| {
            stats.zygotes == 2 && stats.busy == 0
        })
        .await;
    let stock = sandboxes();
    signal(spawner(), "STOP");
    for pid in &stock {
        kill(*pid);
    }
    bench
        .settles("they end", |_| stock.iter().all(|pid| has_ended(*pid)))
        .await;
    let served = echo_while(bench, &seed, 5, SentPart::All, async || {
        signal(spawner(), "CONT");
    })
    .await;
    assert_eq!(served, Served::Made);
    bench.settles("it is over", |stats| stats.busy == 0).await;
    assert_eq!(bench.text(&seed, "/count").await, "1\n");
}

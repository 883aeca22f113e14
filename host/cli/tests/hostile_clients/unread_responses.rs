//! Responses that the client does not read.

use std::time::Duration;

use tokio::{
    io::AsyncWriteExt as _,
    time::{Instant, interval, sleep_until},
};

use crate::{
    arena::{ATTACK, Bounds, Wire, withstands},
    common::trials::Test,
    wire::{self, Connection, HOST, Http2, INITIAL_WINDOW, Target, address, stream, window_update},
};

pub const TESTS: &[Test] = attacks![
    windows_of_nothing,
    windows_opened_byte_by_byte,
    pipelines_that_are_never_read,
    small_responses_unread,
    large_heads_unread_on_http2,
    large_heads_unread_on_http1;
    tls: windows_of_nothing, pipelines_that_are_never_read
];

/// Bounds of the memory that the node may hold for responses and around them.
const BOUNDS: Bounds = Bounds {
    memory: 160,
    descriptors: 1200,
};

/// Requests a path `streams` times on each of `connections`, and returns the connections.
async fn ask_http2(
    target: &Target,
    connections: usize,
    streams: u32,
    path: &str,
    window: Option<u32>,
    reads: bool,
) -> Vec<Http2> {
    let settings: Vec<_> = window
        .map(|size| (INITIAL_WINDOW, size))
        .into_iter()
        .collect();
    let mut all = Vec::new();
    for number in 0..connections {
        let Ok(mut connection) = Http2::open(target, address(number), &settings, reads).await
        else {
            continue;
        };
        let requests: Vec<u8> = (0..streams)
            .flat_map(|number| wire::get(stream(number), path))
            .collect();
        if connection.send(&requests).await.is_ok() {
            all.push(connection);
        }
    }
    all
}

/// Sends pipelined requests by HTTP/1 on each of `connections`, and never reads.
async fn ask_http1(
    target: &Target,
    connections: usize,
    each: usize,
    path: &str,
) -> Vec<Connection> {
    let mut all = Vec::new();
    for number in 0..connections {
        let Ok(mut connection) = target.connect(address(number), None).await else {
            continue;
        };
        let requests = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n").repeat(each);
        let writing = connection.write_all(requests.as_bytes());
        if let Ok(Ok(())) = tokio::time::timeout(Duration::from_secs(1), writing).await {
            all.push(connection);
        }
    }
    all
}

fn windows_of_nothing(wire: Wire) {
    withstands(wire, "windows of nothing", &BOUNDS, |target| async move {
        let until = Instant::now() + ATTACK;
        let _held = ask_http2(&target, 12, 100, "/probe/body/1048576", Some(0), true).await;
        sleep_until(until).await;
    });
}

fn windows_opened_byte_by_byte(wire: Wire) {
    withstands(
        wire,
        "windows opened byte by byte",
        &BOUNDS,
        |target| async move {
            let until = Instant::now() + ATTACK;
            let mut held = ask_http2(&target, 8, 50, "/probe/body/1048576", Some(1), true).await;
            let mut ticks = interval(Duration::from_millis(100));
            while Instant::now() < until {
                ticks.tick().await;
                let more: Vec<u8> = (0..50)
                    .flat_map(|number| window_update(stream(number), 1))
                    .collect();
                for connection in &mut held {
                    // A connection that the node has ended does no more harm.
                    let _ = connection.send(&more).await;
                }
            }
        },
    );
}

fn pipelines_that_are_never_read(wire: Wire) {
    withstands(wire, "pipelines never read", &BOUNDS, |target| async move {
        let until = Instant::now() + ATTACK;
        let _held = ask_http1(&target, 64, 50, "/probe/body/1048576").await;
        sleep_until(until).await;
    });
}

fn small_responses_unread(wire: Wire) {
    withstands(
        wire,
        "small responses unread",
        &BOUNDS,
        |target| async move {
            let until = Instant::now() + ATTACK;
            let mut held = ask_http2(&target, 16, 100, "/probe/hello", None, false).await;
            // Further requests on new streams, for as long as the node reads them.
            let mut next = 100;
            while Instant::now() < until {
                for connection in &mut held {
                    let more: Vec<u8> = (next..next + 20)
                        .flat_map(|number| wire::get(stream(number), "/probe/hello"))
                        .collect();
                    let sending = connection.send(&more);
                    let _ = tokio::time::timeout(Duration::from_millis(20), sending).await;
                }
                next += 20;
            }
        },
    );
}

fn large_heads_unread_on_http2(wire: Wire) {
    withstands(
        wire,
        "large heads unread, HTTP/2",
        &BOUNDS,
        |target| async move {
            let until = Instant::now() + ATTACK;
            let _held = ask_http2(&target, 12, 100, "/heads/", None, false).await;
            sleep_until(until).await;
        },
    );
}

fn large_heads_unread_on_http1(wire: Wire) {
    withstands(
        wire,
        "large heads unread, HTTP/1",
        &BOUNDS,
        |target| async move {
            let until = Instant::now() + ATTACK;
            let _held = ask_http1(&target, 64, 50, "/heads/").await;
            sleep_until(until).await;
        },
    );
}

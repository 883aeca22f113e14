//! Requests that do not end, and connections that hardly begin.

use std::time::Duration;

use tokio::{
    io::AsyncWriteExt as _,
    time::{Instant, interval, sleep_until, timeout},
};

use crate::{
    arena::{ATTACK, Bounds, Wire, withstands},
    common::trials::Test,
    wire::{self, Connection, HOST, Http2, Target, address, connect, stream},
};

pub const TESTS: &[Test] = attacks![
    bodies_without_end_on_http2,
    bodies_byte_by_byte_on_http2,
    bodies_byte_by_byte_on_http1,
    heads_byte_by_byte,
    thousands_of_connections;
    tls: bodies_without_end_on_http2, bodies_byte_by_byte_on_http1, thousands_of_connections
];

const BOUNDS: Bounds = Bounds {
    memory: 96,
    descriptors: 4600,
};

/// Sends a piece on each connection in each period, and drops connections that the node ends.
async fn trickle(mut connections: Vec<Connection>, piece: &[u8], period: Duration, until: Instant) {
    let mut ticks = interval(period);
    while Instant::now() < until {
        ticks.tick().await;
        let mut kept = Vec::new();
        for mut connection in connections {
            if connection.write_all(piece).await.is_ok() {
                kept.push(connection);
            }
        }
        connections = kept;
    }
}

/// Opens connections from several addresses, each of which sends `begun`.
async fn begin(target: &Target, count: usize, addresses: usize, begun: &[u8]) -> Vec<Connection> {
    let mut all = Vec::new();
    for number in 0..count {
        let connecting = target.connect(address(number % addresses), None);
        let connected = timeout(Duration::from_secs(1), connecting).await;
        if let Ok(Ok(mut connection)) = connected
            && connection.write_all(begun).await.is_ok()
        {
            all.push(connection);
        }
    }
    all
}

/// Opens three connections with 90 requests each whose bodies do not arrive.
async fn posts(target: &Target) -> Vec<Http2> {
    let mut held = Vec::new();
    for number in 0..3 {
        let Ok(mut connection) = Http2::open(target, address(number), &[], true).await else {
            continue;
        };
        let requests: Vec<u8> = (0..90)
            .flat_map(|number| wire::post(stream(number), "/probe/echo"))
            .collect();
        if connection.send(&requests).await.is_ok() {
            held.push(connection);
        }
    }
    held
}

fn bodies_without_end_on_http2(wire: Wire) {
    withstands(
        wire,
        "bodies without end, HTTP/2",
        &BOUNDS,
        |target| async move {
            let until = Instant::now() + ATTACK;
            let _held = posts(&target).await;
            sleep_until(until).await;
        },
    );
}

fn bodies_byte_by_byte_on_http2(wire: Wire) {
    withstands(
        wire,
        "bodies byte by byte, HTTP/2",
        &BOUNDS,
        |target| async move {
            let until = Instant::now() + ATTACK;
            let mut held = posts(&target).await;
            let mut ticks = interval(Duration::from_millis(200));
            while Instant::now() < until {
                ticks.tick().await;
                let bytes: Vec<u8> = (0..90)
                    .flat_map(|number| wire::frame(wire::DATA, 0, stream(number), b"x"))
                    .collect();
                for connection in &mut held {
                    let _ = connection.send(&bytes).await;
                }
            }
        },
    );
}

fn bodies_byte_by_byte_on_http1(wire: Wire) {
    withstands(
        wire,
        "bodies byte by byte, HTTP/1",
        &BOUNDS,
        |target| async move {
            let until = Instant::now() + ATTACK;
            let head = format!(
                "POST /probe/echo HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1000000\r\n\r\n"
            );
            let held = begin(&target, 258, 16, head.as_bytes()).await;
            trickle(held, b"x", Duration::from_millis(200), until).await;
        },
    );
}

fn heads_byte_by_byte(wire: Wire) {
    withstands(wire, "heads byte by byte", &BOUNDS, |target| async move {
        let until = Instant::now() + ATTACK;
        let held = begin(&target, 300, 16, b"GET /probe/hello HTTP/1.1\r\nX: ").await;
        trickle(held, b"x", Duration::from_millis(100), until).await;
    });
}

fn thousands_of_connections(wire: Wire) {
    // The node allows 4096 connections, each with its memory (docs/operating.md).
    const BOUNDS: Bounds = Bounds {
        memory: (4096 * 32) >> 10,
        descriptors: 4600,
    };
    withstands(wire, "4,100 connections", &BOUNDS, |target| async move {
        let until = Instant::now() + ATTACK;
        // With TLS the connections do not even start a handshake.
        let mut held = Vec::new();
        for number in 0..4100 {
            let connecting = connect(target.address, address(number % 64));
            let connected = timeout(Duration::from_secs(1), connecting).await;
            if let Ok(Ok(mut connection)) = connected
                && connection.write_all(&[0x16]).await.is_ok()
            {
                held.push(connection);
            }
        }
        sleep_until(until).await;
    });
}

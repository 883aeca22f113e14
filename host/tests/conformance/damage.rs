//! Streams of requests, most of them damaged.

use fastrand::Rng;

/// Header lines that change how a head is parsed.
const FIELDS: [&str; 24] = [
    "Content-Length: 3",
    "Content-Length: 0",
    "Content-Length: +3",
    "Content-Length: 3, 3",
    "Content-Length : 3",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: xchunked",
    " folded: 1",
    "\tchunked",
    "Host: other",
    "Host: a b",
    "Connection: close",
    "Connection: keep-alive, X-A, content-length",
    "Connection: upgrade",
    "Upgrade: h2c",
    "Upgrade: websocket",
    "Expect: 100-continue",
    "Expect: other",
    "TE: trailers",
    "X-A: \u{e9}",
];

/// Pieces that break the framing if they are inserted at the right place.
const PIECES: [&str; 30] = [
    "\r",
    "\n",
    "\r\n",
    "\r\n\r\n",
    "\n\n",
    " ",
    "\t",
    "\0",
    ":",
    ",",
    ";",
    "+",
    "-",
    "0",
    "1",
    "f",
    "ff",
    "0x",
    "_",
    "\"",
    "\u{e9}",
    "0\r\n\r\n",
    "3\r\nabc\r\n",
    "GET /f/s HTTP/1.1\r\nHost: h\r\n\r\n",
    "/",
    "*",
    "http://o/f",
    "HTTP/1.0",
    "#",
    "?",
];

/// Returns one to three requests, most often with a little damage.
pub fn stream(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.usize(1..=3) {
        bytes.extend(request(rng));
    }
    for _ in 0..[0, 1, 1, 2, 3][rng.usize(0..5)] {
        damage(&mut bytes, rng);
    }
    bytes
}

fn request(rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng, all: &[&str]| all[rng.usize(0..all.len())].to_owned();
    let method = pick(
        rng,
        &[
            "GET", "POST", "POST", "PUT", "HEAD", "FROB", "OPTIONS", "TRACE",
        ],
    );
    let target = pick(
        rng,
        &[
            "/f",
            "/f/",
            "/f/a?b=c",
            "/f/../x",
            "/f//",
            "http://o/f/a",
            "/g/",
            "*",
            "/%66/x",
        ],
    );
    let version = pick(rng, &["1.1", "1.1", "1.1", "1.1", "1.0"]);
    let mut head = format!("{method} {target} HTTP/{version}\r\n");
    if version == "1.1" || rng.bool() {
        head.push_str("Host: h\r\n");
    }
    for number in 0..rng.usize(0..3) {
        head.push_str(&format!("X-{number}: {}\r\n", rng.alphanumeric()));
    }
    if rng.u8(0..8) == 0 {
        head.push_str(&pick(rng, &FIELDS));
        head.push_str("\r\n");
    }
    let length = rng.usize(0..40);
    let body: String = (0..length).map(|_| rng.alphanumeric()).collect();
    match rng.u8(0..5) {
        0 => format!("{head}\r\n"),
        1 | 2 => format!("{head}Content-Length: {length}\r\n\r\n{body}"),
        _ => {
            let mut chunks = String::new();
            let mut rest = body.as_str();
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rng.usize(1..=rest.len()));
                let extension = pick(rng, &["", "", ";x", ";x=\"y\""]);
                chunks.push_str(&format!("{:x}{extension}\r\n{piece}\r\n", piece.len()));
                rest = after;
            }
            let trailers = pick(rng, &["", "", "X-T: 1\r\n", "Content-Length: 9\r\n"]);
            format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n{trailers}\r\n")
        }
    }
    .into_bytes()
}

fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.usize(0..=bytes.len());
    let insert = |bytes: &mut Vec<u8>, at: usize, piece: &[u8]| {
        bytes.splice(at..at, piece.iter().copied());
    };
    match rng.u8(0..9) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = rng.u8(..);
            }
        }
        1 => {
            let end = (at + rng.usize(1..4)).min(bytes.len());
            bytes.drain(at..end);
        }
        2 | 3 => insert(bytes, at, PIECES[rng.usize(0..PIECES.len())].as_bytes()),
        4 => {
            // Lengths consist of digits.
            let digits: Vec<usize> = (0..bytes.len())
                .filter(|at| bytes[*at].is_ascii_hexdigit())
                .collect();
            if !digits.is_empty() {
                bytes[digits[rng.usize(0..digits.len())]] =
                    b"0123456789abcdefF+-x "[rng.usize(0..21)];
            }
        }
        5 => bytes.truncate(at),
        _ => {
            // Inserts another line behind the end of a line.
            let ends: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\n').collect();
            if !ends.is_empty() {
                let at = ends[rng.usize(0..ends.len())] + 1;
                let line = format!("{}\r\n", FIELDS[rng.usize(0..FIELDS.len())]);
                insert(bytes, at, line.as_bytes());
            }
        }
    }
}

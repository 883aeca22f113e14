//! HTTP/2 servers that write frame by frame, and send what no library would.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::Upstream;
use super::http2::config;
use super::tls::Authority;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// `:status: 200` in HPACK.
pub const OK: &[u8] = &[0x88];

/// A frame (RFC 9113, 4.1).
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A setting, as in a frame's payload.
pub fn setting(number: u16, value: u32) -> Vec<u8> {
    [&number.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// A length in HPACK, with a prefix of seven bits.
fn length(length: usize) -> Vec<u8> {
    if length < 127 {
        return vec![length as u8];
    }
    let mut bytes = vec![127];
    let mut rest = length - 127;
    while rest >= 128 {
        bytes.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    bytes.push(rest as u8);
    bytes
}

/// A literal field (RFC 7541, 6.2.2).
pub fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        bytes.extend(length(text.len()));
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// A server's connection, whose preface has been read.
pub struct Raw {
    stream: StreamOwned<ServerConnection, TcpStream>,
    /// How many of the server's settings have been acknowledged.
    acknowledged: usize,
}

/// A server of `upstream.example` that runs `each` for every connection after it has sent
/// `settings`.
pub fn server(
    authority: &Authority,
    settings: Vec<u8>,
    each: impl Fn(&mut Raw, usize) + Send + Sync + 'static,
) -> Upstream {
    let config = config(authority);
    Upstream::new(move |stream, number| {
        if let Some(mut raw) = Raw::accept(&config, stream) {
            raw.write(&frame(SETTINGS, 0, 0, &settings));
            each(&mut raw, number);
        }
    })
}

impl Raw {
    /// Returns `None` if the client does not speak HTTP/2.
    pub fn accept(config: &Arc<ServerConfig>, stream: TcpStream) -> Option<Self> {
        let connection = ServerConnection::new(config.clone()).unwrap();
        let mut raw = Self {
            stream: StreamOwned::new(connection, stream),
            acknowledged: 0,
        };
        let mut preface = [0; 24];
        raw.stream.read_exact(&mut preface).ok()?;
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        Some(raw)
    }

    /// Writes bytes. Returns false if the client no longer reads.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream
            .write_all(bytes)
            .and_then(|()| self.stream.flush())
            .is_ok()
    }

    /// Returns kind, flags, stream and payload of the next frame; `None` at the end of the
    /// connection.
    pub fn read(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).ok()?;
        if (head[3], head[4]) == (SETTINGS, 1) {
            self.acknowledged += 1;
        }
        Some((head[3], head[4], stream, payload))
    }

    /// Returns the next frame of that kind, and skips others.
    pub fn read_until(&mut self, kind: u8) -> Option<(u8, u32, Vec<u8>)> {
        loop {
            let (found, flags, stream, payload) = self.read()?;
            if found == kind {
                return Some((flags, stream, payload));
            }
        }
    }

    /// Returns the stream of the next request, and acknowledges the client's settings.
    pub fn request(&mut self) -> Option<u32> {
        loop {
            match self.read()? {
                (HEADERS, _, stream, _) => return Some(stream),
                (SETTINGS, 0, _, _) => self.write(&frame(SETTINGS, 1, 0, &[])),
                _ => true,
            };
        }
    }

    /// Waits until that many of the server's settings have been acknowledged.
    pub fn settle(&mut self, settings: usize) {
        while self.acknowledged < settings {
            self.read().unwrap();
        }
    }

    /// Shuts down writing, and waits until the client closes: everything sent before has then been
    /// handled.
    pub fn close(&mut self) {
        self.stream.sock.shutdown(Shutdown::Write).unwrap();
        self.read_to_end();
    }

    /// Answers with fields and a body.
    pub fn answer(&mut self, stream: u32, fields: &[u8], body: &[u8]) -> bool {
        let head = frame(HEADERS, END_HEADERS, stream, &[OK, fields].concat());
        self.write(&[head, frame(DATA, END_STREAM, stream, body)].concat())
    }

    /// Writes until the client stops reading.
    pub fn write_without_end(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < 256 << 20 && self.write(bytes) {
            sent += bytes.len();
        }
        sent
    }

    /// Reads until the client closes.
    pub fn read_to_end(&mut self) {
        while self.read().is_some() {}
    }
}

//! Hostile clients beside an honest load. They hold resources again and again, from many addresses,
//! for as long as the load goes on.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::client::{self, Url};

/// How long one attack lasts before the next.
const ATTACK_TIME: Duration = Duration::from_secs(5);
/// How long a write to a connection may take.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The attacks on a node, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// Responses over HTTP/2 to a client that opens no window.
    NoWindow,
    /// Pipelined requests of HTTP/1 whose responses are not read.
    Unread,
    /// Bodies over HTTP/2 that do not come.
    NoBody,
    /// Bodies over HTTP/1, a byte at a time.
    Trickle,
    /// Connections that have sent one byte.
    OneByte,
    /// Requests over HTTP/2 that are cancelled at once.
    Reset,
}

const ALL: [Attack; 6] = [
    Attack::NoWindow,
    Attack::Unread,
    Attack::NoBody,
    Attack::Trickle,
    Attack::OneByte,
    Attack::Reset,
];

/// The hostile clients, which attack the functions at `url` until `stop` is set.
pub struct Attackers<'a> {
    stop: &'a AtomicBool,
    connections: &'a AtomicU64,
    url: &'a Url,
}

/// Runs `work` while hostile clients send requests to `url`. Returns its result and the number of
/// connections that they made.
///
/// # Errors
/// Returns the error of `work`.
pub fn beside<T>(url: &Url, work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let (stop, connections) = (AtomicBool::new(false), AtomicU64::new(0));
    let attackers = Attackers {
        stop: &stop,
        connections: &connections,
        url,
    };
    let done = thread::scope(|scope| {
        scope.spawn(|| attackers.run());
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    })?;
    Ok((done, connections.load(Ordering::Relaxed)))
}

impl Attackers<'_> {
    fn run(&self) {
        for attack in ALL.iter().cycle() {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            self.hold(*attack);
        }
    }

    fn hold(&self, attack: Attack) {
        let until = Instant::now() + ATTACK_TIME;
        let goes_on = || Instant::now() < until && !self.stop.load(Ordering::Relaxed);
        let mut held = Vec::new();
        for number in 0..attack.connections() {
            if !goes_on() {
                break;
            }
            held.extend(self.begin(attack, number));
        }
        let piece = attack.piece();
        while goes_on() {
            for stream in &mut held {
                // A connection that the node has ended does no more harm.
                let _ = stream.write_all(piece);
                drain(stream, attack);
            }
            thread::sleep(Duration::from_millis(100));
        }
        for stream in held {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Opens a connection and sends the first bytes of the attack. Returns `None` if that fails.
    fn begin(&self, attack: Attack, number: u16) -> Option<TcpStream> {
        let [high, low] = (number % attack.addresses() + 1).to_be_bytes();
        let from = Ipv4Addr::new(127, 66, high, low);
        self.connections.fetch_add(1, Ordering::Relaxed);
        let mut stream = client::connect(self.url, Some(from)).ok()?;
        stream.set_write_timeout(Some(TIMEOUT)).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_millis(1)))
            .ok()?;
        stream.write_all(&attack.bytes(self.url)).ok()?;
        Some(stream)
    }
}

/// Reads available bytes in the attacks that need it for their frames to get through.
fn drain(stream: &mut TcpStream, attack: Attack) {
    if matches!(attack, Attack::NoWindow | Attack::NoBody | Attack::Reset) {
        let _ = stream.read(&mut [0; 16 << 10]);
    }
}

impl Attack {
    fn connections(self) -> u16 {
        match self {
            Self::NoWindow => 12,
            Self::Unread => 64,
            Self::NoBody => 3,
            Self::Trickle => 258,
            Self::OneByte => 4100,
            Self::Reset => 8,
        }
    }

    fn addresses(self) -> u16 {
        match self {
            Self::OneByte => 64,
            _ => 16,
        }
    }

    /// Returns the first bytes of a connection.
    fn bytes(self, url: &Url) -> Vec<u8> {
        let Url { authority, path } = url;
        let get = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\n\r\n");
        let post =
            format!("POST {path} HTTP/1.1\r\nhost: {authority}\r\ncontent-length: 1000000\r\n\r\n");
        let streams = |count: u32, window: Option<u32>, frames: &dyn Fn(u32) -> Vec<u8>| {
            let mut bytes = begun(window);
            bytes.extend((0..count).flat_map(|number| frames(2 * number + 1)));
            bytes
        };
        match self {
            Self::NoWindow => streams(100, Some(0), &|stream| request(stream, "GET", url, true)),
            Self::Unread => get.repeat(50).into_bytes(),
            Self::NoBody => streams(90, None, &|stream| request(stream, "POST", url, false)),
            Self::Trickle => post.into_bytes(),
            Self::OneByte => vec![b'G'],
            Self::Reset => streams(5000, None, &|stream| {
                let mut bytes = request(stream, "GET", url, true);
                bytes.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
                bytes
            }),
        }
    }

    /// Returns the bytes that the attack sends repeatedly afterwards.
    fn piece(self) -> &'static [u8] {
        match self {
            Self::Trickle => b"x",
            _ => b"",
        }
    }
}

/// Returns a frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    let mut frame: Vec<u8> = length.iter().skip(1).copied().collect();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns the first bytes of an HTTP/2 connection.
fn begun(window: Option<u32>) -> Vec<u8> {
    let mut settings = Vec::new();
    if let Some(size) = window {
        settings.extend([0, 4]);
        settings.extend(size.to_be_bytes());
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &settings));
    bytes
}

/// Returns the head of a request over HTTP/2, as HPACK literals without an index.
fn request(stream: u32, method: &str, url: &Url, is_whole: bool) -> Vec<u8> {
    let mut block = vec![0x86];
    for (name, value) in [
        (2, method),
        (4, url.path.as_str()),
        (1, url.authority.as_str()),
    ] {
        // A longer value would need more bytes for its length.
        let length = u8::try_from(value.len()).unwrap_or(u8::MAX).min(126);
        block.extend([name, length]);
        block.extend(value.bytes().take(length.into()));
    }
    let flags = if is_whole { 5 } else { 4 };
    frame(1, flags, stream, &block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::server;

    #[test]
    fn attacks_go_on_beside_the_work_and_end_with_it() {
        let url = server(vec![Vec::new(); 8]);
        let (done, connections) = beside(&url, || {
            thread::sleep(Duration::from_millis(200));
            Ok(7)
        })
        .unwrap();
        assert!(done == 7 && connections > 0, "{connections}");
    }

    #[test]
    fn every_attack_starts_with_its_own_bytes() {
        let url = "http://127.0.0.1:80/f/body/1048576".parse().unwrap();
        for attack in ALL {
            let bytes = attack.bytes(&url);
            let text = String::from_utf8_lossy(&bytes);
            let is_http2 = text.starts_with("PRI * HTTP/2.0");
            let expected = matches!(attack, Attack::NoWindow | Attack::NoBody | Attack::Reset);
            assert_eq!(is_http2, expected, "{attack:?}");
            assert!(text.contains("/f/body/1048576") || attack == Attack::OneByte);
        }
    }
}

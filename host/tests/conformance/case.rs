//! A case of the tables: the bytes, the expected answers, and the requests that a function may have
//! seen.
//!
//! The bytes of one more request follow every case. If the case ends the connection, that request
//! must be neither answered nor seen: it is the request that an attacker wants to smuggle.
//! Otherwise it must be answered, which shows that both sides agree on where the case ended.

use std::{net::SocketAddr, panic::AssertUnwindSafe};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::common::{
    self, FakeBackend,
    fake::ReceivedRequest,
    give_up,
    raw::{RawResponse, parse_all},
};

const NEXT: &[u8] = b"GET /f/next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

/// An expected answer.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// Status 200 from a function that saw this request line and this body.
    Seen(&'static str, &'static str),
    /// Status 200 for HEAD from a function that saw this request line.
    SeenHead(&'static str),
    /// This status, without any function having seen the request.
    Status(u16),
    /// This status with a problem body of this type, without any function having seen the request.
    Problem(u16, &'static str),
    /// 100 Continue.
    Continue,
}

pub use Answer::{Continue, Problem, Seen as Sees, SeenHead, Status};

#[derive(Clone, Debug)]
pub struct Case {
    /// The tested rule, and its section of the standard.
    name: String,
    bytes: Vec<u8>,
    answers: Vec<Answer>,
    closes: bool,
    /// Lines that the first function's answer must have.
    has: Vec<&'static str>,
    /// Parts that the first function's answer must not have.
    lacks: Vec<&'static str>,
}

impl Case {
    /// Creates a case after which the connection stays open.
    pub fn new(name: &str, bytes: impl AsRef<[u8]>, answers: &[Answer]) -> Self {
        Self {
            name: name.into(),
            bytes: bytes.as_ref().into(),
            answers: answers.into(),
            closes: false,
            has: Vec::new(),
            lacks: Vec::new(),
        }
    }

    /// Creates a case after which the node closes the connection.
    pub fn closing(name: &str, bytes: impl AsRef<[u8]>, answers: &[Answer]) -> Self {
        Self {
            closes: true,
            ..Self::new(name, bytes, answers)
        }
    }

    pub fn has(mut self, line: &'static str) -> Self {
        self.has.push(line);
        self
    }

    pub fn lacks(mut self, part: &'static str) -> Self {
        self.lacks.push(part);
        self
    }
}

/// How the bytes are written.
#[derive(Clone, Copy, Debug)]
enum Writing {
    AtOnce,
    BytePerByte,
}

/// Plays every case in both ways on one node.
pub async fn play(cases: impl IntoIterator<Item = Case>) {
    let backend = FakeBackend::default();
    let node = common::start_on(common::builder(), &backend).await;
    let address = node.address().unwrap();
    let mut failures = Vec::new();
    for case in cases {
        for writing in [Writing::AtOnce, Writing::BytePerByte] {
            let received = exchange(address, &case, writing).await;
            let seen = backend.take_seen();
            // All failures are reported with their bytes, instead of only the first panic.
            let judged =
                std::panic::catch_unwind(AssertUnwindSafe(|| judge(&case, &received, &seen)));
            if judged.is_err() {
                failures.push(format!(
                    "{} ({writing:?}):\n  sent {}\n  received {}\n  seen {:?}",
                    case.name,
                    shown(&case.bytes),
                    shown(&received),
                    seen.iter().map(ReceivedRequest::line).collect::<Vec<_>>(),
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    node.shutdown().await;
}

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(600)].escape_ascii().to_string()
}

/// Sends a case and the next request, and reads until the node closes.
async fn exchange(address: SocketAddr, case: &Case, writing: Writing) -> Vec<u8> {
    let mut bytes = case.bytes.clone();
    bytes.extend_from_slice(NEXT);
    send(address, &bytes, writing).await
}

async fn send(address: SocketAddr, bytes: &[u8], writing: Writing) -> Vec<u8> {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let step = match writing {
        Writing::AtOnce => bytes.len(),
        // With single bytes, the node would parse large heads thousands of times.
        Writing::BytePerByte => 1 + bytes.len() / 4096,
    };
    let writing = async {
        for piece in bytes.chunks(step) {
            // The node may have closed already. The checks of the answer decide about that.
            if writer.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        // The writer stays open, so that the node is the one that closes.
        writer
    };
    let mut received = Vec::new();
    let reading = reader.read_to_end(&mut received);
    let both = async { tokio::join!(writing, reading).1 };
    let ended = timeout(give_up(), both).await;
    ended
        .unwrap_or_else(|_| panic!("the connection stays open after {}", shown(bytes)))
        .unwrap_or_else(|error| panic!("{error} after {}", shown(bytes)));
    received
}

fn judge(case: &Case, received: &[u8], seen: &[ReceivedRequest]) {
    let mut expected = case.answers.clone();
    if !case.closes {
        expected.push(Sees("GET /next", ""));
    }
    let finals = expected.iter().filter(|answer| !matches!(answer, Continue));
    let heads: Vec<usize> = finals
        .enumerate()
        .filter(|(_, answer)| matches!(answer, SeenHead(_)))
        .map(|(number, _)| number)
        .collect();
    let responses = parse_all(received, &heads);
    assert_eq!(responses.len(), expected.len(), "{responses:?}");
    let mut seen = seen.iter();
    let mut first = true;
    for (response, answer) in responses.iter().zip(&expected) {
        assert!(response.is_whole, "{response:?}");
        match answer {
            Sees(line, body) => {
                let seen = seen.next().expect("a function that saw it");
                assert_eq!(
                    (response.status, seen.line().as_str(), &seen.body[..]),
                    (200, *line, body.as_bytes())
                );
                let echoes = response.body.starts_with(line);
                assert!(echoes || *line == "GET /slow", "{response:?}");
                if std::mem::take(&mut first) {
                    has_and_lacks(case, response);
                }
            }
            SeenHead(line) => {
                assert_eq!(seen.next().expect("a function that saw it").line(), *line);
                assert_eq!((response.status, response.body.as_str()), (200, ""));
            }
            Status(status) => assert_eq!(response.status, *status),
            Problem(status, slug) => {
                assert_eq!(response.status, *status);
                assert_eq!(
                    response.problem("type"),
                    format!("urn:faasw:problem:{slug}")
                );
            }
            Continue => assert_eq!(response.status, 100),
        }
    }
    assert_eq!(seen.count(), 0, "functions saw more than was answered");
}

fn has_and_lacks(case: &Case, response: &RawResponse) {
    for line in &case.has {
        assert!(
            response.body.lines().any(|other| other == *line),
            "no {line:?} in {response:?}"
        );
    }
    for part in &case.lacks {
        assert!(!response.body.contains(part), "{part:?} in {response:?}");
    }
}

//! A connector and a worker as processes, and upstreams of all kinds.
#![allow(dead_code, reason = "each suite uses some of it")]

pub mod frames;
pub mod http2;
pub mod names;
pub mod tls;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use faasw_abi::outgoing::{Answer, FailureCode, OutgoingHead, Tail, Timeouts};
use faasw_abi::wire::{Pair, ResponseHead};
use faasw_egress::client::{
    Call, Connector, ConnectorOptions, Part, Receiver, RefusedAddress, Worker,
};
use faasw_egress::frames::WorkerOptions;
use faasw_egress_policy::{AllowPrivate, Destination};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

pub use tokio::runtime::Runtime;

/// Timeout for events that must happen.
pub const LONG: Duration = Duration::from_secs(60);

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// A process of egress. Dropping it ends the process.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Returns the peak memory of the process, in bytes.
    pub fn most_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        let kibibytes = line.split_whitespace().nth(1).unwrap();
        kibibytes.parse::<usize>().unwrap() << 10
    }
}

pub fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
}

fn spawn(script: &str, third: OwnedFd, fourth: Option<OwnedFd>) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_faasw-egress")]);
    command.stdin(third);
    if let Some(fourth) = fourth {
        command.stdout(fourth);
    } else {
        command.stdout(Stdio::null());
    }
    Process(command.spawn().unwrap())
}

/// Starts a connector's process with these options.
pub fn connector(options: &ConnectorOptions) -> (Process, Connector) {
    let (ours, theirs) = pair(SocketType::SEQPACKET);
    let process = spawn(
        "exec \"$0\" connector --unconfined 3<&0 </dev/null",
        theirs,
        None,
    );
    (process, Connector::new(ours, options).unwrap())
}

/// Starts a worker's process for a function of its own.
pub fn worker(
    connector: &Connector,
    options: WorkerOptions,
    authorities: &[Bytes],
) -> (Process, Worker) {
    static FUNCTIONS: AtomicU64 = AtomicU64::new(1 << 32);
    let function = FUNCTIONS.fetch_add(1, Ordering::SeqCst);
    worker_of(function, connector, options, authorities)
}

/// Starts a worker's process for the function with this number.
pub fn worker_of(
    function: u64,
    connector: &Connector,
    options: WorkerOptions,
    authorities: &[Bytes],
) -> (Process, Worker) {
    let (ours, theirs) = pair(SocketType::STREAM);
    let (passing, passed) = pair(SocketType::SEQPACKET);
    let script = "exec \"$0\" worker --unconfined 3<&0 4<&1 </dev/null >&2";
    let process = spawn(script, theirs, Some(passed));
    let worker = Worker::new((ours, passing), connector, function, options, authorities);
    (process, worker.unwrap())
}

/// Options that let functions reach this machine.
pub fn loopback() -> ConnectorOptions {
    ConnectorOptions {
        private: ["127.0.0.0/8", "::1"]
            .map(|text| AllowPrivate::network(text).unwrap())
            .into(),
        hosts: b"127.0.0.1 upstream.example\n".to_vec(),
        ..ConnectorOptions::default()
    }
}

/// Both processes.
pub struct Egress {
    pub connector: Connector,
    pub worker: Worker,
    pub connector_process: Process,
    pub worker_process: Process,
}

impl Egress {
    pub fn start() -> Self {
        Self::with(&loopback(), WorkerOptions::default(), &[])
    }

    pub fn with(
        connecting: &ConnectorOptions,
        options: WorkerOptions,
        authorities: &[Bytes],
    ) -> Self {
        let (connector_process, connector) = connector(connecting);
        let (worker_process, worker) = worker(&connector, options, authorities);
        Self {
            connector,
            worker,
            connector_process,
            worker_process,
        }
    }

    pub fn begin(&self, head: &OutgoingHead) -> Call {
        let destination = Destination::of_request(&head.scheme, &head.authority).unwrap();
        self.worker.begin(head, destination).unwrap()
    }

    /// Makes a call without a body.
    pub async fn get(&self, address: SocketAddr, path: &str) -> Outcome {
        self.call(&head("GET", address, path, &[]), b"").await
    }

    /// Makes a call whose body is sent at once.
    pub async fn call(&self, head: &OutgoingHead, body: &[u8]) -> Outcome {
        let mut call = self.begin(head);
        if call.sender.send(Bytes::copy_from_slice(body)).await.is_ok() {
            call.sender.finish(b"");
        }
        outcome(&mut call.receiver).await
    }
}

pub fn fields(fields: &[(&str, &str)]) -> Vec<Pair> {
    let pair = |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    fields.iter().map(pair).collect()
}

pub fn head(
    method: &str,
    authority: impl ToString,
    path: &str,
    headers: &[(&str, &str)],
) -> OutgoingHead {
    OutgoingHead {
        method: method.into(),
        scheme: b"http".to_vec(),
        authority: authority.to_string().into_bytes(),
        path_and_query: path.into(),
        headers: fields(headers),
        timeouts: Timeouts::default(),
    }
}

/// The outcome of a call.
#[derive(Debug)]
pub struct Outcome {
    pub head: Result<ResponseHead, FailureCode>,
    pub body: Vec<u8>,
    pub tail: Result<Vec<Pair>, FailureCode>,
    /// The address that the policy refuses.
    pub refused: Option<RefusedAddress>,
}

impl Outcome {
    pub fn status(&self) -> u16 {
        self.head.as_ref().unwrap().status
    }

    /// Returns the failure of the head or of the tail.
    pub fn failure(&self) -> Option<FailureCode> {
        self.head
            .as_ref()
            .err()
            .or(self.tail.as_ref().err())
            .copied()
    }

    pub fn header(&self, name: &str) -> Option<String> {
        let headers = &self.head.as_ref().unwrap().headers;
        let found = headers.iter().find(|(field, _)| field == name.as_bytes());
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }
}

pub async fn next(receiver: &mut Receiver) -> Option<Part> {
    tokio::time::timeout(LONG, receiver.next())
        .await
        .expect("a part, or the end")
}

pub async fn outcome(receiver: &mut Receiver) -> Outcome {
    let mut outcome = Outcome {
        head: Err(FailureCode::InternalError),
        body: Vec::new(),
        tail: Ok(Vec::new()),
        refused: None,
    };
    while let Some(part) = next(receiver).await {
        match part {
            Part::Refused(refused) => outcome.refused = Some(refused),
            Part::Head(bytes) | Part::Failed(bytes) => {
                outcome.head = match Answer::decode(&bytes).unwrap() {
                    Answer::Response(head) => Ok(head),
                    Answer::Failed(failure) => Err(failure.code),
                }
            }
            Part::Data(data) => outcome.body.extend_from_slice(&data),
            Part::End(bytes) => {
                outcome.tail = match Tail::decode(&bytes).unwrap() {
                    Tail::Trailers(fields) => Ok(fields),
                    Tail::Failed(failure) => Err(failure.code),
                }
            }
        }
    }
    outcome
}

/// A server that runs `each` for every connection, and counts connections.
pub struct Upstream {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
}

impl Upstream {
    pub fn new(each: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let each = Arc::new(each);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(LONG)).unwrap();
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let each = each.clone();
                thread::spawn(move || each(stream, number));
            }
        });
        Self {
            address,
            connections,
        }
    }

    /// Starts a server that answers each request of a connection with the same bytes.
    pub fn saying(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::new(move |mut stream, _| {
            while read_request(&mut stream).is_some() {
                if stream.write_all(&answer).is_err() {
                    return;
                }
            }
        })
    }

    pub fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A received request, parsed as little as possible.
#[derive(Debug)]
pub struct Seen {
    pub head: String,
    pub body: Vec<u8>,
    pub trailers: String,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let start = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(&start))
    }
}

/// Reads up to and including an empty line. Returns `None` at the end of the stream.
pub fn read_lines(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut one = [0];
    while !bytes.ends_with(b"\r\n\r\n") && bytes != b"\r\n" {
        match stream.read(&mut one) {
            Ok(1) => bytes.push(one[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(bytes).unwrap())
}

fn read_line(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut one = [0];
    while !bytes.ends_with(b"\r\n") {
        match stream.read(&mut one) {
            Ok(1) => bytes.push(one[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(bytes).unwrap())
}

/// Reads a complete request. Returns `None` if the stream ends before.
pub fn read_request(stream: &mut TcpStream) -> Option<Seen> {
    let mut seen = Seen {
        head: read_lines(stream)?,
        body: Vec::new(),
        trailers: String::new(),
    };
    if let Some(length) = seen.header("content-length") {
        seen.body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut seen.body).ok()?;
    } else if seen.header("transfer-encoding").is_some() {
        loop {
            let line = read_line(stream)?;
            let length = usize::from_str_radix(line.trim(), 16).unwrap();
            if length == 0 {
                break;
            }
            let mut chunk = vec![0; length + 2];
            stream.read_exact(&mut chunk).ok()?;
            seen.body.extend_from_slice(&chunk[..length]);
        }
        seen.trailers = read_lines(stream)?;
    }
    Some(seen)
}

/// Returns whether the peer closes or resets the connection before it sends anything.
pub fn is_closed(stream: &mut TcpStream) -> bool {
    let mut one = [0];
    match stream.read(&mut one) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

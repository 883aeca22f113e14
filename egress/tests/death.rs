//! Either process may die at any time, and a worker may send anything.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::{
    Egress, LONG, Upstream, connector, head, loopback, next, outcome, pair, read_lines,
    read_request, runtime, worker,
};
use faasw_abi::outgoing::FailureCode as Code;
use faasw_egress::client::{Call, Closed, Connector, Part, Worker};
use faasw_egress::frames::{
    FRAME_MAX, FromWorker, LARGE_WINDOW, PIECE_MIN, ToWorker, WINDOW, WorkerOptions, frame,
};
use faasw_egress_policy::Destination;
use rustix::net::SocketType;
use rustix::process::{Pid, Signal};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

#[test]
fn calls_of_a_worker_that_dies_fail_and_the_next_one_works() {
    runtime().block_on(async {
        let mut egress = Egress::start();
        let upstream = Upstream::new(|mut stream, _| {
            read_lines(&mut stream);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
                .unwrap();
            read_request(&mut stream);
        });
        let silent = Upstream::new(|mut stream, _| while read_request(&mut stream).is_some() {});
        let mut half = egress.begin(&head("GET", upstream.address, "/", &[]));
        assert!(matches!(
            next(&mut half.receiver).await,
            Some(Part::Head(_))
        ));
        assert!(matches!(
            next(&mut half.receiver).await,
            Some(Part::Data(_))
        ));
        let mut none = egress.begin(&head("POST", silent.address, "/", &[]));
        none.sender.send(Bytes::from_static(b"x")).await.unwrap();
        egress.worker_process.0.kill().unwrap();
        tokio::time::timeout(LONG, egress.worker.closed())
            .await
            .unwrap();
        assert_eq!(
            outcome(&mut half.receiver).await.tail,
            Err(Code::ConnectionTerminated)
        );
        let failed = outcome(&mut none.receiver).await;
        assert_eq!(failed.head.unwrap_err(), Code::ConnectionTerminated);
        assert_eq!(
            none.sender.send(Bytes::from_static(b"x")).await,
            Err(Closed)
        );
        let request = head("GET", silent.address, "/", &[]);
        let destination = Destination::of_request(&request.scheme, &request.authority).unwrap();
        let refused = egress
            .worker
            .begin(&request, destination)
            .map(|_| ())
            .unwrap_err();
        assert_eq!(refused.code, Code::ConnectionTerminated);
        // A second worker works with the same connector.
        let (process, next) = worker(&egress.connector, WorkerOptions::default(), &[]);
        (egress.worker_process, egress.worker) = (process, next);
        let upstream = Upstream::saying(OK);
        assert_eq!(egress.get(upstream.address, "/").await.status(), 200);
    });
}

#[test]
fn calls_fail_if_the_connector_dies_and_the_worker_accepts_a_new_one() {
    runtime().block_on(async {
        let mut options = loopback();
        // No server answers there.
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        options.servers = vec![silent.local_addr().unwrap()];
        let mut egress = Egress::with(&options, WorkerOptions::default(), &[]);
        let upstream = Upstream::saying(OK);
        assert_eq!(egress.get(upstream.address, "/").await.status(), 200);
        let mut waiting = egress.begin(&head("GET", "silent.example", "/", &[]));
        // Once the name server has received the query, the call waits for its name.
        let asked = tokio::task::spawn_blocking(move || {
            silent.recv(&mut [0; 512]).unwrap();
            silent
        });
        let _silent = tokio::time::timeout(LONG, asked).await.unwrap().unwrap();
        egress.connector_process.0.kill().unwrap();
        tokio::time::timeout(LONG, egress.connector.closed())
            .await
            .unwrap();
        let failed = outcome(&mut waiting.receiver).await;
        assert_eq!(failed.failure(), Some(Code::ConnectionTerminated));
        // Calls that need no new connection go on; others fail until there is a new connector.
        assert!(!egress.worker.is_closed());
        assert_eq!(egress.get(upstream.address, "/").await.status(), 200);
        let other = Upstream::saying(OK);
        let failed = egress.get(other.address, "/").await;
        assert_eq!(failed.failure(), Some(Code::ConnectionTerminated));
        let (_process, next) = connector(&loopback());
        egress.worker.use_connector(&next).unwrap();
        assert_eq!(egress.get(other.address, "/").await.status(), 200);
    });
}

#[test]
fn a_worker_that_is_dropped_ends_its_process() {
    runtime().block_on(async {
        let mut egress = Egress::start();
        let upstream = Upstream::saying(OK);
        assert_eq!(egress.get(upstream.address, "/").await.status(), 200);
        drop(egress.worker);
        let ended = tokio::task::spawn_blocking(move || egress.worker_process.0.wait().unwrap());
        let status = tokio::time::timeout(LONG, ended).await.unwrap().unwrap();
        assert!(status.success());
    });
}

/// A worker that the test plays.
struct Played {
    worker: Worker,
    socket: UnixStream,
    _connector: (Option<common::Process>, Connector),
    _passed: OwnedFd,
}

fn played() -> Played {
    let (process, connector) = connector(&loopback());
    Played::by(WorkerOptions::default(), connector, Some(process))
}

impl Played {
    fn by(options: WorkerOptions, connector: Connector, process: Option<common::Process>) -> Self {
        let (ours, theirs) = pair(SocketType::STREAM);
        let (passing, passed) = pair(SocketType::SEQPACKET);
        Self {
            worker: Worker::new((ours, passing), &connector, 1, options, &[]).unwrap(),
            socket: UnixStream::from(theirs),
            _connector: (process, connector),
            _passed: passed,
        }
    }
}

/// Reads a `Begin` frame, and returns its call.
fn begun(socket: &mut UnixStream) -> u64 {
    use std::io::Read as _;
    use zerocopy::FromBytes as _;
    loop {
        let mut header = [0; 16];
        socket.read_exact(&mut header).unwrap();
        let (call, rest) = u64::read_from_prefix(&header).unwrap();
        let (kind, rest) = u32::read_from_prefix(rest).unwrap();
        let length = u32::read_from_bytes(rest).unwrap();
        let mut bytes = vec![0; length as usize];
        socket.read_exact(&mut bytes).unwrap();
        if kind == ToWorker::Begin as u32 {
            return call;
        }
    }
}

#[test]
fn a_worker_that_violates_the_protocol_is_abandoned() {
    type Say = fn(u64) -> BytesMut;
    let insane: [(&str, Say); 7] = [
        ("no kind", |_| BytesMut::from(&[0xff; 16][..])),
        ("a node's kind", |call| frame(call, ToWorker::Begin, b"x")),
        ("data before a head", |call| {
            frame(call, FromWorker::Data, b"x")
        }),
        ("credit that it never had", |call| {
            frame(call, FromWorker::Credit, &[1, 0, 0, 0])
        }),
        ("a length of all bytes", |call| {
            let mut frame = frame(call, FromWorker::Head, b"x");
            frame[12..16].fill(0xff);
            frame
        }),
        ("more pieces than a window", |call| {
            let mut said = frame(call, FromWorker::Head, b"x");
            for _ in 0..=WINDOW / PIECE_MIN {
                said.unsplit(frame(call, FromWorker::Data, b"x"));
            }
            said
        }),
        ("more data than a window", |call| {
            let mut said = frame(call, FromWorker::Head, b"x");
            for _ in 0..3 {
                said.unsplit(frame(call, FromWorker::Data, &[0; 65_536]));
            }
            said
        }),
    ];
    runtime().block_on(async {
        for (what, say) in insane {
            let mut played = played();
            let (mut call, number) = begins(&mut played).await;
            // The node may have closed before all is written.
            let _ = played.socket.write_all(&say(number));
            let closed = tokio::time::timeout(LONG, played.worker.closed()).await;
            assert!(closed.is_ok(), "{what}");
            while let Some(part) = next(&mut call.receiver).await {
                assert!(
                    !matches!(&part, Part::Data(data) if data.len() > 65_536),
                    "{what}"
                );
            }
        }
    });
}

/// Begins a call of a played worker. Returns the call and its number.
async fn begins(played: &mut Played) -> (Call, u64) {
    let request = head("GET", "127.0.0.1:1", "/", &[]);
    let destination = Destination::of_request(&request.scheme, &request.authority).unwrap();
    let call = played.worker.begin(&request, destination).unwrap();
    let mut socket = played.socket.try_clone().unwrap();
    let number = tokio::task::spawn_blocking(move || begun(&mut socket));
    (call, number.await.unwrap())
}

/// Begins a call, and lets its response become long enough for a large window.
async fn goes_on(played: &mut Played) -> (Call, u64) {
    let (mut call, number) = begins(played).await;
    let says = |kind, bytes: &[u8]| frame(number, kind, bytes);
    let _ = played.socket.write_all(&says(FromWorker::Head, b"x"));
    next(&mut call.receiver).await.unwrap();
    for _ in 0..2 * WINDOW / FRAME_MAX {
        let data = says(FromWorker::Data, &[0; FRAME_MAX]);
        played.socket.write_all(&data).unwrap();
        next(&mut call.receiver).await.unwrap();
    }
    (call, number)
}

#[test]
fn answers_that_go_on_have_a_large_window_but_few_at_once() {
    const FEW: usize = 64;
    runtime().block_on(async {
        let mut played = played();
        let mut calls = Vec::new();
        for _ in 0..FEW {
            calls.push(goes_on(&mut played).await);
        }
        let fills = |played: &mut Played, number| {
            for _ in 0..LARGE_WINDOW / FRAME_MAX {
                // The node may have closed before all is written.
                let data = frame(number, FromWorker::Data, &[0; FRAME_MAX]);
                let _ = played.socket.write_all(&data);
            }
        };
        fills(&mut played, calls[0].1);
        // When this call gets its data, all earlier frames have been handled.
        let (_one_too_many, number) = goes_on(&mut played).await;
        assert!(!played.worker.is_closed());
        fills(&mut played, number);
        let closed = tokio::time::timeout(LONG, played.worker.closed()).await;
        assert!(closed.is_ok(), "one more has no larger window");
        // Dropping the calls returns their large windows.
        drop(calls);
        let mut played = self::played();
        let (_call, number) = goes_on(&mut played).await;
        fills(&mut played, number);
        goes_on(&mut played).await;
        assert!(!played.worker.is_closed());
        // Not one byte more is allowed.
        let data = frame(number, FromWorker::Data, b"x");
        played.socket.write_all(&data).unwrap();
        let closed = tokio::time::timeout(LONG, played.worker.closed()).await;
        assert!(closed.is_ok(), "more than a large window");
    });
}

#[test]
fn a_worker_that_does_not_read_is_abandoned() {
    runtime().block_on(async {
        let played = played();
        let long = "a".repeat(32 << 10);
        let request = head("GET", "127.0.0.1:1", &format!("/{long}")[..32 << 10], &[]);
        let destination = Destination::of_request(&request.scheme, &request.authority).unwrap();
        // Calls that are dropped at once leave frames in the queue.
        let refused = (0..1024).find_map(|_| {
            let begun = played.worker.begin(&request, destination.clone());
            begun.map(drop).err()
        });
        assert_eq!(refused.unwrap().code, Code::ConnectionLimitReached);
        tokio::time::timeout(LONG, played.worker.closed())
            .await
            .unwrap();
    });
}

#[test]
fn a_connector_that_does_not_answer_is_abandoned() {
    runtime().block_on(async {
        let (ours, _theirs) = pair(SocketType::SEQPACKET);
        let connector = Connector::new(ours, &loopback()).unwrap();
        let options = WorkerOptions {
            connect: 1,
            ..WorkerOptions::default()
        };
        let mut played = Played::by(options, connector.clone(), None);
        let request = head("GET", "127.0.0.1:1", "/", &[]);
        let destination = Destination::of_request(&request.scheme, &request.authority).unwrap();
        let _call = played.worker.begin(&request, destination).unwrap();
        let mut socket = played.socket.try_clone().unwrap();
        let number = tokio::task::spawn_blocking(move || begun(&mut socket))
            .await
            .unwrap();
        played
            .socket
            .write_all(&frame(number, FromWorker::Need, b""))
            .unwrap();
        tokio::time::timeout(LONG, connector.closed())
            .await
            .unwrap();
    });
}

/// Time in which a process that stands still is detected: well below how long a connection may
/// take.
const FOUND_OUT: Duration = Duration::from_secs(20);

fn stop(process: &common::Process) {
    let pid = Pid::from_child(&process.0);
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
}

#[test]
fn a_stopped_connector_is_detected_and_replaced() {
    runtime().block_on(async {
        let egress = Egress::start();
        let upstream = Upstream::saying(OK);
        assert_eq!(egress.get(upstream.address, "/").await.status(), 200);
        stop(&egress.connector_process);
        let other = Upstream::saying(OK);
        let mut waiting = egress.begin(&head("GET", other.address, "/", &[]));
        // Calls that need no connection go on meanwhile.
        assert_eq!(egress.get(upstream.address, "/").await.status(), 200);
        assert!(!egress.connector.is_closed());
        let failed = tokio::time::timeout(FOUND_OUT, outcome(&mut waiting.receiver)).await;
        assert_eq!(failed.unwrap().failure(), Some(Code::ConnectionTerminated));
        assert!(egress.connector.is_closed() && !egress.worker.is_closed());
        let (_process, next) = connector(&loopback());
        egress.worker.use_connector(&next).unwrap();
        assert_eq!(egress.get(other.address, "/").await.status(), 200);
    });
}

#[test]
fn a_stopped_worker_is_detected() {
    runtime().block_on(async {
        let egress = Egress::start();
        let upstream = Upstream::saying(OK);
        assert_eq!(egress.get(upstream.address, "/").await.status(), 200);
        stop(&egress.worker_process);
        let failed = tokio::time::timeout(FOUND_OUT, egress.get(upstream.address, "/")).await;
        assert_eq!(failed.unwrap().failure(), Some(Code::ConnectionTerminated));
        assert!(egress.worker.is_closed());
    });
}

#[test]
fn processes_with_a_silent_upstream_are_kept() {
    runtime().block_on(async {
        let egress = Egress::start();
        // Longer than a process may be silent and leave a probe unanswered.
        let slow = Upstream::new(|mut stream, _| {
            read_request(&mut stream);
            std::thread::sleep(Duration::from_secs(10));
            stream.write_all(OK.as_bytes()).unwrap();
        });
        assert_eq!(egress.get(slow.address, "/").await.body, b"hi");
    });
}

#[test]
fn frames_of_calls_that_are_over_are_dropped() {
    runtime().block_on(async {
        let mut played = played();
        let request = head("GET", "127.0.0.1:1", "/", &[]);
        let destination = Destination::of_request(&request.scheme, &request.authority).unwrap();
        let call = played.worker.begin(&request, destination.clone()).unwrap();
        let mut socket = played.socket.try_clone().unwrap();
        let number = tokio::task::spawn_blocking(move || begun(&mut socket))
            .await
            .unwrap();
        drop(call);
        let mut late = frame(number, FromWorker::Head, b"late");
        late.unsplit(frame(number, FromWorker::Data, b"late"));
        late.unsplit(frame(number, FromWorker::Need, b""));
        late.unsplit(frame(number + 1000, FromWorker::End, b""));
        played.socket.write_all(&late).unwrap();
        let mut call = played.worker.begin(&request, destination).unwrap();
        let mut socket = played.socket.try_clone().unwrap();
        let next_number = tokio::task::spawn_blocking(move || begun(&mut socket))
            .await
            .unwrap();
        assert!(next_number > number);
        played
            .socket
            .write_all(&frame(next_number, FromWorker::Failed, b"own"))
            .unwrap();
        let part = next(&mut call.receiver).await;
        assert_eq!(part, Some(Part::Failed(Bytes::from_static(b"own"))));
        assert!(!played.worker.is_closed());
    });
}

#[test]
fn a_late_answer_is_discarded() {
    runtime().block_on(async {
        let egress = Egress::start();
        let (go, wait) = mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let slow = Upstream::new(move |mut stream, number| {
            read_request(&mut stream);
            if number == 0 {
                wait.lock().unwrap().recv().unwrap();
            }
            let _ = stream.write_all(
                format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}").as_bytes(),
            );
        });
        let first = egress.begin(&head("GET", slow.address, "/", &[]));
        first.sender.finish(b"");
        while slow.count() == 0 {
            tokio::task::yield_now().await;
        }
        drop(first.receiver);
        go.send(()).unwrap();
        let second = egress.get(slow.address, "/").await;
        assert_eq!(second.body, b"1");
    });
}

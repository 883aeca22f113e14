//! The worker: performs one function's calls, over connections that it receives.
//!
//! The worker has one thread. There is a task for each call, one that reads frames of the node, one
//! that writes them, one that receives connections, one for each connection, and one for each body
//! that is sent over HTTP/2. A call finds an *upstream connection*: an HTTP/1.1 connection
//! (`http1`, idle ones in `idle`), or a slot on an HTTP/2 connection (`http2`), which calls share
//! (`shared`). The code above upstream connections does not know which of them it uses. The worker
//! trusts the node, but no upstream. An upstream that takes over this process has the connections
//! of one function, and nothing else.

mod body;
mod call;
mod failure;
mod frame_buffer;
mod http1;
mod http2;
mod idle;
mod request;
mod response;
mod shared;
mod stream;
mod tls;
mod upstream_connection;
mod usage;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use faasw_abi::outgoing::{Answer, Failure, FailureCode, Tail};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, LocalSet};
use zerocopy::FromBytes as _;

use crate::ProtocolViolation;
use crate::credit::Credit;
use crate::frames::{FRAME_MAX, Frame, FromWorker, LARGE_WINDOW, ToWorker, WorkerOptions};
use crate::orders::{Passed, read};
use crate::packet::{Descriptors, PacketSocket};
use frame_buffer::FrameBuffer;

/// Serves the node's frames until the node closes `node`. Connections arrive on `connections`.
///
/// # Errors
/// Returns the system's error if reading or writing fails, and an error if the node violates the
/// protocol.
pub fn run(runtime: &Runtime, node: OwnedFd, connections: OwnedFd) -> io::Result<()> {
    crate::end_on_panic();
    // Dropping the set ends the tasks of calls and connections.
    LocalSet::new().block_on(runtime, serve(node, connections))
}

/// State that all tasks share.
struct Worker {
    options: WorkerOptions,
    tls: tls::Tls,
    idle: idle::IdleConnections,
    shared: shared::SharedConnections,
    calls: RefCell<HashMap<u64, Call>>,
    frames: FrameBuffer,
}

/// A call under way, as other tasks reach it.
struct Call {
    /// The channel to its request body.
    parts: mpsc::UnboundedSender<RequestPart>,
    /// Credit of its response body.
    credit: Rc<Credit>,
    /// The task that waits for a connection.
    connection: Option<oneshot::Sender<Result<TcpStream, Failure>>>,
    task: AbortHandle,
}

/// A part of a request's body, as the node sends it.
enum RequestPart {
    Data(Bytes),
    End(Tail),
}

impl Worker {
    fn send_frame(&self, call: u64, kind: FromWorker, bytes: &[u8]) {
        self.frames.add(call, kind, bytes);
    }

    /// Requests a new connection to the call's destination from the node, and waits for it.
    async fn connection(&self, call: u64) -> Result<TcpStream, Failure> {
        let (sender, receiver) = oneshot::channel();
        if let Some(call) = self.calls.borrow_mut().get_mut(&call) {
            call.connection = Some(sender);
        }
        self.send_frame(call, FromWorker::Need, &[]);
        let terminated = || Err(Failure::new(FailureCode::ConnectionTerminated));
        receiver.await.unwrap_or_else(|_| terminated())
    }

    /// Handles a new connection, or a failure to make one. If the call is over, the connection is
    /// closed.
    fn connected(&self, call: u64, outcome: Result<TcpStream, Failure>) {
        let mut calls = self.calls.borrow_mut();
        let waiting = calls.get_mut(&call).and_then(|call| call.connection.take());
        if let Some(waiting) = waiting {
            // A receiver that has stopped waiting does not need it.
            let _ = waiting.send(outcome);
        }
    }

    fn begin(self: &Rc<Self>, number: u64, head: Bytes) {
        let (parts, received) = mpsc::unbounded_channel();
        let credit = Rc::new(Credit::growing_to(LARGE_WINDOW));
        let task = call::run(self.clone(), number, head, received, credit.clone());
        let call = Call {
            parts,
            credit,
            connection: None,
            task: tokio::task::spawn_local(task).abort_handle(),
        };
        self.calls.borrow_mut().insert(number, call);
    }

    /// Handles a frame. A frame of a call that is over is dropped.
    fn handle_frame(self: &Rc<Self>, frame: Frame<ToWorker>) -> io::Result<()> {
        let credit = frame.credit();
        let Frame { call, kind, bytes } = frame;
        match kind {
            ToWorker::Authority | ToWorker::Configure => return Err(ProtocolViolation.into()),
            ToWorker::Begin => self.begin(call, bytes),
            ToWorker::Probe => self.send_frame(call, FromWorker::Alive, &[]),
            ToWorker::Cancel => {
                let call = self.calls.borrow_mut().remove(&call);
                if let Some(call) = call {
                    // The call's connection is closed with it, because half of a response may be on
                    // it. On a shared connection only its stream is reset.
                    call.task.abort();
                }
            }
            ToWorker::Unconnected => match Answer::decode(&bytes) {
                Ok(Answer::Failed(failure)) => self.connected(call, Err(failure)),
                _ => return Err(ProtocolViolation.into()),
            },
            ToWorker::Data | ToWorker::End | ToWorker::Credit => {
                let calls = self.calls.borrow();
                let Some(call) = calls.get(&call) else {
                    return Ok(());
                };
                let part = match kind {
                    ToWorker::Data => RequestPart::Data(bytes),
                    ToWorker::End => {
                        // The node passes on bytes of the function. If they are not a tail, only
                        // this call fails.
                        let code = FailureCode::InternalError;
                        let failed = |_| Tail::Failed(Failure::new(code));
                        RequestPart::End(Tail::decode(&bytes).unwrap_or_else(failed))
                    }
                    _ => {
                        let credit = credit.ok_or(ProtocolViolation)?;
                        return Ok(call.credit.add(credit)?);
                    }
                };
                // A call that has its response may need no more of its request.
                let _ = call.parts.send(part);
            }
        }
        Ok(())
    }
}

async fn serve(node: OwnedFd, connections: OwnedFd) -> io::Result<()> {
    let node = StdUnixStream::from(node);
    node.set_nonblocking(true)?;
    let (socket, writing) = UnixStream::from_std(node)?.into_split();
    let connections = PacketSocket::new(connections)?;
    let mut frames = FrameReader {
        socket,
        received: BytesMut::new(),
    };
    let Some((options, authorities)) = configuration(&mut frames).await? else {
        return Ok(());
    };
    let limits = idle::IdleLimits::new(&options);
    let worker = Rc::new(Worker {
        options,
        tls: tls::Tls::new(&authorities)?,
        idle: idle::IdleConnections::new(limits),
        shared: shared::SharedConnections::new(limits),
        calls: RefCell::default(),
        frames: FrameBuffer::default(),
    });
    // The first that ends ends all: the node has no use for part of a worker.
    tokio::select! {
        listened = listen(&worker, frames) => listened,
        written = worker.frames.write_to(writing) => written,
        passed = take_connections(&worker, connections) => passed,
    }
}

/// Reads the frames of the node.
struct FrameReader {
    socket: OwnedReadHalf,
    received: BytesMut,
}

impl FrameReader {
    /// Returns the next frame; `None` when the node has closed the socket.
    async fn next(&mut self) -> io::Result<Option<Frame<ToWorker>>> {
        loop {
            let frame = Frame::take(&mut self.received)?;
            if frame.is_some() {
                return Ok(frame);
            }
            self.received.reserve(FRAME_MAX);
            if self.socket.read_buf(&mut self.received).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// Reads the configuration, which comes first. Returns `None` if the node closes the socket before.
async fn configuration(
    frames: &mut FrameReader,
) -> io::Result<Option<(WorkerOptions, Vec<Bytes>)>> {
    let mut authorities = Vec::new();
    while let Some(frame) = frames.next().await? {
        match frame.kind {
            ToWorker::Authority => authorities.push(frame.bytes),
            ToWorker::Configure => {
                let options = WorkerOptions::read_from_bytes(&frame.bytes);
                let options = options.map_err(|_| ProtocolViolation)?;
                return Ok(Some((options, authorities)));
            }
            _ => return Err(ProtocolViolation.into()),
        }
    }
    Ok(None)
}

async fn listen(worker: &Rc<Worker>, mut frames: FrameReader) -> io::Result<()> {
    while let Some(frame) = frames.next().await? {
        worker.handle_frame(frame)?;
    }
    Ok(())
}

/// Receives connections, and hands each to its call.
async fn take_connections(worker: &Rc<Worker>, socket: PacketSocket) -> io::Result<()> {
    while let Some(packet) = socket.receive(Descriptors::Accept).await? {
        let passed: Passed = read(&packet.bytes)?;
        let Some(stream) = packet.fd else {
            // The descriptor was lost because this process had no free one.
            let code = FailureCode::ConnectionLimitReached;
            worker.connected(passed.call, Err(Failure::new(code)));
            continue;
        };
        let stream = std::net::TcpStream::from(stream);
        stream.set_nonblocking(true)?;
        worker.connected(passed.call, Ok(TcpStream::from_std(stream)?));
    }
    Ok(())
}

//! The worker: one function's calls, over connections that it is given.
//!
//! One thread. A task for each call, one that hears the node, one that tells it, one that takes
//! connections, one for each connection, one for each body that goes over HTTP/2. A call finds a
//! *lane*: a connection of HTTP/1.1 (`http1`, idle ones in `idle`), or a place on one of HTTP/2
//! (`http2`), which is shared (`shared`). Above that nothing knows which it is. The node is
//! believed; an upstream is not, and whoever takes this process over by one has one function's
//! connections, and nothing else.

mod body;
mod call;
mod failure;
mod http1;
mod http2;
mod idle;
mod lane;
mod request;
mod response;
mod said;
mod shared;
mod stream;
mod tls;
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

use crate::credit::Credit;
use crate::frames::{FRAME_MAX, Frame, FromWorker, LARGE_WINDOW, ToWorker, WorkerOptions};
use crate::orders::{Passed, read};
use crate::packet::PacketSocket;
use said::Said;

/// Serves a node until it closes `node`: frames. Connections come by `connections`.
///
/// # Errors
/// The system's, and when the node says what none says.
pub fn run(runtime: &Runtime, node: OwnedFd, connections: OwnedFd) -> io::Result<()> {
    crate::end_on_panic();
    // Tasks of calls and connections end with the set.
    LocalSet::new().block_on(runtime, serve(node, connections))
}

/// What all tasks share.
struct Worker {
    options: WorkerOptions,
    tls: tls::Tls,
    idle: idle::Idle,
    shared: shared::Shared,
    calls: RefCell<HashMap<u64, Call>>,
    said: Said,
}

/// A call under way, as others reach it.
struct Call {
    /// Its request's body.
    parts: mpsc::UnboundedSender<RequestPart>,
    /// Of its answer's data.
    credit: Rc<Credit>,
    /// Who waits for a connection.
    connection: Option<oneshot::Sender<Result<TcpStream, Failure>>>,
    task: AbortHandle,
}

/// A part of a request's body, as the node sends it.
enum RequestPart {
    Data(Bytes),
    End(Tail),
}

impl Worker {
    fn say(&self, call: u64, kind: FromWorker, bytes: &[u8]) {
        self.said.add(call, kind, bytes);
    }

    /// Waits for a new connection to where a call goes.
    async fn connection(&self, call: u64) -> Result<TcpStream, Failure> {
        let (sender, receiver) = oneshot::channel();
        if let Some(call) = self.calls.borrow_mut().get_mut(&call) {
            call.connection = Some(sender);
        }
        self.say(call, FromWorker::Need, &[]);
        let terminated = || Err(Failure::new(FailureCode::ConnectionTerminated));
        receiver.await.unwrap_or_else(|_| terminated())
    }

    /// A connection has come, or none. Of a call that is over it is closed.
    fn connected(&self, call: u64, outcome: Result<TcpStream, Failure>) {
        let mut calls = self.calls.borrow_mut();
        let waiting = calls.get_mut(&call).and_then(|call| call.connection.take());
        if let Some(waiting) = waiting {
            // Who has stopped waiting does not need it.
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

    /// Hears a frame. Of a call that is over it is dropped.
    fn hear(self: &Rc<Self>, frame: Frame<ToWorker>) -> io::Result<()> {
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let credit = frame.credit();
        let Frame { call, kind, bytes } = frame;
        match kind {
            ToWorker::Authority | ToWorker::Configure => return Err(malformed()),
            ToWorker::Begin => self.begin(call, bytes),
            ToWorker::Probe => self.say(call, FromWorker::Alive, &[]),
            ToWorker::Cancel => {
                let call = self.calls.borrow_mut().remove(&call);
                if let Some(call) = call {
                    // Its connection goes with it, for half of an answer may be on it, or its
                    // stream of one that it shares.
                    call.task.abort();
                }
            }
            ToWorker::Unconnected => match Answer::decode(&bytes) {
                Ok(Answer::Failed(failure)) => self.connected(call, Err(failure)),
                _ => return Err(malformed()),
            },
            ToWorker::Data | ToWorker::End | ToWorker::Credit => {
                let calls = self.calls.borrow();
                let Some(call) = calls.get(&call) else {
                    return Ok(());
                };
                let part = match kind {
                    ToWorker::Data => RequestPart::Data(bytes),
                    ToWorker::End => {
                        // What the node passes on is the function's: one that is no tail ends its
                        // own call.
                        let code = FailureCode::InternalError;
                        let failed = |_| Tail::Failed(Failure::new(code));
                        RequestPart::End(Tail::decode(&bytes).unwrap_or_else(failed))
                    }
                    _ => {
                        let credit = credit.ok_or_else(malformed)?;
                        return call.credit.add(credit).map_err(|_| malformed());
                    }
                };
                // A call that has its answer may want no more of its request.
                let _ = call.parts.send(part);
            }
        }
        Ok(())
    }
}

async fn serve(node: OwnedFd, connections: OwnedFd) -> io::Result<()> {
    let node = StdUnixStream::from(node);
    node.set_nonblocking(true)?;
    let (mut reading, writing) = UnixStream::from_std(node)?.into_split();
    let connections = PacketSocket::new(connections)?;
    let mut received = BytesMut::new();
    let Some((options, authorities)) = configuration(&mut reading, &mut received).await? else {
        return Ok(());
    };
    let worker = Rc::new(Worker {
        options,
        tls: tls::Tls::new(&authorities)?,
        idle: idle::Idle::new(&options),
        shared: shared::Shared::new(&options),
        calls: RefCell::default(),
        said: Said::default(),
    });
    // Who ends first ends all; the node has no use for a part of a worker.
    tokio::select! {
        heard = listen(&worker, reading, received) => heard,
        written = worker.said.write_to(writing) => written,
        passed = take_connections(&worker, connections) => passed,
    }
}

/// What comes first. `None` when the node is gone before.
async fn configuration(
    socket: &mut OwnedReadHalf,
    received: &mut BytesMut,
) -> io::Result<Option<(WorkerOptions, Vec<Bytes>)>> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let mut authorities = Vec::new();
    loop {
        while let Some(frame) = Frame::<ToWorker>::take(received).map_err(io::Error::other)? {
            match frame.kind {
                ToWorker::Authority => authorities.push(frame.bytes),
                ToWorker::Configure => {
                    let options = WorkerOptions::read_from_bytes(&frame.bytes);
                    let options = options.map_err(|_| malformed())?;
                    return Ok(Some((options, authorities)));
                }
                _ => return Err(malformed()),
            }
        }
        received.reserve(FRAME_MAX);
        if socket.read_buf(received).await? == 0 {
            return Ok(None);
        }
    }
}

async fn listen(
    worker: &Rc<Worker>,
    mut socket: OwnedReadHalf,
    mut received: BytesMut,
) -> io::Result<()> {
    loop {
        while let Some(frame) = Frame::<ToWorker>::take(&mut received).map_err(io::Error::other)? {
            worker.hear(frame)?;
        }
        received.reserve(FRAME_MAX);
        if socket.read_buf(&mut received).await? == 0 {
            return Ok(());
        }
    }
}

/// Takes connections, and gives each to the call that it is for.
async fn take_connections(worker: &Rc<Worker>, socket: PacketSocket) -> io::Result<()> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    while let Some(packet) = socket.receive().await? {
        let passed: Passed = read(&packet.bytes).ok_or_else(malformed)?;
        let Some(stream) = packet.fd else {
            // Lost on its way: there was no room for it.
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

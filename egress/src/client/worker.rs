//! A worker's process, from the node's side.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::{Bytes, BytesMut};
use faasw_abi::channel::HEAD_MAX;
use faasw_abi::outgoing::{Answer, Failure, FailureCode, OutgoingHead, Tail};
use faasw_egress_policy::Destination;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use zerocopy::IntoBytes as _;
use zeroize::{Zeroize as _, Zeroizing};

use super::call::{Part, RefusedAddress};
use super::connector::NotConnected;
use super::liveness::{Liveness, await_unresponsive};
use super::queue::{Outgoing, Queue, queue, with_write_timeout};
use super::table::{Calls, Entry, FrameEffect, handle_frame, is_progress};
use super::{Call, Connector};
use crate::credit::Credit;
use crate::frames::{FRAME_MAX, Frame, FromWorker, ToWorker, WorkerOptions, frame};

/// A handle of the worker's process of one function.
///
/// Calls fail with `connection-terminated` when the handle is dropped, and when the process
/// ends.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
    /// The connector's end of the socket on which the worker receives connections. It is kept so
    /// that a new connector can continue with it.
    passing: OwnedFd,
}

/// Numbers of calls, which are never reused during the life of this process.
static CALLS: AtomicU64 = AtomicU64::new(1);

/// Send buffer, in bytes, for connections that are passed to a worker and not taken yet. The kernel
/// raises it to its minimum, which is a few packets. The descriptors in flight to all workers count
/// against one limit of the connector, so a worker that takes none must not use that up.
const PASSING: usize = 1;

/// If more bytes than this are queued, no call begins.
const BUSY: usize = 2 << 20;

/// If more bytes than this are queued, the process is abandoned. Beyond [`BUSY`] there are the
/// windows of calls under way, and the few other bytes for each of them.
const QUEUE_MAX: usize = 64 << 20;

/// A message to a worker.
#[derive(Debug)]
enum QueuedMessage {
    /// Any number of frames.
    Frames(BytesMut),
    /// A frame that contains secrets.
    Secret(Secret),
}

/// A frame that is zeroed when it is dropped.
struct Secret(BytesMut);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[derive(Debug)]
pub struct Shared {
    number: u64,
    /// The number of its function, which all workers of the function share.
    function: u64,
    options: WorkerOptions,
    /// Queued messages. Credit bounds the data of live calls; [`BUSY`] and [`QUEUE_MAX`] bound the
    /// data that finished calls have left in the queue.
    frames: Queue<QueuedMessage>,
    /// `None` when the process is gone.
    calls: Mutex<Option<Calls>>,
    connector: Mutex<Connector>,
    liveness: Arc<Liveness>,
    /// When a server last sent or accepted something of a call.
    moved: Mutex<Instant>,
    closed: watch::Sender<bool>,
}

impl Worker {
    /// Configures a new process at the other end of `socket`.
    ///
    /// `passing` is the sending end of the socket pair whose other end the process was started
    /// with. `authorities` are certificates in DER that are trusted besides the usual roots.
    /// `function` is the number of the function that the worker serves: the connector's limits
    /// count by it. Must be called within a runtime of tokio.
    ///
    /// # Errors
    /// Returns `InvalidInput` if a certificate is empty or larger than 64 KiB, or the system's
    /// error if a socket cannot be set up.
    pub fn new(
        (socket, passing): (OwnedFd, OwnedFd),
        connector: &Connector,
        function: u64,
        options: WorkerOptions,
        authorities: &[Bytes],
    ) -> io::Result<Self> {
        let socket = StdUnixStream::from(socket);
        socket.set_nonblocking(true)?;
        let (reading, writing) = UnixStream::from_std(socket)?.into_split();
        let (frames, outgoing) = queue();
        let shared = Arc::new(Shared {
            number: Connector::worker_number(),
            function,
            options,
            frames,
            calls: Mutex::new(Some(Calls::new())),
            connector: Mutex::new(connector.clone()),
            liveness: Arc::default(),
            moved: Mutex::new(Instant::now()),
            closed: watch::Sender::new(false),
        });
        for authority in authorities {
            if !(1..=FRAME_MAX).contains(&authority.len()) {
                let what = "a certificate of more than 64 KiB";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            shared.send_frame(frame(0, ToWorker::Authority, authority));
        }
        shared.send_frame(frame(0, ToWorker::Configure, options.as_bytes()));
        rustix::net::sockopt::set_socket_send_buffer_size(&passing, PASSING)?;
        connector.add_worker(shared.number, function, passing.try_clone()?);
        let weak = Arc::downgrade(&shared);
        let lost = await_unresponsive(
            shared.liveness.clone(),
            weak.clone(),
            Shared::has_calls,
            Shared::probe,
        );
        tokio::spawn(async move {
            let mut closed = match weak.upgrade() {
                Some(shared) => shared.closed.subscribe(),
                None => return,
            };
            // When any of these ends, the worker is of no more use: it is gone, it violated the
            // protocol, or its handle was dropped. The sockets are closed with this task, which
            // ends the process.
            let _ = tokio::select! {
                written = write(outgoing, writing) => written,
                heard = listen(&weak, reading) => heard,
                () = lost => Ok(()),
                _ = closed.wait_for(|closed| *closed) => Ok(()),
            };
            if let Some(shared) = weak.upgrade() {
                shared.close();
            }
        });
        Ok(Self { shared, passing })
    }

    /// Begins a call. The caller has checked that `destination`, which is that of `head`, is
    /// granted.
    ///
    /// # Errors
    /// Fails with `HttpRequestDenied` if `destination` is not that of the head,
    /// `HttpRequestHeaderSectionSize` if the head is too large, `ConnectionLimitReached` if too
    /// many bytes are queued for the process, and `ConnectionTerminated` if the process is gone.
    pub fn begin(&self, head: &OutgoingHead, destination: Destination) -> Result<Call, Failure> {
        self.begin_by(QueuedMessage::Frames, head, destination)
    }

    /// Begins a call whose head contains secrets. This process zeroes its copies of the encoded
    /// head once they are written to the worker's socket.
    ///
    /// # Errors
    /// Fails under the same conditions as [`begin`](Self::begin).
    pub fn begin_with_secrets(
        &self,
        head: &OutgoingHead,
        destination: Destination,
    ) -> Result<Call, Failure> {
        self.begin_by(
            |frame| QueuedMessage::Secret(Secret(frame)),
            head,
            destination,
        )
    }

    fn begin_by(
        &self,
        said: impl FnOnce(BytesMut) -> QueuedMessage,
        head: &OutgoingHead,
        destination: Destination,
    ) -> Result<Call, Failure> {
        // The worker sends the head's name to the server that it is connected to: both must be the
        // same.
        if Destination::of_request(&head.scheme, &head.authority).as_ref() != Ok(&destination) {
            return Err(Failure::new(FailureCode::HttpRequestDenied));
        }
        let head_bytes = Zeroizing::new(head.encode());
        if head_bytes.len() as u64 > HEAD_MAX {
            return Err(Failure::new(FailureCode::HttpRequestHeaderSectionSize));
        }
        if self.shared.frames.size() > BUSY {
            return Err(Failure::new(FailureCode::ConnectionLimitReached));
        }
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let (parts, received) = mpsc::unbounded_channel();
        let credit = Arc::new(Credit::default());
        let timeout = self.shared.options.of_request(head.timeouts).connect;
        let entry = Entry::new(parts, credit.clone(), destination, timeout);
        match self.shared.calls().as_mut() {
            Some(calls) => {
                if calls.is_empty() {
                    // No progress was due before.
                    *self.shared.moved() = Instant::now();
                }
                calls.insert(call, entry)
            }
            None => return Err(terminated()),
        };
        let begins = frame(call, ToWorker::Begin, &head_bytes);
        let size = begins.len();
        self.shared.add(said(begins), size);
        self.shared.liveness.notify_caller_waits();
        Ok(Call::new(&self.shared, call, credit, received))
    }

    /// Returns how many calls are under way.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.shared.calls().as_ref().map_or(0, Calls::len)
    }

    /// Returns when a server last sent or accepted something of its calls. If none has, returns
    /// when the first of the current calls began.
    #[must_use]
    pub fn moved(&self) -> Instant {
        *self.shared.moved()
    }

    /// Abandons the worker; calls under way fail with `why`.
    pub fn give_up(&self, why: &Failure) {
        self.shared.close_with(why);
    }

    /// Uses another connector for new connections: the previous one is gone.
    ///
    /// # Errors
    /// Returns the system's error if the socket cannot be duplicated.
    pub fn use_connector(&self, connector: &Connector) -> io::Result<()> {
        let passing = self.passing.try_clone()?;
        {
            let mut current = self.shared.connector();
            connector.add_worker(self.shared.number, self.shared.function, passing);
            *current = connector.clone();
        }
        // If the worker was abandoned meanwhile, it may have been removed from the connector before
        // it was added.
        if self.shared.calls().is_none() {
            connector.remove_worker(self.shared.number);
        }
        Ok(())
    }

    /// Waits until the process is gone, or was abandoned because it violated the protocol or does
    /// not answer.
    pub async fn closed(&self) {
        let mut closed = self.shared.closed.subscribe();
        // The sender is held by `self`, so this cannot fail.
        let _ = closed.wait_for(|closed| *closed).await;
    }

    /// Returns whether the process is gone or was abandoned.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        *self.shared.closed.borrow()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.close();
    }
}

fn terminated() -> Failure {
    Failure::new(FailureCode::ConnectionTerminated)
}

impl Shared {
    fn calls(&self) -> MutexGuard<'_, Option<Calls>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connector(&self) -> MutexGuard<'_, Connector> {
        self.connector
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a frame for the worker.
    pub fn send_frame(&self, frame: BytesMut) {
        let size = frame.len();
        self.add(QueuedMessage::Frames(frame), size);
    }

    fn add(&self, said: QueuedMessage, size: usize) {
        if self.frames.add(said, size) > QUEUE_MAX {
            // The task that writes sees this, and closes.
            self.closed.send_replace(true);
        }
    }

    /// Adds response bytes that the caller has taken to the window, before the worker receives the
    /// credit.
    pub fn give_back(&self, call: u64, bytes: usize) {
        if let Some(entry) = self.calls().as_mut().and_then(|calls| calls.get_mut(&call)) {
            entry.window += bytes;
        }
    }

    /// Cancels a call, unless it is over.
    pub fn cancel(&self, call: u64) {
        let entry = self.calls().as_mut().and_then(|calls| calls.remove(&call));
        if entry.is_some() {
            self.send_frame(frame(call, ToWorker::Cancel, &[]));
        }
    }

    fn moved(&self) -> MutexGuard<'_, Instant> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_calls(&self) -> bool {
        self.calls().as_ref().is_some_and(|calls| !calls.is_empty())
    }

    /// Probes the process.
    fn probe(&self) {
        self.send_frame(frame(0, ToWorker::Probe, &[]));
    }

    fn close(&self) {
        self.close_with(&terminated());
    }

    fn close_with(&self, why: &Failure) {
        let calls = {
            let mut calls = self.calls();
            // Set before a caller learns of it from the end of its own call.
            self.closed.send_replace(true);
            calls.take()
        };
        if let Some(calls) = calls {
            for entry in calls.into_values() {
                let answer = Answer::Failed(why.clone()).encode();
                let tail = Tail::Failed(why.clone()).encode();
                entry.fail(answer.into(), tail.into());
            }
            self.connector().remove_worker(self.number);
        }
    }

    /// Reports an address that the policy refuses to the owner of a call.
    fn report_refusal(&self, call: u64, refused: RefusedAddress) {
        let calls = self.calls();
        if let Some(entry) = calls.as_ref().and_then(|calls| calls.get(&call)) {
            // A call that was dropped has no use for it.
            let _ = entry.parts.send(Part::Refused(refused));
        }
    }

    /// Has a connection made for a call that needs one.
    fn connect(self: &Arc<Self>, call: u64) {
        let mut calls = self.calls();
        let Some(entry) = calls.as_mut().and_then(|calls| calls.get_mut(&call)) else {
            return;
        };
        let shared = self.clone();
        let connector = self.connector().clone();
        let destination = entry.destination.clone();
        let timeout = entry.connect_timeout;
        let task = tokio::spawn(async move {
            let connecting = connector.connect(shared.number, call, &destination, timeout);
            if let Err(NotConnected { failure, refused }) = connecting.await {
                if let Some(refused) = refused {
                    shared.report_refusal(call, refused);
                }
                let answer = Answer::Failed(failure).encode();
                shared.send_frame(frame(call, ToWorker::Unconnected, &answer));
            }
        });
        entry.connecting = Some(task.abort_handle());
    }
}

/// Writes queued messages; as many as there are at once.
async fn write(
    mut outgoing: Outgoing<QueuedMessage>,
    mut socket: OwnedWriteHalf,
) -> io::Result<()> {
    let mut behind = None;
    loop {
        let next = match behind.take() {
            Some(said) => Some(said),
            None => outgoing.next().await.map(|(said, _)| said),
        };
        match next {
            None => return Ok(()),
            Some(QueuedMessage::Frames(mut bytes)) => {
                while bytes.len() < FRAME_MAX && behind.is_none() {
                    match outgoing.next_now() {
                        Some((QueuedMessage::Frames(more), _)) => bytes.unsplit(more),
                        Some((secret, _)) => behind = Some(secret),
                        None => break,
                    }
                }
                while !bytes.is_empty() {
                    outgoing.written(with_write_timeout(socket.write_buf(&mut bytes)).await?);
                }
            }
            Some(QueuedMessage::Secret(secret)) => {
                let mut rest = &secret.0[..];
                while !rest.is_empty() {
                    outgoing.written(with_write_timeout(socket.write_buf(&mut rest)).await?);
                }
            }
        }
    }
}

/// Handles frames of the worker, until it is gone or violates the protocol.
async fn listen(weak: &Weak<Shared>, mut socket: OwnedReadHalf) -> io::Result<()> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let mut received = BytesMut::new();
    loop {
        received.reserve(FRAME_MAX);
        if socket.read_buf(&mut received).await? == 0 {
            return Ok(());
        }
        let Some(shared) = weak.upgrade() else {
            return Ok(());
        };
        shared.liveness.record_activity();
        let mut has_moved = false;
        while let Some(frame) = Frame::<FromWorker>::take(&mut received).map_err(|_| malformed())? {
            let call = frame.call;
            has_moved |= is_progress(frame.kind);
            let heard = match shared.calls().as_mut() {
                Some(calls) => handle_frame(calls, frame).map_err(|_| malformed())?,
                None => return Ok(()),
            };
            match heard {
                FrameEffect::NeedsConnection => shared.connect(call),
                FrameEffect::Nothing | FrameEffect::CallEnded => {}
            }
        }
        if has_moved {
            *shared.moved() = Instant::now();
        }
    }
}

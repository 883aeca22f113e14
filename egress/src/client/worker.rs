//! A worker's process, from the node's side.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use faasw_abi::channel::HEAD_MAX;
use faasw_abi::outgoing::{Failure, FailureCode, OutgoingHead};
use faasw_egress_policy::Destination;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use zerocopy::IntoBytes as _;
use zeroize::Zeroizing;

use super::call::Call;
use super::connector::Connector;
use super::process::{Process as _, ProcessLink, spawn_task};
use super::queue::queue;
use super::table::{Calls, Entry};
use super::worker_state::{BUSY, QueuedMessage, Secret, WorkerState, listen, write};
use crate::credit::Credit;
use crate::frames::{FRAME_MAX, ToWorker, WorkerOptions, frame};

/// A handle of the worker's process of one function.
///
/// Calls fail with `connection-terminated` when the handle is dropped, and when the process
/// ends.
#[derive(Debug)]
pub struct Worker {
    state: Arc<WorkerState>,
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
        let state = Arc::new(WorkerState {
            number: Connector::worker_number(),
            function,
            options,
            frames,
            calls: Mutex::new(Some(Calls::new())),
            connector: Mutex::new(connector.clone()),
            link: ProcessLink::default(),
            moved: Mutex::new(Instant::now()),
        });
        for authority in authorities {
            if !(1..=FRAME_MAX).contains(&authority.len()) {
                let what = "a certificate of more than 64 KiB";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            state.send_frame(frame(0, ToWorker::Authority, authority));
        }
        state.send_frame(frame(0, ToWorker::Configure, options.as_bytes()));
        rustix::net::sockopt::set_socket_send_buffer_size(&passing, PASSING)?;
        connector.add_worker(state.number, function, passing.try_clone()?);
        let listen = listen(Arc::downgrade(&state), reading);
        spawn_task(&state, write(outgoing, writing), listen);
        Ok(Self { state, passing })
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
        wrap: impl FnOnce(BytesMut) -> QueuedMessage,
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
        if self.state.frames.size() > BUSY {
            return Err(Failure::new(FailureCode::ConnectionLimitReached));
        }
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let (parts, received) = mpsc::unbounded_channel();
        let credit = Arc::new(Credit::default());
        let timeout = self.state.options.of_request(head.timeouts).connect;
        let entry = Entry::new(parts, credit.clone(), destination, timeout);
        match self.state.calls().as_mut() {
            Some(calls) => {
                if calls.is_empty() {
                    // No progress was due before.
                    *self.state.moved() = Instant::now();
                }
                calls.insert(call, entry)
            }
            None => return Err(Failure::new(FailureCode::ConnectionTerminated)),
        };
        let begins = frame(call, ToWorker::Begin, &head_bytes);
        let size = begins.len();
        self.state.add(wrap(begins), size);
        self.state.link.liveness.notify_caller_waits();
        Ok(Call::new(&self.state, call, credit, received))
    }

    /// Returns how many calls are under way.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.state.calls().as_ref().map_or(0, Calls::len)
    }

    /// Returns when a server last sent or accepted something of its calls. If none has, returns
    /// when the first of the current calls began.
    #[must_use]
    pub fn moved(&self) -> Instant {
        *self.state.moved()
    }

    /// Abandons the worker; calls under way fail with `why`.
    pub fn give_up(&self, why: &Failure) {
        self.state.close_with(why);
    }

    /// Uses another connector for new connections: the previous one is gone.
    ///
    /// # Errors
    /// Returns the system's error if the socket cannot be duplicated.
    pub fn use_connector(&self, connector: &Connector) -> io::Result<()> {
        let passing = self.passing.try_clone()?;
        {
            let mut current = self.state.connector();
            connector.add_worker(self.state.number, self.state.function, passing);
            *current = connector.clone();
        }
        // If the worker was abandoned meanwhile, it may have been removed from the connector before
        // it was added.
        if self.state.calls().is_none() {
            connector.remove_worker(self.state.number);
        }
        Ok(())
    }

    /// Waits until the process is gone, or was abandoned because it violated the protocol or does
    /// not answer.
    pub async fn closed(&self) {
        self.state.link.closed().await;
    }

    /// Returns whether the process is gone or was abandoned.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.link.is_closed()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.state.close();
    }
}

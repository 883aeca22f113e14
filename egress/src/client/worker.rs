//! A worker, as the node has it.

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
use super::listens::{Listens, lost};
use super::queue::{Outgoing, Queue, in_time, queue};
use super::table::{Calls, Entry, Heard, hear, is_progress};
use super::{Call, Connector};
use crate::credit::Credit;
use crate::frames::{FRAME_MAX, Frame, FromWorker, ToWorker, WorkerOptions, frame};

/// A handle of a worker's process: one function's.
///
/// Its calls fail when it is dropped, and when the process ends, with `connection-terminated`.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
    /// The connector's end of the socket on which the worker is passed connections: another
    /// connector goes on with it.
    passing: OwnedFd,
}

/// Numbers of calls: of no other in this process's life.
static CALLS: AtomicU64 = AtomicU64::new(1);

/// Bytes of passed connections that a worker need not have taken: the system's least, which is
/// a few packets. Descriptors under way are counted against all that the connector passes.
const PASSING: usize = 1;

/// With more bytes than this to be said, no call begins.
const BUSY: usize = 2 << 20;

/// With more than this, the process is given up: beyond [`BUSY`] there are windows of calls under
/// way, and what little is said of each.
const QUEUE_MAX: usize = 64 << 20;

/// What is said to a worker.
#[derive(Debug)]
enum Said {
    /// Any number of frames.
    Frames(BytesMut),
    /// A frame that has secrets in it.
    Secret(Secret),
}

/// Nothing is left of it once it was said.
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
    /// What is to be said. Data is bounded by credit; what calls that are over have left in it, by
    /// [`BUSY`] and [`QUEUE_MAX`].
    frames: Queue<Said>,
    /// `None` when the process is gone.
    calls: Mutex<Option<Calls>>,
    connector: Mutex<Connector>,
    listens: Arc<Listens>,
    /// When anything of a call last came, or was taken.
    moved: Mutex<Instant>,
    closed: watch::Sender<bool>,
}

impl Worker {
    /// Tells a new process at the other end of `socket` what to do. `passing` is the sending
    /// end of the socket pair whose other end it was started with. `authorities` are certificates
    /// in DER that are trusted besides the usual roots. `function` is the number of the function
    /// that it is for: the connector's limits count by it. Within a runtime of tokio.
    ///
    /// # Errors
    /// When a certificate has no room in a frame, or the system's.
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
            listens: Arc::default(),
            moved: Mutex::new(Instant::now()),
            closed: watch::Sender::new(false),
        });
        for authority in authorities {
            if !(1..=FRAME_MAX).contains(&authority.len()) {
                let what = "a certificate of more than 64 KiB";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            shared.say(frame(0, ToWorker::Authority, authority));
        }
        shared.say(frame(0, ToWorker::Configure, options.as_bytes()));
        rustix::net::sockopt::set_socket_send_buffer_size(&passing, PASSING)?;
        connector.add_worker(shared.number, function, passing.try_clone()?);
        let weak = Arc::downgrade(&shared);
        let lost = lost(
            shared.listens.clone(),
            weak.clone(),
            Shared::has_calls,
            Shared::probe,
        );
        tokio::spawn(async move {
            let mut closed = match weak.upgrade() {
                Some(shared) => shared.closed.subscribe(),
                None => return,
            };
            // Whichever ends first, the worker is of no use any more: gone, not in its right mind,
            // or nobody's. The sockets are closed with this task, which ends the process.
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

    /// Begins a call. Whether `destination`, that of `head`, is granted has been looked at before.
    ///
    /// # Errors
    /// When `destination` is not the head's, the head is too large, the process is gone, or there
    /// is too much that it has not yet heard.
    pub fn begin(&self, head: &OutgoingHead, destination: Destination) -> Result<Call, Failure> {
        self.begin_by(Said::Frames, head, destination)
    }

    /// The same for a head that has secrets in it: of what it takes to say it, nothing is left in
    /// this process when the worker has it.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_with_secrets(
        &self,
        head: &OutgoingHead,
        destination: Destination,
    ) -> Result<Call, Failure> {
        self.begin_by(|frame| Said::Secret(Secret(frame)), head, destination)
    }

    fn begin_by(
        &self,
        said: impl FnOnce(BytesMut) -> Said,
        head: &OutgoingHead,
        destination: Destination,
    ) -> Result<Call, Failure> {
        // The worker shows the head's name to whom it is connected to: it must be the same.
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
                    // Nothing was to come before.
                    *self.shared.moved() = Instant::now();
                }
                calls.insert(call, entry)
            }
            None => return Err(terminated()),
        };
        let begins = frame(call, ToWorker::Begin, &head_bytes);
        let size = begins.len();
        self.shared.add(said(begins), size);
        self.shared.listens.wanted();
        Ok(Call::new(&self.shared, call, credit, received))
    }

    /// How many calls are under way.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.shared.calls().as_ref().map_or(0, Calls::len)
    }

    /// When anything of its calls last came from a server, or was taken by one; since when there
    /// are some, where nothing has.
    #[must_use]
    pub fn moved(&self) -> Instant {
        *self.shared.moved()
    }

    /// Ends it; calls under way fail with this.
    pub fn give_up(&self, why: &Failure) {
        self.shared.close_with(why);
    }

    /// Has connections made by another connector from now on: the one before is gone.
    ///
    /// # Errors
    /// The system's.
    pub fn use_connector(&self, connector: &Connector) -> io::Result<()> {
        let passing = self.passing.try_clone()?;
        {
            let mut current = self.shared.connector();
            connector.add_worker(self.shared.number, self.shared.function, passing);
            *current = connector.clone();
        }
        // Given up meanwhile, it may have been taken from the connector before.
        if self.shared.calls().is_none() {
            connector.remove_worker(self.shared.number);
        }
        Ok(())
    }

    /// Waits until the process is gone, or given up because it said what no worker says, or does
    /// not listen.
    pub async fn closed(&self) {
        let mut closed = self.shared.closed.subscribe();
        // The sender is held by `self`, so this cannot fail.
        let _ = closed.wait_for(|closed| *closed).await;
    }

    /// Whether it is.
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

    /// Says something to the worker.
    pub fn say(&self, frame: BytesMut) {
        let size = frame.len();
        self.add(Said::Frames(frame), size);
    }

    fn add(&self, said: Said, size: usize) {
        if self.frames.add(said, size) > QUEUE_MAX {
            // Whoever writes sees it, and closes.
            self.closed.send_replace(true);
        }
    }

    /// Counts what of a call's answer has been taken, before the worker hears of it.
    pub fn give_back(&self, call: u64, bytes: usize) {
        if let Some(entry) = self.calls().as_mut().and_then(|calls| calls.get_mut(&call)) {
            entry.window += bytes;
        }
    }

    /// Nobody wants a call any more, if it is not over.
    pub fn cancel(&self, call: u64) {
        let entry = self.calls().as_mut().and_then(|calls| calls.remove(&call));
        if entry.is_some() {
            self.say(frame(call, ToWorker::Cancel, &[]));
        }
    }

    fn moved(&self) -> MutexGuard<'_, Instant> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_calls(&self) -> bool {
        self.calls().as_ref().is_some_and(|calls| !calls.is_empty())
    }

    /// Asks whether the process is there.
    fn probe(&self) {
        self.say(frame(0, ToWorker::Probe, &[]));
    }

    fn close(&self) {
        self.close_with(&terminated());
    }

    fn close_with(&self, why: &Failure) {
        let calls = {
            let mut calls = self.calls();
            // Before anybody hears of it by a call of theirs.
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
                shared.say(frame(call, ToWorker::Unconnected, &answer));
            }
        });
        entry.connecting = Some(task.abort_handle());
    }
}

/// Says what is to be said; as much as there is at once.
async fn write(mut outgoing: Outgoing<Said>, mut socket: OwnedWriteHalf) -> io::Result<()> {
    let mut behind = None;
    loop {
        let next = match behind.take() {
            Some(said) => Some(said),
            None => outgoing.next().await.map(|(said, _)| said),
        };
        match next {
            None => return Ok(()),
            Some(Said::Frames(mut bytes)) => {
                while bytes.len() < FRAME_MAX && behind.is_none() {
                    match outgoing.next_now() {
                        Some((Said::Frames(more), _)) => bytes.unsplit(more),
                        Some((secret, _)) => behind = Some(secret),
                        None => break,
                    }
                }
                while !bytes.is_empty() {
                    outgoing.written(in_time(socket.write_buf(&mut bytes)).await?);
                }
            }
            Some(Said::Secret(secret)) => {
                let mut rest = &secret.0[..];
                while !rest.is_empty() {
                    outgoing.written(in_time(socket.write_buf(&mut rest)).await?);
                }
            }
        }
    }
}

/// Hears what the worker says, until it is gone or not in its right mind.
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
        shared.listens.heard();
        let mut has_moved = false;
        while let Some(frame) = Frame::<FromWorker>::take(&mut received).map_err(|_| malformed())? {
            let call = frame.call;
            has_moved |= is_progress(frame.kind);
            let heard = match shared.calls().as_mut() {
                Some(calls) => hear(calls, frame).map_err(|_| malformed())?,
                None => return Ok(()),
            };
            match heard {
                Heard::Need => shared.connect(call),
                Heard::Nothing | Heard::Over => {}
            }
        }
        if has_moved {
            *shared.moved() = Instant::now();
        }
    }
}

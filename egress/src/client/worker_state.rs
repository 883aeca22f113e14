//! The state of a worker's process, from the node's side: its calls and its queue.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::BytesMut;
use faasw_abi::outgoing::{Answer, Failure, FailureCode, Tail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;
use zeroize::Zeroize as _;

use super::connector::{Connector, NotConnected, RefusedAddress};
use super::process::{Process, ProcessLink};
use super::queue::{Outgoing, Queue, with_write_timeout};
use super::table::{Calls, Part, handle_frame, is_progress};
use crate::frames::{FRAME_MAX, Frame, FromWorker, ToWorker, WorkerOptions, frame};

/// If more bytes than this are queued, no call begins.
pub const BUSY: usize = 2 << 20;

/// If more bytes than this are queued, the process is abandoned. Beyond [`BUSY`] there are the
/// windows of calls under way, and the few other bytes for each of them.
const QUEUE_MAX: usize = 64 << 20;

/// A message to a worker.
#[derive(Debug)]
pub enum QueuedMessage {
    /// Any number of frames.
    Frames(BytesMut),
    /// A frame that contains secrets.
    Secret(Secret),
}

/// A frame that is zeroed when it is dropped.
pub struct Secret(pub BytesMut);

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

/// The state that the handle of a worker, its calls and its task share.
#[derive(Debug)]
pub struct WorkerState {
    pub number: u64,
    /// The number of its function, which all workers of the function share.
    pub function: u64,
    pub options: WorkerOptions,
    /// Queued messages. Credit bounds the data of live calls; [`BUSY`] and [`QUEUE_MAX`] bound the
    /// data that finished calls have left in the queue.
    pub frames: Queue<QueuedMessage>,
    /// `None` when the process is gone.
    pub calls: Mutex<Option<Calls>>,
    pub connector: Mutex<Connector>,
    pub link: ProcessLink,
    /// When a server last sent or accepted something of a call.
    pub moved: Mutex<Instant>,
}

impl WorkerState {
    pub fn calls(&self) -> MutexGuard<'_, Option<Calls>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn connector(&self) -> MutexGuard<'_, Connector> {
        self.connector
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a frame for the worker.
    pub fn send_frame(&self, frame: BytesMut) {
        let size = frame.len();
        self.add(QueuedMessage::Frames(frame), size);
    }

    pub fn add(&self, message: QueuedMessage, size: usize) {
        if self.frames.add(message, size) > QUEUE_MAX {
            self.link.abandon();
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

    pub fn moved(&self) -> MutexGuard<'_, Instant> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails all calls with `why`, and abandons the process.
    pub fn close_with(&self, why: &Failure) {
        let calls = {
            let mut calls = self.calls();
            // Set before a caller learns of it from the end of its own call.
            self.link.abandon();
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
        let state = self.clone();
        let connector = self.connector().clone();
        let destination = entry.destination.clone();
        let timeout = entry.connect_timeout;
        let task = tokio::spawn(async move {
            let connecting = connector.connect(state.number, call, &destination, timeout);
            if let Err(NotConnected { failure, refused }) = connecting.await {
                if let Some(refused) = refused {
                    state.report_refusal(call, refused);
                }
                let answer = Answer::Failed(failure).encode();
                state.send_frame(frame(call, ToWorker::Unconnected, &answer));
            }
        });
        entry.connecting = Some(task.abort_handle());
    }
}

impl Process for WorkerState {
    fn link(&self) -> &ProcessLink {
        &self.link
    }

    fn is_waited_for(&self) -> bool {
        self.calls().as_ref().is_some_and(|calls| !calls.is_empty())
    }

    fn probe(&self) {
        self.send_frame(frame(0, ToWorker::Probe, &[]));
    }

    fn close(&self) {
        self.close_with(&Failure::new(FailureCode::ConnectionTerminated));
    }
}

/// Writes queued messages; as many as there are at once.
pub async fn write(
    mut outgoing: Outgoing<QueuedMessage>,
    mut socket: OwnedWriteHalf,
) -> io::Result<()> {
    let mut behind = None;
    loop {
        let next = match behind.take() {
            Some(message) => Some(message),
            None => outgoing.next().await.map(|(message, _)| message),
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
pub async fn listen(weak: Weak<WorkerState>, mut socket: OwnedReadHalf) -> io::Result<()> {
    let mut received = BytesMut::new();
    loop {
        received.reserve(FRAME_MAX);
        if socket.read_buf(&mut received).await? == 0 {
            return Ok(());
        }
        let Some(state) = weak.upgrade() else {
            return Ok(());
        };
        state.link.liveness.record_activity();
        let mut has_moved = false;
        while let Some(frame) = Frame::<FromWorker>::take(&mut received)? {
            let call = frame.call;
            has_moved |= is_progress(frame.kind);
            let needs_connection = match state.calls().as_mut() {
                Some(calls) => handle_frame(calls, frame)?,
                None => return Ok(()),
            };
            if needs_connection {
                state.connect(call);
            }
        }
        if has_moved {
            *state.moved() = Instant::now();
        }
    }
}

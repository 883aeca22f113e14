//! A call, from its caller's side.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use faasw_abi::channel::TAIL_MAX;
use faasw_abi::outgoing::{Failure, FailureCode, Tail};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use super::table::Part;
use super::worker_state::WorkerState;
use crate::credit::{ConsumedBytes, Credit};
use crate::frames::{FRAME_MAX, LARGE_WINDOW, ToWorker, WINDOW, credit_bytes, frame};

/// How many bytes of a response body pass before its window is enlarged.
const LONG: usize = 2 * WINDOW;

/// Responses of this process that may have a large window at once: at most 24 MiB more in this
/// process, and as much in their workers.
static LARGE_WINDOWS: Semaphore = Semaphore::const_new(64);

/// A call under way: its request and its response. Each half may be dropped by itself.
#[derive(Debug)]
pub struct Call {
    /// The request's body.
    pub sender: Sender,
    /// The response.
    pub receiver: Receiver,
}

/// The request's body is no longer accepted: the call is over, or the response comes without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server does not read the rest of the request")]
pub struct Closed;

/// The request's body. If it is dropped before [`finish`](Self::finish), the request fails.
#[derive(Debug)]
pub struct Sender {
    state: Arc<WorkerState>,
    call: u64,
    credit: Arc<Credit>,
    is_finished: bool,
}

/// The response. If it is dropped before its end, the call is cancelled.
#[derive(Debug)]
pub struct Receiver {
    state: Arc<WorkerState>,
    call: u64,
    parts: mpsc::UnboundedReceiver<Part>,
    consumed: ConsumedBytes,
    /// Bytes of the body that were taken since a large window was last requested.
    taken: usize,
    large: Option<SemaphorePermit<'static>>,
    is_over: bool,
}

impl Call {
    pub(super) fn new(
        state: &Arc<WorkerState>,
        call: u64,
        credit: Arc<Credit>,
        parts: mpsc::UnboundedReceiver<Part>,
    ) -> Self {
        Self {
            sender: Sender {
                state: state.clone(),
                call,
                credit,
                is_finished: false,
            },
            receiver: Receiver {
                state: state.clone(),
                call,
                parts,
                consumed: ConsumedBytes::default(),
                taken: 0,
                large: None,
                is_over: false,
            },
        }
    }
}

impl Sender {
    /// Waits until data may be sent. Returns how many bytes.
    ///
    /// # Errors
    /// Returns [`Closed`] if the request's body is no longer accepted.
    pub async fn ready(&mut self) -> Result<usize, Closed> {
        self.credit.wait().await.ok_or(Closed)
    }

    /// Polls for what [`ready`](Self::ready) returns.
    ///
    /// # Errors
    /// Returns [`Closed`] if the request's body is no longer accepted.
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, Closed>> {
        let ready = self.credit.poll(context);
        ready.map(|room| room.ok_or(Closed))
    }

    /// Sends as much from the front of `data` as may be sent now, and leaves the rest.
    ///
    /// # Errors
    /// Returns [`Closed`] if the request's body is no longer accepted.
    pub fn push(&mut self, data: &mut Bytes) -> Result<(), Closed> {
        while !data.is_empty() {
            let taken = self.credit.take(data.len().min(FRAME_MAX));
            if taken == 0 {
                break;
            }
            let piece = data.split_to(taken);
            self.state
                .send_frame(frame(self.call, ToWorker::Data, &piece));
        }
        if self.credit.is_closed() {
            Err(Closed)
        } else {
            Ok(())
        }
    }

    /// Sends all of `data`, waiting for credit. If this future is dropped, a part may have been
    /// sent.
    ///
    /// # Errors
    /// Returns [`Closed`] if the request's body is no longer accepted.
    pub async fn send(&mut self, mut data: Bytes) -> Result<(), Closed> {
        while !data.is_empty() {
            self.ready().await?;
            self.push(&mut data)?;
        }
        Ok(())
    }

    /// Ends the body. `tail` is the encoding of a [`Tail`]; if it is larger than 16 KiB, the
    /// request fails.
    pub fn finish(mut self, tail: &[u8]) {
        if tail.len() as u64 > TAIL_MAX {
            return self.fail(FailureCode::HttpRequestTrailerSectionSize);
        }
        self.is_finished = true;
        self.state.send_frame(frame(self.call, ToWorker::End, tail));
    }

    fn fail(&mut self, code: FailureCode) {
        self.is_finished = true;
        let tail = Tail::Failed(Failure::new(code)).encode();
        self.state
            .send_frame(frame(self.call, ToWorker::End, &tail));
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.is_finished && !self.credit.is_closed() {
            self.fail(FailureCode::InternalError);
        }
    }
}

impl Receiver {
    /// Returns the next part; `None` after the last. This future is cancel-safe: no part is lost if
    /// it is dropped.
    pub async fn next(&mut self) -> Option<Part> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Polls for what [`next`](Self::next) returns.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Part>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let part = std::task::ready!(self.parts.poll_recv(context));
        match &part {
            Some(Part::Head(_) | Part::Refused(_)) => {}
            Some(Part::Data(data)) => {
                self.widen(data.len());
                if let Some(bytes) = self.consumed.take(data.len()) {
                    self.state.give_back(self.call, bytes);
                    let credit = credit_bytes(bytes);
                    self.state
                        .send_frame(frame(self.call, ToWorker::Credit, &credit));
                }
            }
            Some(Part::Failed(_) | Part::End(_)) | None => self.is_over = true,
        }
        Poll::Ready(part)
    }

    /// Counts bytes that were taken. After many, it enlarges the window if a permit is free.
    fn widen(&mut self, taken: usize) {
        if self.large.is_some() {
            return;
        }
        self.taken += taken;
        if self.taken >= LONG {
            // If no permit is free, it is requested again after as many bytes more.
            self.taken = 0;
            self.large = LARGE_WINDOWS.try_acquire().ok();
            if self.large.is_some() {
                self.consumed.grow_to(LARGE_WINDOW);
            }
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.state.cancel(self.call);
    }
}

//! A call, as who makes it has it.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use faasw_abi::channel::TAIL_MAX;
use faasw_abi::outgoing::{Failure, FailureCode, Tail};
use faasw_egress_policy::Prohibited;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use super::worker::Shared;
use crate::credit::{Consumed, Credit};
use crate::frames::{FRAME_MAX, LARGE_WINDOW, ToWorker, WINDOW, credit_bytes, frame};

/// How many bytes of an answer pass before its window is large.
const LONG: usize = 2 * WINDOW;

/// Answers of this process that may have a large window at once: 24 MiB more than they would have
/// here at most, and as much at their workers.
static LARGE_WINDOWS: Semaphore = Semaphore::const_new(64);

/// A call under way: what is sent, and what comes back. Each half may be dropped by itself.
#[derive(Debug)]
pub struct Call {
    /// The request's body.
    pub sender: Sender,
    /// The answer.
    pub receiver: Receiver,
}

/// An address that the policy refuses, of a destination that the function was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedAddress {
    /// The address.
    pub address: IpAddr,
    /// Why it is refused; `None` if it is one of this host's own addresses.
    pub prohibited: Option<Prohibited>,
}

/// A part of what comes back, as the worker spelled it. None of it is to be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// For the owner of the function alone, from the node itself: the address that was refused.
    /// [`Failed`](Self::Failed) follows.
    Refused(RefusedAddress),
    /// The head: an [`Answer`](faasw_abi::outgoing::Answer); 64 KiB at most.
    Head(Bytes),
    /// There is none, and why: a failed [`Answer`](faasw_abi::outgoing::Answer). Nothing follows.
    Failed(Bytes),
    /// A piece of the body; never empty.
    Data(Bytes),
    /// The end: a [`Tail`], 16 KiB at most. Nothing follows.
    End(Bytes),
}

/// Nobody takes a request's body any more: its answer is over, or coming without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody takes the rest of the request")]
pub struct Closed;

/// The request's body. Dropped before [`finish`](Self::finish), the request fails.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<Shared>,
    call: u64,
    credit: Arc<Credit>,
    is_finished: bool,
}

/// What comes back. Dropped before its end, nobody wants the call any more, and it is cancelled.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    call: u64,
    parts: mpsc::UnboundedReceiver<Part>,
    consumed: Consumed,
    /// Bytes of its body that were taken since a large window was looked for.
    taken: usize,
    large: Option<SemaphorePermit<'static>>,
    is_over: bool,
}

impl Call {
    pub(super) fn new(
        shared: &Arc<Shared>,
        call: u64,
        credit: Arc<Credit>,
        parts: mpsc::UnboundedReceiver<Part>,
    ) -> Self {
        Self {
            sender: Sender {
                shared: shared.clone(),
                call,
                credit,
                is_finished: false,
            },
            receiver: Receiver {
                shared: shared.clone(),
                call,
                parts,
                consumed: Consumed::default(),
                taken: 0,
                large: None,
                is_over: false,
            },
        }
    }
}

impl Sender {
    /// Waits until something may be sent, and says how many bytes.
    ///
    /// # Errors
    /// When nobody takes it.
    pub async fn ready(&mut self) -> Result<usize, Closed> {
        self.credit.wait().await.ok_or(Closed)
    }

    /// As [`ready`](Self::ready), for who has a context.
    ///
    /// # Errors
    /// When nobody takes it.
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, Closed>> {
        let ready = self.credit.poll(context);
        ready.map(|room| room.ok_or(Closed))
    }

    /// Sends from the front of `data` what may be sent now, and leaves the rest.
    ///
    /// # Errors
    /// When nobody takes it.
    pub fn push(&mut self, data: &mut Bytes) -> Result<(), Closed> {
        while !data.is_empty() {
            let taken = self.credit.take(data.len().min(FRAME_MAX));
            if taken == 0 {
                break;
            }
            let piece = data.split_to(taken);
            self.shared.say(frame(self.call, ToWorker::Data, &piece));
        }
        if self.credit.is_closed() {
            Err(Closed)
        } else {
            Ok(())
        }
    }

    /// Sends all of `data`, as it may be sent. When this is dropped, a part of it may have been.
    ///
    /// # Errors
    /// When nobody takes it.
    pub async fn send(&mut self, mut data: Bytes) -> Result<(), Closed> {
        while !data.is_empty() {
            self.ready().await?;
            self.push(&mut data)?;
        }
        Ok(())
    }

    /// Ends the body. `tail` is a [`Tail`]'s bytes; one of more than 16 KiB makes the request
    /// fail.
    pub fn finish(mut self, tail: &[u8]) {
        if tail.len() as u64 > TAIL_MAX {
            return self.fail(FailureCode::HttpRequestTrailerSectionSize);
        }
        self.is_finished = true;
        self.shared.say(frame(self.call, ToWorker::End, tail));
    }

    fn fail(&mut self, code: FailureCode) {
        self.is_finished = true;
        let tail = Tail::Failed(Failure::new(code)).encode();
        self.shared.say(frame(self.call, ToWorker::End, &tail));
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
    /// The next part; `None` behind the last. Nothing is lost when this is dropped.
    pub async fn next(&mut self) -> Option<Part> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`next`](Self::next), for who has a context.
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
                    self.shared.give_back(self.call, bytes);
                    let credit = credit_bytes(bytes);
                    self.shared.say(frame(self.call, ToWorker::Credit, &credit));
                }
            }
            Some(Part::Failed(_) | Part::End(_)) | None => self.is_over = true,
        }
        Poll::Ready(part)
    }

    /// Counts bytes that were taken; has the window be large when there were many, if it may be.
    fn widen(&mut self, taken: usize) {
        if self.large.is_some() {
            return;
        }
        self.taken += taken;
        if self.taken >= LONG {
            // Looked for again behind as much more.
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
        self.shared.cancel(self.call);
    }
}

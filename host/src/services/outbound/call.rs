//! An outbound call that the egress processes make, as its invocation sees it.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use faasw_abi::outgoing::{Failure, FailureCode};
use faasw_egress::client::{Part, Receiver, Sender, Worker};
use faasw_egress_policy::Destination;
use faasw_pool::{AnswerPart, OutgoingCall, OutgoingRequest};

use super::{limits::CallPermits, refusals::RefusalLog, worker_slot::WorkerSlot};
use crate::services::secrets::HeadWithSecrets;

/// Resolves to the function's worker.
type Starting = Pin<Box<dyn Future<Output = Result<Arc<Worker>, Failure>> + Send>>;

/// A call under way.
pub(super) struct EgressCall {
    state: State,
    refusals: RefusalLog,
    _permits: CallPermits,
}

enum State {
    /// The worker is being started.
    Starting {
        worker: Starting,
        request: Box<OutgoingRequest>,
        /// The request's head with secrets, if it has any.
        filled: Option<HeadWithSecrets>,
        destination: Destination,
        /// The tail of the body, if the body has ended meanwhile.
        tail: Option<Vec<u8>>,
    },
    /// A worker makes the call.
    Active(ActiveCall),
    /// The call failed. The failure is returned once.
    Failed(Option<Failure>),
}

struct ActiveCall {
    /// Keeps the worker alive: dropping the last reference ends the calls under way.
    _worker: Arc<Worker>,
    /// Present until the request's body has ended.
    sender: Option<Sender>,
    receiver: Receiver,
    /// The head was a failure. The worker sends no end after it, so the call reports an empty end.
    has_failed: bool,
}

impl EgressCall {
    pub(super) fn new(
        slot: &Arc<WorkerSlot>,
        request: OutgoingRequest,
        filled: Option<HeadWithSecrets>,
        destination: Destination,
        permits: CallPermits,
        refusals: RefusalLog,
    ) -> Self {
        let state = match slot.worker() {
            Some(worker) => State::begin(worker, &request, filled, destination, None),
            None => State::Starting {
                worker: Box::pin(slot.clone().start()),
                request: Box::new(request),
                filled,
                destination,
                tail: None,
            },
        };
        Self {
            state,
            refusals,
            _permits: permits,
        }
    }

    /// Waits until a worker makes the call, or the call has failed.
    fn poll_begun(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let State::Starting {
            worker,
            request,
            filled,
            destination,
            tail,
        } = &mut self.state
        else {
            return Poll::Ready(());
        };
        self.state = match ready!(worker.as_mut().poll(context)) {
            Ok(worker) => {
                let (filled, destination) = (filled.take(), destination.clone());
                State::begin(worker, request, filled, destination, tail.take())
            }
            Err(failure) => State::Failed(Some(failure)),
        };
        // Both directions may wait for this, so the task is polled again.
        context.waker().wake_by_ref();
        Poll::Ready(())
    }
}

impl State {
    fn begin(
        worker: Arc<Worker>,
        request: &OutgoingRequest,
        filled: Option<HeadWithSecrets>,
        destination: Destination,
        tail: Option<Vec<u8>>,
    ) -> Self {
        let begun = match &filled {
            Some(filled) => worker.begin_with_secrets(filled.head(), destination),
            None => worker.begin(&request.head, destination),
        };
        let call = match begun {
            Ok(call) => call,
            Err(failure) => return Self::Failed(Some(failure)),
        };
        let tail = if request.is_whole {
            Some(Vec::new())
        } else {
            tail
        };
        let sender = match tail {
            Some(tail) => {
                call.sender.finish(&tail);
                None
            }
            None => Some(call.sender),
        };
        Self::Active(ActiveCall {
            _worker: worker,
            sender,
            receiver: call.receiver,
            has_failed: false,
        })
    }
}

impl OutgoingCall for EgressCall {
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        ready!(self.poll_begun(context));
        let State::Active(ActiveCall {
            sender: Some(sender),
            ..
        }) = &mut self.state
        else {
            return Poll::Pending;
        };
        match ready!(sender.poll_ready(context)) {
            Ok(room) => Poll::Ready(room),
            // The worker does not read the body any more.
            Err(_) => Poll::Pending,
        }
    }

    fn send(&mut self, mut body: Bytes) {
        if let State::Active(ActiveCall {
            sender: Some(sender),
            ..
        }) = &mut self.state
        {
            // If the worker does not read the body, the response tells the guest what happened.
            let _ = sender.push(&mut body);
        }
    }

    fn end(&mut self, ending: Vec<u8>) {
        match &mut self.state {
            State::Starting { tail, .. } => *tail = Some(ending),
            State::Active(begun) => {
                if let Some(sender) = begun.sender.take() {
                    sender.finish(&ending);
                }
            }
            State::Failed(_) => {}
        }
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<AnswerPart> {
        ready!(self.poll_begun(context));
        let begun = match &mut self.state {
            State::Active(begun) => begun,
            State::Failed(failure) => {
                return match failure.take() {
                    Some(failure) => Poll::Ready(AnswerPart::Failed(failure)),
                    None => Poll::Pending,
                };
            }
            State::Starting { .. } => return Poll::Pending,
        };
        if begun.has_failed {
            return Poll::Ready(AnswerPart::End(Bytes::new()));
        }
        let part = loop {
            match ready!(begun.receiver.poll_next(context)) {
                Some(Part::Refused(refused)) => self.refusals.report(&refused),
                part => break part,
            }
        };
        Poll::Ready(match part {
            Some(Part::Head(head)) => AnswerPart::Head(head),
            Some(Part::Failed(head)) => {
                begun.has_failed = true;
                AnswerPart::Head(head)
            }
            Some(Part::Data(data)) => AnswerPart::Data(data),
            Some(Part::End(tail)) => AnswerPart::End(tail),
            Some(Part::Refused(_)) | None => {
                AnswerPart::Failed(Failure::new(FailureCode::ConnectionTerminated))
            }
        })
    }
}

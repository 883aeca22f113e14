//! The outbound calls that grants allow.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use faasw_abi::outgoing::{Failure, FailureCode, OutgoingHead};
use faasw_client::SecretName;
use faasw_egress_policy::{Destination, Grant, NodeTarget, RequestError};
use faasw_pool::{AnswerPart, Outbound, OutgoingCall, OutgoingRequest, RequestBudget};

use super::{
    call::EgressCall,
    hops::Hops,
    limits::{CallPermits, OutboundLimits},
    refusals::{OutboundObserver, RefusalLog},
    worker_slot::WorkerSlot,
};
use crate::services::secrets::{BoundSecrets, HeadWithSecrets, SecretFillError};

/// Makes calls that were granted.
#[derive(Clone, Debug)]
pub(crate) enum CallMaker {
    /// The processes of the node.
    Egress(Arc<WorkerSlot>),
    /// An implementation of the program that embeds the node.
    Embedder(Arc<dyn Outbound>),
}

impl CallMaker {
    /// Counts the worker as one of the same function as `other`, the maker of another version.
    pub(crate) fn join_function_of(&self, other: &Self) {
        if let (Self::Egress(slot), Self::Egress(other)) = (self, other) {
            slot.join_function_of(other);
        }
    }
}

/// The outbound calls that an invocation of a function may make.
pub(crate) struct GrantedCalls {
    grants: Arc<[Grant]>,
    limits: OutboundLimits,
    /// Makes the calls that leave the node. Without it they are denied.
    maker: Option<CallMaker>,
    /// Makes the self calls.
    self_calls: Arc<dyn Outbound>,
    /// The functions that the request has passed through before this invocation.
    hops: Hops,
    /// The budget of the client's request and the invocations that it causes.
    budget: Arc<RequestBudget>,
    /// Secrets that the node puts into calls.
    bound: Option<Arc<BoundSecrets>>,
    observer: Arc<dyn OutboundObserver>,
}

impl fmt::Debug for GrantedCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrantedCalls")
            .field("grants", &self.grants)
            .finish_non_exhaustive()
    }
}

impl GrantedCalls {
    /// Creates the calls that these grants allow, made by these makers.
    pub(crate) fn new(
        grants: Arc<[Grant]>,
        limits: OutboundLimits,
        (maker, self_calls): (Option<CallMaker>, Arc<dyn Outbound>),
        hops: Hops,
        budget: Arc<RequestBudget>,
        bound: Option<Arc<BoundSecrets>>,
        observer: Arc<dyn OutboundObserver>,
    ) -> Self {
        Self {
            grants,
            limits,
            maker,
            self_calls,
            hops,
            budget,
            bound,
            observer,
        }
    }

    /// Checks whether a call may go to the destination in its head, and completes the head.
    fn admit(&self, head: &mut OutgoingHead) -> Result<(Destination, CallPermits), Failure> {
        if !self.observer.is_function_present() {
            return Err(Failure::new(FailureCode::HttpRequestDenied));
        }
        let own = Destination::of_node();
        // The head names no host. As in Spin, it is for the application that the function is part
        // of, if the function may call that.
        if head.authority.is_empty() && self.grants.iter().any(|grant| grant.allows(&own)) {
            head.scheme = own.scheme.as_str().into();
            head.authority = own.authority().into();
        }
        let destination = Destination::of_request(&head.scheme, &head.authority);
        let destination = destination.map_err(|error| {
            self.observer
                .call_refused(&format!("a request has no destination: {error}"));
            let code = match error {
                RequestError::Scheme => FailureCode::HttpProtocolError,
                _ => FailureCode::HttpRequestUriInvalid,
            };
            Failure::new(code)
        })?;
        if !self.grants.iter().any(|grant| grant.allows(&destination)) {
            let grant = match destination.own() {
                None => destination.to_string(),
                Some(NodeTarget::ByPath) => "http://self".to_owned(),
                Some(NodeTarget::Function(name)) => format!("http://{name}.spin.internal"),
            };
            self.observer.call_refused(&format!(
                "a request to {destination} was denied: no grant allows it (deploy with \
                 --allow-outbound {grant})"
            ));
            return Err(Failure::new(FailureCode::HttpRequestDenied));
        }
        if !self.hops.write(head) {
            self.observer.call_refused(&format!(
                "a request to {destination} was refused: the request that it is for has passed \
                 through {} functions, and may be in a loop",
                Hops::MOST
            ));
            return Err(Failure::new(FailureCode::LoopDetected));
        }
        if destination.own().is_some() {
            self.charge_self_call(&destination)?;
        }
        let permits = self.limits.take().ok_or_else(|| {
            self.observer.call_refused(&format!(
                "a request to {destination} was refused: too many are under way"
            ));
            Failure::new(FailureCode::ConnectionLimitReached)
        })?;
        Ok((destination, permits))
    }

    /// Counts a self call in the budget of the client's request.
    fn charge_self_call(&self, destination: &Destination) -> Result<(), Failure> {
        self.budget.begin_nested().map_err(|error| {
            let what = error.to_string();
            // A function that continues regardless does not fill its log with this.
            if self.budget.is_first_report() {
                self.observer.call_refused(&format!(
                    "a request to {destination} was refused, as further ones are: {what}"
                ))
            } else {
                self.observer.refusal_repeated()
            }
            Failure::with_text(FailureCode::InternalError, &what)
        })
    }

    /// Returns a request's head with the secrets that are bound to its destination. Returns `None`
    /// if there are none to put in.
    fn fill(
        &self,
        head: &OutgoingHead,
        destination: &Destination,
    ) -> Result<Option<HeadWithSecrets>, Failure> {
        let Some(bound) = &self.bound else {
            return Ok(None);
        };
        let elsewhere = |name: &SecretName| {
            self.observer.add_note(&format!(
                "a request to {destination} has the text of its secret {name}, which is bound to \
                 other hosts, and went without the secret"
            ));
        };
        let filled = bound.fill(head, destination, elsewhere);
        filled.map_err(|unfilled| {
            let (what, code) = match unfilled {
                SecretFillError::NoHeader(name) => (
                    format!("its secret {name} cannot be part of a header field"),
                    FailureCode::HttpProtocolError,
                ),
                SecretFillError::TooLarge => (
                    "its head would be too large with its secrets".to_owned(),
                    FailureCode::HttpRequestHeaderSectionSize,
                ),
            };
            let what = format!("a request to {destination} was not made: {what}");
            self.observer.call_refused(&what);
            Failure::new(code)
        })
    }
}

impl Outbound for GrantedCalls {
    fn begin(&self, mut request: OutgoingRequest) -> Box<dyn OutgoingCall> {
        let admitted = self.admit(&mut request.head).and_then(|admitted| {
            let filled = self.fill(&request.head, &admitted.0)?;
            let maker = match (admitted.0.own(), &self.maker) {
                (Some(_), _) => None,
                (None, Some(maker)) => Some(maker),
                (None, None) => return Err(Failure::new(FailureCode::HttpRequestDenied)),
            };
            self.observer.call_made();
            Ok((admitted, filled, maker))
        });
        let ((destination, permits), filled, maker) = match admitted {
            Ok(admitted) => admitted,
            Err(failure) => return Box::new(RefusedCall::new(failure)),
        };
        let call = match maker {
            Some(CallMaker::Egress(slot)) => {
                let refusals = RefusalLog::new(destination.clone(), self.observer.clone());
                let call = EgressCall::new(slot, request, filled, destination, permits, refusals);
                return Box::new(call);
            }
            Some(CallMaker::Embedder(outbound)) => {
                let head = filled.map_or(request.head, HeadWithSecrets::into_head);
                outbound.begin(OutgoingRequest {
                    bytes: head.encode().into(),
                    head,
                    is_whole: request.is_whole,
                })
            }
            // Self calls carry no secrets: secrets are bound to other hosts.
            None => self.self_calls.begin(request),
        };
        Box::new(CountedCall {
            call,
            _permits: permits,
        })
    }
}

/// A call that is not made.
pub(crate) struct RefusedCall(Option<Failure>);

impl RefusedCall {
    /// Creates a call whose guest receives this failure.
    pub(crate) fn new(failure: Failure) -> Self {
        Self(Some(failure))
    }
}

impl OutgoingCall for RefusedCall {
    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<usize> {
        Poll::Pending
    }

    fn send(&mut self, _: Bytes) {}

    fn end(&mut self, _: Vec<u8>) {}

    fn poll_answer(&mut self, _: &mut Context<'_>) -> Poll<AnswerPart> {
        match self.0.take() {
            Some(failure) => Poll::Ready(AnswerPart::Failed(failure)),
            None => Poll::Pending,
        }
    }
}

/// A call that another maker makes, with its permits.
struct CountedCall {
    call: Box<dyn OutgoingCall>,
    _permits: CallPermits,
}

impl OutgoingCall for CountedCall {
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        self.call.poll_room(context)
    }

    fn send(&mut self, body: Bytes) {
        self.call.send(body);
    }

    fn end(&mut self, tail: Vec<u8>) {
        self.call.end(tail);
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<AnswerPart> {
        self.call.poll_answer(context)
    }
}

//! A request as it enters the pool, and a response as it leaves.

use std::any::Any;
use std::sync::Arc;

use faasw_abi::wire::{RequestHead, ResponseHead};
use faasw_fri::messages::FunctionNumber;

use super::backlog::Account;
use super::body::{ReplyBody, RequestBody};
use super::budget::BudgetAccount;
use super::limits::InvocationLimits;
use super::outbound::Outbound;
use super::secrets::Secrets;
use super::store::StoreService;
use crate::seeds::FunctionVersion;
use crate::sink::{LogSink, Timing};

/// A request to the pool.
#[derive(Debug)]
pub struct InvocationRequest {
    /// The request head in the form that the function sees.
    pub head: RequestHead,
    /// The request body.
    pub body: RequestBody,
    /// How long the request may take.
    pub limits: InvocationLimits,
    /// Where log lines go.
    pub log: Arc<dyn LogSink>,
    /// The client that sends the request.
    pub client: RequestClient,
    /// The service that answers records on the function's store channel. Without it the channel is
    /// closed.
    pub store: Option<Arc<dyn StoreService>>,
    /// The secrets that the function receives with this request only. Without them their channel is
    /// closed.
    pub secrets: Option<Secrets>,
    /// Makes the function's outbound calls. Without it their channels are closed.
    pub outbound: Option<Arc<dyn Outbound>>,
    /// The caller's own permit for the request.
    pub caller_permit: CallerPermit,
}

/// The caller's own permit for a request, such as a slot among the requests of its function. It is
/// held together with the request's admission permit. It is dropped when the request's microVM is
/// free or gone, or when there is none.
#[derive(Debug, Default)]
pub struct CallerPermit(
    #[expect(dead_code, reason = "it is held, not used")] Option<Box<dyn Any + Send + Sync>>,
);

impl CallerPermit {
    /// Holds `what`.
    #[must_use]
    pub fn with(what: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(what)))
    }
}

/// The properties of a request's client that the pool must know.
#[derive(Clone, Debug, Default)]
pub struct RequestClient {
    /// The account that the bytes of the response count for until they are taken. By default it has
    /// no limits.
    pub account: Account,
    /// The request may begin before its body has arrived. While its body is awaited, it is the
    /// first to be evicted when other requests need its permit.
    pub is_early: bool,
    /// The function that makes the request, if another function does and waits for it with a permit
    /// of its own. The permit of this request then counts for that function. If none is free, the
    /// request is rejected at once.
    pub calling_function: Option<PermitShare>,
    /// The account in the budget of the client's request, if the function makes outbound calls or
    /// another one waits for it. The [`log`](InvocationRequest::log) must charge it in
    /// [`LogSink::charged`].
    pub budget: Option<Arc<BudgetAccount>>,
}

/// The function whose share of permits a request uses, whatever its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitShare(FunctionNumber);

impl PermitShare {
    /// Returns the share of a function's own requests.
    #[must_use]
    pub fn of(version: &FunctionVersion) -> Self {
        Self(version.function_memory().number())
    }

    /// Returns the share of the function with this number.
    #[cfg(test)]
    pub(crate) fn by(number: FunctionNumber) -> Self {
        Self(number)
    }

    /// Returns the number of the function.
    pub(crate) fn number(self) -> FunctionNumber {
        self.0
    }
}

/// A function's response.
#[derive(Debug)]
pub struct Reply {
    /// Status and headers as the function made them, not validated.
    pub head: ResponseHead,
    /// The response body.
    pub body: ReplyBody,
    /// Where the time went, as far as it is known by now.
    pub timing: Timing,
}

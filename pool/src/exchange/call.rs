//! A request as it comes to the pool, and a response as it leaves.

use std::any::Any;
use std::sync::Arc;

use faasw_abi::wire::{RequestHead, ResponseHead};

use super::backlog::Account;
use super::body::{ReplyBody, RequestBody};
use super::budget::BudgetAccount;
use super::limits::CallLimits;
use super::outbound::Outbound;
use super::secrets::Secrets;
use super::store::StoreService;
use crate::seeds::{FunctionNumber, FunctionVersion};
use crate::sink::{LogSink, Timing};

/// A request as the pool takes it.
#[derive(Debug)]
pub struct Call {
    /// Its head, already in the form that the function sees.
    pub head: RequestHead,
    /// Its body.
    pub body: RequestBody,
    /// How long it may take.
    pub limits: CallLimits,
    /// Where log lines go.
    pub log: Arc<dyn LogSink>,
    /// Who sends it.
    pub client: Client,
    /// What answers the function's records on the channel of its store; it is not open without.
    pub store: Option<Arc<dyn StoreService>>,
    /// What the function is to know with this request only; their channel is not open without.
    pub secrets: Option<Secrets>,
    /// Who makes the function's requests to others; their channels are not open without.
    pub outbound: Option<Arc<dyn Outbound>>,
    /// What it was admitted with.
    pub admitted: Admitted,
}

/// What whoever calls has admitted a request with, such as a place among those of its
/// function. It goes the way of the place that the request has here: it is dropped when
/// the request's microVM is free or gone, or when there is none.
#[derive(Debug, Default)]
pub struct Admitted(
    #[expect(dead_code, reason = "it is held, not used")] Option<Box<dyn Any + Send + Sync>>,
);

impl Admitted {
    /// Holds `what`.
    #[must_use]
    pub fn with(what: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(what)))
    }
}

/// What the pool has to know of who sends a request.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Whom the bytes of the response count for until they are taken; nobody unless set.
    pub account: Account,
    /// The request begins before its body is there, as far as that is waited for: it is
    /// the first to be cut when others want its place.
    pub is_early: bool,
    /// It is another function's request, which waits for it with a place of its own: this one's
    /// place counts for that function, and where none is free it is refused at once. Nobody's
    /// unless set.
    pub within: Option<Share>,
    /// The account in the budget of the client's request, if the function makes outbound calls or
    /// another one waits for it. The [`log`](Call::log) must charge it in [`LogSink::charged`].
    pub budget: Option<Arc<BudgetAccount>>,
}

/// Whose places a request takes: those of a function, whatever its versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(FunctionNumber);

impl Share {
    /// That of a function's own requests.
    #[must_use]
    pub fn of(version: &FunctionVersion) -> Self {
        Self(version.holding().number())
    }

    /// That of this function.
    #[cfg(test)]
    pub(crate) fn by(number: FunctionNumber) -> Self {
        Self(number)
    }

    /// Which function it is.
    pub(crate) fn number(self) -> FunctionNumber {
        self.0
    }
}

/// A function's response.
#[derive(Debug)]
pub struct Reply {
    /// Status and headers, as the function made them: not validated.
    pub head: ResponseHead,
    /// The body.
    pub body: ReplyBody,
    /// Where the time went, as far as it is known by now.
    pub timing: Timing,
}

//! Requests that functions make to functions of the same node: none of them leaves it.
//!
//! A request between functions is like any other, to an instance in a microVM of its own, but
//! another invocation waits for it, which keeps its permit meanwhile. So it counts in the share of
//! the function that answers the client, and if there is no permit, it is refused at once.
//! `CDN-Loop`, which the node writes, bounds how deep requests nest
//! ([`Hops`](crate::services::outbound::Hops)). The budget of the client's request bounds how many
//! there are, their CPU time and their wall time ([`RequestBudget`]). Bytes that wait count as
//! [`call`](faasw_pool::Backlog::call) says.

mod budget;
mod call;
mod request;
mod sent;

use std::sync::{Arc, Weak};

use faasw_abi::outgoing::{Failure, FailureCode};
use faasw_pool::{Outbound, OutgoingCall, OutgoingRequest, RequestBudget, Share};

pub(super) use self::budget::{account, call_limits};
use self::{
    call::InsideCall,
    request::{Asked, asked},
};
use super::core::Core;
use crate::{
    message::{Correlation, Within},
    services::outbound::Refused,
};

/// Makes one invocation's requests to functions of its node.
#[derive(Debug)]
pub(super) struct Inside {
    core: Weak<Core>,
    /// Theirs, too: one request of a client is known by one id, however many functions it comes to.
    known: Correlation,
    /// The function whose share of the node's capacity they count in.
    share: Option<Share>,
    /// The budget of the client's request that caused all of them.
    budget: Arc<RequestBudget>,
}

impl Inside {
    /// Returns the maker of the requests of one invocation, in `share` and within `budget`.
    pub(super) fn new(
        core: &Weak<Core>,
        known: Correlation,
        share: Option<Share>,
        budget: Arc<RequestBudget>,
    ) -> Self {
        Self {
            core: core.clone(),
            known,
            share,
            budget,
        }
    }

    fn call(&self, request: &OutgoingRequest) -> Result<InsideCall, Failure> {
        let core = self.core.upgrade();
        let core = core.ok_or_else(|| Failure::new(FailureCode::ConnectionTerminated))?;
        let Asked {
            name,
            uri,
            mut request,
            sending,
            timeouts,
        } = asked(&request.head, request.is_whole)?;
        request.extensions_mut().insert(Within {
            share: self.share,
            budget: self.budget.clone(),
        });
        let known = Correlation::new(request.headers(), Some(self.known.request_id));
        let follow = core.follow(&request, &known);
        *request.uri_mut() = uri;
        let answering = async move {
            let gone = core.gone();
            let mut response = tokio::select! {
                response = core.invoke(&name, request, &known, follow) => response,
                () = gone => return Err(Failure::new(FailureCode::ConnectionTerminated)),
            };
            known.tell(response.headers_mut());
            Ok(response)
        };
        Ok(InsideCall::new(Box::pin(answering), sending, timeouts))
    }
}

impl Outbound for Inside {
    fn begin(&self, request: OutgoingRequest) -> Box<dyn OutgoingCall> {
        match self.call(&request) {
            Ok(call) => Box::new(call),
            Err(failure) => Box::new(Refused::new(failure)),
        }
    }
}

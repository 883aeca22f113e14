//! Self calls: requests of functions to functions of the same node. They never leave the node.
//!
//! A self call is a request like any other, to an instance in a microVM of its own. But another
//! invocation waits for it and keeps its permit meanwhile. So the self call counts in the share of
//! the function that answers the client, and it is rejected at once if there is no permit. The
//! header `CDN-Loop`, which the node writes, bounds how deep calls nest
//! ([`Hops`](crate::services::outbound::Hops)). The budget of the client's request bounds their
//! number, their CPU time and their wall time ([`RequestBudget`]). Bytes that wait are accounted as
//! described at [`call`](faasw_pool::Backlog::call).

mod budget;
mod call;
mod request;
mod sent;

use std::sync::{Arc, Weak};

use faasw_abi::outgoing::{Failure, FailureCode};
use faasw_pool::{Outbound, OutgoingCall, OutgoingRequest, PermitShare, RequestBudget};

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

/// Makes one invocation's calls to functions of its node.
#[derive(Debug)]
pub(super) struct Inside {
    core: Weak<Core>,
    /// The ids of the client's request. All nested calls carry them, too.
    known: Correlation,
    /// The function in whose share of the node's capacity the calls count.
    share: Option<PermitShare>,
    /// The budget of the client's request that caused all of the calls.
    budget: Arc<RequestBudget>,
}

impl Inside {
    /// Creates the maker of the calls of one invocation, in `share` and within `budget`.
    pub(super) fn new(
        core: &Weak<Core>,
        known: Correlation,
        share: Option<PermitShare>,
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

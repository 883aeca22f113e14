//! Self calls: requests of functions to functions of the same node. They never leave the node.
//!
//! A self call is a request like any other, to an instance in a microVM of its own. But another
//! invocation waits for it and keeps its permit meanwhile. So the self call counts in the share of
//! the function that answers the client, and it is rejected at once if there is no permit. The
//! header `CDN-Loop`, which the node writes, bounds how deep calls nest
//! ([`Hops`](crate::services::outbound::Hops)). The budget of the client's request bounds their
//! number, their CPU time and their wall time ([`RequestBudget`]). Bytes that wait are accounted as
//! described at [`call`](faasw_pool::Backlog::call).

mod body;
mod budget;
mod call;
mod request;

use std::sync::{Arc, Weak};

use faasw_abi::outgoing::{Failure, FailureCode};
use faasw_pool::{Outbound, OutgoingCall, OutgoingRequest, PermitShare, RequestBudget};

pub(super) use self::budget::{account, call_limits};
use self::{
    call::SelfCall,
    request::{SelfCallRequest, parse_request},
};
use super::core::Core;
use crate::{
    message::{CallerContext, Correlation},
    services::outbound::RefusedCall,
};

/// Makes one invocation's calls to functions of its node.
#[derive(Debug)]
pub(super) struct SelfCalls {
    core: Weak<Core>,
    /// The ids of the client's request. All nested calls carry them, too.
    correlation: Correlation,
    /// The function in whose share of the node's capacity the calls count.
    share: Option<PermitShare>,
    /// The budget of the client's request that caused all of the calls.
    budget: Arc<RequestBudget>,
}

impl SelfCalls {
    /// Creates the maker of the calls of one invocation, in `share` and within `budget`.
    pub(super) fn new(
        core: &Weak<Core>,
        correlation: Correlation,
        share: Option<PermitShare>,
        budget: Arc<RequestBudget>,
    ) -> Self {
        Self {
            core: core.clone(),
            correlation,
            share,
            budget,
        }
    }

    fn call(&self, request: &OutgoingRequest) -> Result<SelfCall, Failure> {
        let core = self.core.upgrade();
        let core = core.ok_or_else(|| Failure::new(FailureCode::ConnectionTerminated))?;
        let SelfCallRequest {
            name,
            uri,
            mut request,
            sending,
            timeouts,
        } = parse_request(&request.head, request.is_whole)?;
        request.extensions_mut().insert(CallerContext {
            share: self.share,
            budget: self.budget.clone(),
        });
        let correlation = Correlation::new(request.headers(), Some(self.correlation.request_id));
        let follow = core.follow(&request, &correlation);
        *request.uri_mut() = uri;
        let answering = async move {
            let gone = core.wait_until_dropped();
            let mut response = tokio::select! {
                response = core.invoke(&name, request, &correlation, follow) => response,
                () = gone => return Err(Failure::new(FailureCode::ConnectionTerminated)),
            };
            correlation.write_response_id(response.headers_mut());
            Ok(response)
        };
        Ok(SelfCall::new(Box::pin(answering), sending, timeouts))
    }
}

impl Outbound for SelfCalls {
    fn begin(&self, request: OutgoingRequest) -> Box<dyn OutgoingCall> {
        match self.call(&request) {
            Ok(call) => Box::new(call),
            Err(failure) => Box::new(RefusedCall::new(failure)),
        }
    }
}

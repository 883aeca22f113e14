//! The outbound calls of an invocation: those that leave the node, and self calls.

use std::sync::{Arc, Weak};

use faasw_abi::outgoing::{Failure, FailureCode};
use faasw_pool::{Outbound, OutgoingCall, OutgoingRequest, PermitShare, RequestBudget};

use super::{
    dispatcher::Dispatcher,
    incoming::IncomingRequest,
    observer::InvocationObserver,
    self_calls::{SelfCall, SelfCallRequest, parse_request},
};
use crate::{
    backend::ServableVersion,
    message::{CallerContext, Correlation},
    node::functions::OutboundGrants,
    services::{
        outbound::{GrantedCalls, Hops, RefusedCall},
        secrets::BoundSecrets,
    },
};

impl Dispatcher {
    /// Returns the maker of one invocation's outbound calls, if the function was granted any.
    /// `observer` receives the refusals. The node puts the secrets `bound` into the calls.
    pub(super) fn outbound(
        self: &Arc<Self>,
        observer: &Arc<InvocationObserver>,
        request: &IncomingRequest,
        version: &dyn ServableVersion,
        budget: Arc<RequestBudget>,
        bound: Option<Arc<BoundSecrets>>,
    ) -> Option<Arc<dyn Outbound>> {
        let OutboundGrants {
            grants,
            limits,
            maker,
        } = observer.function.outbound_grants.clone()?;
        let self_calls = SelfCalls {
            dispatcher: Arc::downgrade(self),
            correlation: observer.correlation,
            share: match &request.caller {
                Some(caller) => caller.share,
                None => version.share(),
            },
            budget: budget.clone(),
        };
        let hops = Hops::of(&request.parts.headers);
        let makers: (_, Arc<dyn Outbound>) = (maker, Arc::new(self_calls));
        let observer = observer.clone();
        Some(Arc::new(GrantedCalls::new(
            grants, limits, makers, hops, budget, bound, observer,
        )))
    }
}

/// Makes one invocation's calls to functions of its node.
#[derive(Debug)]
struct SelfCalls {
    /// Weak, because an invocation under way does not keep the node alive.
    dispatcher: Weak<Dispatcher>,
    /// The ids of the client's request. All nested calls carry them, too.
    correlation: Correlation,
    /// The function in whose share of the node's capacity the calls count.
    share: Option<PermitShare>,
    /// The budget of the client's request that caused all of the calls.
    budget: Arc<RequestBudget>,
}

impl SelfCalls {
    fn call(&self, request: &OutgoingRequest) -> Result<SelfCall, Failure> {
        let dispatcher = self.dispatcher.upgrade();
        let dispatcher =
            dispatcher.ok_or_else(|| Failure::new(FailureCode::ConnectionTerminated))?;
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
        let follow = dispatcher.follow(&request, &correlation);
        *request.uri_mut() = uri;
        let answering = async move {
            let gone = dispatcher.state.wait_until_dropped();
            let mut response = tokio::select! {
                response = dispatcher.invoke(&name, request, &correlation, follow) => response,
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

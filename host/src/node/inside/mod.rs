//! Requests that functions make to functions of the same node: none of them leaves it.
//!
//! A request of this kind is one like any other, to another instance in a microVM of its own; what makes it apart is that
//! somebody waits for it who keeps a place meanwhile. So its place counts for whoever began it, and where none is
//! free it is refused and not waited for, nor is a turn. How often one comes to another is bounded by
//! `CDN-Loop`, which the node writes ([`Hops`](crate::services::outbound::Hops)); what waits for whoever asked, as
//! [`call`](faasw_pool::Backlog::call) says.

mod call;
mod request;
mod sent;

use std::sync::Weak;

use faasw_abi::outgoing::{Failure, FailureCode};
use faasw_pool::{Outbound, OutgoingCall, OutgoingRequest, Share};

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
    /// Whose places they take.
    share: Option<Share>,
}

impl Inside {
    /// Those of an invocation that is known by this, and takes its places out of `share`.
    pub(super) fn new(core: &Weak<Core>, known: Correlation, share: Option<Share>) -> Self {
        Self {
            core: core.clone(),
            known,
            share,
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
        request.extensions_mut().insert(Within(self.share));
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

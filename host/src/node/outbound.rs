//! The outbound calls of functions.

use std::sync::{Arc, atomic::Ordering};

use faasw_egress_policy::Grant;
use faasw_pool::{LogStream, Outbound, PermitShare, RequestBudget};

use super::{
    core::Core, function::Function, info::makes_requests, invoke::InvocationObserver,
    self_calls::SelfCalls,
};
use crate::{
    registry::VersionRecord,
    services::{
        outbound::{CallMaker, GrantedCalls, Hops, OutboundLimits, OutboundObserver},
        secrets::BoundSecrets,
    },
};

/// The grants and limits of a version's outbound calls, and the maker of those that leave the node.
#[derive(Clone, Debug)]
pub(super) struct OutboundGrants {
    grants: Arc<[Grant]>,
    limits: OutboundLimits,
    maker: Option<CallMaker>,
}

impl OutboundGrants {
    /// Shares the limits with another version of the same function.
    pub(super) fn share_limits(&mut self, other: &Self) {
        self.limits = other.limits.clone();
        if let (Some(maker), Some(other)) = (&self.maker, &other.maker) {
            maker.join_function_of(other);
        }
    }
}

impl Core {
    /// Returns the grants of a version. Returns `None` if it was granted nothing, or imports
    /// nothing to make calls.
    pub(super) fn outbound_grants(&self, record: &VersionRecord) -> Option<OutboundGrants> {
        let granted = record.options.outbound();
        if granted.is_empty() || !makes_requests(record) {
            return None;
        }
        Some(OutboundGrants {
            grants: granted.iter().map(|grant| grant.grant().clone()).collect(),
            limits: OutboundLimits::new(&self.outbound.calls, self.limits.outbound_function),
            maker: self.outbound.maker(),
        })
    }
}

/// The context of an invocation's outbound calls.
pub(super) struct OutboundContext {
    /// The functions that the request has passed through before this invocation.
    pub(super) hops: Hops,
    /// The function in whose share self calls count.
    pub(super) share: Option<PermitShare>,
    /// The budget of the client's request.
    pub(super) budget: Arc<RequestBudget>,
    /// Secrets that the node puts into the calls.
    pub(super) bound: Option<Arc<BoundSecrets>>,
}

impl Core {
    /// Returns the maker of one invocation's outbound calls, if the function was granted any.
    /// `follower` receives the refusals.
    pub(super) fn outbound(
        &self,
        function: &Function,
        follower: &Arc<InvocationObserver>,
        with: impl FnOnce() -> OutboundContext,
    ) -> Option<Arc<dyn Outbound>> {
        let OutboundGrants {
            grants,
            limits,
            maker,
        } = function.outbound_grants.clone()?;
        let OutboundContext {
            hops,
            share,
            budget,
            bound,
        } = with();
        let correlation = follower.correlation;
        let self_calls = Arc::new(SelfCalls::new(&self.me, correlation, share, budget.clone()));
        let observer = follower.clone();
        let makers: (_, Arc<dyn Outbound>) = (maker, self_calls);
        Some(Arc::new(GrantedCalls::new(
            grants, limits, makers, hops, budget, bound, observer,
        )))
    }
}

impl OutboundObserver for InvocationObserver {
    fn is_function_present(&self) -> bool {
        !self.function.is_removed()
    }

    fn call_made(&self) {
        self.metrics.record_outbound_call(&self.function.name, true);
    }

    fn call_refused(&self, why: &str) {
        self.refusal_repeated();
        self.add_note(why);
    }

    fn refusal_repeated(&self) {
        self.metrics
            .record_outbound_call(&self.function.name, false);
    }

    fn add_note(&self, what: &str) {
        let instance = self.instance.load(Ordering::Relaxed);
        let log = &self.function.log;
        log.add(
            instance,
            Some(&self.correlation),
            LogStream::Node,
            what.as_bytes(),
        );
    }
}

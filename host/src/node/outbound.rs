//! The outbound calls of functions.

use std::sync::{Arc, atomic::Ordering};

use faasw_egress_policy::Grant;
use faasw_pool::{LogStream, Outbound, PermitShare, RequestBudget};

use super::{
    core::Core, function::Function, info::makes_requests, inside::Inside, invoke::Follower,
};
use crate::{
    registry::VersionRecord,
    services::{
        outbound::{Granted, Hears, Hops, Limits, Maker},
        secrets::Bound,
    },
};

/// The grants and limits of a version's outbound calls, and the maker of those that leave the node.
#[derive(Clone, Debug)]
pub(super) struct Reaches {
    grants: Arc<[Grant]>,
    limits: Limits,
    maker: Option<Maker>,
}

impl Reaches {
    /// Shares the limits with another version of the same function.
    pub(super) fn share_limits(&mut self, other: &Self) {
        self.limits = other.limits.clone();
        if let (Some(maker), Some(other)) = (&self.maker, &other.maker) {
            maker.is_of_the_function_of(other);
        }
    }
}

impl Core {
    /// Returns the grants of a version. Returns `None` if it was granted nothing, or imports
    /// nothing to make calls.
    pub(super) fn reaches(&self, record: &VersionRecord) -> Option<Reaches> {
        let granted = record.options.outbound();
        if granted.is_empty() || !makes_requests(record) {
            return None;
        }
        Some(Reaches {
            grants: granted.iter().map(|grant| grant.grant().clone()).collect(),
            limits: Limits::new(&self.outbound.calls, self.limits.outbound_function),
            maker: self.outbound.maker(),
        })
    }
}

/// The context of an invocation's outbound calls.
pub(super) struct Outward {
    /// The functions that the request has passed through before this invocation.
    pub(super) hops: Hops,
    /// The function in whose share self calls count.
    pub(super) share: Option<PermitShare>,
    /// The budget of the client's request.
    pub(super) budget: Arc<RequestBudget>,
    /// Secrets that the node puts into the calls.
    pub(super) bound: Option<Arc<Bound>>,
}

impl Core {
    /// Returns the maker of one invocation's outbound calls, if the function was granted any.
    /// `follower` receives the refusals.
    pub(super) fn outbound(
        &self,
        function: &Function,
        follower: &Arc<Follower>,
        with: impl FnOnce() -> Outward,
    ) -> Option<Arc<dyn Outbound>> {
        let Reaches {
            grants,
            limits,
            maker,
        } = function.reaches.clone()?;
        let Outward {
            hops,
            share,
            budget,
            bound,
        } = with();
        let known = follower.known;
        let inside = Arc::new(Inside::new(&self.me, known, share, budget.clone()));
        let hears = follower.clone();
        let makers: (_, Arc<dyn Outbound>) = (maker, inside);
        Some(Arc::new(Granted::new(
            grants, limits, makers, hops, budget, bound, hears,
        )))
    }
}

impl Hears for Follower {
    fn is_there(&self) -> bool {
        !self.function.is_removed()
    }

    fn made(&self) {
        self.metrics.outbound(&self.function.name, true);
    }

    fn refused(&self, why: &str) {
        self.refused_again();
        self.told(why);
    }

    fn refused_again(&self) {
        self.metrics.outbound(&self.function.name, false);
    }

    fn told(&self, what: &str) {
        let instance = self.instance.load(Ordering::Relaxed);
        let log = &self.function.log;
        log.add(
            instance,
            Some(&self.known),
            LogStream::Node,
            what.as_bytes(),
        );
    }
}

//! The requests that functions make.

use std::sync::{Arc, atomic::Ordering};

use faasw_egress_policy::Grant;
use faasw_pool::{LogStream, Outbound, RequestBudget, Share};

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

/// What a version may make requests to, and by whom they are made.
#[derive(Clone, Debug)]
pub(super) struct Reaches {
    grants: Arc<[Grant]>,
    limits: Limits,
    maker: Option<Maker>,
}

impl Reaches {
    /// Holds it to the limits that its function has already.
    pub(super) fn share_limits(&mut self, other: &Self) {
        self.limits = other.limits.clone();
        if let (Some(maker), Some(other)) = (&self.maker, &other.maker) {
            maker.is_of_the_function_of(other);
        }
    }
}

impl Core {
    /// What a version reaches: nothing where it was granted nothing, or has no way to ask.
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

/// What an invocation's requests go out with.
pub(super) struct Outward {
    /// Where the request has been that it answers.
    pub(super) hops: Hops,
    /// The function in whose share calls to functions of the node count.
    pub(super) share: Option<Share>,
    /// The budget of the client's request.
    pub(super) budget: Arc<RequestBudget>,
    /// Secrets that are put into them.
    pub(super) bound: Option<Arc<Bound>>,
}

impl Core {
    /// What makes the requests of one of a function's invocations, where it was granted any.
    /// `follower` hears of those that were refused.
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

//! The requests that functions make.

use std::sync::{Arc, atomic::Ordering};

use faasw_egress_policy::Grant;
use faasw_pool::{LogStream, Outbound};

use super::{core::Core, function::Function, info::makes_requests, invoke::Follower};
use crate::{
    registry::VersionRecord,
    services::{
        outbound::{Granted, Hears, Limits, Maker},
        secrets::Bound,
    },
};

/// What a version may make requests to, and by whom they are made.
#[derive(Clone, Debug)]
pub(super) struct Reaches {
    grants: Arc<[Grant]>,
    limits: Limits,
    maker: Maker,
}

impl Reaches {
    /// Holds it to the limits that its function has already.
    pub(super) fn share_limits(&mut self, other: &Self) {
        self.limits = other.limits.clone();
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
            maker: self.outbound.maker()?,
        })
    }
}

impl Function {
    /// What makes its guests' requests, where it was granted any. `follower` hears of those that were refused.
    /// `bound` are the secrets that are put into them.
    pub(super) fn outbound(
        &self,
        follower: &Arc<Follower>,
        bound: Option<Arc<Bound>>,
    ) -> Option<Arc<dyn Outbound>> {
        let Reaches {
            grants,
            limits,
            maker,
        } = self.reaches.clone()?;
        Some(Arc::new(Granted::new(
            grants,
            limits,
            maker,
            bound,
            follower.clone(),
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
        self.metrics.outbound(&self.function.name, false);
        self.told(why);
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

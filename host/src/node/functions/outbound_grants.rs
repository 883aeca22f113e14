//! The grants of a version's outbound calls.

use std::sync::Arc;

use faasw_egress_policy::Grant;

use crate::{
    registry::VersionRecord,
    services::outbound::{CallMaker, OutboundLimits, OutboundMaker},
};

/// The grants and limits of a version's outbound calls, and the maker of those that leave the node.
#[derive(Clone, Debug)]
pub(crate) struct OutboundGrants {
    pub(crate) grants: Arc<[Grant]>,
    pub(crate) limits: OutboundLimits,
    pub(crate) maker: Option<CallMaker>,
}

impl OutboundGrants {
    /// Returns the grants of a version. Returns `None` if it was granted nothing, or imports
    /// nothing to make calls. `most` limits its simultaneous calls.
    pub(crate) fn of(
        record: &VersionRecord,
        outbound: &OutboundMaker,
        most: usize,
    ) -> Option<Self> {
        let granted = record.options.outbound();
        if granted.is_empty() || !makes_requests(record) {
            return None;
        }
        Some(Self {
            grants: granted.iter().map(|grant| grant.grant().clone()).collect(),
            limits: OutboundLimits::new(&outbound.calls, most),
            maker: outbound.maker(),
        })
    }

    /// Shares the limits with another version of the same function.
    pub(super) fn share_limits(&mut self, other: &Self) {
        self.limits = other.limits.clone();
        if let (Some(maker), Some(other)) = (&self.maker, &other.maker) {
            maker.join_function_of(other);
        }
    }
}

/// Whether a version imports the interface for outbound HTTP requests.
pub(crate) fn makes_requests(record: &VersionRecord) -> bool {
    let mut imports = record.imports.iter();
    imports.any(|import| import.starts_with("wasi:http/outgoing-handler@"))
}

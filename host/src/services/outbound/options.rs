//! The options of outbound calls.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use faasw_egress::{client::ConnectorOptions, frames::FRAME_MAX, orders::NETWORKS_MAX};
use faasw_pool::Outbound;
use ipnet::IpNet;
use tokio::sync::Semaphore;

use super::{
    egress::{Egress, NameResolution, WORKERS},
    granted_calls::CallMaker,
    processes::EgressProcesses,
    system::NameConfig,
    worker_slot::WorkerSlot,
};
use crate::services::trust::{TrustError, authorities};

/// Options of outbound calls: which special addresses may be reached, which authorities are
/// trusted, and where names are resolved. Which function may call which hosts is part of the
/// function's own options
/// ([`FunctionOptions::allow_outbound`](faasw_client::FunctionOptions::allow_outbound)).
#[derive(Clone, Debug, Default)]
pub struct OutboundOptions {
    system: Option<NameConfig>,
    servers: Option<Vec<SocketAddr>>,
    private: Vec<IpNet>,
    authorities: Vec<Bytes>,
}

impl OutboundOptions {
    /// The most networks that can be opened. With more, functions make no outbound calls.
    pub const NETWORKS: usize = NETWORKS_MAX;

    /// Reads this host's `/etc/hosts` and `/etc/resolv.conf` now instead of when the node starts,
    /// for a process that gives up reading files before that. Later changes are seen through the
    /// launcher of [`NodeBuilder::launcher`](crate::NodeBuilder::launcher), if that was started
    /// before.
    #[must_use]
    pub fn of_this_host() -> Self {
        Self {
            system: Some(NameConfig::read()),
            ..Self::default()
        }
    }

    /// Resolves names with these servers, instead of this host's.
    #[must_use]
    pub fn name_servers(mut self, servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.servers = Some(servers.into_iter().collect());
        self
    }

    /// Allows functions to reach addresses of this network that are otherwise rejected: loopback,
    /// private, link-local and similar addresses. At most [`Self::NETWORKS`] networks are possible.
    /// An address that hands out a machine's own credentials is opened only by naming exactly that
    /// address.
    #[must_use]
    pub fn allow_private(mut self, network: IpNet) -> Self {
        self.private.push(network);
        self
    }

    /// Trusts these certificates of authorities, in PEM, in addition to the usual ones.
    ///
    /// # Errors
    /// Returns [`TrustError::None`] if there is no certificate, and another error if one cannot be
    /// read or is too large.
    pub fn trust(mut self, pem: &[u8]) -> Result<Self, TrustError> {
        for certificate in authorities(pem)? {
            if certificate.len() > FRAME_MAX {
                let error = format!("it has more than {FRAME_MAX} bytes");
                return Err(TrustError::Certificate(error));
            }
            self.authorities.push(Bytes::copy_from_slice(&certificate));
        }
        Ok(self)
    }

    fn naming(&self) -> NameResolution {
        NameResolution {
            system: self.system.clone().unwrap_or_else(NameConfig::read),
            servers: self.servers.clone(),
        }
    }
}

/// The maker of a node's outbound calls, and the limit of simultaneous calls.
#[derive(Debug)]
pub(crate) struct OutboundMaker {
    pub(crate) calls: Arc<Semaphore>,
    by: Option<MakerKind>,
}

#[derive(Debug)]
enum MakerKind {
    Egress(Arc<Egress>),
    Embedder(Arc<dyn Outbound>),
}

impl OutboundMaker {
    /// Creates the maker of at most `calls` simultaneous calls. An `embedder` has precedence over
    /// `processes`. Without either, calls are denied.
    pub(crate) fn new(
        calls: usize,
        embedder: Option<Arc<dyn Outbound>>,
        processes: Option<Arc<dyn EgressProcesses>>,
        options: &OutboundOptions,
    ) -> Self {
        let by = match (embedder, processes) {
            (Some(outbound), _) => Some(MakerKind::Embedder(outbound)),
            (None, Some(processes)) => {
                let private = options.private.clone();
                Some(MakerKind::Egress(Egress::new(
                    WORKERS,
                    processes,
                    ConnectorOptions {
                        private,
                        ..ConnectorOptions::default()
                    },
                    options.naming(),
                    options.authorities.clone(),
                )))
            }
            (None, None) => None,
        };
        Self {
            calls: Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS))),
            by,
        }
    }

    /// Returns the maker of one version's calls.
    pub(crate) fn maker(&self) -> Option<CallMaker> {
        Some(match self.by.as_ref()? {
            MakerKind::Egress(egress) => CallMaker::Egress(WorkerSlot::new(egress)),
            MakerKind::Embedder(outbound) => CallMaker::Embedder(outbound.clone()),
        })
    }
}

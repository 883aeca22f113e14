//! How a node's functions reach out.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use faasw_egress::{client::ConnectorOptions, frames::FRAME_MAX, orders::NETWORKS_MAX};
use faasw_pool::Outbound;
use ipnet::IpNet;
use tokio::sync::Semaphore;

use super::{
    egress::{Egress, Naming, Processes},
    granted::Maker,
    slot::Slot,
    system::System,
};
use crate::services::trust::{TrustError, authorities};

/// How requests that functions make are made: what may be reached beside what everybody may, who is
/// trusted, where names are asked for. Which function makes requests to what is for its own options
/// to say ([`FunctionOptions::allow_outbound`](faasw_client::FunctionOptions::allow_outbound)).
#[derive(Clone, Debug, Default)]
pub struct OutboundOptions {
    system: Option<System>,
    servers: Option<Vec<SocketAddr>>,
    private: Vec<IpNet>,
    authorities: Vec<Bytes>,
}

impl OutboundOptions {
    /// Most networks that are opened: with more, functions make no requests.
    pub const NETWORKS: usize = NETWORKS_MAX;

    /// Reads what this host says of names, `/etc/hosts` and `/etc/resolv.conf`, now, instead of
    /// when the node starts: for a process that gives up reading files before. Later changes are
    /// seen by what [`NodeBuilder::launcher`](crate::NodeBuilder::launcher) names, where that was
    /// started before.
    #[must_use]
    pub fn of_this_host() -> Self {
        Self {
            system: Some(System::read()),
            ..Self::default()
        }
    }

    /// Asks these servers for names, instead of those that this host says.
    #[must_use]
    pub fn name_servers(mut self, servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.servers = Some(servers.into_iter().collect());
        self
    }

    /// Lets functions reach addresses of this network, where a special one is refused otherwise:
    /// loopback, private and link-local ones and the like; [`Self::NETWORKS`] at most. One that
    /// gives out a machine's own credentials is opened by its own address only.
    #[must_use]
    pub fn allow_private(mut self, network: IpNet) -> Self {
        self.private.push(network);
        self
    }

    /// Trusts these certificates of authorities, in PEM, beside the usual ones.
    ///
    /// # Errors
    /// When there is none, or one cannot be read.
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

    /// What a connector is told, but for names.
    fn connector(&self) -> ConnectorOptions {
        ConnectorOptions {
            private: self.private.clone(),
            ..ConnectorOptions::default()
        }
    }

    fn naming(&self) -> Naming {
        Naming {
            system: self.system.clone().unwrap_or_else(System::read),
            servers: self.servers.clone(),
        }
    }
}

/// Who makes a node's functions' requests, and how many at once.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) calls: Arc<Semaphore>,
    by: Option<By>,
}

#[derive(Debug)]
enum By {
    Egress(Arc<Egress>),
    Embedder(Arc<dyn Outbound>),
}

impl Outgoing {
    /// So many at once; by what an `embedder` has for it, or by `processes`. Where there is neither
    /// they are denied.
    pub(crate) fn new(
        calls: usize,
        embedder: Option<Arc<dyn Outbound>>,
        processes: Option<Arc<dyn Processes>>,
        options: &OutboundOptions,
    ) -> Self {
        let by = match (embedder, processes) {
            (Some(outbound), _) => Some(By::Embedder(outbound)),
            (None, Some(processes)) => {
                let authorities = options.authorities.clone();
                Some(By::Egress(Egress::new(
                    processes,
                    options.connector(),
                    options.naming(),
                    authorities,
                )))
            }
            (None, None) => None,
        };
        Self {
            calls: Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS))),
            by,
        }
    }

    /// Who makes the requests of one version.
    pub(crate) fn maker(&self) -> Option<Maker> {
        Some(match self.by.as_ref()? {
            By::Egress(egress) => Maker::Egress(Slot::new(egress)),
            By::Embedder(outbound) => Maker::Embedder(outbound.clone()),
        })
    }
}

//! The checks before a node's backend starts, and the start of the node with it.

use std::{
    mem,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use faasw_client::admin_socket;
use faasw_pool::Images;
use http::uri::Scheme;
use tokio::net::{TcpListener, UnixListener};
use zeroize::Zeroizing;

use super::NodeBuilder;
use crate::{
    admin,
    backend::Backend,
    data_dir::DataDir,
    error::StartError,
    gateway::{Gateway, Redirect},
    limits::Limits,
    node::{Node, NodeInputs, NodeParts, RegisteredFunctions, StartupWarmup, Storage},
    open_files,
    readiness::Readiness,
    registry::Registry,
    server::{self, GatewaySocket, Servers, Tls},
    services::{key_value::KeyValue, outbound::OutboundMaker, secrets::Vault},
};

impl NodeBuilder {
    /// Opens and checks everything that can fail before the backend starts.
    pub(super) async fn prepare(mut self) -> Result<WithoutBackend, StartError> {
        if self.admin && self.data_dir.is_none() && self.admin_folder.is_none() {
            return Err(StartError::AdminNeedsDataDir);
        }
        if self.redirect.is_some() && (self.tls.is_empty() || self.listen.is_none()) {
            return Err(StartError::RedirectNeedsTls);
        }
        if self.shared.is_some() && self.data_dir.is_some() {
            return Err(StartError::SharedNeedsMemory);
        }
        let tls = if self.tls.is_empty() {
            None
        } else {
            Some(Arc::new(Tls::new(mem::take(&mut self.tls))?))
        };
        let gateway = self
            .listen
            .map(|address| open_gateway(address, self.opens_later));
        let gateway = gateway.transpose()?;
        let redirect = self.redirect.map(listener).transpose()?;
        let metrics = self.metrics.map(listener).transpose()?;
        let directory = self.data_dir.as_deref().map(DataDir::open).transpose()?;
        let admin = match (&self.admin_folder, &directory) {
            (Some(folder), _) => Some(admin_socket(folder)),
            (None, Some(directory)) if self.admin => Some(directory.admin_socket()),
            (None, _) => None,
        };
        let admin = admin.as_deref().map(admin::listen).transpose()?;
        let registry = match &directory {
            Some(directory) => Registry::open(directory)?,
            None => {
                let given = self.shared.as_ref().map(|entry| entry.artifacts().clone());
                Registry::in_memory(given)?
            }
        };
        let key_value = match (&self.key_value_server, &directory) {
            (Some(server), _) => KeyValue::on_server(server).await?,
            (None, Some(directory)) => KeyValue::in_file(directory.key_value())?,
            (None, None) => KeyValue::in_memory()?,
        };
        // The functions are read once, because there may be many.
        let functions = registry.functions()?;
        let images = match &directory {
            Some(directory) => {
                let budget = self.image_disk.unwrap_or(IMAGE_DISK);
                let secret = match &self.image_key {
                    Some(key) => key.0,
                    None => directory.image_secret()?,
                };
                images(directory, &functions, &secret, budget)?
            }
            None => None,
        };
        let samples = registry.samples()?;
        let key = match (&self.secret_key, &directory) {
            (Some(key), _) => Ok(Zeroizing::new(key.0)),
            (None, Some(directory)) => directory.secret_key(!samples.is_empty()),
            (None, None) => Images::secret()
                .map(Zeroizing::new)
                .map_err(|error| error.to_string()),
        };
        Ok(WithoutBackend {
            gateway,
            tls,
            redirect,
            metrics,
            admin,
            storage: Storage {
                registry,
                key_value: Arc::new(key_value),
                secrets: Vault::new(key).checked_with(&samples),
                directory,
                images,
                shared: Mutex::new(self.shared.clone()),
            },
            shared: self.shared.as_ref().map(|entry| entry.images().clone()),
            functions,
            options: self,
        })
    }
}

/// Bytes that func-images may take on disk by default.
const IMAGE_DISK: u64 = 8 << 30;

/// Returns the func-images of a data directory. It keeps the images of functions' current versions,
/// of the seeds that all functions share, and of recently used engines. The next writer of images
/// removes all others, also those of versions that are stored for a rollback. With a budget of 0,
/// all images are removed and the result is `None`.
fn images(
    directory: &DataDir,
    functions: &RegisteredFunctions,
    secret: &[u8; Images::SECRET],
    budget: u64,
) -> Result<Option<Arc<Images>>, StartError> {
    let images = Images::new(directory.images(), secret, budget);
    if budget == 0 {
        images.remove_all();
        return Ok(None);
    }
    let versions = functions.iter();
    let versions: Vec<_> = versions
        .map(|(name, _, record)| record.image(name))
        .collect();
    images.retain(&versions);
    Ok(Some(Arc::new(images)))
}

fn open_gateway(address: SocketAddr, opens_later: bool) -> Result<GatewaySocket, StartError> {
    let take = || {
        let socket = server::bind(address)?;
        Ok(if opens_later {
            GatewaySocket::Bound(socket)
        } else {
            GatewaySocket::Listening(server::listen(socket)?)
        })
    };
    take().map_err(|error| StartError::Listen { address, error })
}

fn listener(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listen = || server::listen(server::bind(address)?);
    listen().map_err(|error| StartError::Listen { address, error })
}

/// Maximum number of connections to metrics and probes. They are few, so clients there must not
/// cost as much as the gateway's.
const SCRAPERS: usize = open_files::SCRAPERS as usize;
/// Maximum number of these connections of one address, so that one client cannot take them all and
/// probes find a free one.
const SCRAPERS_EACH: usize = 8;
/// Maximum bytes of unread responses of all these connections. Most responses are far smaller.
const SCRAPED: u64 = 2 << 20;

/// A node that lacks only its backend.
pub(super) struct WithoutBackend {
    options: NodeBuilder,
    gateway: Option<GatewaySocket>,
    tls: Option<Arc<Tls>>,
    redirect: Option<TcpListener>,
    metrics: Option<TcpListener>,
    admin: Option<UnixListener>,
    storage: Storage,
    functions: RegisteredFunctions,
    /// Images that another node has made.
    shared: Option<Arc<Images>>,
}

impl WithoutBackend {
    /// Returns the images of seeds that are not in memory.
    pub(super) fn images(&self) -> Option<Arc<Images>> {
        let own = self.storage.images.as_ref();
        own.or(self.shared.as_ref()).cloned()
    }

    /// Whether the node has functions, or is about to have one.
    pub(super) fn expects_functions(&self) -> bool {
        !self.functions.is_empty() || self.shared.is_some()
    }

    /// Returns the node. The metrics listener is served at once, the others once `started` reports
    /// that the backend has started. The node knows its functions by then.
    pub(super) async fn run(
        self,
        backend: Arc<dyn Backend>,
        started: impl Future<Output = Result<(), StartError>>,
    ) -> Result<Node, StartError> {
        let options = self.options;
        let outbound = OutboundMaker::new(
            options.limits.outbound,
            options.outbound_by,
            backend.egress(),
            &options.outbound,
        );
        let parts = NodeParts::build(NodeInputs {
            backend: backend.clone(),
            outbound,
            limits: options.limits,
            observer: options.observer,
            storage: self.storage,
            functions: self.functions,
            domain: options.sites.domain.clone(),
            report_options: options.report_options,
        });
        let parts = match parts {
            Ok(parts) => Arc::new(parts),
            Err(error) => {
                backend.shutdown().await;
                return Err(error.into());
            }
        };
        // The servers get handles without servers. Otherwise a listener would keep the servers
        // alive whose drop has to end the listener.
        let inner = Node::of(parts.clone(), Servers::new(parts.backlog.clone()));
        let mut servers = Servers::new(parts.backlog.clone());
        let warmup = StartupWarmup {
            parts: parts.clone(),
        };
        servers.background(warmup.run());
        // A readiness probe during the start receives a response that the node is not ready.
        if let Some(listener) = self.metrics {
            let page = admin::MetricsPage::new(inner.clone());
            let limits = Limits {
                connections: parts.limits.connections.min(SCRAPERS),
                connections_per_address: parts.limits.connections_per_address.min(SCRAPERS_EACH),
                undelivered: parts.limits.undelivered.min(SCRAPED),
                ..Limits::clone(&parts.limits)
            };
            servers.metrics(listener, page, &limits);
        }
        if let Err(error) = started.await {
            Node::of(parts, servers).shutdown().await;
            return Err(error);
        }
        if let Some(taken) = self.gateway {
            let scheme = match self.tls {
                Some(_) => Scheme::HTTPS,
                None => Scheme::HTTP,
            };
            let gateway = Gateway::new(inner.clone(), Arc::new(options.sites), scheme);
            servers.gateway(taken, self.tls, gateway, &parts.limits, &options.proxies);
        }
        if let Some(listener) = self.redirect
            && let (Some(tls), Some(gateway)) = (servers.tls(), servers.gateway_address())
        {
            let redirect = Redirect::new(tls, gateway.port());
            servers.redirect(listener, redirect, &parts.limits);
        }
        if let Some(listener) = self.admin {
            servers.admin(
                listener,
                admin::Api::new(inner, servers.gateway_address()),
                &parts.limits,
            );
        }
        if !options.opens_later {
            parts.state.readiness.advance_to(Readiness::Ready);
        }
        Ok(Node::of(parts, servers).into_owner())
    }
}

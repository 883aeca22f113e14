//! Starting a node.

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use faasw_control::{HostName, admin_socket};
use faasw_pool::{Confinement, Images, Isa, Launcher, Outbound, Pool, PoolOptions};
use http::uri::Scheme;
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpSocket, UnixListener};

use crate::{
    admin,
    backend::Backend,
    data_dir::DataDir,
    error::StartError,
    gateway::{Gateway, Redirect, Sites},
    limits::Limits,
    log::{Event, Observer},
    node::{Core, Machinery, Node, Registered, Storage, Telling},
    registry::Registry,
    server::{Pair, Proxies, Servers, Tls},
    services::{
        key_value::KeyValue,
        outbound::{OutboundOptions, Outgoing},
    },
};

/// What images are sealed with; whoever prints a builder is not to see it.
#[derive(Clone, Copy)]
struct ImageSecret([u8; Images::SECRET]);

impl fmt::Debug for ImageSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ImageSecret")
    }
}

/// Options of a node that is about to start.
#[derive(Clone, Debug, Default)]
#[must_use = "a node runs only after `start`"]
pub struct NodeBuilder {
    data_dir: Option<PathBuf>,
    listen: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    tls: Vec<Pair>,
    redirect: Option<SocketAddr>,
    sites: Sites,
    telling: Telling,
    admin: bool,
    admin_folder: Option<PathBuf>,
    limits: Limits,
    pool: PoolOptions,
    image_disk: Option<u64>,
    image_key: Option<ImageSecret>,
    observer: Observer,
    proxies: Proxies,
    outbound: OutboundOptions,
    outbound_by: Option<Arc<dyn Outbound>>,
}

impl Node {
    /// Begins a node: in memory only and without a listener unless told otherwise.
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }
}

impl NodeBuilder {
    /// Keeps functions, code and logs in this directory, which belongs to one
    /// node at a time. Without it they live in memory and end with the node.
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    /// Serves `http://ADDRESS/NAME/…`. Port 0 takes any free one; see [`Node::address`].
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Serves `https://ADDRESS/NAME/…` instead, by TLS 1.2 and 1.3, with a certificate
    /// chain and its key in files of PEM. Called several times, clients choose among
    /// the certificates by the name that they ask for, and the first is for all others.
    ///
    /// The files are read again when they change, and by [`Node::reload_certificates`].
    pub fn tls(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls.push(Pair {
            certificate: certificate.into(),
            key: key.into(),
        });
        self
    }

    /// Answers plain HTTP on another address with a redirect to https on the gateway's
    /// port, for hosts that a certificate names. Needs [`NodeBuilder::tls`].
    pub fn redirect_http(mut self, address: SocketAddr) -> Self {
        self.redirect = Some(address);
        self
    }

    /// Serves the function `NAME` at `http://NAME.DOMAIN/…`, with the whole path: each
    /// has an origin of its own then. It is not at `/NAME/…` any more, at no host, unless
    /// [`NodeBuilder::paths`] asks for that.
    pub fn domain(mut self, domain: HostName) -> Self {
        self.sites.domain = Some(domain);
        self
    }

    /// Sets whether functions are at `/NAME/…`, too, at hosts that are no function's own:
    /// they are where there is no domain, unless set. All of them share an origin there:
    /// in a browser the pages of each can do what they like with those of others.
    pub fn paths(mut self, on: bool) -> Self {
        self.sites.paths = Some(on);
        self
    }

    /// Sets whether requests that ask with `X-Faasw-Timing: 1`, the gateway's and those
    /// of [`Node::invoke`], are told by `Server-Timing` where their time went: not,
    /// unless set, since it shows how busy others keep the node. The program itself
    /// finds a [`crate::Timing`] among a short response's extensions either way.
    pub fn timing(mut self, on: bool) -> Self {
        self.telling.timing = on;
        self
    }

    /// Serves Prometheus metrics at `http://ADDRESS/metrics`, and nothing else
    /// there. Who can reach the address can read the names of all functions.
    pub fn metrics(mut self, address: SocketAddr) -> Self {
        self.metrics = Some(address);
        self
    }

    /// Serves the admin API on a Unix socket in the data directory, for the
    /// command line and [`crate::admin::Client`].
    pub fn admin(mut self, on: bool) -> Self {
        self.admin = on;
        self
    }

    /// Trusts the proxies at these addresses to say in `X-Forwarded-For` whom they speak
    /// for: that address is the client's then, for functions and for the limit of
    /// connections, which counts its requests. May be called more than once.
    pub fn trusted_proxy(mut self, addresses: IpNet) -> Self {
        self.proxies.addresses.push(addresses);
        self
    }

    /// Sets whether a request that comes through a trusted proxy has the id that this proxy gives it by
    /// `X-Request-Id`, if that is one ([`RequestId`](crate::RequestId)): it has an id of its own, unless set.
    /// The proxy is to give each request another one, and to let none of its clients choose it.
    pub fn proxy_request_ids(mut self, on: bool) -> Self {
        self.proxies.give_ids = on;
        self
    }

    /// Serves the admin API on a Unix socket in this folder instead, which has to be
    /// there and should be its user's alone. For a node that keeps nothing: clients take
    /// the folder for its data directory.
    pub fn admin_in(mut self, folder: impl Into<PathBuf>) -> Self {
        self.admin_folder = Some(folder.into());
        self
    }

    /// Sets the node's limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets what is round each microVM: [`Confinement::Jailed`], unless set. What
    /// [`Confinement::InProcess`] gives up is said there. A node never chooses it by
    /// itself: where the host allows no cells, [`NodeBuilder::start`] fails.
    pub fn confinement(mut self, confinement: Confinement) -> Self {
        self.pool.confinement = confinement;
        self
    }

    /// Sets how many shells wait for requests when there are few. Up to eight times as
    /// many wait while that many are needed.
    pub fn shells_ready(mut self, count: usize) -> Self {
        self.pool.shells_ready = count;
        self
    }

    /// Sets how long an instance that is done waits for the next request of its
    /// function: 60 seconds, unless set. It was brought back to the exact state
    /// of its seed before.
    pub fn keep_alive(mut self, time: Duration) -> Self {
        self.pool.keep_alive = time;
        self
    }

    /// Sets how long an instance that was brought back may look for the next request of its
    /// function by itself, with its vCPU in the guest, before it waits, 10 milliseconds at
    /// most; not at all, unless set (200 microseconds is how long KVM lets a halted vCPU poll).
    /// Only where requests come that fast, where a processor has nothing to do, and where the host
    /// has control groups to put it behind everything else.
    pub fn poll(mut self, most: Duration) -> Self {
        self.pool.poll = most;
        self
    }

    /// Sets how many instances each function has at all times, waiting for requests or at work:
    /// none, unless set. They are made ahead of requests when a version is deployed or rolled back
    /// to (before it takes another one's place, for which a deployment waits up to ten seconds),
    /// when the node starts, and when one has ended, one after the other and behind requests, as far as
    /// [`NodeBuilder::max_parked`], the budgets of memory and the machine's memory allow.
    pub fn min_parked(mut self, count: usize) -> Self {
        self.pool.min_parked = count;
        self
    }

    /// Sets how many instances wait at most, of all functions together: 512,
    /// unless set.
    pub fn max_parked(mut self, count: usize) -> Self {
        self.pool.max_parked = count;
        self
    }

    /// Sets how many bytes the seeds of functions and their compiled code may take together: 4
    /// GiB, unless set. Those that are worth least are evicted, and are made again when they are
    /// used; a request that finds none in memory is served by doing the missing
    /// steps.
    pub fn seed_memory(mut self, bytes: u64) -> Self {
        self.pool.seed_memory = bytes;
        self
    }

    /// Sets how many bytes the func-images of a node with a data directory may take on disk: 8
    /// GiB, unless set. Those that were used longest ago go first, and their seeds are made again;
    /// with 0 there are none.
    pub fn image_disk(mut self, bytes: u64) -> Self {
        self.image_disk = Some(bytes);
        self
    }

    /// Seals func-images with this secret, of 32 random bytes that nobody else has, instead of the
    /// one in `image.key` of the data directory. Nodes that have the same open each other's exports
    /// ([`Node::export`]). Images that were sealed with another one are made again.
    pub fn image_key(mut self, secret: [u8; 32]) -> Self {
        self.image_key = Some(ImageSecret(secret));
        self
    }

    /// Sets how many bytes one function may hold between requests, all its versions
    /// together: 1 GiB, unless set. Its seeds and their code count, and the private pages of its
    /// instances that wait, as they are told: what the kernel has for each microVM comes
    /// on top. Over it, instances that wait longest end, then seeds are evicted.
    pub fn function_memory(mut self, bytes: u64) -> Self {
        self.pool.function_memory = bytes;
        self
    }

    /// Sets how many bytes the processes of all microVMs and compilations may take
    /// together, seeds included: what the machine has, or the control groups that this
    /// process is in allow, less an eighth for the node (256 MiB to 2 GiB), unless set.
    /// Where there are control groups the kernel holds them to it.
    pub fn instance_memory(mut self, bytes: u64) -> Self {
        self.pool.instance_memory = Some(bytes);
        self
    }

    /// Sets how many requests one microVM serves at most, each from the exact
    /// state of its function's seed: 10,000, unless set. 1 forks a new one for
    /// every request.
    pub fn max_reuse(mut self, requests: u32) -> Self {
        self.pool.max_reuse = requests;
        self
    }

    /// Sets how many instances run at once; requests beyond that are answered
    /// with 503.
    pub fn max_instances(mut self, count: usize) -> Self {
        self.pool.max_instances = count;
        self
    }

    /// Has spawners started by `launcher`, which was started before this process gave up
    /// what that takes: as a child of this process, unless set.
    pub fn launcher(mut self, launcher: Arc<Launcher>) -> Self {
        self.pool.launcher = Some(launcher);
        self
    }

    /// Sets how requests are made that functions make: as this host says, and to what everybody may reach,
    /// unless set.
    pub fn outbound(mut self, options: OutboundOptions) -> Self {
        self.outbound = options;
        self
    }

    /// Has functions' requests made by `outbound`, of which it gets those that were granted. What they reach by their
    /// addresses is for it to filter then: the node's own processes are not used.
    pub fn outbound_by(mut self, outbound: Arc<dyn Outbound>) -> Self {
        self.outbound_by = Some(outbound);
        self
    }

    /// Sets the instruction set that functions are compiled for: the best that
    /// this CPU has, unless set.
    pub fn isa(mut self, isa: Isa) -> Self {
        self.pool.isa = Some(isa);
        self
    }

    /// Switches mechanisms off for a benchmark, in all nodes of this process.
    #[cfg(feature = "ablation")]
    pub fn without(mut self, mechanisms: Vec<faasw_pool::Mechanism>) -> Self {
        self.pool.without = mechanisms;
        self
    }

    /// Is called for every [`Event`], on whatever thread it happens. It should
    /// not block.
    pub fn observe(mut self, tell: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Observer::new(tell);
        self
    }

    /// Sets whether [`NodeBuilder::observe`]'s is called for each request, too, when it is over
    /// ([`Event::Request`]): not, unless set, since each record takes time and memory.
    pub fn observe_requests(mut self, on: bool) -> Self {
        self.telling.requests = on;
        self
    }

    /// Starts the node on the current tokio runtime.
    ///
    /// # Errors
    /// When the host cannot run microVMs, an address is taken, or the data
    /// directory cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime that drives I/O and time.
    pub async fn start(self) -> Result<Node, StartError> {
        // First of all, so that a host that cannot run anything is left untouched. The first
        // microVM takes as long as what follows, and most of it in other processes.
        let starting = Pool::begin(PoolOptions {
            compile_cpu: self.limits.compile_cpu,
            compile_memory: self.limits.compile_memory,
            instantiation_time: self.limits.instantiation,
            ..self.pool.clone()
        })?;
        let prepared = match self.prepare().await {
            Ok(prepared) => prepared,
            Err(error) => {
                starting.stop().await;
                return Err(error);
            }
        };
        let pool = Arc::new(starting.with(prepared.storage.images.clone())?);
        if !prepared.functions.is_empty() {
            pool.begin_shared();
        }
        let first = pool.clone();
        prepared
            .run(pool, async move { Ok(first.started().await?) })
            .await
    }

    /// Starts the node on another engine than the pool: a seam for tests.
    ///
    /// # Errors
    /// As [`NodeBuilder::start`], but for the host.
    #[doc(hidden)]
    pub async fn start_on(self, backend: Arc<dyn Backend>) -> Result<Node, StartError> {
        let prepared = self.prepare().await?;
        prepared.run(backend, async { Ok(()) }).await
    }

    /// Takes everything that can be refused.
    async fn prepare(&self) -> Result<WithoutBackend, StartError> {
        if self.admin && self.data_dir.is_none() && self.admin_folder.is_none() {
            return Err(StartError::AdminNeedsDataDir);
        }
        if self.redirect.is_some() && (self.tls.is_empty() || self.listen.is_none()) {
            return Err(StartError::RedirectNeedsTls);
        }
        let tls = if self.tls.is_empty() {
            None
        } else {
            Some(Arc::new(Tls::new(self.tls.clone())?))
        };
        let gateway = bind(self.listen)?;
        let redirect = bind(self.redirect)?;
        let metrics = bind(self.metrics)?;
        let directory = self.data_dir.as_deref().map(DataDir::open).transpose()?;
        let admin = match (&self.admin_folder, &directory) {
            (Some(folder), _) => Some(admin_socket(folder)),
            (None, Some(directory)) if self.admin => Some(directory.admin_socket()),
            (None, _) => None,
        };
        let admin = admin.as_deref().map(admin::listen).transpose()?;
        let registry = match &directory {
            Some(directory) => Registry::open(directory)?,
            None => Registry::in_memory()?,
        };
        let key_value = match &directory {
            Some(directory) => KeyValue::in_file(directory.key_value())?,
            None => KeyValue::in_memory()?,
        };
        // Read once: there may be many.
        let functions = registry.functions()?;
        let images = match &directory {
            Some(directory) => {
                let budget = self.image_disk.unwrap_or(IMAGE_DISK);
                let secret = match self.image_key {
                    Some(ImageSecret(secret)) => secret,
                    None => directory.image_secret()?,
                };
                images(directory, &functions, &secret, budget)?
            }
            None => None,
        };
        Ok(WithoutBackend {
            gateway,
            tls,
            redirect,
            metrics,
            admin,
            sites: self.sites.clone(),
            telling: self.telling,
            storage: Storage {
                registry,
                key_value: Arc::new(key_value),
                directory,
                images,
            },
            functions,
            limits: self.limits.clone(),
            observer: self.observer.clone(),
            proxies: self.proxies.clone(),
            outbound: self.outbound.clone(),
            outbound_by: self.outbound_by.clone(),
        })
    }
}

/// Bytes that func-images may take on disk, unless a builder is told otherwise.
const IMAGE_DISK: u64 = 8 << 30;

/// The func-images of a data directory, without those that nobody will ask for.
fn images(
    directory: &DataDir,
    functions: &Registered,
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

/// Connections that the system keeps until they are accepted, as far as it lets a program
/// have so many (`net.core.somaxconn`, of which this is the default). Beyond them whoever
/// connects hears nothing and tries again in a second: a burst of others' is not to have
/// it do so.
const UNACCEPTED: u32 = 4096;

fn bind(address: Option<SocketAddr>) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let listen = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(UNACCEPTED)
    };
    listen()
        .map(Some)
        .map_err(|error| StartError::Listen { address, error })
}

/// A node that lacks only its engine.
struct WithoutBackend {
    gateway: Option<TcpListener>,
    tls: Option<Arc<Tls>>,
    redirect: Option<TcpListener>,
    sites: Sites,
    telling: Telling,
    metrics: Option<TcpListener>,
    admin: Option<UnixListener>,
    storage: Storage,
    functions: Registered,
    limits: Limits,
    observer: Observer,
    proxies: Proxies,
    outbound: OutboundOptions,
    outbound_by: Option<Arc<dyn Outbound>>,
}

impl WithoutBackend {
    /// The node, whose listeners are served once `started` says that the backend has started: it knows
    /// its functions by then.
    async fn run(
        self,
        backend: Arc<dyn Backend>,
        started: impl Future<Output = Result<(), StartError>>,
    ) -> Result<Node, StartError> {
        let outbound = Outgoing::new(
            self.limits.outbound,
            self.outbound_by,
            backend.processes(),
            &self.outbound,
        );
        let core = Core::new(
            Machinery {
                backend: backend.clone(),
                outbound,
            },
            self.limits,
            self.observer,
            self.storage,
            self.functions,
            self.sites.domain.clone(),
            self.telling,
        );
        let core = match core {
            Ok(core) => core,
            Err(error) => {
                backend.shutdown().await;
                return Err(error.into());
            }
        };
        // The servers get handles without servers: a listener must not keep
        // the node that should end it.
        let inner = Node::of(core.clone(), Servers::default());
        let mut servers = Servers::new(core.backlog.clone());
        let tending = core.clone();
        servers.background(async move { tending.tend().await });
        if let Err(error) = started.await {
            Node::of(core, servers).shutdown().await;
            return Err(error);
        }
        if let Some(listener) = self.gateway {
            let scheme = match self.tls {
                Some(_) => Scheme::HTTPS,
                None => Scheme::HTTP,
            };
            let gateway = Gateway::new(inner.clone(), Arc::new(self.sites), scheme);
            servers.gateway(listener, self.tls, gateway, &core.limits, &self.proxies);
        }
        if let Some(listener) = self.redirect
            && let (Some(tls), Some(gateway)) = (servers.tls(), servers.gateway_address())
        {
            let redirect = Redirect::new(tls, gateway.port());
            servers.redirect(listener, redirect, &core.limits);
        }
        if let Some(listener) = self.metrics {
            let page = admin::Page::new(inner.clone());
            servers.metrics(listener, page, &core.limits);
        }
        if let Some(listener) = self.admin {
            servers.admin(
                listener,
                admin::Api::new(inner, servers.gateway_address()),
                &core.limits,
            );
        }
        Ok(Node::of(core, servers))
    }
}

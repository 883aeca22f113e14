//! Starting a node.

mod prepare;

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use faasw_client::{FunctionName, HostName};
use faasw_pool::{Confinement, Isa, Launcher, Outbound, Pool, PoolOptions};
use ipnet::IpNet;
use zeroize::Zeroize as _;

use crate::{
    backend::Backend,
    error::StartError,
    gateway::Sites,
    limits::Limits,
    log::{Event, Observer},
    node::{Node, ReportOptions},
    open_files,
    server::{CertificatePaths, Proxies},
    services::{key_value::KeyValueServer, outbound::OutboundOptions},
    shared::Entry,
};

/// A key for sealing. Its `Debug` output does not contain the key.
#[derive(Clone)]
struct SealingKey([u8; 32]);

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey")
    }
}

impl Drop for SealingKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Options of a node that is about to start.
#[derive(Clone, Debug, Default)]
#[must_use = "a node runs only after `start`"]
pub struct NodeBuilder {
    data_dir: Option<PathBuf>,
    listen: Option<SocketAddr>,
    opens_later: bool,
    metrics: Option<SocketAddr>,
    tls: Vec<CertificatePaths>,
    redirect: Option<SocketAddr>,
    sites: Sites,
    report_options: ReportOptions,
    admin: bool,
    admin_folder: Option<PathBuf>,
    pub(crate) limits: Limits,
    pool: PoolOptions,
    image_disk: Option<u64>,
    image_key: Option<SealingKey>,
    secret_key: Option<SealingKey>,
    key_value_server: Option<KeyValueServer>,
    observer: Observer,
    proxies: Proxies,
    outbound: OutboundOptions,
    outbound_by: Option<Arc<dyn Outbound>>,
    shared: Option<Arc<Entry>>,
}

impl Node {
    /// Returns a builder with the defaults: a node in memory only, without a listener.
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }
}

impl NodeBuilder {
    /// Keeps functions, code and logs in this directory, which belongs to one node at a time.
    /// Without it they are in memory and end with the node.
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    /// Serves `http://ADDRESS/NAME/…`. Port 0 selects a free port; see [`Node::address`].
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Sets whether the node binds its address but accepts no connections before [`Node::open`].
    /// Until then the kernel refuses clients, so that a TCP probe shows whether the node answers.
    /// Off by default: clients can connect from the start.
    pub fn opens_later(mut self, on: bool) -> Self {
        self.opens_later = on;
        self
    }

    /// Serves this function, whether it is deployed yet or not, at all paths of all hosts, and no
    /// other function. The function has the whole listener, including `/healthz`.
    pub fn root(mut self, function: FunctionName) -> Self {
        self.sites.root = Some(function);
        self
    }

    /// Serves `https://ADDRESS/NAME/…` instead, by TLS 1.2 and 1.3, with a certificate chain and
    /// its key in PEM files. It may be called several times: the certificate is then chosen by the
    /// name that the client requests, and the first certificate serves all other names.
    ///
    /// The node reads the files again when they change, and on [`Node::reload_certificates`].
    pub fn tls(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls.push(CertificatePaths {
            certificate: certificate.into(),
            key: key.into(),
        });
        self
    }

    /// Answers plain HTTP on another address with a redirect to https on the gateway's port, for
    /// hosts that a certificate names. Needs [`NodeBuilder::tls`].
    pub fn redirect_http(mut self, address: SocketAddr) -> Self {
        self.redirect = Some(address);
        self
    }

    /// Serves the function `NAME` at `http://NAME.DOMAIN/…`, with the whole path, so that each
    /// function has an origin of its own. It is then no longer served at `/NAME/…` of any host,
    /// unless [`NodeBuilder::paths`] enables that.
    pub fn domain(mut self, domain: HostName) -> Self {
        self.sites.domain = Some(domain);
        self
    }

    /// Sets whether functions are also served at `/NAME/…` of hosts that belong to no function. The
    /// default is on if there is no domain. Functions share an origin there: in a browser, the
    /// pages of each function have full access to the pages of the others.
    pub fn paths(mut self, on: bool) -> Self {
        self.sites.paths = Some(on);
        self
    }

    /// Sets whether a response reports where the request's time went, in `Server-Timing`. A client
    /// requests that with `X-Faasw-Timing: 1`, at the gateway and through [`Node::invoke`]. Off by
    /// default, because it shows how busy others keep the node. The embedding program finds a
    /// [`crate::Timing`] among the extensions of a short response in either case.
    pub fn timing(mut self, on: bool) -> Self {
        self.report_options.timing = on;
        self
    }

    /// Sets whether clients receive the whole reason of a function's failure in problem bodies
    /// (RFC 9457): the text of its error, its exit code, the backtrace of a trap. Off by default,
    /// because such text may quote secrets and shows the function's code. Then clients receive the
    /// kind of failure and the request's id, and the function's log has the reason.
    pub fn verbose_errors(mut self, on: bool) -> Self {
        self.report_options.verbose_errors = on;
        self
    }

    /// Serves Prometheus metrics at `http://ADDRESS/metrics`, liveness at `/livez` and `/healthz`,
    /// and readiness at `/readyz` ([`Node::readiness`]), from the start. Nothing else is served
    /// there. Clients that can reach the address can read the names of all functions.
    pub fn metrics(mut self, address: SocketAddr) -> Self {
        self.metrics = Some(address);
        self
    }

    /// Serves the admin API on a Unix socket in the data directory, for the command line and
    /// [`crate::admin::Client`].
    pub fn admin(mut self, on: bool) -> Self {
        self.admin = on;
        self
    }

    /// Trusts the proxies at these addresses to name their client in `X-Forwarded-For`. That
    /// address is then the client's address for functions, and for the limit of connections, which
    /// counts the client's requests instead. May be called more than once.
    pub fn trusted_proxy(mut self, addresses: IpNet) -> Self {
        self.proxies.addresses.push(addresses);
        self
    }

    /// Sets whether a request through a trusted proxy takes its id from the proxy's `X-Request-Id`,
    /// if that is a valid [`RequestId`](crate::RequestId). Off by default: the node chooses each
    /// id. The proxy must give each request a different id, and must not let its clients choose it.
    pub fn proxy_request_ids(mut self, on: bool) -> Self {
        self.proxies.give_ids = on;
        self
    }

    /// Sets whether a trusted proxy names the path that it removes from URLs, in
    /// `X-Forwarded-Prefix`. Functions then receive that path before their own, for links and
    /// redirects. Off by default: the field is dropped. The proxy must set or drop the field of its
    /// clients, who could otherwise redirect other clients through a cache.
    pub fn proxy_prefixes(mut self, on: bool) -> Self {
        self.proxies.give_prefixes = on;
        self
    }

    /// Serves the admin API on a Unix socket in this folder instead. The folder must exist and
    /// should be accessible to its user only. For a node without a data directory: clients name the
    /// folder as its data directory.
    pub fn admin_in(mut self, folder: impl Into<PathBuf>) -> Self {
        self.admin_folder = Some(folder.into());
        self
    }

    /// Sets the node's limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the confinement of each microVM. The default is [`Confinement::Jailed`].
    /// [`Confinement::Reduced`] and [`Confinement::InProcess`] document what they give up. A node
    /// never chooses them by itself: if the host allows no namespaces, [`NodeBuilder::start`] fails
    /// and names the cause.
    pub fn confinement(mut self, confinement: Confinement) -> Self {
        self.pool.confinement = confinement;
        self
    }

    /// Sets how many zygotes wait for requests at low load. Up to eight times as many wait while
    /// they are needed.
    pub fn zygotes(mut self, count: usize) -> Self {
        self.pool.zygotes = count;
        self
    }

    /// Sets how long an idle instance waits for the next request of its function: 60 s by default.
    /// The instance was reset to the exact state of its seed before.
    pub fn keep_alive(mut self, time: Duration) -> Self {
        self.pool.keep_alive = time;
        self
    }

    /// Sets how long an instance that was reset may poll for the next request of its function, with
    /// its vCPU in the guest, before it waits. The maximum is 10 ms; off by default. For
    /// comparison: KVM lets a halted vCPU poll for 200 µs. The instance polls only if requests
    /// arrive that fast and a processor is idle. The host also needs control groups, which give
    /// polling a lower priority than everything else.
    pub fn poll(mut self, most: Duration) -> Self {
        self.pool.poll = most;
        self
    }

    /// Sets how many instances each function has at all times, warm or at work: none by default.
    /// The node makes them ahead of requests when a version is deployed or rolled back to, when the
    /// node starts, and when an instance has ended. A new version gets them before it replaces the
    /// old one; a deployment waits up to 10 s for them. The node makes one after the other, at
    /// lower priority than requests, as far as [`NodeBuilder::max_warm`], the memory budgets and
    /// the machine's memory allow.
    pub fn min_warm(mut self, count: usize) -> Self {
        self.pool.min_warm = count;
        self
    }

    /// Sets how many instances wait at most, of all functions together: 512 by default.
    pub fn max_warm(mut self, count: usize) -> Self {
        self.pool.max_warm = count;
        self
    }

    /// Sets how many bytes the seeds of functions and their compiled code may take together: 4 GiB
    /// by default. The least valuable ones are evicted, and made again when they are used. If a
    /// request finds no seed in memory, the node performs the missing steps for it.
    pub fn seed_memory(mut self, bytes: u64) -> Self {
        self.pool.seed_memory = bytes;
        self
    }

    /// Sets how many bytes the func-images of a node with a data directory may take on disk: 8 GiB
    /// by default. The least recently used ones are removed first, and their seeds are made again.
    /// 0 disables images.
    pub fn image_disk(mut self, bytes: u64) -> Self {
        self.image_disk = Some(bytes);
        self
    }

    /// Seals func-images with this secret instead of the one in `image.key` of the data directory.
    /// The secret consists of 32 random bytes that are known to no other party. Nodes with the same
    /// secret open each other's exports ([`Node::export`]). Images that were sealed with another
    /// secret are made again.
    pub fn image_key(mut self, secret: [u8; 32]) -> Self {
        self.image_key = Some(SealingKey(secret));
        self
    }

    /// Seals functions' secrets ([`Node::set_secret`]) with this key instead of the one in
    /// `secrets.key` of the data directory. The key consists of 32 random bytes that are known to
    /// no other party. Secrets that were sealed with another key cannot be read, and none can be
    /// set. Requests to their functions fail until the right key is back, or all secrets are
    /// removed.
    pub fn secret_key(mut self, key: [u8; 32]) -> Self {
        self.secret_key = Some(SealingKey(key));
        self
    }

    /// Stores functions' key-value stores on this server, which other nodes may share, instead of
    /// in the data directory's file or in memory. The node starts only if the server is reachable
    /// and suitable. If the server becomes unreachable later, functions' calls fail until it is
    /// back.
    pub fn key_value_server(mut self, server: KeyValueServer) -> Self {
        self.key_value_server = Some(server);
        self
    }

    /// Lets the node take code, seed and the base that all functions share from this entry, instead
    /// of making them. Only the first deployment can use the entry, and only if it deploys the
    /// entry's function. A host has made the entry before ([`crate::shared`]). If a part cannot be
    /// used here, the node makes it itself and logs the reason. For a node without a data
    /// directory.
    pub fn shared(mut self, entry: Entry) -> Self {
        self.shared = Some(Arc::new(entry));
        self
    }

    /// Sets how many bytes one function may hold between requests, all its versions together: 1 GiB
    /// by default. Its seeds and their code count, and the reported private pages of its warm
    /// instances. The kernel's memory for each microVM is not included. Above the limit, the
    /// instances that have waited longest end first, then seeds are evicted.
    pub fn function_memory(mut self, bytes: u64) -> Self {
        self.pool.function_memory = bytes;
        self
    }

    /// Sets how many bytes the processes of all microVMs and compilations may take together, seeds
    /// included. The default is the memory of the machine, or the limit of the control groups of
    /// this process, less an eighth for the node (256 MiB to 2 GiB). If there are control groups,
    /// the kernel enforces the budget.
    pub fn instance_memory(mut self, bytes: u64) -> Self {
        self.pool.instance_memory = Some(bytes);
        self
    }

    /// Sets how many bytes instances at work may need in the worst case, if no control group of the
    /// node limits them together. The default is [`NodeBuilder::instance_memory`]. An instance that
    /// needs more than all of it runs alone.
    pub fn admitted_memory(mut self, bytes: u64) -> Self {
        self.pool.admitted_memory = Some(bytes);
        self
    }

    /// Sets how many requests one microVM serves at most, each from the exact state of its
    /// function's seed: 10,000 by default. With 1, the node forks a new one for every request.
    pub fn max_reuse(mut self, requests: u32) -> Self {
        self.pool.max_reuse = requests;
        self
    }

    /// Sets how many instances run at once; further requests are answered with 503. While the node
    /// has several functions, each leaves an eighth to the others.
    pub fn max_instances(mut self, count: usize) -> Self {
        self.pool.max_instances = count;
        self
    }

    /// Lets `launcher` start spawners. It was started before this process gave up the privileges
    /// that starting them takes. By default, spawners are children of this process.
    pub fn launcher(mut self, launcher: Arc<Launcher>) -> Self {
        self.pool.launcher = Some(launcher);
        self
    }

    /// Sets how outbound calls are made. By default they use the host's name resolution and reach
    /// public addresses only.
    pub fn outbound(mut self, options: OutboundOptions) -> Self {
        self.outbound = options;
        self
    }

    /// Lets `outbound` make functions' outbound calls. It receives the granted ones, and must
    /// itself filter the addresses that they reach: the node's own egress processes are not used.
    pub fn outbound_by(mut self, outbound: Arc<dyn Outbound>) -> Self {
        self.outbound_by = Some(outbound);
        self
    }

    /// Sets the instruction set that functions are compiled for. The default is the best that this
    /// CPU has.
    pub fn isa(mut self, isa: Isa) -> Self {
        self.pool.isa = Some(isa);
        self
    }

    /// Disables mechanisms for a benchmark, in all nodes of this process.
    #[cfg(feature = "ablation")]
    pub fn without(mut self, mechanisms: Vec<faasw_pool::Mechanism>) -> Self {
        self.pool.without = mechanisms;
        self
    }

    /// Sets a callback for every [`Event`]. It runs on the thread on which the event happens, and
    /// should not block.
    pub fn observe(mut self, tell: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Observer::new(tell);
        self
    }

    /// Sets whether the callback of [`NodeBuilder::observe`] also receives each finished request
    /// ([`Event::Request`]). Off by default, because each record takes time and memory.
    pub fn observe_requests(mut self, on: bool) -> Self {
        self.report_options.requests = on;
        self
    }

    /// Lowers limits so that everything that they allow fits the open files of this process, and
    /// logs that.
    fn fit_open_files(&mut self) {
        let listeners = [self.listen, self.redirect].iter().flatten().count() as u64;
        let files = open_files::of_this_process(&self.limits, &self.pool, listeners);
        if files.is_lowered {
            tracing::warn!(
                limit = files.limit,
                "the limit of open files lowers other limits: {files}. Raise it (ulimit -n, \
                 LimitNOFILE of systemd)"
            );
        }
        self.limits.connections = files.connections;
        self.limits.connections_per_address = files.connections_per_address;
        self.pool.max_instances = files.instances;
        self.pool.max_warm = files.warm;
        self.pool.zygotes = files.zygotes;
        self.pool.groups_kept = files.groups;
        self.pool.max_seeds = files.seeds;
    }

    /// Starts the node on the current tokio runtime. Limits that do not fit the open files of this
    /// process (the soft `RLIMIT_NOFILE`, which stays unchanged) are lowered, with a warning.
    ///
    /// # Errors
    /// Returns an error if the host cannot run microVMs, if an address cannot be bound, or if
    /// options contradict each other. Also returns an error if the data directory, the admin
    /// socket, a certificate, the registry or the key-value store cannot be used. [`StartError`]
    /// has a variant for each of these.
    ///
    /// # Panics
    /// Panics outside a tokio runtime that drives I/O and time.
    pub async fn start(mut self) -> Result<Node, StartError> {
        self.fit_open_files();
        // The pool comes first, so that a host that cannot run anything is left untouched. The
        // first microVM takes as long as the following steps, mostly in other processes.
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
        let pool = Arc::new(starting.with(prepared.images())?);
        if prepared.expects_functions() {
            pool.begin_shared();
        }
        let first = pool.clone();
        prepared
            .run(pool, async move { Ok(first.started().await?) })
            .await
    }

    /// Starts the node on another backend than the pool: a seam for tests.
    ///
    /// # Errors
    /// Returns the errors of [`NodeBuilder::start`], except those of the host.
    #[doc(hidden)]
    pub async fn start_on(mut self, backend: Arc<dyn Backend>) -> Result<Node, StartError> {
        self.fit_open_files();
        let prepared = self.prepare().await?;
        prepared.run(backend, async { Ok(()) }).await
    }
}

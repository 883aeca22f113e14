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
    node::{Node, Telling},
    open_files,
    server::{Pair, Proxies},
    services::{key_value::KeyValueServer, outbound::OutboundOptions},
    shared::Entry,
};

/// What something is sealed with; whoever prints a builder is not to see it.
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
    tls: Vec<Pair>,
    redirect: Option<SocketAddr>,
    sites: Sites,
    telling: Telling,
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

    /// Sets whether the node takes its address, but lets nobody connect before [`Node::open`]:
    /// whoever tries until then is refused by the system, so that a probe by TCP tells whether
    /// there is something that answers. Unless set, clients can connect from the start on.
    pub fn opens_later(mut self, on: bool) -> Self {
        self.opens_later = on;
        self
    }

    /// Serves this function, whether it is deployed yet or not, with all paths of all hosts, and no
    /// other one: it has the listener for itself, also `/healthz`.
    pub fn root(mut self, function: FunctionName) -> Self {
        self.sites.root = Some(function);
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

    /// Sets whether clients receive the whole reason of a function's failure in problem bodies
    /// (RFC 9457): the text of its error, its exit code, the backtrace of a trap. Off by default,
    /// because such text may quote secrets and shows the function's code. Then clients receive the
    /// kind of failure and the request's id, and the function's log has the reason.
    pub fn verbose_errors(mut self, on: bool) -> Self {
        self.telling.verbose_errors = on;
        self
    }

    /// Serves Prometheus metrics at `http://ADDRESS/metrics`, whether the node is there at `/livez`
    /// and `/healthz`, whether requests should come at `/readyz` ([`Node::readiness`]), and nothing
    /// else there, from the start on. Who can reach the address can read the names of all
    /// functions.
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

    /// Sets whether a request that comes through a trusted proxy has the id that this proxy gives
    /// it by `X-Request-Id`, if that is one ([`RequestId`](crate::RequestId)): it has an id of its
    /// own, unless set. The proxy is to give each request another one, and to let none of its
    /// clients choose it.
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

    /// Sets what is around each microVM: [`Confinement::Jailed`], unless set. What
    /// [`Confinement::Reduced`] and [`Confinement::InProcess`] give up is described there. A node
    /// never chooses them by itself: if the host allows no namespaces, [`NodeBuilder::start`]
    /// fails and names the cause.
    pub fn confinement(mut self, confinement: Confinement) -> Self {
        self.pool.confinement = confinement;
        self
    }

    /// Sets how many zygotes wait for requests when there are few. Up to eight times as
    /// many wait while that many are needed.
    pub fn zygotes(mut self, count: usize) -> Self {
        self.pool.zygotes = count;
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
    /// when the node starts, and when one has ended, one after the other and behind requests, as
    /// far as [`NodeBuilder::max_parked`], the budgets of memory and the machine's memory allow.
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
        self.image_key = Some(SealingKey(secret));
        self
    }

    /// Seals functions' secrets ([`Node::set_secret`]) with this key, of 32 random bytes that
    /// nobody else has, instead of the one in `secrets.key` of the data directory. Secrets that
    /// were sealed with another one cannot be read, and none can be set: requests of their
    /// functions fail until the right key is back, or all secrets are removed.
    pub fn secret_key(mut self, key: [u8; 32]) -> Self {
        self.secret_key = Some(SealingKey(key));
        self
    }

    /// Has functions' key-value stores on this server, which other nodes may share, in place of the
    /// data directory's file, or of memory where there is none. The node starts only if the server
    /// is there and good for it; one that goes away later has functions' calls fail until it is
    /// back.
    pub fn key_value_server(mut self, server: KeyValueServer) -> Self {
        self.key_value_server = Some(server);
        self
    }

    /// Has the first deployment of what this entry is of take code and seed from it, and what all
    /// functions share, instead of making them: what a host has made before ([`crate::shared`]).
    /// What is not good there, or not any more, is made as ever, and the log says why. For a node
    /// without a data directory.
    pub fn shared(mut self, entry: Entry) -> Self {
        self.shared = Some(Arc::new(entry));
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

    /// Sets how many bytes instances at work may come to at worst where no control group of the
    /// node's own holds them together: [`NodeBuilder::instance_memory`], unless set. One that comes
    /// to more than all of it runs alone.
    pub fn admitted_memory(mut self, bytes: u64) -> Self {
        self.pool.admitted_memory = Some(bytes);
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
    /// with 503. While the node has several functions, each leaves an eighth to the others.
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

    /// Sets how requests are made that functions make: as this host says, and to what everybody may
    /// reach, unless set.
    pub fn outbound(mut self, options: OutboundOptions) -> Self {
        self.outbound = options;
        self
    }

    /// Has functions' requests made by `outbound`, of which it gets those that were granted. What
    /// they reach by their addresses is for it to filter then: the node's own processes are not
    /// used.
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

    /// Lowers limits so that all that they allow fits the open files that this process may have,
    /// and says so in the log.
    fn fit_open_files(&mut self) {
        let listeners = [self.listen, self.redirect].iter().flatten().count() as u64;
        let files = open_files::of_this_process(&self.limits, &self.pool, listeners);
        if files.is_lowered {
            tracing::warn!(
                limit = files.limit,
                "limits are lowered to what the limit of open files allows: {files}. Raise it \
                 (ulimit -n, LimitNOFILE of systemd)"
            );
        }
        self.limits.connections = files.connections;
        self.limits.connections_per_address = files.connections_per_address;
        self.pool.max_instances = files.instances;
        self.pool.max_parked = files.parked;
        self.pool.zygotes = files.zygotes;
        self.pool.groups_kept = files.groups;
        self.pool.max_seeds = files.seeds;
    }

    /// Starts the node on the current tokio runtime. Limits that do not fit the open files that
    /// this process may have (the soft `RLIMIT_NOFILE`, which is left as it is) are lowered, and a
    /// warning says so.
    ///
    /// # Errors
    /// When the host cannot run microVMs, an address is taken, or the data
    /// directory cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime that drives I/O and time.
    pub async fn start(mut self) -> Result<Node, StartError> {
        self.fit_open_files();
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
        let pool = Arc::new(starting.with(prepared.images())?);
        if prepared.expects_functions() {
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
    pub async fn start_on(mut self, backend: Arc<dyn Backend>) -> Result<Node, StartError> {
        self.fit_open_files();
        let prepared = self.prepare().await?;
        prepared.run(backend, async { Ok(()) }).await
    }
}

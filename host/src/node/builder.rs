//! Starting a node.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use faasw_pool::{Isa, Pool, PoolOptions};
use tokio::net::{TcpListener, UnixListener};

use super::{
    Event, Node, Observer,
    core::{Core, Storage},
};
use crate::{
    admin, data_dir::DataDir, engine::Engine, error::StartError, gateway, limits::Limits, metrics,
    registry::Registry, server::Servers,
};

/// Options of a node that is about to start.
#[derive(Clone, Debug, Default)]
#[must_use = "a node runs only after `start`"]
pub struct NodeBuilder {
    data_dir: Option<PathBuf>,
    listen: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    admin: bool,
    limits: Limits,
    pool: PoolOptions,
    observer: Observer,
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

    /// Sets the node's limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
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

    /// Sets how many instances of each function wait for requests all the same,
    /// once it was called: none, unless set.
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

    /// Sets how many bytes the seeds of functions may take together: 4 GiB, unless
    /// set. Those that are worth least give way, and are made again when they are
    /// used; a request that finds none in memory is served by doing the missing
    /// steps.
    pub fn seed_memory(mut self, bytes: u64) -> Self {
        self.pool.seed_memory = bytes;
        self
    }

    /// Sets how many bytes one function may hold between requests, all its versions
    /// together: 1 GiB, unless set. Its seeds count, and the private pages of its
    /// instances that wait, as they are told: what the kernel has for each microVM comes
    /// on top. Over it, instances that wait longest end, then seeds give way.
    pub fn function_memory(mut self, bytes: u64) -> Self {
        self.pool.function_memory = bytes;
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

    /// Starts the node on the current tokio runtime.
    ///
    /// # Errors
    /// When the host cannot run microVMs, an address is taken, or the data
    /// directory cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime that drives I/O and time.
    pub async fn start(self) -> Result<Node, StartError> {
        // First of all, so that a host that cannot run anything is left untouched.
        faasw_pool::check_kvm()?;
        let prepared = self.prepare().await?;
        let pool = Pool::start(PoolOptions {
            compile_cpu: self.limits.compile_cpu,
            compile_memory: self.limits.compile_memory,
            instantiation_time: self.limits.instantiation,
            ..self.pool
        })
        .await?;
        prepared.run(Arc::new(pool)).await
    }

    /// Starts the node on another engine than the pool: a seam for tests.
    ///
    /// # Errors
    /// As [`NodeBuilder::start`], but for the host.
    #[doc(hidden)]
    pub async fn start_on(self, engine: Arc<dyn Engine>) -> Result<Node, StartError> {
        self.prepare().await?.run(engine).await
    }

    /// Takes everything that can be refused, before processes start.
    async fn prepare(&self) -> Result<Prepared, StartError> {
        if self.admin && self.data_dir.is_none() {
            return Err(StartError::AdminNeedsDataDir);
        }
        let gateway = bind(self.listen).await?;
        let metrics = bind(self.metrics).await?;
        let directory = self.data_dir.as_deref().map(DataDir::open).transpose()?;
        let admin = match &directory {
            Some(directory) if self.admin => Some(admin::listen(&directory.admin_socket())?),
            _ => None,
        };
        let registry = match &directory {
            Some(directory) => Registry::open(directory)?,
            None => Registry::in_memory()?,
        };
        Ok(Prepared {
            gateway,
            metrics,
            admin,
            storage: Storage {
                registry,
                directory,
            },
            limits: self.limits.clone(),
            observer: self.observer.clone(),
        })
    }
}

async fn bind(address: Option<SocketAddr>) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let listener = TcpListener::bind(address).await;
    listener
        .map(Some)
        .map_err(|error| StartError::Listen { address, error })
}

/// A node that lacks only its engine.
struct Prepared {
    gateway: Option<TcpListener>,
    metrics: Option<TcpListener>,
    admin: Option<UnixListener>,
    storage: Storage,
    limits: Limits,
    observer: Observer,
}

impl Prepared {
    async fn run(self, engine: Arc<dyn Engine>) -> Result<Node, StartError> {
        let core = match Core::new(engine.clone(), self.limits, self.observer, self.storage) {
            Ok(core) => Arc::new(core),
            Err(error) => {
                engine.shutdown().await;
                return Err(error.into());
            }
        };
        // The servers get handles without servers: a listener must not keep
        // the node that should end it.
        let inner = Node {
            core: core.clone(),
            servers: Arc::default(),
        };
        let mut servers = Servers::default();
        if let Some(listener) = self.gateway {
            servers.gateway(listener, gateway::Gateway::new(inner.clone()), &core.limits);
        }
        if let Some(listener) = self.metrics {
            let page = metrics::Page::new(inner.clone());
            servers.metrics(listener, page, &core.limits);
        }
        if let Some(listener) = self.admin {
            servers.admin(
                listener,
                admin::Api::new(inner, servers.gateway_address()),
                &core.limits,
            );
        }
        let waking = core.clone();
        servers.background(async move { waking.wake_all().await });
        Ok(Node {
            core,
            servers: Arc::new(servers),
        })
    }
}

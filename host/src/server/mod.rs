//! The node's listeners, and how they end.
//!
//! A listener accepts, each connection is a task of its own, and all of them
//! end together: gracefully by [`Servers::stop`], or at once when dropped.

mod bodies;
mod connection;
mod connections;
mod handler;
mod health;
mod linger;
mod listener;
mod metered;
mod peer;
mod tls;

use std::{
    future::Future,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use faasw_pool::{Backlog, BacklogLimits};
use tokio::{
    net::{TcpListener, UnixListener},
    sync::watch,
    task::JoinSet,
};

pub(crate) use self::bodies::Received;
pub(crate) use self::connections::Proxies;
pub(crate) use self::handler::Handler;
pub(crate) use self::health::{HEALTH, health};
use self::{listener::Listener, tls::TlsListener};
use crate::limits::Limits;

pub use self::tls::TlsError;
pub(crate) use self::tls::{Pair, Tls};

/// Listeners and background work of one node.
#[derive(Debug)]
pub(crate) struct Servers {
    gateway_address: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    redirect_address: Option<SocketAddr>,
    tls: Option<Arc<Tls>>,
    /// Tells the listeners to stop; dropping it does, too.
    stop: watch::Sender<bool>,
    /// What waits for the clients of all listeners.
    backlog: Arc<Backlog>,
    tasks: Mutex<Tasks>,
}

/// Dropping them ends them.
#[derive(Debug, Default)]
struct Tasks {
    listeners: JoinSet<()>,
    background: JoinSet<()>,
}

impl Default for Servers {
    fn default() -> Self {
        Self {
            gateway_address: None,
            metrics_address: None,
            redirect_address: None,
            tls: None,
            stop: watch::Sender::new(false),
            backlog: Backlog::new(BacklogLimits::default()),
            tasks: Mutex::default(),
        }
    }
}

impl Servers {
    /// Servers whose clients count in `backlog`.
    pub(crate) fn new(backlog: Arc<Backlog>) -> Self {
        Self {
            backlog,
            ..Self::default()
        }
    }

    /// Serves functions, by TLS where there is one, also through `proxies`, which say whom
    /// they speak for.
    pub(crate) fn gateway(
        &mut self,
        listener: TcpListener,
        tls: Option<Arc<Tls>>,
        gateway: impl Handler,
        limits: &Limits,
        proxies: &Proxies,
    ) {
        self.gateway_address = listener.local_addr().ok();
        match tls {
            Some(tls) => {
                self.background(tls.clone().follow());
                self.tls = Some(tls.clone());
                self.serve(TlsListener { listener, tls }, gateway, limits, proxies);
            }
            None => self.serve(listener, gateway, limits, proxies),
        }
    }

    /// Serves redirects to the gateway.
    pub(crate) fn redirect(
        &mut self,
        listener: TcpListener,
        redirect: impl Handler,
        limits: &Limits,
    ) {
        self.redirect_address = listener.local_addr().ok();
        self.serve(listener, redirect, limits, &Proxies::default());
    }

    pub(crate) fn redirect_address(&self) -> Option<SocketAddr> {
        self.redirect_address
    }

    pub(crate) fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    /// Serves metrics.
    pub(crate) fn metrics(&mut self, listener: TcpListener, page: impl Handler, limits: &Limits) {
        self.metrics_address = listener.local_addr().ok();
        self.serve(listener, page, limits, &Proxies::default());
    }

    pub(crate) fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Serves the admin API.
    pub(crate) fn admin(&self, listener: UnixListener, api: impl Handler, limits: &Limits) {
        self.serve(listener, api, limits, &Proxies::default());
    }

    fn serve<L: Listener, H: Handler>(
        &self,
        listener: L,
        handler: H,
        limits: &Limits,
        proxies: &Proxies,
    ) {
        let limits = (limits.clone(), proxies.clone());
        let (backlog, stop) = (self.backlog.clone(), self.stop.subscribe());
        let serving = listener::serve(listener, handler, limits, backlog, stop);
        self.tasks().listeners.spawn(serving);
    }

    /// Runs something until it ends or the node does.
    pub(crate) fn background(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks().background.spawn(work);
    }

    pub(crate) fn gateway_address(&self) -> Option<SocketAddr> {
        self.gateway_address
    }

    /// Accepts nothing more, waits for the requests under way, at most for
    /// `timeout`, and ends the rest.
    pub(crate) async fn stop(&self, timeout: Duration) {
        self.stop.send_replace(true);
        let Tasks {
            mut listeners,
            mut background,
        } = std::mem::take(&mut *self.tasks());
        background.shutdown().await;
        let all = async { while listeners.join_next().await.is_some() {} };
        if tokio::time::timeout(timeout, all).await.is_err() {
            tracing::warn!("requests were still under way; they are cut off");
        }
        listeners.shutdown().await;
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        // Sets of tasks have no state that a panic could leave half changed.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

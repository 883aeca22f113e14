//! The node's listeners, and how they end.
//!
//! A listener accepts, each connection is a task of its own, and all of them
//! end together: gracefully by [`Servers::stop`], or at once when dropped.

mod activity;
mod connection;
mod linger;
mod listener;

use std::{
    future::Future,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::watch,
    task::JoinSet,
};

use self::listener::Listener;
use crate::{admin::Api, gateway::Gateway, limits::Limits, message::Body, metrics::Page};

/// What answers the requests of a listener.
pub(crate) trait Handler: Clone + Send + Sync + 'static {
    /// Answers one request; failures are answers, too.
    fn answer(self, request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send;
}

/// Listeners and background work of one node.
#[derive(Debug)]
pub(crate) struct Servers {
    gateway_address: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    /// Tells the listeners to stop; dropping it does, too.
    stop: watch::Sender<bool>,
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
            stop: watch::Sender::new(false),
            tasks: Mutex::default(),
        }
    }
}

impl Servers {
    /// Serves functions.
    pub(crate) fn gateway(&mut self, listener: TcpListener, gateway: Gateway, limits: &Limits) {
        self.gateway_address = listener.local_addr().ok();
        self.serve(listener, gateway, limits);
    }

    /// Serves metrics.
    pub(crate) fn metrics(&mut self, listener: TcpListener, page: Page, limits: &Limits) {
        self.metrics_address = listener.local_addr().ok();
        self.serve(listener, page, limits);
    }

    pub(crate) fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Serves the admin API.
    pub(crate) fn admin(&self, listener: UnixListener, api: Api, limits: &Limits) {
        self.serve(listener, api, limits);
    }

    fn serve<L: Listener, H: Handler>(&self, listener: L, handler: H, limits: &Limits) {
        let serving = listener::serve(listener, handler, limits.clone(), self.stop.subscribe());
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
    /// `patience`, and ends the rest.
    pub(crate) async fn stop(&self, patience: Duration) {
        self.stop.send_replace(true);
        let Tasks {
            mut listeners,
            mut background,
        } = std::mem::take(&mut *self.tasks());
        background.shutdown().await;
        let all = async { while listeners.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::warn!("requests were still under way; they are cut off");
        }
        listeners.shutdown().await;
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        // Sets of tasks have no state that a panic could leave half changed.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

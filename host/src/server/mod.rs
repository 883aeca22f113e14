//! The node's listeners, and their shutdown.
//!
//! A listener accepts connections, and each connection is a task of its own. All of them end
//! together: gracefully by [`Servers::stop`], or at once when dropped.

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
    fmt,
    future::Future,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use faasw_pool::{
    Backlog,
    open_files::{self, RESERVED},
};
use tokio::{
    net::{TcpListener, TcpSocket, UnixListener},
    sync::watch,
    task::JoinSet,
};

pub(crate) use self::bodies::RequestBodyStream;
pub(crate) use self::connections::Proxies;
pub(crate) use self::handler::Handler;
pub(crate) use self::health::{HEALTH, LIVE, READY, health, ready};
use self::{listener::Listener, tls::TlsListener};
use crate::limits::Limits;

pub use self::tls::TlsError;
pub(crate) use self::tls::{CertificatePaths, Tls};

/// The listeners and the background work of one node.
#[derive(Debug)]
pub(crate) struct Servers {
    gateway_address: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    redirect_address: Option<SocketAddr>,
    tls: Option<Arc<Tls>>,
    /// Stops the listeners; dropping it does so, too.
    stop: watch::Sender<bool>,
    /// The bytes that wait for the clients of all listeners.
    backlog: Arc<Backlog>,
    /// The gateway, until it accepts connections.
    closed: Mutex<Option<ClosedGateway>>,
    tasks: Mutex<ServerTasks>,
}

/// The bound address of a gateway.
#[derive(Debug)]
pub(crate) enum GatewaySocket {
    /// Clients can connect, and wait to be served.
    Listening(TcpListener),
    /// Clients cannot connect: the kernel refuses them.
    Bound(TcpSocket),
}

/// A gateway that accepts no connections yet.
struct ClosedGateway {
    socket: TcpSocket,
    serve: Box<Serve>,
}

type Serve = dyn FnOnce(&Servers, TcpListener) + Send;

impl fmt::Debug for ClosedGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClosedGateway").field(&self.socket).finish()
    }
}

/// Length of the accept queue, as far as `net.core.somaxconn` allows it (4096 by default). Clients
/// beyond it get no answer and retry after 1 s; a burst of other clients must not cause that.
const UNACCEPTED: u32 = 4096;

/// Binds an address.
///
/// # Errors
/// Returns the error of the socket calls, for example if the address is in use.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Makes a bound address accept connections.
///
/// # Errors
/// Returns the error of `listen(2)`.
pub(crate) fn listen(socket: TcpSocket) -> io::Result<TcpListener> {
    socket.listen(UNACCEPTED)
}

/// The tasks of the servers. Dropping them ends them.
#[derive(Debug, Default)]
struct ServerTasks {
    listeners: JoinSet<()>,
    background: JoinSet<()>,
}

impl Servers {
    /// Returns servers whose clients count in `backlog`.
    pub(crate) fn new(backlog: Arc<Backlog>) -> Self {
        Self {
            gateway_address: None,
            metrics_address: None,
            redirect_address: None,
            tls: None,
            stop: watch::Sender::new(false),
            backlog,
            closed: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// Serves functions, by TLS if `tls` is set, also through `proxies`, which name the clients
    /// that they speak for. Starts at once, or on [`Servers::open`] if the address accepts no
    /// connections yet.
    pub(crate) fn gateway(
        &mut self,
        taken: GatewaySocket,
        tls: Option<Arc<Tls>>,
        gateway: impl Handler,
        limits: &Limits,
        proxies: &Proxies,
    ) {
        let address = match &taken {
            GatewaySocket::Listening(listener) => listener.local_addr(),
            GatewaySocket::Bound(socket) => socket.local_addr(),
        };
        self.gateway_address = address.ok();
        if let Some(tls) = &tls {
            self.background(tls.clone().follow());
            self.tls = Some(tls.clone());
        }
        let (limits, proxies) = (limits.clone(), proxies.clone());
        let serve = move |servers: &Self, listener| match tls {
            Some(tls) => {
                let listener = TlsListener { listener, tls };
                servers.serve(listener, gateway, &limits, &proxies, RESERVED);
            }
            None => servers.serve(listener, gateway, &limits, &proxies, RESERVED),
        };
        match taken {
            GatewaySocket::Listening(listener) => serve(self, listener),
            GatewaySocket::Bound(socket) => {
                let serve = Box::new(serve);
                *self.closed() = Some(ClosedGateway { socket, serve });
            }
        }
    }

    /// Accepts connections at a gateway that accepted none. Does nothing if there is none, or if
    /// these servers have stopped.
    ///
    /// # Errors
    /// Returns the error of `listen(2)`.
    pub(crate) fn open(&self) -> io::Result<()> {
        let mut closed = self.closed();
        match closed.take() {
            Some(ClosedGateway { socket, serve }) if !*self.stop.borrow() => {
                serve(self, listen(socket)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn closed(&self) -> MutexGuard<'_, Option<ClosedGateway>> {
        // The value is only taken or replaced as a whole.
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves redirects to the gateway.
    pub(crate) fn redirect(
        &mut self,
        listener: TcpListener,
        redirect: impl Handler,
        limits: &Limits,
    ) {
        self.redirect_address = listener.local_addr().ok();
        self.serve(listener, redirect, limits, &Proxies::default(), RESERVED);
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
        // Probes are still accepted when clients have used all open files that they may.
        self.serve(listener, page, limits, &Proxies::default(), RESERVED / 2);
    }

    pub(crate) fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Serves the admin API.
    pub(crate) fn admin(&self, listener: UnixListener, api: impl Handler, limits: &Limits) {
        self.serve(listener, api, limits, &Proxies::default(), 0);
    }

    fn serve<L: Listener, H: Handler>(
        &self,
        listener: L,
        handler: H,
        limits: &Limits,
        proxies: &Proxies,
        reserved: u64,
    ) {
        let watermark = open_files::first_reserved(open_files::limit(), reserved);
        let limits = (limits.clone(), proxies.clone(), watermark);
        let (backlog, stop) = (self.backlog.clone(), self.stop.subscribe());
        let serving = listener::serve(listener, handler, limits, backlog, stop);
        self.tasks().listeners.spawn(serving);
    }

    /// Runs a task until it ends or the node does.
    pub(crate) fn background(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks().background.spawn(work);
    }

    pub(crate) fn gateway_address(&self) -> Option<SocketAddr> {
        self.gateway_address
    }

    /// Stops accepting connections, waits up to `timeout` for the requests under way, and ends the
    /// rest.
    pub(crate) async fn stop(&self, timeout: Duration) {
        // The gateway cannot be opened from now on.
        let closed = self.closed().take();
        self.stop.send_replace(true);
        drop(closed);
        let ServerTasks {
            mut listeners,
            mut background,
        } = std::mem::take(&mut *self.tasks());
        background.shutdown().await;
        let all = async { while listeners.join_next().await.is_some() {} };
        if tokio::time::timeout(timeout, all).await.is_err() {
            tracing::warn!("requests were still running; they are cut off");
        }
        listeners.shutdown().await;
    }

    fn tasks(&self) -> MutexGuard<'_, ServerTasks> {
        // Task sets have no state that a panic could leave half changed.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

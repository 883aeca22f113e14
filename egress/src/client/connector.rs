//! The connector's process, from the node's side.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use faasw_abi::outgoing::{Failure, FailureCode};
use faasw_egress_policy::{AllowPrivate, Destination, Prohibited};
use ipnet::IpNet;
use tokio::sync::oneshot;

use super::process::{Process, ProcessLink, spawn_task};
use super::queue::{Queue, queue, with_write_timeout};
use crate::ProtocolViolation;
use crate::orders::{
    AddWorker, Alive, Cancel, Configure, Connect, Connected, HOSTS_MAX, NETWORKS_MAX, Names, Order,
    OrderKind, Probe, RemoveWorker, SERVERS_MAX, Unconnected, WireHost, WireNetwork, WireServer,
    encode, kind, read,
};
use crate::packet::{Descriptors, PacketSocket};

/// The configuration of a connector.
#[derive(Clone, Debug)]
pub struct ConnectorOptions {
    /// The content of `/etc/hosts`; if it is larger than 4 MiB, the complete lines within the first
    /// 4 MiB.
    pub hosts: Vec<u8>,
    /// Name servers, in order; only the first eight are used.
    pub servers: Vec<SocketAddr>,
    /// Special networks that functions may reach nevertheless; at most 64.
    pub private: Vec<IpNet>,
    /// How long a name's addresses are cached at most, whatever TTL the server sends. Whole
    /// seconds; zero disables the cache.
    pub cache: Duration,
    /// Connections that each function may have in the making at once, whatever other functions do.
    pub orders_floor: u64,
    /// Connections in the making at once beyond those floors. Functions share them, and each may
    /// have a part of those that are free.
    pub orders_shared: u64,
}

impl Default for ConnectorOptions {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            servers: Vec::new(),
            private: Vec::new(),
            cache: Duration::from_secs(60),
            orders_floor: ORDERS_FLOOR,
            orders_shared: ORDERS_SHARED,
        }
    }
}

/// An invocation may have 16 calls under way, and each can need an order. No other function can use
/// these.
const ORDERS_FLOOR: u64 = 16;

/// With the floors of 128 functions there are at most 3072 orders. Each takes about 5 KiB of the
/// connector's 64 MiB.
const ORDERS_SHARED: u64 = 1024;

/// A handle of the connector's process.
#[derive(Clone, Debug)]
pub struct Connector {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    private: AllowPrivate,
    orders: Queue<(Vec<u8>, Option<OwnedFd>)>,
    /// Calls that wait for their connection; `None` when the process is gone.
    waiting: Mutex<Option<Waiters>>,
    link: ProcessLink,
}

/// The callers that wait for a connection, by the number of the call.
type Waiters = HashMap<u64, oneshot::Sender<Result<(), NotConnected>>>;

/// An address that the policy refuses, of a destination that the function was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedAddress {
    /// The address.
    pub address: IpAddr,
    /// Why it is refused; `None` if it is one of this host's own addresses.
    pub prohibited: Option<Prohibited>,
}

/// Why a call has no connection.
#[derive(Clone, Debug)]
pub(super) struct NotConnected {
    /// The failure that the function receives.
    pub(super) failure: Failure,
    /// The address that the policy refuses, for the log of the function.
    pub(super) refused: Option<RefusedAddress>,
}

impl From<FailureCode> for NotConnected {
    fn from(code: FailureCode) -> Self {
        Self {
            failure: Failure::new(code),
            refused: None,
        }
    }
}

/// If more orders than this are queued, the process is abandoned.
const QUEUE_MAX: usize = 16 << 10;

/// How late the answer to an order may be. After that, the process is abandoned.
const GRACE: Duration = Duration::from_secs(5);

/// Numbers of workers, which are never reused.
static WORKERS: AtomicU64 = AtomicU64::new(1);

impl Connector {
    /// Configures a new process at the other end of `socket`. Must be called within a runtime of
    /// tokio.
    ///
    /// # Errors
    /// Returns `InvalidInput` if there are more than 64 private networks, or the system's error if
    /// the socket cannot be set up or the file for the known hosts cannot be created.
    pub fn new(socket: OwnedFd, options: &ConnectorOptions) -> io::Result<Self> {
        let socket = Arc::new(PacketSocket::new(socket)?);
        let (orders, mut outgoing) = queue();
        let shared = Arc::new(Shared {
            private: AllowPrivate::new(options.private.clone()),
            orders,
            waiting: Mutex::new(Some(HashMap::new())),
            link: ProcessLink::default(),
        });
        let connector = Self { shared };
        connector.shared.order(&configuration(options)?, None);
        connector.send_names(&options.hosts, &options.servers)?;
        let writing = socket.clone();
        let write = async move {
            // Ends when the last handle and the reader below are gone, which closes the socket.
            while let Some(((packet, fd), size)) = outgoing.next().await {
                let fd = fd.as_ref().map(OwnedFd::as_fd);
                with_write_timeout(writing.send(&packet, fd)).await?;
                outgoing.written(size);
            }
            io::Result::Ok(())
        };
        let weak = Arc::downgrade(&connector.shared);
        let listen = async move {
            while let Some(packet) = socket.receive(Descriptors::Reject).await? {
                match weak.upgrade() {
                    Some(shared) => shared.handle_packet(&packet.bytes)?,
                    None => break,
                }
            }
            io::Result::Ok(())
        };
        spawn_task(&connector.shared, write, listen);
        Ok(connector)
    }

    /// Changes how names are resolved: by the content of `/etc/hosts`, and by servers, as in
    /// [`ConnectorOptions`].
    ///
    /// # Errors
    /// Returns the system's error if the file for the known hosts cannot be created.
    pub fn send_names(&self, hosts: &[u8], servers: &[SocketAddr]) -> io::Result<()> {
        let (names, hosts) = names(hosts, servers)?;
        self.shared.order(&names, hosts);
        Ok(())
    }

    /// Waits until the process is gone, or was abandoned because it does not answer.
    pub async fn closed(&self) {
        self.shared.link.closed().await;
    }

    /// Returns whether the process is gone or was abandoned.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.link.is_closed()
    }

    /// Returns a number for a new worker.
    pub(super) fn worker_number() -> u64 {
        WORKERS.fetch_add(1, Ordering::Relaxed)
    }

    /// Announces a worker of `function`, which receives its connections at the other end of
    /// `socket`.
    pub(super) fn add_worker(&self, worker: u64, function: u64, socket: OwnedFd) {
        self.shared
            .order(&AddWorker { worker, function }, Some(socket));
    }

    /// Announces that a worker is gone.
    pub(super) fn remove_worker(&self, worker: u64) {
        self.shared.order(&RemoveWorker { worker }, None);
    }

    /// Has a connection made for a call and passed to a worker. Dropping this future cancels the
    /// order.
    ///
    /// # Errors
    /// Returns why there is no connection.
    pub(super) async fn connect(
        &self,
        worker: u64,
        call: u64,
        destination: &Destination,
        timeout: u64,
    ) -> Result<(), NotConnected> {
        let gone = || FailureCode::ConnectionTerminated.into();
        let host = WireHost::new(&destination.host, destination.port);
        let host = host.ok_or(FailureCode::InternalError)?;
        let (answer, answered) = oneshot::channel();
        match self.shared.waiting().as_mut() {
            Some(waiting) => waiting.insert(call, answer),
            None => return Err(gone()),
        };
        let mut pending = PendingOrder {
            connector: self,
            call,
            is_answered: false,
        };
        let order = Connect {
            call,
            worker,
            timeout,
            host,
        };
        self.shared.order(&order, None);
        self.shared.link.liveness.notify_caller_waits();
        // The connector measures the timeout, too, and normally answers first.
        let deadline = Duration::from_nanos(timeout).saturating_add(GRACE);
        let Ok(answer) = tokio::time::timeout(deadline, answered).await else {
            self.shared.link.abandon();
            return Err(gone());
        };
        pending.is_answered = true;
        answer.unwrap_or_else(|_| Err(gone()))
    }
}

/// The order of a call that waits for its connection. Dropping it before the answer cancels it.
struct PendingOrder<'a> {
    connector: &'a Connector,
    call: u64,
    is_answered: bool,
}

impl Drop for PendingOrder<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            if let Some(waiting) = self.connector.shared.waiting().as_mut() {
                waiting.remove(&self.call);
            }
            let call = self.call;
            self.connector.shared.order(&Cancel { call }, None);
        }
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Option<Waiters>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order<O: Order>(&self, order: &O, fd: Option<OwnedFd>) {
        if self.orders.add((encode(order), fd), 1) > QUEUE_MAX {
            self.link.abandon();
        }
    }

    /// Handles a packet from the connector. An answer to an unknown call is dropped.
    fn handle_packet(&self, packet: &[u8]) -> io::Result<()> {
        self.link.liveness.record_activity();
        let (call, outcome) = match kind(packet) {
            Some(OrderKind::Connected) => {
                let connected: Connected = read(packet)?;
                (connected.call, Ok(()))
            }
            Some(OrderKind::Unconnected) => {
                let unconnected: Unconnected = read(packet)?;
                let refused = unconnected.refused().map(|address| RefusedAddress {
                    address,
                    prohibited: self.private.permits(address).err(),
                });
                let failure = unconnected.failure();
                (unconnected.call, Err(NotConnected { failure, refused }))
            }
            Some(OrderKind::Alive) => return Ok(read::<Alive>(packet).map(drop)?),
            _ => return Err(ProtocolViolation.into()),
        };
        let waiting = self.waiting().as_mut().and_then(|all| all.remove(&call));
        if let Some(waiting) = waiting {
            // A caller that has stopped waiting needs no answer.
            let _ = waiting.send(outcome);
        }
        Ok(())
    }
}

impl Process for Shared {
    fn link(&self) -> &ProcessLink {
        &self.link
    }

    fn is_waited_for(&self) -> bool {
        self.waiting().as_ref().is_some_and(|all| !all.is_empty())
    }

    fn probe(&self) {
        self.order(&Probe {}, None);
    }

    fn close(&self) {
        let waiting = {
            let mut waiting = self.waiting();
            // Set before a caller learns of it from the result of its own order.
            self.link.abandon();
            waiting.take()
        };
        // Dropping the senders notifies the waiting callers.
        drop(waiting);
    }
}

/// Builds the first order.
fn configuration(options: &ConnectorOptions) -> io::Result<Configure> {
    if options.private.len() > NETWORKS_MAX {
        let why = "more than 64 private networks";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut private = [WireNetwork::default(); NETWORKS_MAX];
    for (place, network) in private.iter_mut().zip(&options.private) {
        *place = (*network).into();
    }
    Ok(Configure {
        cache_seconds: options.cache.as_secs(),
        orders_floor: options.orders_floor,
        orders_shared: options.orders_shared,
        private,
    })
}

/// Builds the order that sets how names are resolved, and a file with the content of `/etc/hosts`.
fn names(hosts: &[u8], servers: &[SocketAddr]) -> io::Result<(Names, Option<OwnedFd>)> {
    let hosts = known(hosts);
    let mut names = Names {
        hosts_bytes: hosts.len() as u64,
        servers: [WireServer::default(); SERVERS_MAX],
    };
    for (place, server) in names.servers.iter_mut().zip(servers) {
        *place = (*server).into();
    }
    let is_empty = hosts.is_empty();
    let file = (!is_empty).then(|| in_memory(hosts)).transpose()?;
    Ok((names, file))
}

/// Returns the complete lines within the first [`HOSTS_MAX`] bytes.
fn known(hosts: &[u8]) -> &[u8] {
    let most = usize::try_from(HOSTS_MAX).unwrap_or(usize::MAX);
    match hosts.split_at_checked(most) {
        None => hosts,
        Some((first, _)) => {
            let end = first.iter().rposition(|byte| *byte == b'\n');
            first.split_at(end.map_or(0, |end| end + 1)).0
        }
    }
}

fn in_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("faasw-hosts", rustix::fs::MemfdFlags::CLOEXEC)?;
    let file = File::from(file);
    file.write_all_at(bytes, 0)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_cut_behind_a_line() {
        let most = HOSTS_MAX as usize;
        assert_eq!(known(b"10.0.0.1 a"), b"10.0.0.1 a");
        let line = b"10.0.0.1 a.example\n";
        let many = line.repeat(most / line.len() + 1);
        let known_of_many = known(&many);
        assert!(known_of_many.ends_with(line) && known_of_many.len() > most - line.len());
        assert!(known_of_many.len() <= most);
        assert_eq!(known(&vec![b'a'; most + 1]), b"");
    }
}

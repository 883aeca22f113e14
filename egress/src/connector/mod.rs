//! The connector: resolves, filters, connects, and passes connections to workers.
//!
//! The connector has one thread. It holds only names of a function, and of the network's data it
//! parses only answers of name servers. It resolves a name once for a connection, filters each
//! address, and connects to one of those that remain: no step resolves again.
//!
//! All functions share this process. Orders, lookups, sockets and cached names are therefore shared
//! out by function (`fair`).

mod dial;
mod fair;
pub(crate) mod names;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;
use std::time::Duration;

use faasw_abi::outgoing::FailureCode;
use faasw_egress_policy::AllowPrivate;
use tokio::runtime::Runtime;
use tokio::task::{AbortHandle, LocalSet};

use self::dial::ConnectFailure;
use self::fair::{FairLimits, FairPool};
use crate::ProtocolViolation;
use crate::orders::{
    AddWorker, Alive, Cancel, Configure, Connect, Connected, HOSTS_MAX, Names, Order, OrderKind,
    Passed, Probe, RemoveWorker, Unconnected, WireNetwork, encode, kind, read,
};
use crate::packet::{Descriptors, Packet, PacketSocket};

/// The divisor of the free shared orders: one function alone may have 114 of 1024 beyond its floor.
const ORDERS_ALPHA: usize = 8;

/// Serves the node's orders until the node closes `node`.
///
/// # Errors
/// Returns the system's error if reading or sending fails, and `InvalidData` if an order violates
/// the protocol.
pub fn run(runtime: &Runtime, node: OwnedFd) -> io::Result<()> {
    crate::end_on_panic();
    // Dropping the set ends the orders under way.
    LocalSet::new().block_on(runtime, serve(node))
}

struct Connector {
    node: PacketSocket,
    resolver: names::Resolver,
    private: Rc<AllowPrivate>,
    sockets: Rc<FairPool>,
    /// A permit for each order under way.
    orders: Rc<FairPool>,
    workers: RefCell<HashMap<u64, Rc<WorkerEnd>>>,
    /// Tasks of orders under way, by call.
    tasks: RefCell<HashMap<u64, AbortHandle>>,
    trouble: Cell<Option<io::Error>>,
}

/// A worker, as the connector sees it.
struct WorkerEnd {
    socket: PacketSocket,
    function: Rc<names::Function>,
}

async fn serve(node: OwnedFd) -> io::Result<()> {
    let node = PacketSocket::new(node)?;
    let Some(packet) = node.receive(Descriptors::Accept).await? else {
        return Ok(());
    };
    let configure: Configure = read(&packet.bytes)?;
    let cache = Duration::from_secs(configure.cache_seconds);
    let networks = configure
        .private
        .into_iter()
        .filter_map(WireNetwork::read)
        .collect();
    let connector = Rc::new(Connector {
        node,
        resolver: names::Resolver::new(cache),
        private: Rc::new(AllowPrivate::new(networks)),
        sockets: FairPool::new(dial::SOCKETS),
        orders: FairPool::new(FairLimits {
            floor: usize::try_from(configure.orders_floor).unwrap_or(usize::MAX),
            shared: usize::try_from(configure.orders_shared).unwrap_or(usize::MAX),
            alpha: ORDERS_ALPHA,
        }),
        workers: RefCell::default(),
        tasks: RefCell::default(),
        trouble: Cell::default(),
    });
    while let Some(packet) = connector.node.receive(Descriptors::Accept).await? {
        connector.handle_packet(packet).await?;
        if let Some(trouble) = connector.trouble.take() {
            return Err(trouble);
        }
    }
    Ok(())
}

fn contents(file: OwnedFd, bytes: u64) -> io::Result<Vec<u8>> {
    let bytes = usize::try_from(bytes.min(HOSTS_MAX)).map_err(io::Error::other)?;
    let mut contents = vec![0; bytes];
    File::from(file).read_exact_at(&mut contents, 0)?;
    Ok(contents)
}

impl Connector {
    /// Executes an order.
    async fn handle_packet(self: &Rc<Self>, packet: Packet) -> io::Result<()> {
        let Packet { bytes, fd } = packet;
        match kind(&bytes) {
            Some(OrderKind::Names) => {
                let order: Names = read(&bytes)?;
                let hosts = match fd {
                    Some(file) => contents(file, order.hosts_bytes)?,
                    None if order.hosts_bytes > 0 => return Err(ProtocolViolation.into()),
                    None => Vec::new(),
                };
                let servers = order.servers.into_iter();
                let servers: Vec<_> = servers.filter_map(|server| server.read()).collect();
                self.resolver.use_sources(hosts, &servers)?;
            }
            Some(OrderKind::Probe) => {
                let Probe {} = read(&bytes)?;
                self.send_order(&Alive {}).await?;
            }
            Some(OrderKind::AddWorker) => {
                let order: AddWorker = read(&bytes)?;
                // A worker whose socket was lost is not added, so that its orders fail.
                if let Some(socket) = fd {
                    let end = WorkerEnd {
                        socket: PacketSocket::new(socket)?,
                        function: self.resolver.function(order.function),
                    };
                    self.workers.borrow_mut().insert(order.worker, Rc::new(end));
                }
            }
            Some(OrderKind::RemoveWorker) => {
                let order: RemoveWorker = read(&bytes)?;
                self.workers.borrow_mut().remove(&order.worker);
            }
            Some(OrderKind::Connect) => {
                let order = read(&bytes)?;
                self.begin(order).await?;
            }
            Some(OrderKind::Cancel) => {
                let order: Cancel = read(&bytes)?;
                if let Some(task) = self.tasks.borrow_mut().remove(&order.call) {
                    task.abort();
                }
            }
            _ => return Err(ProtocolViolation.into()),
        }
        Ok(())
    }

    /// Begins an order, if its function may have one more under way.
    async fn begin(self: &Rc<Self>, order: Connect) -> io::Result<()> {
        let Connect { call, worker, .. } = order;
        let worker = self.workers.borrow().get(&worker).cloned();
        let accepted = worker
            .ok_or(FailureCode::ConnectionTerminated)
            .and_then(|worker| {
                let permit = self.orders.try_acquire(worker.function.number);
                let permit = permit.ok_or(FailureCode::ConnectionLimitReached)?;
                Ok((worker, permit))
            });
        let (worker, permit) = match accepted {
            Ok(accepted) => accepted,
            Err(code) => return self.send_order(&Unconnected::new(call, code)).await,
        };
        let connector = self.clone();
        let task = tokio::task::spawn_local(async move {
            let outcome = connector.connect(order, &worker).await;
            drop(permit);
            connector.tasks.borrow_mut().remove(&call);
            let sent_answer = match outcome {
                Ok(()) => connector.send_order(&Connected { call }).await,
                Err(why) => {
                    let unconnected = Unconnected::new(call, why.code)
                        .with_rcode(why.rcode)
                        .with_refused(why.refused);
                    connector.send_order(&unconnected).await
                }
            };
            if let Err(error) = sent_answer {
                connector.trouble.set(Some(error));
            }
        });
        self.tasks.borrow_mut().insert(call, task.abort_handle());
        Ok(())
    }

    async fn send_order<O: Order>(&self, order: &O) -> io::Result<()> {
        self.node.send(&encode(order), None).await
    }

    /// Makes a connection, and passes it to the worker.
    async fn connect(&self, order: Connect, worker: &WorkerEnd) -> Result<(), ConnectFailure> {
        let timeout = Duration::from_nanos(order.timeout);
        let (host, port) = order.host.read().ok_or(FailureCode::InternalError)?;
        let stage = Cell::new(FailureCode::DnsTimeout);
        let sockets = dial::Sockets {
            pool: self.sockets.clone(),
            function: worker.function.number,
        };
        let connecting = async {
            let addresses = self.resolver.addresses(&host, &worker.function).await?;
            stage.set(FailureCode::ConnectionTimeout);
            let is_permitted = |address: &IpAddr| self.private.permits(*address).is_ok();
            let (permitted, refused): (Vec<_>, Vec<_>) =
                addresses.into_iter().partition(is_permitted);
            if permitted.is_empty() {
                return Err(ConnectFailure {
                    refused: refused.first().copied(),
                    ..FailureCode::DestinationIpProhibited.into()
                });
            }
            let stream = dial::connect_to_any(&permitted, port, &sockets, &self.private).await?;
            let passed = encode(&Passed { call: order.call });
            // A worker that does not read has only the order's timeout, as a server has.
            let sent = worker.socket.send(&passed, Some(stream.as_fd())).await;
            sent.map_err(|_| FailureCode::ConnectionTerminated.into())
        };
        match tokio::time::timeout(timeout, connecting).await {
            Ok(outcome) => outcome,
            Err(_) => Err(stage.get().into()),
        }
    }
}

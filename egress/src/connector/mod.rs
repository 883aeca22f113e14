//! The connector: resolves, filters, connects, and passes connections to workers.
//!
//! One thread. It holds nothing of any function but names, and parses nothing that an upstream says, but for
//! servers of names. A name is resolved once for a connection, each address is filtered,
//! and one of those is connected to: no step asks again.

mod reach;
mod resolve;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use faasw_abi::outgoing::FailureCode;
use faasw_egress_policy::AllowPrivate;
use tokio::runtime::Runtime;
use tokio::task::{AbortHandle, LocalSet};

use crate::orders::{
    AddWorker, Alive, Cancel, Configure, Connect, Connected, HOSTS_MAX, Names, Order, OrderKind,
    Passed, Probe, RemoveWorker, Unconnected, WireNetwork, kind, read, spell,
};
use crate::packet::{Packet, PacketSocket};

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failed {
    code: FailureCode,
    /// What a server of names has answered.
    rcode: Option<u16>,
}

impl From<FailureCode> for Failed {
    fn from(code: FailureCode) -> Self {
        Self { code, rcode: None }
    }
}

/// Serves a node until it closes `node`: orders.
///
/// # Errors
/// The system's, and when the node says what none says.
pub fn run(runtime: &Runtime, node: OwnedFd) -> io::Result<()> {
    crate::end_on_panic();
    // Orders under way end with the set.
    LocalSet::new().block_on(runtime, serve(node))
}

struct Connector {
    node: PacketSocket,
    resolver: resolve::Resolver,
    private: Rc<AllowPrivate>,
    sockets: reach::Sockets,
    orders_max: usize,
    orders_per_worker: usize,
    workers: RefCell<HashMap<u64, Rc<WorkerEnd>>>,
    /// Orders under way, by call: for which worker, and who does it.
    orders: RefCell<HashMap<u64, (u64, AbortHandle)>>,
    trouble: Cell<Option<io::Error>>,
}

/// A worker, as its connections are made and passed.
struct WorkerEnd {
    socket: PacketSocket,
    sockets: reach::Sockets,
    names: resolve::Share,
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

async fn serve(node: OwnedFd) -> io::Result<()> {
    let node = PacketSocket::new(node)?;
    let Some(packet) = node.receive().await? else {
        return Ok(());
    };
    let configure: Configure = read(&packet.bytes).ok_or_else(malformed)?;
    let cache = Duration::from_secs(configure.cache_seconds);
    let networks = configure
        .private
        .into_iter()
        .filter_map(WireNetwork::read)
        .collect();
    let connector = Rc::new(Connector {
        node,
        resolver: resolve::Resolver::new(cache),
        private: Rc::new(AllowPrivate::new(networks)),
        sockets: reach::Sockets::new(),
        orders_max: usize::try_from(configure.orders_max).unwrap_or(usize::MAX),
        orders_per_worker: usize::try_from(configure.orders_per_worker).unwrap_or(usize::MAX),
        workers: RefCell::default(),
        orders: RefCell::default(),
        trouble: Cell::default(),
    });
    while let Some(packet) = connector.node.receive().await? {
        connector.hear(packet).await?;
        if let Some(trouble) = connector.trouble.take() {
            return Err(trouble);
        }
    }
    Ok(())
}

fn contents(file: &OwnedFd, bytes: u64) -> io::Result<Vec<u8>> {
    let bytes = usize::try_from(bytes.min(HOSTS_MAX)).map_err(io::Error::other)?;
    let mut contents = vec![0; bytes];
    let mut at = 0;
    while let Some(rest) = contents.get_mut(at..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(file, rest, at as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => at += more,
        }
    }
    Ok(contents)
}

impl Connector {
    /// Does an order.
    async fn hear(self: &Rc<Self>, packet: Packet) -> io::Result<()> {
        let Packet { bytes, fd } = packet;
        match kind(&bytes) {
            Some(OrderKind::Names) => {
                let order: Names = read(&bytes).ok_or_else(malformed)?;
                let hosts = match fd {
                    Some(file) => contents(&file, order.hosts_bytes)?,
                    None if order.hosts_bytes > 0 => return Err(malformed()),
                    None => Vec::new(),
                };
                let servers = order.servers.into_iter();
                let servers: Vec<_> = servers.filter_map(|server| server.read()).collect();
                self.resolver.is_told(&hosts, &servers)?;
            }
            Some(OrderKind::Probe) => {
                let Probe {} = read(&bytes).ok_or_else(malformed)?;
                self.say(&Alive {}).await?;
            }
            Some(OrderKind::AddWorker) => {
                let order: AddWorker = read(&bytes).ok_or_else(malformed)?;
                // One whose socket was lost is not known, and has none of its orders done.
                if let Some(socket) = fd {
                    let end = WorkerEnd {
                        socket: PacketSocket::new(socket)?,
                        sockets: self.sockets.of_worker(),
                        names: resolve::Share::new(),
                    };
                    self.workers.borrow_mut().insert(order.worker, Rc::new(end));
                }
            }
            Some(OrderKind::RemoveWorker) => {
                let order: RemoveWorker = read(&bytes).ok_or_else(malformed)?;
                self.workers.borrow_mut().remove(&order.worker);
            }
            Some(OrderKind::Connect) => {
                let order = read(&bytes).ok_or_else(malformed)?;
                self.begin(order).await?;
            }
            Some(OrderKind::Cancel) => {
                let order: Cancel = read(&bytes).ok_or_else(malformed)?;
                if let Some((_, task)) = self.orders.borrow_mut().remove(&order.call) {
                    task.abort();
                }
            }
            _ => return Err(malformed()),
        }
        Ok(())
    }

    async fn begin(self: &Rc<Self>, order: Connect) -> io::Result<()> {
        if !self.has_room(order.worker) {
            let code = FailureCode::ConnectionLimitReached;
            return self.say(&Unconnected::new(order.call, code, None)).await;
        }
        let connector = self.clone();
        let Connect { call, worker, .. } = order;
        let task = tokio::task::spawn_local(async move {
            let outcome = connector.connect(order).await;
            connector.orders.borrow_mut().remove(&call);
            let said = match outcome {
                Ok(()) => connector.say(&Connected { call }).await,
                Err(Failed { code, rcode }) => {
                    connector.say(&Unconnected::new(call, code, rcode)).await
                }
            };
            if let Err(error) = said {
                connector.trouble.set(Some(error));
            }
        });
        let order = (worker, task.abort_handle());
        self.orders.borrow_mut().insert(call, order);
        Ok(())
    }

    /// Whether another order of a worker can be under way.
    fn has_room(&self, worker: u64) -> bool {
        let orders = self.orders.borrow();
        let of_worker = orders.values().filter(|(other, _)| *other == worker);
        orders.len() < self.orders_max && of_worker.count() < self.orders_per_worker
    }

    async fn say<O: Order>(&self, order: &O) -> io::Result<()> {
        self.node.send(&spell(order), None).await
    }

    /// Makes a connection, and passes it on.
    async fn connect(&self, order: Connect) -> Result<(), Failed> {
        let timeout = Duration::from_nanos(order.timeout);
        let (host, port) = order.host.read().ok_or(FailureCode::InternalError)?;
        let stage = Cell::new(FailureCode::DnsTimeout);
        let worker = self.workers.borrow().get(&order.worker).cloned();
        let worker = worker.ok_or(FailureCode::ConnectionTerminated)?;
        let connecting = async {
            let addresses = self.resolver.addresses(&host, &worker.names).await?;
            stage.set(FailureCode::ConnectionTimeout);
            let permitted = addresses
                .into_iter()
                .filter(|it| self.private.permits(*it).is_ok());
            let permitted: Vec<_> = permitted.collect();
            if permitted.is_empty() {
                return Err(FailureCode::DestinationIpProhibited.into());
            }
            let stream = reach::any_of(&permitted, port, &worker.sockets, &self.private).await?;
            let passed = spell(&Passed { call: order.call });
            // One that takes nothing has no more time for it than a server has.
            let sent = worker.socket.send(&passed, Some(stream.as_fd())).await;
            sent.map_err(|_| FailureCode::ConnectionTerminated.into())
        };
        match tokio::time::timeout(timeout, connecting).await {
            Ok(outcome) => outcome,
            Err(_) => Err(stage.get().into()),
        }
    }
}

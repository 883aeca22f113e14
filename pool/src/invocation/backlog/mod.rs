//! The budget of bytes that clients have not taken yet, or that no instance has taken yet.
//!
//! A response leaves its instance's mailbox only into a [`Lease`]: bytes that count for the
//! connection that receives them, for the function that made them, and for the node. Bytes without
//! a lease stay in the mailbox, and the instance stays with them. A lease lives as long as the
//! memory: [`Lease::hold`] makes it part of the [`Bytes`]. So each holder of a piece of them, such
//! as the send buffer of an HTTP library, keeps the lease.
//!
//! A connection may always hold very little. When a shared budget is full, connections that have
//! taken nothing for a second are closed until there is room again (`connection_closer`), those
//! that hold most first. If all connections move, the one that would take longest to empty is
//! closed.

mod connection;
mod connection_closer;
#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use self::connection::{Connection, LOOK_AGAIN, SMALL};
use self::connection_closer::ConnectionCloser;

/// A shared budget keeps this part, an eighth, for connections that hold little ([`SMALL`]).
const RESERVED_PART: u64 = 8;
/// Bytes that a connection may hold however full the shared budgets are.
const TINY: u64 = 8 << 10;

/// How many bytes may wait for one connection, of one function, and in total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BacklogLimits {
    /// For all connections together.
    pub node: u64,
    /// Of one function.
    pub function: u64,
    /// For one connection.
    pub connection: u64,
}

impl Default for BacklogLimits {
    fn default() -> Self {
        Self {
            node: 128 << 20,
            function: 64 << 20,
            connection: 2 << 20,
        }
    }
}

/// The bytes that wait in a node's memory.
#[derive(Debug)]
pub struct Backlog {
    limits: BacklogLimits,
    held: AtomicU64,
    closer: ConnectionCloser,
    /// Start of the node's time.
    begun: Instant,
    /// The number of tasks that wait for room.
    waiting: AtomicUsize,
    freed: Notify,
    closed: AtomicU64,
}

/// The bytes that wait of one function's responses.
#[derive(Debug)]
pub struct FunctionBacklog {
    held: AtomicU64,
}

/// The bytes that wait for one connection.
#[derive(Debug)]
pub struct ConnectionBacklog {
    node: Arc<Backlog>,
    connection: Arc<Connection>,
    /// The most bytes that may wait for the connection.
    most: u64,
    /// Notified when bytes of a full connection are released.
    room: Notify,
}

/// The function and the connection that the bytes of one invocation count for.
#[derive(Clone, Debug)]
pub struct Account {
    function: Arc<FunctionBacklog>,
    connection: Arc<ConnectionBacklog>,
}

/// Room for some bytes. Dropping it returns the room.
#[derive(Debug)]
#[must_use = "dropping it returns the room"]
pub struct Lease {
    account: Account,
    bytes: u64,
}

impl Backlog {
    /// Returns an empty backlog with these limits.
    #[must_use]
    pub fn new(limits: BacklogLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            held: AtomicU64::new(0),
            closer: ConnectionCloser::default(),
            begun: Instant::now(),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            closed: AtomicU64::new(0),
        })
    }

    /// Returns the backlog of one more function.
    #[must_use]
    pub fn function(&self) -> Arc<FunctionBacklog> {
        Arc::new(FunctionBacklog {
            held: AtomicU64::new(0),
        })
    }

    /// Returns the backlog of one more connection.
    #[must_use]
    pub fn connection(self: &Arc<Self>) -> Arc<ConnectionBacklog> {
        self.of_most(self.limits.connection)
    }

    /// Returns the backlog of one more request from a function to another. The calling function
    /// reads at its own pace and cannot be made to read faster. So its limit is what any connection
    /// may hold while the budgets are nearly full: 64 KiB.
    #[must_use]
    pub fn call(self: &Arc<Self>) -> Arc<ConnectionBacklog> {
        self.of_most(self.limits.connection.min(SMALL))
    }

    fn of_most(self: &Arc<Self>, most: u64) -> Arc<ConnectionBacklog> {
        let connection = Arc::<Connection>::default();
        self.closer.list(&connection);
        Arc::new(ConnectionBacklog {
            node: self.clone(),
            connection,
            most,
            room: Notify::new(),
        })
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> &BacklogLimits {
        &self.limits
    }

    /// Returns the bytes that wait now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns how many connections were closed for what they held.
    #[must_use]
    pub fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns the microseconds since the backlog was created.
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Has connections closed to free so many bytes of a full shared budget (that of a function, or
    /// that of the node), or a sixteenth of the budget if that is more.
    fn make_room(&self, full: FullBudget, bytes: u64) {
        let (limit, function) = match full {
            FullBudget::Node => (self.limits.node, None),
            FullBudget::Function(address) => (self.limits.function, Some(address)),
            FullBudget::Connection => return,
        };
        let closed = self
            .closer
            .close(self.now(), function, bytes.max(limit / 16));
        self.closed.fetch_add(closed, Ordering::Relaxed);
    }
}

/// The budget that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FullBudget {
    Connection,
    /// The budget of the function at this address.
    Function(usize),
    Node,
}

/// Returns the limit of a shared budget for a connection that holds `held` with the new bytes.
fn limit_for(held: u64, limit: u64) -> u64 {
    if held <= TINY {
        u64::MAX
    } else if held <= SMALL {
        limit
    } else {
        limit - limit / RESERVED_PART
    }
}

/// Adds to a counter if it stays within `limit`. Returns whether it did.
fn add(counter: &AtomicU64, bytes: u64, limit: u64) -> bool {
    let before = counter.fetch_add(bytes, Ordering::Relaxed);
    let fits = before.saturating_add(bytes) <= limit;
    if !fits {
        counter.fetch_sub(bytes, Ordering::Relaxed);
    }
    fits
}

impl ConnectionBacklog {
    /// Returns the bytes that wait for the client.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.connection.held()
    }

    /// Returns whether as many bytes wait for the client as may.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.held() >= self.most
    }

    /// Waits until fewer bytes wait for the client than may.
    pub async fn has_room(&self) {
        while self.is_full() {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            if self.is_full() {
                // A failed lease counts its bytes for a moment, and their return sends no
                // notification.
                let _ = timeout(LOOK_AGAIN, room).await;
            }
        }
    }

    /// Counts bytes that the client has taken.
    pub fn moves(&self, bytes: u64) {
        self.connection.moves(bytes, self.node.now());
    }

    /// Requests that the task that serves the connection closes it.
    pub fn close(&self) {
        self.connection.close();
    }

    /// Returns whether the connection is to be closed, for what it holds or for another reason.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Waits until the connection is to be closed.
    pub async fn closed(&self) {
        self.connection.closed().await;
    }

    /// Counts bytes that are in memory whatever the budgets say, such as the fields of a response,
    /// until [`ConnectionBacklog::release`] is called for them.
    pub fn take(&self, bytes: u64) {
        self.hold(bytes);
        let in_all = self.node.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if in_all > self.node.limits.node {
            self.node.make_room(FullBudget::Node, bytes);
        }
    }

    /// Stops counting bytes that were counted by [`ConnectionBacklog::take`] and have left memory.
    pub fn release(&self, bytes: u64) {
        let before = self.connection.release(bytes);
        self.node.held.fetch_sub(bytes, Ordering::Relaxed);
        if before >= self.most {
            self.room.notify_waiters();
        }
        if self.node.waiting.load(Ordering::Acquire) > 0 {
            self.node.freed.notify_waiters();
        }
    }

    /// Counts bytes as held. Returns how many the connection holds with them.
    fn hold(&self, bytes: u64) -> u64 {
        self.connection.hold(bytes, || self.node.now())
    }
}

impl Default for Account {
    /// Returns an account without limits.
    fn default() -> Self {
        let node = Backlog::new(BacklogLimits {
            node: u64::MAX,
            function: u64::MAX,
            connection: u64::MAX,
        });
        Self::new(node.function(), node.connection())
    }
}

impl Account {
    /// Returns the account for this function, this connection and the node of the connection.
    #[must_use]
    pub fn new(function: Arc<FunctionBacklog>, connection: Arc<ConnectionBacklog>) -> Self {
        Self {
            function,
            connection,
        }
    }

    /// Returns a lease of so many bytes if there is room.
    #[must_use]
    pub fn try_lease(&self, bytes: u64) -> Option<Lease> {
        self.try_each(bytes).ok()
    }

    /// Returns the most bytes that the connection may hold at any time.
    #[must_use]
    pub fn connection_limit(&self) -> u64 {
        self.connection.most
    }

    /// Returns whether room for so many bytes is missing because of the connection's own client.
    pub(crate) fn waits_for_client(&self, bytes: u64) -> bool {
        let held = self.connection.held().saturating_add(bytes);
        held > self.connection.most
    }

    /// Returns a lease of so many bytes, or the budget that is full.
    fn try_each(&self, bytes: u64) -> Result<Lease, FullBudget> {
        let connection = &self.connection;
        if bytes == 0 {
            // Zero bytes always fit.
            return Ok(Lease {
                account: self.clone(),
                bytes,
            });
        }
        let (function, node) = (&self.function, &connection.node);
        let limits = &node.limits;
        let held = connection.hold(bytes);
        let give_back = || connection.connection.release(bytes);
        if held > connection.most {
            give_back();
            return Err(FullBudget::Connection);
        }
        let address = Arc::as_ptr(function).addr();
        if !add(&function.held, bytes, limit_for(held, limits.function)) {
            give_back();
            return Err(FullBudget::Function(address));
        }
        if !add(&node.held, bytes, limit_for(held, limits.node)) {
            give_back();
            function.held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(FullBudget::Node);
        }
        connection.connection.set_last_function(address);
        Ok(Lease {
            account: self.clone(),
            bytes,
        })
    }

    /// Waits for room for so many bytes and returns a lease of it. While a shared budget is full,
    /// stalled connections are closed, or else the slowest one. Never returns if `bytes` is more
    /// than a budget.
    pub async fn lease(&self, bytes: u64) -> Lease {
        let node = &self.connection.node;
        let _waiting = WaitingTask::new(node);
        loop {
            let mut freed = pin!(node.freed.notified());
            // From here on no release is missed.
            freed.as_mut().enable();
            match self.try_each(bytes) {
                Ok(lease) => return lease,
                Err(full) => node.make_room(full, bytes),
            }
            // The rate of a connection shows only with time.
            let _ = timeout(LOOK_AGAIN, freed).await;
        }
    }
}

/// Counts one more task that waits for room.
struct WaitingTask<'a>(&'a Backlog);

impl<'a> WaitingTask<'a> {
    fn new(node: &'a Backlog) -> Self {
        node.waiting.fetch_add(1, Ordering::AcqRel);
        Self(node)
    }
}

impl Drop for WaitingTask<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Lease {
    /// Joins two leases of the same account into one.
    pub fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Returns the bytes, which keep the lease for as long as any piece of them exists.
    #[must_use]
    pub fn hold(self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        Bytes::from_owner(LeasedBytes {
            bytes,
            _lease: self,
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let function = &self.account.function;
        function.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.connection.release(self.bytes);
    }
}

struct LeasedBytes {
    bytes: Bytes,
    _lease: Lease,
}

impl AsRef<[u8]> for LeasedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

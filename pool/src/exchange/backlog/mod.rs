//! The budget of bytes that clients have not taken yet, or that no instance has taken yet.
//!
//! A response leaves its instance's mailbox only into a [`Lease`]: bytes that count for
//! the connection that they go to, for the function that made them, and for the node. What
//! has no room stays in the mailbox, and the instance with it. A lease lives as long as the
//! memory: [`Lease::hold`] makes it part of the [`Bytes`], so that whatever still has a
//! piece of them, an HTTP library's send buffer for one, keeps it.
//!
//! A connection may hold very little at any time. When a shared budget is full, connections
//! that have taken nothing for a second are closed, those first that hold most, until there
//! is room again (`closing`); where all of them move, the one that would take longest to
//! empty.

mod closing;
mod connection;
#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use self::closing::Closing;
use self::connection::{Connection, LOOK_AGAIN, SMALL};

/// The part of a budget that is for connections that hold no more than that: an eighth.
const KEPT_FREE: u64 = 8;
/// What a connection may hold however full the shared budgets are.
const TINY: u64 = 8 << 10;

/// How many bytes may wait, for one connection, of one function, and in all.
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

/// What waits in a node's memory.
#[derive(Debug)]
pub struct Backlog {
    limits: BacklogLimits,
    held: AtomicU64,
    closing: Closing,
    /// Times are told from here on.
    begun: Instant,
    /// Whoever waits for room.
    waiting: AtomicUsize,
    freed: Notify,
    closed: AtomicU64,
}

/// What waits of one function's responses.
#[derive(Debug)]
pub struct FunctionBacklog {
    held: AtomicU64,
}

/// What waits for one connection.
#[derive(Debug)]
pub struct ConnectionBacklog {
    node: Arc<Backlog>,
    connection: Arc<Connection>,
    /// Bytes that may wait for it.
    most: u64,
    /// Something was freed of what it holds.
    room: Notify,
}

/// Whom the bytes of one exchange count for.
#[derive(Clone, Debug)]
pub struct Account {
    function: Arc<FunctionBacklog>,
    connection: Arc<ConnectionBacklog>,
}

/// Room for some bytes. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping it gives the room back"]
pub struct Lease {
    account: Account,
    bytes: u64,
}

impl Backlog {
    /// A backlog of nothing.
    #[must_use]
    pub fn new(limits: BacklogLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            held: AtomicU64::new(0),
            closing: Closing::default(),
            begun: Instant::now(),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            closed: AtomicU64::new(0),
        })
    }

    /// One more function.
    #[must_use]
    pub fn function(&self) -> Arc<FunctionBacklog> {
        Arc::new(FunctionBacklog {
            held: AtomicU64::new(0),
        })
    }

    /// One more connection.
    #[must_use]
    pub fn connection(self: &Arc<Self>) -> Arc<ConnectionBacklog> {
        self.of_most(self.limits.connection)
    }

    /// One more request of a function to another. That one takes what it likes and cannot be made
    /// to take more, so what waits for it is what any connection may hold however full the budgets
    /// are: 64 KiB.
    #[must_use]
    pub fn call(self: &Arc<Self>) -> Arc<ConnectionBacklog> {
        self.of_most(self.limits.connection.min(SMALL))
    }

    fn of_most(self: &Arc<Self>, most: u64) -> Arc<ConnectionBacklog> {
        let connection = Arc::<Connection>::default();
        self.closing.list(&connection);
        Arc::new(ConnectionBacklog {
            node: self.clone(),
            connection,
            most,
            room: Notify::new(),
        })
    }

    /// How many may wait.
    #[must_use]
    pub fn limits(&self) -> &BacklogLimits {
        &self.limits
    }

    /// Bytes that wait now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// How many connections were closed for what they held.
    #[must_use]
    pub fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// Microseconds since it is there.
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Has connections closed for want of so many bytes of a full budget: a function's, or
    /// its own.
    fn make_room(&self, full: Full, bytes: u64) {
        let (limit, function) = match full {
            Full::Node => (self.limits.node, None),
            Full::Function(address) => (self.limits.function, Some(address)),
            Full::Connection => return,
        };
        let closed = self
            .closing
            .close(self.now(), function, bytes.max(limit / 16));
        self.closed.fetch_add(closed, Ordering::Relaxed);
    }
}

/// Which budget is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    Connection,
    /// The function's at this address.
    Function(usize),
    Node,
}

/// The limit of a shared budget for a connection that holds `held` with what it wants.
fn limit_for(held: u64, limit: u64) -> u64 {
    if held <= TINY {
        u64::MAX
    } else if held <= SMALL {
        limit
    } else {
        limit - limit / KEPT_FREE
    }
}

/// Adds to a counter if it stays within `limit`.
fn add(counter: &AtomicU64, bytes: u64, limit: u64) -> bool {
    let before = counter.fetch_add(bytes, Ordering::Relaxed);
    let fits = before.saturating_add(bytes) <= limit;
    if !fits {
        counter.fetch_sub(bytes, Ordering::Relaxed);
    }
    fits
}

impl ConnectionBacklog {
    /// Bytes that wait for its client.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.connection.held()
    }

    /// Whether as much waits for its client as may.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.held() >= self.most
    }

    /// Waits until less waits for its client than may.
    pub async fn has_room(&self) {
        while self.is_full() {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            if self.is_full() {
                // What is given back without having been held is not told.
                let _ = timeout(LOOK_AGAIN, room).await;
            }
        }
    }

    /// Its client has taken so many bytes.
    pub fn moves(&self, bytes: u64) {
        self.connection.moves(bytes, self.node.now());
    }

    /// Has whoever serves it close it.
    pub fn close(&self) {
        self.connection.close();
    }

    /// Whether it is to be closed, for what it holds or another reason.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Waits until it is to be closed.
    pub async fn closed(&self) {
        self.connection.closed().await;
    }

    /// Bytes that are in memory whatever the budgets say, such as the fields of a
    /// response: they count until they are [`ConnectionBacklog::release`]d.
    pub fn take(&self, bytes: u64) {
        self.hold(bytes);
        let in_all = self.node.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if in_all > self.node.limits.node {
            self.node.make_room(Full::Node, bytes);
        }
    }

    /// Bytes that were [`ConnectionBacklog::take`]n are not in memory any more.
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

    /// Counts bytes for itself; says how many it holds with them.
    fn hold(&self, bytes: u64) -> u64 {
        self.connection.hold(bytes, || self.node.now())
    }
}

impl Default for Account {
    /// An account without limits.
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
    /// Bytes count for these two, and for the node of the connection.
    #[must_use]
    pub fn new(function: Arc<FunctionBacklog>, connection: Arc<ConnectionBacklog>) -> Self {
        Self {
            function,
            connection,
        }
    }

    /// Room for so many bytes, if there is.
    #[must_use]
    pub fn try_lease(&self, bytes: u64) -> Option<Lease> {
        self.try_each(bytes).ok()
    }

    /// The most bytes that the connection may hold at any time.
    #[must_use]
    pub fn connection_limit(&self) -> u64 {
        self.connection.most
    }

    /// Whether it is up to the connection's client that there is no room for so many bytes.
    pub(crate) fn waits_for_client(&self, bytes: u64) -> bool {
        let held = self.connection.held().saturating_add(bytes);
        held > self.connection.most
    }

    /// Room for so many bytes, or the budget that is full.
    fn try_each(&self, bytes: u64) -> Result<Lease, Full> {
        let connection = &self.connection;
        if bytes == 0 {
            // Nothing fits everywhere.
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
            return Err(Full::Connection);
        }
        let address = Arc::as_ptr(function).addr();
        if !add(&function.held, bytes, limit_for(held, limits.function)) {
            give_back();
            return Err(Full::Function(address));
        }
        if !add(&node.held, bytes, limit_for(held, limits.node)) {
            give_back();
            function.held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Full::Node);
        }
        connection.connection.is_given_by(address);
        Ok(Lease {
            account: self.clone(),
            bytes,
        })
    }

    /// Room for so many bytes, as soon as there is. Where others fill a shared budget the
    /// slowest of them are closed. Never comes back for more than a budget has.
    pub async fn lease(&self, bytes: u64) -> Lease {
        let node = &self.connection.node;
        let _waiting = Waiting::new(node);
        loop {
            let mut freed = pin!(node.freed.notified());
            // From here on nothing that is freed is missed.
            freed.as_mut().enable();
            match self.try_each(bytes) {
                Ok(lease) => return lease,
                Err(full) => node.make_room(full, bytes),
            }
            // A connection's pace shows with time only.
            let _ = timeout(LOOK_AGAIN, freed).await;
        }
    }
}

/// One more who waits for room.
struct Waiting<'a>(&'a Backlog);

impl<'a> Waiting<'a> {
    fn new(node: &'a Backlog) -> Self {
        node.waiting.fetch_add(1, Ordering::AcqRel);
        Self(node)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Lease {
    /// One lease of both, for the same account.
    pub fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// The bytes, which keep their room for as long as any piece of them is there.
    #[must_use]
    pub fn hold(self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        Bytes::from_owner(Held {
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

struct Held {
    bytes: Bytes,
    _lease: Lease,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

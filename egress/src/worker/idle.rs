//! Idle HTTP/1.1 connections.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use faasw_egress_policy::Destination;
use tokio::time::Instant;

use super::Worker;
use super::http1::Connection;
use crate::frames::WorkerOptions;

/// How long a connection may take to become ready for another request.
const READY: Duration = Duration::from_secs(1);

/// Idle connections of one function, the most recently used one last.
pub struct IdleConnections {
    all: RefCell<Vec<Entry>>,
    next: Cell<u64>,
    limits: IdleLimits,
}

struct Entry {
    number: u64,
    origin: Destination,
    connection: Connection,
}

/// How many connections may be idle, and for how long.
#[derive(Clone, Copy)]
pub struct IdleLimits {
    pub most: usize,
    pub most_per_origin: usize,
    /// How long a connection may be idle.
    pub time: Duration,
    /// How old a connection may be when it is reused.
    pub age: Duration,
}

impl IdleLimits {
    pub fn new(options: &WorkerOptions) -> Self {
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        Self {
            most: count(options.idle_max),
            most_per_origin: count(options.idle_per_origin),
            time: Duration::from_nanos(options.idle),
            age: Duration::from_nanos(options.age),
        }
    }
}

impl IdleConnections {
    pub fn new(limits: IdleLimits) -> Self {
        Self {
            all: RefCell::default(),
            next: Cell::new(0),
            limits,
        }
    }

    /// Takes the most recently used connection to `origin`, so that the others grow old.
    pub fn take(&self, origin: &Destination) -> Option<Connection> {
        let mut all = self.all.borrow_mut();
        loop {
            let at = all.iter().rposition(|entry| entry.origin == *origin)?;
            let connection = all.remove(at).connection;
            if connection.is_ready() && connection.made.elapsed() < self.limits.age {
                return Some(connection);
            }
        }
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.all.borrow().len()
    }

    /// Adds a connection, and drops an older one if a limit is reached; `others` is how many
    /// shared connections are idle. Returns its number, or `None` if it was not kept.
    fn put(&self, origin: Destination, connection: Connection, others: usize) -> Option<u64> {
        let limits = self.limits;
        let is_none_kept = limits.most == 0 || limits.most_per_origin == 0;
        if connection.made.elapsed() >= limits.age || is_none_kept {
            return None;
        }
        let mut all = self.all.borrow_mut();
        let mut of_origin = all
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.origin == origin);
        let oldest = of_origin.next().map(|(at, _)| at);
        if of_origin.count() + usize::from(oldest.is_some()) >= limits.most_per_origin {
            if let Some(at) = oldest {
                all.remove(at);
            }
        } else if all.len() + others >= limits.most {
            if all.is_empty() {
                return None;
            }
            all.remove(0);
        }
        let number = self.next.get();
        self.next.set(number + 1);
        all.push(Entry {
            number,
            origin,
            connection,
        });
        Some(number)
    }

    fn forget(&self, number: u64) {
        self.all.borrow_mut().retain(|entry| entry.number != number);
    }
}

/// Keeps a connection for another request, once it is ready for one. A connection is dropped at
/// once if the peer has closed it or sends data that belongs to no request.
pub async fn keep(worker: Rc<Worker>, origin: Destination, mut connection: Connection) {
    // The connection's own task notices in its turn that the response is over; usually it has.
    tokio::task::yield_now().await;
    if connection.is_ready() {
        return watch(worker, origin, connection);
    }
    tokio::task::spawn_local(async move {
        let ready = tokio::time::timeout(READY, connection.ready());
        if let Ok(true) = ready.await {
            watch(worker, origin, connection);
        }
    });
}

/// Keeps a connection until it has been idle for too long, or is closed.
fn watch(worker: Rc<Worker>, origin: Destination, connection: Connection) {
    let until = Instant::now() + worker.idle.limits.time;
    let closed = connection.closed();
    if let Some(number) = worker
        .idle
        .put(origin, connection, worker.shared.idle_count())
    {
        tokio::task::spawn_local(async move {
            // Whichever comes first. If the connection has been taken meanwhile, `forget` finds
            // nothing.
            let _ = tokio::time::timeout_at(until, closed).await;
            worker.idle.forget(number);
        });
    }
}

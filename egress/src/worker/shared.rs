//! HTTP/2 connections that requests to the same origin share: which has room, which request makes
//! another, and which requests wait for that.
//!
//! Whether an origin speaks HTTP/2 is known after the first handshake. Until then the first request
//! has a connection made, and requests that arrive meanwhile wait to see whether they can share it.
//! If they cannot, each of them has a connection of its own made, and so has every later one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use faasw_egress_policy::Destination;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Worker;
use super::http2::{Connection, STREAMS_MAX, Slot};
use super::usage::Usage;
use crate::frames::WorkerOptions;

/// Most origins with remembered state, besides those in use.
const ORIGINS_MAX: usize = 256;

/// Shared connections of one function.
pub struct Shared {
    origins: RefCell<HashMap<Destination, Origin>>,
    most: usize,
    most_per_origin: usize,
    /// How long a connection may be idle.
    pub idle_time: Duration,
    age: Duration,
}

struct Origin {
    connections: Vec<Rc<Connection>>,
    /// How many connections are being made.
    dialling: usize,
    /// How many attempts to make one have failed so far.
    failed: u64,
    /// How many requests wait for room.
    waiting: usize,
    /// How many requests one connection has room for, as far as is known.
    room: usize,
    changed: Rc<Notify>,
}

impl Default for Origin {
    fn default() -> Self {
        Self {
            connections: Vec::new(),
            dialling: 0,
            failed: 0,
            waiting: 0,
            room: STREAMS_MAX,
            changed: Rc::default(),
        }
    }
}

impl Origin {
    fn is_unused(&self) -> bool {
        self.connections.is_empty() && self.dialling == 0 && self.waiting == 0
    }

    /// Returns how many more requests will have room on connections that are being made, or whose
    /// server has not yet announced its limit. The request that makes the connection is not
    /// counted.
    fn coming(&self) -> usize {
        let unsettled = self
            .connections
            .iter()
            .filter(|connection| !connection.usage.is_settled());
        (self.dialling + unsettled.count()) * self.room.saturating_sub(1)
    }
}

/// The next step of a request that finds no room.
pub enum Plan {
    /// The request waits, because a connection is being made that will have room.
    Wait(Wait),
    /// The request makes a connection.
    Dial(Dial),
}

/// A request that waits for room.
pub struct Wait {
    worker: Rc<Worker>,
    origin: Destination,
    changed: Rc<Notify>,
}

/// A request that has a connection made. If it is dropped before the outcome is recorded, the
/// attempt counts as failed.
pub struct Dial {
    worker: Rc<Worker>,
    origin: Destination,
    is_over: bool,
}

impl Shared {
    pub fn new(options: &WorkerOptions) -> Self {
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        Self {
            origins: RefCell::default(),
            most: count(options.idle_max),
            most_per_origin: count(options.idle_per_origin),
            idle_time: Duration::from_nanos(options.idle),
            age: Duration::from_nanos(options.age),
        }
    }

    fn with<T>(&self, origin: &Destination, act: impl FnOnce(&mut Origin) -> T) -> Option<T> {
        self.origins.borrow_mut().get_mut(origin).map(act)
    }

    /// Returns how many connections are idle.
    pub fn idle(&self) -> usize {
        let origins = self.origins.borrow();
        origins.values().map(|origin| idle_of(origin).count()).sum()
    }

    /// Returns a connection to `origin` that has room: the oldest, so that the others become idle
    /// when there is less to do. With `than`, only a younger one fits.
    pub fn take(&self, origin: &Destination, than: Option<Instant>) -> Option<Rc<Connection>> {
        self.with(origin, |origin| {
            origin.connections.retain(|connection| {
                connection.is_usable() && connection.made.elapsed() < self.age
            });
            let is_younger =
                |connection: &&Rc<Connection>| than.is_none_or(|than| connection.made > than);
            let mut fitting = origin.connections.iter().filter(is_younger);
            fitting
                .find(|connection| connection.usage.has_room())
                .cloned()
        })
        .flatten()
    }

    /// Decides what a request to `origin` does that finds no room. The request keeps `failed`
    /// between calls: if it has waited for a connection that could not be made, it makes one
    /// itself.
    pub fn plan(
        &self,
        worker: &Rc<Worker>,
        origin: &Destination,
        failed: &mut Option<u64>,
    ) -> Plan {
        let mut origins = self.origins.borrow_mut();
        if origins.len() >= ORIGINS_MAX && !origins.contains_key(origin) {
            origins.retain(|_, origin| !origin.is_unused());
        }
        let entry = origins.entry(origin.clone()).or_default();
        let has_failed = *failed.get_or_insert(entry.failed) != entry.failed;
        let (worker, origin) = (worker.clone(), origin.clone());
        if !has_failed && entry.waiting < entry.coming() {
            entry.waiting += 1;
            let changed = entry.changed.clone();
            return Plan::Wait(Wait {
                worker,
                origin,
                changed,
            });
        }
        entry.dialling += 1;
        Plan::Dial(Dial {
            worker,
            origin,
            is_over: false,
        })
    }

    /// Handles a server's announcement of how many requests it accepts at once.
    pub fn has_room_for(&self, origin: &Destination, streams: usize) {
        self.with(origin, |origin| {
            origin.room = streams.clamp(1, STREAMS_MAX);
            origin.changed.notify_waiters();
        });
    }

    /// Handles the end of a request on `connection`.
    pub fn left(&self, worker: &Worker, origin: &Destination, connection: &Rc<Connection>) {
        let is_idle = connection.usage.leave();
        let others = worker.idle.count();
        let is_too_many = is_idle && others + self.idle() > self.most;
        self.with(origin, |origin| {
            origin.changed.notify_waiters();
            let is_too_many = is_too_many || idle_of(origin).count() > self.most_per_origin;
            // So that a name's new address is used eventually.
            if is_idle && (is_too_many || connection.made.elapsed() >= self.age) {
                origin
                    .connections
                    .retain(|other| !Rc::ptr_eq(other, connection));
            }
        });
    }

    /// Removes the connection with this usage, so that no more requests are sent over it.
    pub fn forget(&self, origin: &Destination, usage: &Rc<Usage>) {
        self.with(origin, |origin| {
            let is_it = |connection: &Rc<Connection>| Rc::ptr_eq(&connection.usage, usage);
            origin.connections.retain(|connection| !is_it(connection));
            // Requests that wait for it to have room need not wait any longer.
            origin.changed.notify_waiters();
        });
    }
}

/// Returns the idle connections.
fn idle_of(origin: &Origin) -> impl Iterator<Item = &Rc<Connection>> {
    let connections = origin.connections.iter();
    connections.filter(|connection| connection.usage.is_idle())
}

impl Wait {
    /// Waits until there may be room, or none will come.
    pub async fn changed(self) {
        self.changed.notified().await;
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let shared = &self.worker.shared;
        shared.with(&self.origin, |origin| origin.waiting -= 1);
    }
}

impl Dial {
    /// Records that the connection speaks HTTP/2, so that others share it from now on. Returns a
    /// slot on it.
    pub fn share(mut self, connection: Rc<Connection>) -> Slot {
        let slot = Slot::new(&self.worker, &self.origin, &connection);
        self.is_over = true;
        self.worker.shared.with(&self.origin, |origin| {
            origin.dialling -= 1;
            origin.connections.push(connection);
            origin.changed.notify_waiters();
        });
        slot
    }

    /// Records that the connection speaks HTTP/1.1.
    pub fn mark_unshareable(mut self) {
        self.is_over = true;
        self.worker.shared.with(&self.origin, |origin| {
            origin.dialling -= 1;
            origin.room = 0;
            origin.changed.notify_waiters();
        });
    }
}

impl Drop for Dial {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.worker.shared.with(&self.origin, |origin| {
            origin.dialling -= 1;
            origin.failed += 1;
            origin.changed.notify_waiters();
        });
    }
}

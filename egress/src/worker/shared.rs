//! HTTP/2 connections that requests to the same origin share: which has room, which request makes
//! another, and which requests wait for that.
//!
//! Whether an origin speaks HTTP/2 is known after the first handshake. Until then the first request
//! has a connection made, and requests that arrive meanwhile wait to see whether they can share it.
//! If they cannot, each of them has a connection of its own made, and so has every later one.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use faasw_abi::outgoing::Failure;
use faasw_egress_policy::Destination;
use h2::client::SendRequest;
use http::response::Parts;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Worker;
use super::body::BodySource;
use super::failure::SendError;
use super::http2::{self, ReceivedBody, STREAMS_MAX, SentRequest};
use super::idle::IdleLimits;
use super::request::RequestHead;
use super::stream::CountingStream;
use super::usage::Usage;

/// Most origins with remembered state, besides those in use.
const ORIGINS_MAX: usize = 256;

/// Shared connections of one function.
pub struct SharedConnections {
    origins: RefCell<HashMap<Destination, Origin>>,
    limits: IdleLimits,
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

/// A connection. It is closed when all that share it have dropped it.
struct Connection {
    made: Instant,
    usage: Rc<Usage>,
    sender: SendRequest<Bytes>,
    task: AbortHandle,
}

impl Connection {
    /// Returns whether the peer accepts requests, as far as is known.
    fn is_usable(&self) -> bool {
        // A new handle has no pending stream, and fails if the peer goes away.
        let mut sender = self.sender.clone();
        let ready = sender.poll_ready(&mut Context::from_waker(Waker::noop()));
        !self.task.is_finished() && matches!(ready, Poll::Ready(Ok(())))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Drives a connection until it ends, or has been idle for too long. The streams report an error to
/// the tasks that wait for a response.
async fn drive<S: AsyncRead + AsyncWrite + Unpin>(
    worker: Rc<Worker>,
    origin: Destination,
    usage: Rc<Usage>,
    mut connection: h2::client::Connection<CountingStream<S>, Bytes>,
) {
    let shared = &worker.shared;
    let ended = std::future::poll_fn(|context| {
        let polled = Pin::new(&mut connection).poll(context);
        let most = connection.max_concurrent_send_streams();
        if usage.allow(most) {
            shared.record_limit(&origin, most);
        }
        if usage.is_flooded() {
            Poll::Ready(())
        } else {
            polled.map(|_| ())
        }
    });
    tokio::select! {
        () = ended => {}
        () = usage.idle_for(shared.limits.time) => {}
    }
    shared.forget(&origin, &usage);
}

/// A request's slot on a connection.
pub struct Slot {
    worker: Rc<Worker>,
    origin: Destination,
    connection: Rc<Connection>,
}

impl Slot {
    /// Takes a slot on this connection, which must have room.
    fn new(worker: &Rc<Worker>, origin: &Destination, connection: Rc<Connection>) -> Self {
        connection.usage.enter();
        Self {
            worker: worker.clone(),
            origin: origin.clone(),
            connection,
        }
    }

    /// Takes a slot on any connection to `origin` that has room; with `than`, on a younger one.
    pub fn take(worker: &Rc<Worker>, origin: &Destination, than: Option<Instant>) -> Option<Self> {
        let connection = worker.shared.take(origin, than)?;
        Some(Self::new(worker, origin, connection))
    }

    /// Sends a request, and waits for the head of its response.
    ///
    /// # Errors
    /// Returns why there is no response.
    pub async fn send(
        &self,
        head: &RequestHead,
        source: &Rc<BodySource>,
    ) -> Result<(Parts, ReceivedBody), SendError> {
        let sent = SentRequest::send(self.connection.sender.clone(), head, source);
        let sent = sent.inspect_err(|error| {
            if error.is_unsent {
                let usage = &self.connection.usage;
                self.worker.shared.forget(&self.origin, usage);
            }
        });
        sent?.response().await
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let shared = &self.worker.shared;
        shared.leave(&self.worker, &self.origin, &self.connection);
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

impl SharedConnections {
    pub fn new(limits: IdleLimits) -> Self {
        Self {
            origins: RefCell::default(),
            limits,
        }
    }

    fn with<T>(&self, origin: &Destination, act: impl FnOnce(&mut Origin) -> T) -> Option<T> {
        self.origins.borrow_mut().get_mut(origin).map(act)
    }

    /// Returns how many connections are idle.
    pub fn idle_count(&self) -> usize {
        let origins = self.origins.borrow();
        origins.values().map(|origin| idle_of(origin).count()).sum()
    }

    /// Returns a connection to `origin` that has room: the oldest, so that the others become idle
    /// when there is less to do. With `than`, only a younger one fits.
    fn take(&self, origin: &Destination, than: Option<Instant>) -> Option<Rc<Connection>> {
        self.with(origin, |origin| {
            origin.connections.retain(|connection| {
                connection.is_usable() && connection.made.elapsed() < self.limits.age
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
    fn record_limit(&self, origin: &Destination, streams: usize) {
        self.with(origin, |origin| {
            origin.room = streams.clamp(1, STREAMS_MAX);
            origin.changed.notify_waiters();
        });
    }

    /// Handles the end of a request on `connection`.
    fn leave(&self, worker: &Worker, origin: &Destination, connection: &Rc<Connection>) {
        let is_idle = connection.usage.leave();
        let others = worker.idle.count();
        let is_too_many = is_idle && others + self.idle_count() > self.limits.most;
        self.with(origin, |origin| {
            origin.changed.notify_waiters();
            let is_too_many = is_too_many || idle_of(origin).count() > self.limits.most_per_origin;
            // So that a name's new address is used eventually.
            if is_idle && (is_too_many || connection.made.elapsed() >= self.limits.age) {
                origin
                    .connections
                    .retain(|other| !Rc::ptr_eq(other, connection));
            }
        });
    }

    /// Removes the connection with this usage, so that no more requests are sent over it.
    fn forget(&self, origin: &Destination, usage: &Rc<Usage>) {
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
    /// Performs the HTTP/2 handshake over `stream`. Other requests share the connection from then
    /// on. Returns a slot on it.
    ///
    /// # Errors
    /// Returns the failure if the connection cannot be used.
    pub async fn share<S>(mut self, stream: S) -> Result<Slot, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let received = Rc::new(Cell::new(0));
        let (sender, connection) =
            http2::handshake(CountingStream::new(stream, received.clone())).await?;
        let (worker, origin) = (&self.worker, &self.origin);
        let usage = Rc::new(Usage::new(received));
        let driven = drive(worker.clone(), origin.clone(), usage.clone(), connection);
        let connection = Rc::new(Connection {
            made: Instant::now(),
            usage,
            sender,
            task: tokio::task::spawn_local(driven).abort_handle(),
        });
        let slot = Slot::new(worker, origin, connection.clone());
        self.end(|origin| origin.connections.push(connection));
        Ok(slot)
    }

    /// Records that the connection speaks HTTP/1.1.
    pub fn mark_unshareable(mut self) {
        self.end(|origin| origin.room = 0);
    }

    /// Records the outcome.
    fn end(&mut self, record: impl FnOnce(&mut Origin)) {
        self.is_over = true;
        self.worker.shared.with(&self.origin, |origin| {
            origin.dialling -= 1;
            record(origin);
            origin.changed.notify_waiters();
        });
    }
}

impl Drop for Dial {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(|origin| origin.failed += 1);
        }
    }
}

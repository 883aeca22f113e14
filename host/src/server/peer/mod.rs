//! The client of one connection: its requests, what it reads, and its timeouts.
//!
//! The tasks that serve the connection report what they read, write and begin. The listener checks
//! all of its clients periodically ([`Peer::check`]), and closes the connections of those that
//! exceed a timeout. It notices what hyper does not: a head that never ends, a client that answers
//! pings but never opens its window, and a client without further requests.
//!
//! A stalled HTTP/2 stream does not end the other streams: it costs what the budgets allow
//! (decision 0017). Its function is cut off, and the connection stays as long as anything on it
//! moves.

pub(super) mod request;

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use faasw_pool::ConnectionBacklog;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use crate::limits::Limits;

/// Maximum bytes of response heads that wait to be written.
const MOST_HEADS: u64 = 128 << 10;
/// Time after which a client that has not read its piece of a response is slow. Its connection may
/// then be evicted for another.
const SLOW: Duration = Duration::from_secs(1);
/// Time for a client to notice that its connection ends: some round trips around the world.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// The timeouts of clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerTimeouts {
    /// For a request's head, from the start of the connection or from the head's first byte.
    pub(super) head: Duration,
    /// For a connection without a request.
    pub(super) idle: Duration,
    /// For a piece of a response that the client does not read.
    pub(super) stalled: Duration,
}

impl From<&Limits> for PeerTimeouts {
    fn from(limits: &Limits) -> Self {
        Self {
            head: limits.request_read,
            idle: limits.idle_connection,
            stalled: limits.idle_client,
        }
    }
}

/// The value of a connection, highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionValue {
    /// The node works for the client, or the client reads its response.
    Busy,
    /// All requests wait for the client itself: it has not sent all of a request, or does not read
    /// what it was sent.
    Owing,
    /// The client has no request at the moment.
    Idle,
    /// The client never sent a request.
    New,
}

/// The result of a check of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Stays,
    /// The client has no further requests, and should be notified of the end.
    Finishes(&'static str),
    /// The client has exceeded a timeout.
    Closes(&'static str),
}

/// The state of one connection's client.
#[derive(Debug)]
pub(super) struct Peer {
    /// The bytes that wait for the client.
    pub(super) backlog: Arc<ConnectionBacklog>,
    begun: Instant,
    state: Mutex<PeerState>,
    /// The number of requests under way, as in `state`.
    under_way: AtomicUsize,
    /// The number of requests whose bodies are incomplete.
    receiving: AtomicUsize,
    /// The number of incomplete bodies of which everything that has arrived was read.
    drained: AtomicUsize,
    /// Bytes that were read from the connection and not passed on, as far as can be seen from
    /// outside of hyper.
    unread: AtomicU64,
    /// Bytes of response heads that are not written yet.
    heads: AtomicU64,
    heads_written: Notify,
    /// The first bytes of a head have arrived, or could have.
    in_head: AtomicBool,
    has_asked: AtomicBool,
    /// The client's last request was HTTP/2.
    is_http2: AtomicBool,
    /// An HTTP/1 response was produced completely, but not written completely.
    is_unwritten: AtomicBool,
    /// The time since which the socket accepts nothing, in milliseconds since `begun`, plus one. 0
    /// if the socket accepts data.
    blocked_since: AtomicU64,
    /// Whether all requests had waited for the client for a while at the last check.
    is_slow: AtomicBool,
    is_finishing: AtomicBool,
    finish: Notify,
}

#[derive(Debug)]
struct PeerState {
    next: u64,
    requests: BTreeMap<u64, PeerRequest>,
    /// The time since which the client sends a head; initially the start of the connection.
    head_since: Option<Instant>,
    /// When the last request ended, including its response.
    idle_since: Instant,
    /// When a request or response last made progress, and what was held for the client at the last
    /// check.
    moved_at: Instant,
    held: u64,
    /// When the end of the connection was requested.
    finishing_since: Option<Instant>,
}

#[derive(Debug, Default)]
struct PeerRequest {
    /// The time since which the client has not read its current piece.
    given: Option<Instant>,
    /// The body is incomplete.
    is_receiving: bool,
}

impl Peer {
    pub(super) fn new(backlog: Arc<ConnectionBacklog>) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            backlog,
            begun: now,
            state: Mutex::new(PeerState {
                next: 0,
                requests: BTreeMap::new(),
                head_since: Some(now),
                idle_since: now,
                moved_at: now,
                held: 0,
                finishing_since: None,
            }),
            under_way: AtomicUsize::new(0),
            receiving: AtomicUsize::new(0),
            drained: AtomicUsize::new(0),
            unread: AtomicU64::new(0),
            heads: AtomicU64::new(0),
            heads_written: Notify::new(),
            in_head: AtomicBool::new(true),
            has_asked: AtomicBool::new(false),
            is_http2: AtomicBool::new(false),
            is_unwritten: AtomicBool::new(false),
            blocked_since: AtomicU64::new(0),
            is_slow: AtomicBool::new(false),
            is_finishing: AtomicBool::new(false),
            finish: Notify::new(),
        })
    }

    /// Counts bytes that the client has sent.
    pub(super) fn count_received(&self, bytes: u64) {
        self.unread.fetch_add(bytes, Ordering::Relaxed);
        // With HTTP/2, the owner of a byte cannot be determined here.
        if self.under_way.load(Ordering::Acquire) == 0
            && !self.in_head.swap(true, Ordering::Relaxed)
        {
            self.state().head_since = Some(Instant::now());
        }
    }

    /// Notes that nothing more has arrived and that hyper has processed all of it. Bytes that were
    /// not part of a body were framing.
    pub(super) fn note_all_processed(&self) {
        // On an HTTP/1 connection without a request under way, the bytes may be the start of one.
        let is_known =
            self.under_way.load(Ordering::Acquire) > 0 || self.is_http2.load(Ordering::Relaxed);
        if self.unread.load(Ordering::Relaxed) > 0
            && is_known
            && self.drained.load(Ordering::Acquire) >= self.receiving.load(Ordering::Acquire)
        {
            self.unread.store(0, Ordering::Relaxed);
        }
    }

    /// Counts bytes from the client that have left memory.
    fn consumed(&self, bytes: u64) {
        let less = |unread: u64| Some(unread.saturating_sub(bytes));
        let _ = self
            .unread
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Returns the bytes from the client that nothing has read yet, at most `most`. Bytes beyond
    /// that were framing, which hyper has processed.
    pub(super) fn unread(&self, most: u64) -> u64 {
        self.unread.load(Ordering::Relaxed).min(most)
    }

    /// Waits until the head of a response, of `bytes` bytes, may be written, and counts it. Heads
    /// wait for those before them, because no HTTP/2 window holds them back and a hundred may be
    /// ready at once.
    pub(super) async fn begin_response(&self, bytes: u64) {
        while self.heads.load(Ordering::Acquire) >= MOST_HEADS {
            let mut written = pin!(self.heads_written.notified());
            written.as_mut().enable();
            if self.heads.load(Ordering::Acquire) >= MOST_HEADS {
                // The head of an abandoned stream may never be written, so the wait has a timeout.
                let _ = timeout(SLOW, written).await;
            }
        }
        // The bytes are counted before they can be released: stream and connection run on two
        // threads.
        self.backlog.take(bytes);
        self.heads.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Counts bytes that the client's socket has accepted.
    pub(super) fn count_written(&self, bytes: u64) {
        self.note_unblocked();
        self.backlog.moves(bytes);
    }

    fn note_unblocked(&self) {
        if self.blocked_since.load(Ordering::Relaxed) > 0 {
            self.blocked_since.store(0, Ordering::Relaxed);
        }
    }

    /// Notes that the client's socket accepts nothing at the moment.
    pub(super) fn note_blocked(&self) {
        if self.blocked_since.load(Ordering::Relaxed) == 0 {
            let since = self.begun.elapsed().as_millis();
            let since = u64::try_from(since).unwrap_or(u64::MAX);
            self.blocked_since
                .store(since.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Notes that everything was written that can be written without further action of the client.
    pub(super) fn note_flushed(&self) {
        self.note_unblocked();
        if self.heads.load(Ordering::Relaxed) > 0 {
            self.backlog.release(self.heads.swap(0, Ordering::AcqRel));
            self.heads_written.notify_waiters();
        }
        if self.is_unwritten.load(Ordering::Relaxed) {
            self.is_unwritten.store(false, Ordering::Release);
            self.state().idle_since = Instant::now();
        }
    }

    /// Returns the value of the connection.
    pub(super) fn value(&self) -> ConnectionValue {
        let under_way = self.under_way.load(Ordering::Acquire);
        let is_unwritten = self.is_unwritten.load(Ordering::Acquire);
        if under_way == 0 && !is_unwritten && self.backlog.held() == 0 {
            return if self.has_asked.load(Ordering::Relaxed) {
                ConnectionValue::Idle
            } else {
                ConnectionValue::New
            };
        }
        let is_receiving = self.receiving.load(Ordering::Acquire) >= under_way.max(1);
        if is_receiving || self.is_slow.load(Ordering::Relaxed) {
            ConnectionValue::Owing
        } else {
            ConnectionValue::Busy
        }
    }

    /// Checks the client, and returns whether its connection stays, finishes or is closed.
    pub(super) fn check(&self, now: Instant, timeouts: &PeerTimeouts) -> Verdict {
        let held = self.backlog.held();
        let is_unwritten = self.is_unwritten.load(Ordering::Acquire);
        let blocked_for = match self.blocked_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => {
                let since = self.begun + Duration::from_millis(since - 1);
                now.saturating_duration_since(since)
            }
        };
        let mut state = self.state();
        let past = |since: Instant| now.saturating_duration_since(since);
        if held < state.held {
            state.moved_at = now;
        }
        state.held = held;

        let moved = past(state.moved_at);
        let given = state.requests.values().filter_map(|request| request.given);
        let given_for = given.map(past).max().unwrap_or_default();
        let owes = |request: &PeerRequest| {
            request.is_receiving || request.given.is_some_and(|since| past(since) >= SLOW)
        };
        // A client that sends more requests but reads nothing of its response is slow, too.
        let is_slow = blocked_for >= SLOW
            || given_for.min(moved) >= SLOW
            || if state.requests.is_empty() {
                held > 0 && moved >= SLOW && !is_unwritten
            } else {
                state.requests.values().all(owes)
            };
        self.is_slow.store(is_slow, Ordering::Relaxed);

        if let Some(since) = state.head_since
            && past(since) >= timeouts.head
        {
            return Verdict::Closes("a request's head was not completed");
        }
        // While the node works for the client, stalled streams cost what the budgets allow.
        let takes_nothing =
            given_for.min(moved) >= timeouts.stalled && state.requests.values().all(owes);
        if blocked_for >= timeouts.stalled || takes_nothing {
            return Verdict::Closes("a client does not read its response");
        }
        if !state.requests.is_empty() || is_unwritten {
            return Verdict::Stays;
        }
        if let Some(since) = state.finishing_since {
            let since = since.max(state.idle_since).max(state.moved_at);
            return if past(since) >= FAREWELL {
                Verdict::Closes("a client did not notice the end of its connection")
            } else {
                Verdict::Stays
            };
        }
        if past(state.idle_since.max(state.moved_at)) >= timeouts.idle {
            Verdict::Finishes("a client sends no further requests")
        } else {
            Verdict::Stays
        }
    }

    /// Closes the connection at once.
    pub(super) fn close(&self) {
        self.backlog.close();
    }

    /// Waits until the connection is to be closed.
    pub(super) async fn closed(&self) {
        self.backlog.closed().await;
    }

    /// Ends the connection after the requests that are under way.
    pub(super) fn finish(&self) {
        self.state().finishing_since.get_or_insert(Instant::now());
        self.is_finishing.store(true, Ordering::Release);
        self.finish.notify_one();
    }

    /// Waits until the connection is to end after the requests that are under way.
    pub(super) async fn finished(&self) {
        while !self.is_finishing.load(Ordering::Acquire) {
            self.finish.notified().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, PeerState> {
        // The state is consistent between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.note_flushed();
    }
}

#[cfg(test)]
pub(super) mod tests;

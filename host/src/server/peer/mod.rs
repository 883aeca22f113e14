//! One connection's other end: what it asks for, what it takes, and how long it may be.
//!
//! Whoever serves the connection tells what it reads, writes and begins; the listener
//! looks at all of its clients now and then ([`Peer::look`]) and ends those that do not do
//! their part. It sees what hyper does not: a head that never comes to its end, a client
//! that answers pings but never opens its window, one that asks for nothing more.
//!
//! A stream of HTTP/2 that its client does not take is not the end of the others: it costs
//! what the budgets allow (decision 0017), its function is cut off for it, and the
//! connection stays as long as anything on it moves.

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

/// Bytes of responses' heads that may wait to be written at once.
const MOST_HEADS: u64 = 128 << 10;
/// A client that has not taken what it was given for so long is slow: its connection may go
/// if another wants its place.
const SLOW: Duration = Duration::from_secs(1);
/// How long one that was told of the end has to hear it: some round trips around the world.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// How long clients may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerTimeouts {
    /// For a request's head, from the connection's begin or the head's first byte.
    pub(super) head: Duration,
    /// Without a request.
    pub(super) idle: Duration,
    /// With a piece of a response that it does not take.
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

/// What a connection is worth, most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// The node has something to do for it, or it takes what was done.
    Busy,
    /// All that it asks for waits for itself: it has not sent the whole of it, or does not
    /// take what it was given.
    Owing,
    /// It has nothing to ask at the moment.
    Idle,
    /// It never asked for anything.
    New,
}

/// What a look at a client comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Stays,
    /// It has no more to say, and should hear of the end.
    Finishes(&'static str),
    /// It has not done its part for too long.
    Closes(&'static str),
}

/// What is known of one connection's other end.
#[derive(Debug)]
pub(super) struct Peer {
    /// What waits for it.
    pub(super) backlog: Arc<ConnectionBacklog>,
    begun: Instant,
    state: Mutex<State>,
    /// Requests under way, as in `state`.
    under_way: AtomicUsize,
    /// Those of them whose bodies are still to come.
    receiving: AtomicUsize,
    /// Those of these of which everything was read that was there.
    drained: AtomicUsize,
    /// Bytes that were read from it and not given to anybody, as far as can be told from
    /// outside.
    unread: AtomicU64,
    /// Bytes of responses' heads that are not written yet.
    heads: AtomicU64,
    heads_written: Notify,
    /// The first bytes of a head are there, or could be.
    in_head: AtomicBool,
    has_asked: AtomicBool,
    /// Its last request was of HTTP/2.
    is_http2: AtomicBool,
    /// A response of HTTP/1 was made in whole, but not written in whole.
    is_unwritten: AtomicBool,
    /// Since when its socket takes nothing, in milliseconds since `begun` and
    /// one more; 0 where it does.
    blocked_since: AtomicU64,
    /// All that it asked for has waited for itself for a while, when it was looked at last.
    is_slow: AtomicBool,
    is_finishing: AtomicBool,
    finish: Notify,
}

#[derive(Debug)]
struct State {
    next: u64,
    requests: BTreeMap<u64, Request>,
    /// Since when it sends a head; at first, since it is there.
    head_since: Option<Instant>,
    /// When the last request ended, with all of its response.
    idle_since: Instant,
    /// When it took something of any response last, and what waited for it then.
    moved_at: Instant,
    held: u64,
    /// When it was told of the end.
    finishing_since: Option<Instant>,
}

#[derive(Debug, Default)]
struct Request {
    /// Since when it has been given a piece and has not taken it.
    given: Option<Instant>,
    /// Its body is still to come.
    is_receiving: bool,
}

impl Peer {
    pub(super) fn new(backlog: Arc<ConnectionBacklog>) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            backlog,
            begun: now,
            state: Mutex::new(State {
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

    /// It has sent so many bytes.
    pub(super) fn sent(&self, bytes: u64) {
        self.unread.fetch_add(bytes, Ordering::Relaxed);
        // Of HTTP/2 nobody can tell from here what a byte belongs to.
        if self.under_way.load(Ordering::Acquire) == 0
            && !self.in_head.swap(true, Ordering::Relaxed)
        {
            self.state().head_since = Some(Instant::now());
        }
    }

    /// It has sent nothing more, and what it has was looked at: what is not a body's was
    /// framing.
    pub(super) fn sent_all(&self) {
        // Without a request of HTTP/1 it may be the begin of one.
        let is_known =
            self.under_way.load(Ordering::Acquire) > 0 || self.is_http2.load(Ordering::Relaxed);
        if self.unread.load(Ordering::Relaxed) > 0
            && is_known
            && self.drained.load(Ordering::Acquire) >= self.receiving.load(Ordering::Acquire)
        {
            self.unread.store(0, Ordering::Relaxed);
        }
    }

    /// So many bytes of what it has sent are not in memory any more.
    fn consumed(&self, bytes: u64) {
        let less = |unread: u64| Some(unread.saturating_sub(bytes));
        let _ = self
            .unread
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Bytes that it has sent and nobody has read, at most `most`: what is beyond was read,
    /// by whoever speaks the protocol.
    pub(super) fn unread(&self, most: u64) -> u64 {
        self.unread.load(Ordering::Relaxed).min(most)
    }

    /// The head of a response was made for it, which takes `bytes`, and may go as soon as
    /// those before it have: no window of HTTP/2 holds them, and a hundred may be ready at
    /// once.
    pub(super) async fn answered(&self, bytes: u64) {
        while self.heads.load(Ordering::Acquire) >= MOST_HEADS {
            let mut written = pin!(self.heads_written.notified());
            written.as_mut().enable();
            if self.heads.load(Ordering::Acquire) >= MOST_HEADS {
                // A stream that was given up in this moment has none that is written.
                let _ = timeout(SLOW, written).await;
            }
        }
        // Before it may be given back: the stream and its connection are on two threads.
        self.backlog.take(bytes);
        self.heads.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Its socket has taken so many bytes.
    pub(super) fn took(&self, bytes: u64) {
        self.blocks_no_more();
        self.backlog.moves(bytes);
    }

    fn blocks_no_more(&self) {
        if self.blocked_since.load(Ordering::Relaxed) > 0 {
            self.blocked_since.store(0, Ordering::Relaxed);
        }
    }

    /// Its socket takes nothing at the moment.
    pub(super) fn blocks(&self) {
        if self.blocked_since.load(Ordering::Relaxed) == 0 {
            let since = self.begun.elapsed().as_millis();
            let since = u64::try_from(since).unwrap_or(u64::MAX);
            self.blocked_since
                .store(since.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// All that was there to be written without its doing is written.
    pub(super) fn flushed(&self) {
        self.blocks_no_more();
        if self.heads.load(Ordering::Relaxed) > 0 {
            self.backlog.release(self.heads.swap(0, Ordering::AcqRel));
            self.heads_written.notify_waiters();
        }
        if self.is_unwritten.load(Ordering::Relaxed) {
            self.is_unwritten.store(false, Ordering::Release);
            self.state().idle_since = Instant::now();
        }
    }

    /// What its connection is worth.
    pub(super) fn standing(&self) -> Standing {
        let under_way = self.under_way.load(Ordering::Acquire);
        let is_unwritten = self.is_unwritten.load(Ordering::Acquire);
        if under_way == 0 && !is_unwritten && self.backlog.held() == 0 {
            return if self.has_asked.load(Ordering::Relaxed) {
                Standing::Idle
            } else {
                Standing::New
            };
        }
        let is_receiving = self.receiving.load(Ordering::Acquire) >= under_way.max(1);
        if is_receiving || self.is_slow.load(Ordering::Relaxed) {
            Standing::Owing
        } else {
            Standing::Busy
        }
    }

    /// What is to become of it.
    pub(super) fn look(&self, now: Instant, timeouts: &PeerTimeouts) -> Verdict {
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
        let owes = |request: &Request| {
            request.is_receiving || request.given.is_some_and(|since| past(since) >= SLOW)
        };
        // Whoever asks for more while it takes nothing of what it was given is slow, too.
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
            return Verdict::Closes("a request's head did not come to its end");
        }
        // As long as the node has something to do for it, it costs what it may.
        let takes_nothing =
            given_for.min(moved) >= timeouts.stalled && state.requests.values().all(owes);
        if blocked_for >= timeouts.stalled || takes_nothing {
            return Verdict::Closes("a client takes nothing of its response");
        }
        if !state.requests.is_empty() || is_unwritten {
            return Verdict::Stays;
        }
        if let Some(since) = state.finishing_since {
            let since = since.max(state.idle_since).max(state.moved_at);
            return if past(since) >= FAREWELL {
                Verdict::Closes("a client does not hear of the end")
            } else {
                Verdict::Stays
            };
        }
        if past(state.idle_since.max(state.moved_at)) >= timeouts.idle {
            Verdict::Finishes("a client asks for nothing more")
        } else {
            Verdict::Stays
        }
    }

    /// Ends its connection.
    pub(super) fn close(&self) {
        self.backlog.close();
    }

    /// Waits until its connection is to end.
    pub(super) async fn closed(&self) {
        self.backlog.closed().await;
    }

    /// Has its connection end after the requests that are under way.
    pub(super) fn finish(&self) {
        self.state().finishing_since.get_or_insert(Instant::now());
        self.is_finishing.store(true, Ordering::Release);
        self.finish.notify_one();
    }

    /// Waits until its connection is to end after what is under way.
    pub(super) async fn finished(&self) {
        while !self.is_finishing.load(Ordering::Acquire) {
            self.finish.notified().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.flushed();
    }
}

#[cfg(test)]
pub(super) mod tests;

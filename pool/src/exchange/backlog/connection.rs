//! What one connection holds, and how fast its client takes it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// What a connection may hold while a shared budget is nearly full.
pub const SMALL: u64 = 64 << 10;
/// Over how long a connection's rate is measured at least, in microseconds.
const RATE_TIME: u64 = 1_000_000;
/// How often whoever waits for room looks again, and how often a connection is closed for
/// want of it.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Its account. Times are microseconds of the node's time.
#[derive(Debug, Default)]
pub struct Connection {
    held: AtomicU64,
    /// Bytes that its client has taken in all.
    moved: AtomicU64,
    /// Since when it holds anything, and when its client took something last.
    holding_since: AtomicU64,
    moved_at: AtomicU64,
    /// When its rate was looked at last.
    seen: Mutex<Option<Seen>>,
    /// Address of the function whose bytes it was given last.
    function: AtomicUsize,
    is_closed: AtomicBool,
    close: Notify,
}

#[derive(Debug)]
struct Seen {
    at: u64,
    moved: u64,
}

impl Connection {
    /// Bytes that it holds.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Counts bytes for it; says how many it holds with them.
    pub fn hold(&self, bytes: u64, now: impl FnOnce() -> u64) -> u64 {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        if before == 0 {
            self.holding_since.store(now(), Ordering::Relaxed);
        }
        before.saturating_add(bytes)
    }

    /// Bytes are not held any more; says how many were before.
    pub fn release(&self, bytes: u64) -> u64 {
        self.held.fetch_sub(bytes, Ordering::Relaxed)
    }

    /// Its client has taken so many bytes.
    pub fn moves(&self, bytes: u64, now: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        self.moved_at.store(now, Ordering::Relaxed);
    }

    /// It was given bytes of the function at this address.
    pub fn is_given_by(&self, function: usize) {
        self.function.store(function, Ordering::Relaxed);
    }

    /// Address of the function whose bytes it was given last.
    pub fn last_function(&self) -> usize {
        self.function.load(Ordering::Relaxed)
    }

    /// Has whoever serves it close it.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.close.notify_one();
    }

    /// Whether it is to be closed, for what it holds or another reason.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Waits until it is to be closed.
    pub async fn closed(&self) {
        while !self.is_closed() {
            self.close.notified().await;
        }
    }

    /// For how long its client has taken nothing of what it holds, in microseconds.
    pub fn stalled(&self, now: u64) -> u64 {
        let since = self.holding_since.load(Ordering::Relaxed);
        now.saturating_sub(since.max(self.moved_at.load(Ordering::Relaxed)))
    }

    /// How long its client takes for what it holds, at its rate since it was looked at
    /// last, in microseconds; nothing where that is not known yet.
    pub fn time_to_empty(&self, now: u64) -> Option<u64> {
        let moved = self.moved.load(Ordering::Relaxed);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let holding_since = self.holding_since.load(Ordering::Relaxed);
        // What it did before it held this says nothing.
        let Some(before) = seen.as_ref().filter(|seen| seen.at >= holding_since) else {
            *seen = Some(Seen { at: now, moved });
            return None;
        };
        let passed = now.saturating_sub(before.at);
        if passed < RATE_TIME {
            return None;
        }
        let rate = moved.saturating_sub(before.moved).max(1);
        *seen = Some(Seen { at: now, moved });
        Some(self.held().saturating_mul(passed) / rate)
    }
}

//! The bytes that one connection holds, and how fast its client takes them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Bytes that a connection may hold while a shared budget is nearly full.
pub const SMALL: u64 = 64 << 10;
/// Shortest time over which the rate of a connection is measured, in microseconds.
const RATE_TIME: u64 = 1_000_000;
/// How often a wait for room checks again, and the shortest time between two attempts to close
/// connections for lack of room.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The account of one connection. Times are in microseconds of the node's time.
#[derive(Debug, Default)]
pub struct Connection {
    held: AtomicU64,
    /// Bytes that the client has taken in total.
    moved: AtomicU64,
    /// When the connection last began to hold bytes, and when its client last took some.
    holding_since: AtomicU64,
    moved_at: AtomicU64,
    /// The last measurement of the rate.
    seen: Mutex<Option<RateSample>>,
    /// Address of the function whose bytes the connection received last.
    function: AtomicUsize,
    is_closed: AtomicBool,
    close: Notify,
}

#[derive(Debug)]
struct RateSample {
    at: u64,
    moved: u64,
}

impl Connection {
    /// Returns the bytes that the connection holds.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Counts bytes as held. Returns how many the connection holds with them.
    pub fn hold(&self, bytes: u64, now: impl FnOnce() -> u64) -> u64 {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        if before == 0 {
            self.holding_since.store(now(), Ordering::Relaxed);
        }
        before.saturating_add(bytes)
    }

    /// Counts bytes as released. Returns how many the connection held before.
    pub fn release(&self, bytes: u64) -> u64 {
        self.held.fetch_sub(bytes, Ordering::Relaxed)
    }

    /// Counts bytes that the client has taken.
    pub fn moves(&self, bytes: u64, now: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        self.moved_at.store(now, Ordering::Relaxed);
    }

    /// Notes that the connection received bytes of the function at this address.
    pub fn set_last_function(&self, function: usize) {
        self.function.store(function, Ordering::Relaxed);
    }

    /// Returns the address of the function whose bytes the connection received last.
    pub fn last_function(&self) -> usize {
        self.function.load(Ordering::Relaxed)
    }

    /// Requests that the task that serves the connection closes it.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.close.notify_one();
    }

    /// Returns whether the connection is to be closed, for what it holds or for another reason.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Waits until the connection is to be closed.
    pub async fn closed(&self) {
        while !self.is_closed() {
            self.close.notified().await;
        }
    }

    /// Returns for how long the client has taken nothing of what the connection holds, in
    /// microseconds.
    pub fn stalled(&self, now: u64) -> u64 {
        let since = self.holding_since.load(Ordering::Relaxed);
        now.saturating_sub(since.max(self.moved_at.load(Ordering::Relaxed)))
    }

    /// Returns how long the client needs for what the connection holds, in microseconds, at its
    /// rate since the last measurement. Returns `None` if that rate is not known yet.
    pub fn time_to_empty(&self, now: u64) -> Option<u64> {
        let moved = self.moved.load(Ordering::Relaxed);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let holding_since = self.holding_since.load(Ordering::Relaxed);
        // A rate from before the connection held these bytes says nothing.
        let Some(before) = seen.as_ref().filter(|seen| seen.at >= holding_since) else {
            *seen = Some(RateSample { at: now, moved });
            return None;
        };
        let passed = now.saturating_sub(before.at);
        if passed < RATE_TIME {
            return None;
        }
        let rate = moved.saturating_sub(before.moved).max(1);
        *seen = Some(RateSample { at: now, moved });
        Some(self.held().saturating_mul(passed) / rate)
    }
}

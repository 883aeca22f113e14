//! Usage of a shared connection: how many streams use it, and since when it is idle.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::http2::{CONNECTION_WINDOW, STREAMS_MAX, UNKNOWN_LIMIT};

/// Shortest interval at which a connection in use is checked for becoming idle.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Usage of one connection, which its users and its driver share.
pub struct Usage {
    streams: Cell<usize>,
    /// How many streams the server allows at once.
    most: Cell<usize>,
    /// Bytes that have been received.
    received: Rc<Cell<u64>>,
    /// How many bytes had been received when the last stream was left, and when that was.
    left: Cell<(u64, Instant)>,
}

impl Usage {
    pub fn new(received: Rc<Cell<u64>>) -> Self {
        Self {
            streams: Cell::new(0),
            most: Cell::new(UNKNOWN_LIMIT),
            received,
            left: Cell::new((0, Instant::now())),
        }
    }

    /// Sets how many streams the server allows. Returns whether that has changed.
    pub fn allow(&self, most: usize) -> bool {
        self.most.replace(most) != most
    }

    /// Returns whether the server has announced how many streams it allows.
    pub fn is_settled(&self) -> bool {
        self.most.get() != UNKNOWN_LIMIT
    }

    /// Returns whether there is room for one more stream. Until the server has announced a limit,
    /// there is room for one alone.
    pub fn has_room(&self) -> bool {
        let most = if self.is_settled() {
            self.most.get().min(STREAMS_MAX)
        } else {
            1
        };
        self.streams.get() < most
    }

    pub fn enter(&self) {
        self.streams.set(self.streams.get() + 1);
    }

    /// Records that a stream was left. Returns whether the connection is idle now.
    pub fn leave(&self) -> bool {
        self.streams.set(self.streams.get() - 1);
        self.left.set((self.received.get(), Instant::now()));
        self.is_idle()
    }

    pub fn is_idle(&self) -> bool {
        self.streams.get() == 0
    }

    /// Returns whether an idle connection receives more than a server sends unsolicited: data that
    /// was on its way when the last stream was left, and little else.
    pub fn is_flooded(&self) -> bool {
        let since = self.received.get() - self.left.get().0;
        self.is_idle() && since > 2 * u64::from(CONNECTION_WINDOW)
    }

    /// Waits until the connection has been idle for that time.
    pub async fn idle_for(&self, time: Duration) {
        let mut until = Instant::now() + time;
        loop {
            sleep_until(until).await;
            if self.is_idle() && self.left.get().1 + time <= Instant::now() {
                return;
            }
            until = if self.is_idle() {
                self.left.get().1 + time
            } else {
                // If it becomes idle a moment from now, that is noticed soon enough.
                Instant::now() + time.max(POLL_INTERVAL)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_is_sent_before_the_servers_limit_is_known() {
        let usage = Usage::new(Rc::default());
        assert!(usage.has_room() && !usage.is_settled());
        usage.enter();
        assert!(!usage.has_room());
        assert!(usage.allow(2));
        assert!(usage.has_room() && usage.is_settled());
        usage.enter();
        assert!(!usage.has_room());
        // Whatever limit the server announces, there is an upper bound.
        assert!(usage.allow(usize::MAX) && !usage.allow(usize::MAX));
        let more = std::iter::from_fn(|| usage.has_room().then(|| usage.enter()));
        assert_eq!(2 + more.count(), STREAMS_MAX);
        // If the server lowers its limit, the streams that exist continue.
        assert!(usage.allow(0));
        assert!(!usage.has_room());
        assert!((0..STREAMS_MAX - 1).all(|_| !usage.leave()));
        assert!(usage.leave());
    }

    #[test]
    fn received_bytes_count_while_the_connection_is_idle() {
        let received = Rc::new(Cell::new(0));
        let usage = Usage::new(received.clone());
        usage.enter();
        received.set(1 << 30);
        assert!(!usage.is_flooded());
        usage.leave();
        assert!(!usage.is_flooded());
        received.set((1 << 30) + 2 * u64::from(CONNECTION_WINDOW));
        assert!(!usage.is_flooded());
        received.set(received.get() + 1);
        assert!(usage.is_flooded());
    }
}

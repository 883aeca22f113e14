//! How a shared connection is used: by how many at once, and since when by nobody.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::http2::{CONNECTION_WINDOW, STREAMS_MAX};

/// How many streams a server takes that has not said it yet: more than any can say.
pub const UNSAID: usize = usize::MAX - 1;

/// How often a connection that is not to be kept is looked at, at most.
const LOOK: Duration = Duration::from_millis(10);

/// Of one connection; shared by who uses it and by who drives it.
pub struct Usage {
    streams: Cell<usize>,
    /// How many the server takes at once.
    most: Cell<usize>,
    /// Bytes that have come.
    received: Rc<Cell<u64>>,
    /// How many had when the last stream was left, and when that was.
    left: Cell<(u64, Instant)>,
}

impl Usage {
    pub fn new(received: Rc<Cell<u64>>) -> Self {
        Self {
            streams: Cell::new(0),
            most: Cell::new(UNSAID),
            received,
            left: Cell::new((0, Instant::now())),
        }
    }

    /// The server takes that many streams; whether that is news.
    pub fn allow(&self, most: usize) -> bool {
        self.most.replace(most) != most
    }

    /// Whether the server has said how many it takes.
    pub fn is_settled(&self) -> bool {
        self.most.get() != UNSAID
    }

    /// Whether there is room for one more. For one alone, as long as nobody knows.
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

    /// A stream is left; whether nobody uses the connection now.
    pub fn leave(&self) -> bool {
        self.streams.set(self.streams.get() - 1);
        self.left.set((self.received.get(), Instant::now()));
        self.is_idle()
    }

    pub fn is_idle(&self) -> bool {
        self.streams.get() == 0
    }

    /// Whether more comes than one says who is not asked: what was on its way when the last stream
    /// was left, and little else.
    pub fn is_flooded(&self) -> bool {
        let since = self.received.get() - self.left.get().0;
        self.is_idle() && since > 2 * u64::from(CONNECTION_WINDOW)
    }

    /// Waits until nobody has used it for that time.
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
                // Left a moment from now, it is seen soon enough.
                Instant::now() + time.max(LOOK)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_goes_before_the_server_has_said_how_many_it_takes() {
        let usage = Usage::new(Rc::default());
        assert!(usage.has_room() && !usage.is_settled());
        usage.enter();
        assert!(!usage.has_room());
        assert!(usage.allow(2));
        assert!(usage.has_room() && usage.is_settled());
        usage.enter();
        assert!(!usage.has_room());
        // However many it takes, there is an end.
        assert!(usage.allow(usize::MAX) && !usage.allow(usize::MAX));
        let more = std::iter::from_fn(|| usage.has_room().then(|| usage.enter()));
        assert_eq!(2 + more.count(), STREAMS_MAX);
        // One that takes fewer from now on has those that there are.
        assert!(usage.allow(0));
        assert!(!usage.has_room());
        assert!((0..STREAMS_MAX - 1).all(|_| !usage.leave()));
        assert!(usage.leave());
    }

    #[test]
    fn what_comes_counts_while_nobody_uses_the_connection() {
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

//! The rate limit of a function's log.

use std::time::{Duration, Instant};

/// Bytes and lines that a function may write in a [`PERIOD`]. A line costs time whatever its
/// length.
const BYTES: usize = 4 << 20;
const LINES: usize = 10_000;
const PERIOD: Duration = Duration::from_secs(1);

/// Counts one function's lines in the current period.
#[derive(Debug)]
pub(super) struct LineRate {
    since: Instant,
    bytes: usize,
    lines: usize,
    dropped: u64,
}

impl LineRate {
    pub(super) fn starting(now: Instant) -> Self {
        Self {
            since: now,
            bytes: 0,
            lines: 0,
            dropped: 0,
        }
    }

    /// Counts a line. Returns the number of lines that were dropped before it, or `None` if it must
    /// be dropped, too.
    pub(super) fn take(&mut self, bytes: usize, now: Instant) -> Option<u64> {
        let is_over = now.duration_since(self.since) >= PERIOD;
        let dropped = if is_over { self.dropped } else { 0 };
        if is_over {
            *self = Self::starting(now);
        } else if self.lines >= LINES || self.bytes.saturating_add(bytes) > BYTES {
            self.dropped += 1;
            return None;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.lines += 1;
        Some(dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_lines_are_dropped_until_the_next_period() {
        let start = Instant::now();
        let mut rate = LineRate::starting(start);
        for _ in 0..LINES {
            assert_eq!(rate.take(1, start), Some(0));
        }
        assert_eq!(rate.take(1, start), None);
        assert_eq!(rate.take(1, start), None);
        let later = start + PERIOD;
        assert_eq!(rate.take(1, later), Some(2));
        assert_eq!(rate.take(1, later), Some(0));
    }

    #[test]
    fn too_many_bytes_are_dropped_until_the_next_period() {
        let start = Instant::now();
        let mut rate = LineRate::starting(start);
        assert_eq!(rate.take(BYTES, start), Some(0));
        assert_eq!(rate.take(1, start), None);
    }
}

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

/// The result for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowance {
    Taken,
    /// The line is accepted, and it is the first after some were dropped.
    TakenAfter {
        dropped: u64,
    },
    Dropped,
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

    pub(super) fn take(&mut self, bytes: usize, now: Instant) -> Allowance {
        if now.duration_since(self.since) >= PERIOD {
            let dropped = self.dropped;
            *self = Self::starting(now);
            self.count(bytes);
            return match dropped {
                0 => Allowance::Taken,
                dropped => Allowance::TakenAfter { dropped },
            };
        }
        if self.lines >= LINES || self.bytes.saturating_add(bytes) > BYTES {
            self.dropped += 1;
            return Allowance::Dropped;
        }
        self.count(bytes);
        Allowance::Taken
    }

    fn count(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.lines += 1;
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
            assert_eq!(rate.take(1, start), Allowance::Taken);
        }
        assert_eq!(rate.take(1, start), Allowance::Dropped);
        assert_eq!(rate.take(1, start), Allowance::Dropped);
        let later = start + PERIOD;
        assert_eq!(rate.take(1, later), Allowance::TakenAfter { dropped: 2 });
        assert_eq!(rate.take(1, later), Allowance::Taken);
    }

    #[test]
    fn too_many_bytes_are_dropped_until_the_next_period() {
        let start = Instant::now();
        let mut rate = LineRate::starting(start);
        assert_eq!(rate.take(BYTES, start), Allowance::Taken);
        assert_eq!(rate.take(1, start), Allowance::Dropped);
    }
}

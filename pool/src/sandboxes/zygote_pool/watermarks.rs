//! The number of zygotes kept ready: as many as are taken before others can replace them, between a
//! low and a high watermark. AFaaS (§4.2.1) pools resources that can be allocated in advance, too.

use std::time::Duration;

use tokio::time::Instant;

/// The high watermark is this multiple of the low one.
const HIGH: usize = 8;
/// How long a number that was needed is kept before half of the part above the low watermark is
/// dropped.
pub const PERIOD: Duration = Duration::from_secs(20);

/// The number of zygotes that are wanted now.
#[derive(Debug)]
pub struct Watermarks {
    low: usize,
    high: usize,
    wanted: usize,
    /// The largest number that was missing at once in this period.
    missed: usize,
    since: Instant,
}

impl Watermarks {
    /// Starts at the low watermark.
    pub fn new(low: usize, now: Instant) -> Self {
        Self {
            low,
            high: low.saturating_mul(HIGH),
            wanted: low,
            missed: 0,
            since: now,
        }
    }

    /// Returns the number of zygotes wanted.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Returns the smallest and the largest number that can be wanted.
    pub fn bounds(&self) -> (usize, usize) {
        (self.low, self.high)
    }

    /// Records that one was taken and `left` are left; `None` if none was ready.
    pub fn take(&mut self, left: Option<usize>, now: Instant) {
        self.decay(now);
        match left {
            Some(left) => self.missed = self.missed.max(self.wanted.saturating_sub(left)),
            None => {
                self.wanted = self.wanted.saturating_mul(2).min(self.high);
                self.missed = self.wanted;
                self.since = now;
            }
        }
    }

    /// Lowers the number by what has not been needed for a period. Returns when to check again, if
    /// that can change anything.
    pub fn decay(&mut self, now: Instant) -> Option<Instant> {
        while self.wanted > self.low && now.saturating_duration_since(self.since) >= PERIOD {
            let half = self.low + (self.wanted - self.low) / 2;
            self.wanted = half.max(self.missed.min(self.wanted));
            self.missed = 0;
            self.since += PERIOD;
        }
        if self.wanted == self.low {
            self.missed = 0;
            self.since = now;
            return None;
        }
        Some(self.since + PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_follows_demand_between_the_watermarks() {
        let start = Instant::now();
        let mut watermarks = Watermarks::new(4, start);
        assert_eq!(watermarks.wanted(), 4);
        // While at least one is ready, nothing changes.
        for left in [3, 2, 1, 0] {
            watermarks.take(Some(left), start);
        }
        assert_eq!((watermarks.wanted(), watermarks.decay(start)), (4, None));
        for wanted in [8, 16, 32, 32] {
            watermarks.take(None, start);
            assert_eq!(watermarks.wanted(), wanted);
        }
        assert_eq!(watermarks.decay(start), Some(start + PERIOD));
    }

    #[test]
    fn unneeded_zygotes_are_dropped_by_halves_down_to_the_low_watermark() {
        let start = Instant::now();
        let mut watermarks = Watermarks::new(4, start);
        for _ in 0..3 {
            watermarks.take(None, start);
        }
        let mut seen = Vec::new();
        let mut now = start;
        while let Some(next) = watermarks.decay(now) {
            assert!(next > now);
            now = next;
            seen.push(watermarks.wanted());
        }
        // The first period had demand for all of them.
        assert_eq!(seen, [32, 32, 18, 11, 7, 5]);
        assert_eq!(watermarks.wanted(), 4);
        // After a long rest all at once, and it takes no loop over what was missed.
        watermarks.take(None, now);
        assert_eq!(watermarks.decay(now + 1000 * PERIOD), None);
        assert_eq!(watermarks.wanted(), 4);
    }

    #[test]
    fn zygotes_needed_in_each_period_stay() {
        let start = Instant::now();
        let mut watermarks = Watermarks::new(2, start);
        for _ in 0..2 {
            watermarks.take(None, start);
        }
        assert_eq!(watermarks.wanted(), 8);
        for period in 1..20 {
            // Five at once, each time.
            let now = start + period * PERIOD;
            for taken in 1..=5 {
                watermarks.take(Some(watermarks.wanted() - taken), now - PERIOD / 2);
            }
            watermarks.decay(now);
            assert!(watermarks.wanted() >= 5, "{}", watermarks.wanted());
        }
    }

    #[test]
    fn none_wanted_means_none() {
        let now = Instant::now();
        let mut watermarks = Watermarks::new(0, now);
        watermarks.take(None, now);
        assert_eq!((watermarks.wanted(), watermarks.decay(now)), (0, None));
    }
}

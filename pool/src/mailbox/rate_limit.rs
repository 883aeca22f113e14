//! Limits how often the node inspects one guest.
//!
//! A guest pays for ringing and for writing with its own CPU time, which is limited. The node pays
//! for its reaction, which can cost a thousand times more: a guest that only raises a counter makes
//! the node read its whole log ring again, line by line. So each guest has an allowance of such
//! work. A guest that has used it up is not served until it has some again. Meanwhile everything
//! else continues, including its time limits.

use std::time::Duration;

use tokio::time::Instant;

use super::log_record::LogRecord;

/// The cost of one inspection of the mailbox, whatever is found there.
const LOOK_COST: u64 = 20;
/// The number of bytes that cost one unit.
const BYTES_PER_UNIT: u64 = 1 << 10;
/// The allowance of a guest at once: no small invocation is ever slowed down.
const BURST: u64 = 8 << 10;
/// How many inspections a guest gets at once after it has reported that it is done.
const LAST_LOOKS: u64 = 8;
/// The allowance per second: 5 thousand inspections, 100 MB of log, or 100 thousand lines of it.
const UNITS_PER_SECOND: u64 = 100_000;

/// The work that a guest's outbound calls have caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallWork {
    /// The number of requests that were begun.
    pub begun: u64,
    /// The number of fields of their heads: each is a few allocations.
    pub fields: u64,
    /// The bytes of heads and tails, and of discarded bodies.
    pub bytes: u64,
}

impl CallWork {
    /// Returns the cost: each request counts as an inspection, each field as a line of log.
    pub fn amount(&self) -> u64 {
        let requests = LOOK_COST.saturating_mul(self.begun);
        requests.saturating_add(self.fields + self.bytes / BYTES_PER_UNIT)
    }
}

/// The allowance of one guest.
#[derive(Debug)]
pub struct RateLimit {
    /// The time at which the whole allowance is available again. The allowance is not used up as
    /// long as this is at most a burst's time ahead.
    whole_at: Instant,
}

fn time_for(work: u64) -> Duration {
    Duration::from_nanos(work.saturating_mul(1_000_000_000 / UNITS_PER_SECOND))
}

impl RateLimit {
    /// Creates a full allowance.
    pub fn new() -> Self {
        Self {
            whole_at: Instant::now(),
        }
    }

    /// Counts an inspection that found this log.
    pub fn count_look(&mut self, log: &[LogRecord]) {
        let log = log.iter().map(|record| {
            let lines = record.bytes.iter().filter(|byte| **byte == b'\n').count();
            1 + lines as u64 + record.bytes.len() as u64 / BYTES_PER_UNIT
        });
        self.use_up(Instant::now(), LOOK_COST + log.sum::<u64>());
    }

    /// Counts an inspection of the guest's outbound calls.
    pub fn count_calls(&mut self, work: CallWork) {
        self.use_up(Instant::now(), work.amount());
    }

    /// Counts a ring for which nothing was inspected.
    pub fn count_ring(&mut self) {
        self.use_up(Instant::now(), LOOK_COST);
    }

    /// Reduces the allowance of a guest that has reported that it is done, and which only has to
    /// ring once or twice more.
    #[must_use]
    pub fn at_the_end(self) -> Self {
        let used_up = Instant::now() + time_for(BURST - LAST_LOOKS * LOOK_COST);
        Self {
            whole_at: self.whole_at.max(used_up),
        }
    }

    /// Returns when the guest is to be served again; `None` if it can be served now.
    pub fn limited_until(&self) -> Option<Instant> {
        self.rest_at(Instant::now())
    }

    fn use_up(&mut self, now: Instant, work: u64) {
        self.whole_at = self.whole_at.max(now) + time_for(work);
    }

    fn rest_at(&self, now: Instant) -> Option<Instant> {
        let heard_from = self.whole_at.checked_sub(time_for(BURST))?;
        (heard_from > now).then_some(heard_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::LogStream;

    fn log(bytes: &[u8]) -> [LogRecord; 1] {
        [LogRecord {
            stream: LogStream::Out,
            bytes: bytes.to_vec(),
        }]
    }

    #[test]
    fn a_guest_that_rings_occasionally_is_never_delayed() {
        let mut rate_limit = RateLimit::new();
        let mut now = rate_limit.whole_at;
        for _ in 0..100_000 {
            rate_limit.use_up(now, LOOK_COST);
            assert_eq!(rate_limit.rest_at(now), None);
            now += Duration::from_micros(200);
        }
    }

    #[test]
    fn a_storm_of_rings_causes_only_the_allowed_looks() {
        let mut rate_limit = RateLimit::new();
        let start = rate_limit.whole_at;
        let (mut now, mut looks) = (start, 0);
        while now < start + Duration::from_secs(2) {
            rate_limit.use_up(now, LOOK_COST);
            looks += 1;
            now = rate_limit.rest_at(now).unwrap_or(now);
        }
        let allowed = (BURST + 2 * UNITS_PER_SECOND) / LOOK_COST;
        assert!((allowed..=allowed + 2).contains(&looks), "{looks}");
    }

    #[test]
    fn rings_without_a_look_count_too() {
        let mut rate_limit = RateLimit::new();
        let rings = (0..).take_while(|_| {
            rate_limit.count_ring();
            rate_limit.limited_until().is_none()
        });
        // A few more may pass in the time that this takes.
        let most = 2 * BURST / LOOK_COST;
        assert!((BURST / LOOK_COST - 1..most).contains(&(rings.count() as u64)));
    }

    #[test]
    fn few_looks_are_allowed_after_the_end() {
        let mut rate_limit = RateLimit::new().at_the_end();
        let rings = (0..).take_while(|_| {
            rate_limit.count_ring();
            rate_limit.limited_until().is_none()
        });
        let rings = rings.count() as u64;
        assert!((LAST_LOOKS - 1..4 * LAST_LOOKS).contains(&rings), "{rings}");
        // Work that was used up before stays used up.
        let mut used = RateLimit::new();
        used.use_up(Instant::now(), 2 * BURST);
        let limited_until = used.limited_until();
        assert_eq!(used.at_the_end().limited_until(), limited_until);
    }

    #[test]
    fn a_request_counts_by_what_its_head_takes() {
        let heads_at_once = |fields, bytes| {
            let mut rate_limit = RateLimit::new();
            let heads = (0..).take_while(|_| {
                let work = CallWork {
                    begun: 1,
                    fields,
                    bytes,
                };
                rate_limit.count_calls(work);
                rate_limit.limited_until().is_none()
            });
            heads.count()
        };
        assert!(heads_at_once(10, 1 << 10) > 200);
        assert!(heads_at_once(10, 64 << 10) < 200);
        assert_eq!(heads_at_once(13_000, 64 << 10), 0);
    }

    #[test]
    fn a_log_counts_by_its_lines_and_bytes() {
        let rest_after = |bytes: &[u8]| {
            let mut rate_limit = RateLimit::new();
            let before = rate_limit.whole_at;
            rate_limit.count_look(&log(bytes));
            rate_limit.rest_at(before).map(|until| until - before)
        };
        assert_eq!(rest_after(&[b'x'; 100 << 10]), None);
        // The whole ring, full of line breaks.
        let rest = rest_after(&[b'\n'; 128 << 10]).unwrap();
        assert!(rest > Duration::from_secs(1), "{rest:?}");
    }
}

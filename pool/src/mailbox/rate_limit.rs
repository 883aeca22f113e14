//! How often the node looks at one guest.
//!
//! A guest pays for ringing and for writing with its own CPU time, which is limited.
//! What the node does about it is paid by the node, and can be a thousand times more:
//! a guest that only raises a counter has its whole log ring read again, line by line.
//! So each guest has an allowance of such work. One that has used it up is not heard
//! until it has some again; meanwhile everything else goes on, its limits of time
//! among it.

use std::time::Duration;

use tokio::time::Instant;

use super::log_record::LogRecord;

/// What one look at the mailbox counts, whatever is found there.
const LOOK: u64 = 20;
/// Bytes that count one.
const BYTES: u64 = 1 << 10;
/// What a guest can use at once: no small exchange is ever slowed down.
const BURST: u64 = 8 << 10;
/// How often it is heard at once when it has said that it is done.
const LAST_LOOKS: u64 = 8;
/// What it gets for each second: 5 thousand looks, 100 MB of log, or 100 thousand
/// lines of it.
const PER_SECOND: u64 = 100_000;

/// What looking at a guest's own requests took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallWork {
    /// Requests that were begun.
    pub begun: u64,
    /// Fields of their heads: each is a few allocations.
    pub fields: u64,
    /// Bytes of heads and tails, and of bodies that nobody is interested in.
    pub bytes: u64,
}

impl CallWork {
    /// What it counts: each request as a look, each field as a line of log.
    pub fn amount(&self) -> u64 {
        let requests = LOOK.saturating_mul(self.begun);
        requests.saturating_add(self.fields + self.bytes / BYTES)
    }
}

/// The allowance of one guest.
#[derive(Debug)]
pub struct RateLimit {
    /// When all of it is there again. At most a burst's time ahead it is not used up.
    whole_at: Instant,
}

fn time_for(work: u64) -> Duration {
    Duration::from_nanos(work.saturating_mul(1_000_000_000 / PER_SECOND))
}

impl RateLimit {
    /// All of it.
    pub fn new() -> Self {
        Self {
            whole_at: Instant::now(),
        }
    }

    /// The node has looked, and found this log.
    pub fn count_look(&mut self, log: &[LogRecord]) {
        let log = log.iter().map(|record| {
            let lines = record.bytes.iter().filter(|byte| **byte == b'\n').count();
            1 + lines as u64 + record.bytes.len() as u64 / BYTES
        });
        self.use_up(Instant::now(), LOOK + log.sum::<u64>());
    }

    /// The node has looked at the guest's own requests.
    pub fn count_calls(&mut self, work: CallWork) {
        self.use_up(Instant::now(), work.amount());
    }

    /// The guest has rung, and that was all that it was heard for.
    pub fn count_ring(&mut self) {
        self.use_up(Instant::now(), LOOK);
    }

    /// The guest has said that it is done: what it may still use at once is little. Ringing
    /// once or twice is all that it has to do.
    #[must_use]
    pub fn at_the_end(self) -> Self {
        let used_up = Instant::now() + time_for(BURST - LAST_LOOKS * LOOK);
        Self {
            whole_at: self.whole_at.max(used_up),
        }
    }

    /// When the guest is to be heard again; `None` when that is now.
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
    fn a_guest_that_rings_now_and_then_is_always_heard() {
        let mut rate_limit = RateLimit::new();
        let mut now = rate_limit.whole_at;
        for _ in 0..100_000 {
            rate_limit.use_up(now, LOOK);
            assert_eq!(rate_limit.rest_at(now), None);
            now += Duration::from_micros(200);
        }
    }

    #[test]
    fn a_storm_is_looked_at_as_often_as_allowed() {
        let mut rate_limit = RateLimit::new();
        let start = rate_limit.whole_at;
        let (mut now, mut looks) = (start, 0);
        while now < start + Duration::from_secs(2) {
            rate_limit.use_up(now, LOOK);
            looks += 1;
            now = rate_limit.rest_at(now).unwrap_or(now);
        }
        let allowed = (BURST + 2 * PER_SECOND) / LOOK;
        assert!((allowed..=allowed + 2).contains(&looks), "{looks}");
    }

    #[test]
    fn rings_that_nothing_is_looked_at_for_count_too() {
        let mut rate_limit = RateLimit::new();
        let rings = (0..).take_while(|_| {
            rate_limit.count_ring();
            rate_limit.limited_until().is_none()
        });
        // And a few more, for the time that this takes.
        let most = 2 * BURST / LOOK;
        assert!((BURST / LOOK - 1..most).contains(&(rings.count() as u64)));
    }

    #[test]
    fn a_guest_that_is_done_is_heard_a_few_times() {
        let mut rate_limit = RateLimit::new().at_the_end();
        let rings = (0..).take_while(|_| {
            rate_limit.count_ring();
            rate_limit.limited_until().is_none()
        });
        let rings = rings.count() as u64;
        assert!((LAST_LOOKS - 1..4 * LAST_LOOKS).contains(&rings), "{rings}");
        // What was used up before stays so.
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
        // The whole ring, of nothing but line breaks.
        let rest = rest_after(&[b'\n'; 128 << 10]).unwrap();
        assert!(rest > Duration::from_secs(1), "{rest:?}");
    }
}

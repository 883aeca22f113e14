//! When a failed attempt is retried.

use std::time::Duration;

use tokio::time::Instant;

/// The pause after the first failure; it doubles with each further one.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const MOST: Duration = Duration::from_secs(300);
/// Time without failure, counted from the end of a pause, after which the backoff counts as over.
const CALM: Duration = Duration::from_secs(60);

/// The recent failures.
#[derive(Debug, Default)]
pub struct FailureBackoff(Option<RecentFailure>);

#[derive(Clone, Copy, Debug)]
struct RecentFailure {
    /// When the next attempt may begin.
    until: Instant,
    /// The length of the current pause.
    pause: Duration,
}

impl FailureBackoff {
    /// Notes a failure now. Returns whether there was none recently.
    pub fn note(&mut self, now: Instant) -> bool {
        let before = self.0.filter(|_| self.is_recent(now));
        let pause = before.map_or(FIRST, |before| (2 * before.pause).min(MOST));
        self.0 = Some(RecentFailure {
            until: now + pause,
            pause,
        });
        before.is_none()
    }

    /// Returns whether a pause is in progress.
    pub fn is_paused(&self, now: Instant) -> bool {
        self.0.is_some_and(|lately| now < lately.until)
    }

    /// Returns whether there was a failure recently.
    pub fn is_recent(&self, now: Instant) -> bool {
        self.0.is_some_and(|lately| now < lately.until + CALM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_each_failure() {
        let (mut backoff, mut now) = (FailureBackoff::default(), Instant::now());
        assert!(!backoff.is_paused(now) && !backoff.is_recent(now));
        assert!(backoff.note(now), "it is told once");
        for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            let pause = Duration::from_secs(pause);
            assert!(backoff.is_paused(now + pause - Duration::from_nanos(1)));
            now += pause;
            assert!(!backoff.is_paused(now) && backoff.is_recent(now));
            assert!(!backoff.note(now));
        }
    }

    #[test]
    fn pauses_start_anew_after_a_calm_time() {
        let (mut backoff, now) = (FailureBackoff::default(), Instant::now());
        backoff.note(now);
        backoff.note(now);
        let mended = now + 2 * FIRST + CALM;
        assert!(backoff.is_recent(mended - Duration::from_nanos(1)));
        assert!(!backoff.is_recent(mended) && backoff.note(mended));
        assert!(!backoff.is_paused(mended + FIRST));
    }
}

//! When a failed attempt is retried.

use std::time::Duration;

use tokio::time::Instant;

/// The pause after the first failure; it doubles with each further one.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const MOST: Duration = Duration::from_secs(300);
/// Time without failure, counted from the end of a pause, after which the trouble counts as over.
const CALM: Duration = Duration::from_secs(60);

/// The recent failures.
#[derive(Debug, Default)]
pub struct Trouble(Option<Lately>);

#[derive(Clone, Copy, Debug)]
struct Lately {
    /// When the next attempt may begin.
    until: Instant,
    /// The length of the current pause.
    pause: Duration,
}

impl Trouble {
    /// Notes a failure now. Returns whether there was none recently.
    pub fn note(&mut self, now: Instant) -> bool {
        let before = self.0.filter(|_| self.is_there(now));
        let pause = before.map_or(FIRST, |before| (2 * before.pause).min(MOST));
        self.0 = Some(Lately {
            until: now + pause,
            pause,
        });
        before.is_none()
    }

    /// Returns whether a pause is in progress.
    pub fn holds(&self, now: Instant) -> bool {
        self.0.is_some_and(|lately| now < lately.until)
    }

    /// Returns whether there was a failure recently.
    pub fn is_there(&self, now: Instant) -> bool {
        self.0.is_some_and(|lately| now < lately.until + CALM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_tried_ever_more_rarely() {
        let (mut trouble, mut now) = (Trouble::default(), Instant::now());
        assert!(!trouble.holds(now) && !trouble.is_there(now));
        assert!(trouble.note(now), "it is told once");
        for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            let pause = Duration::from_secs(pause);
            assert!(trouble.holds(now + pause - Duration::from_nanos(1)));
            now += pause;
            assert!(!trouble.holds(now) && trouble.is_there(now));
            assert!(!trouble.note(now));
        }
    }

    #[test]
    fn what_has_gone_well_for_a_while_begins_anew() {
        let (mut trouble, now) = (Trouble::default(), Instant::now());
        trouble.note(now);
        trouble.note(now);
        let mended = now + 2 * FIRST + CALM;
        assert!(trouble.is_there(mended - Duration::from_nanos(1)));
        assert!(!trouble.is_there(mended) && trouble.note(mended));
        assert!(!trouble.holds(mended + FIRST));
    }
}

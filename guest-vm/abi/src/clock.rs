//! The clocks of a guest, as an [`Activation`] sets them.
//!
//! A guest's time is counted by the time-stamp counter from its last activation:
//!
//! - *Monotonic* time continues from the value at the freeze. It does not include the time that a
//!   seed or a warm instance rested. A timer that was armed before the freeze therefore has as
//!   much time left as it had then.
//! - *Wall* time is the host's, whatever it was at the freeze.
//!
//! Callers read the counter and pass its value, so that tests can choose it.

use core::time::Duration;

use crate::boot::Activation;

/// Fraction bits of the factor from ticks to nanoseconds: an hour is off by microseconds at most.
const FRACTION: u32 = 32;

/// The clocks of one activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Ticks at the activation.
    base: u64,
    /// Nanoseconds per tick, times 2^[`FRACTION`].
    scale: u64,
    /// Monotonic nanoseconds at the activation.
    monotonic: u64,
    /// Wall time at the activation.
    wall: Duration,
}

impl Clock {
    /// Returns clocks that stand still, for a guest that has not been activated yet.
    #[must_use]
    pub fn stopped() -> Self {
        Self::default()
    }

    /// Returns the clocks that `activation` starts when the counter reads `ticks`. Returns `None`
    /// if the activation does not state the counter's frequency.
    #[must_use]
    pub fn start(activation: &Activation, ticks: u64) -> Option<Self> {
        Some(Self {
            base: ticks,
            scale: (1_000_000 << FRACTION) / core::num::NonZeroU64::new(activation.tsc_khz)?,
            monotonic: activation.monotonic_nanoseconds,
            wall: Duration::from_secs(activation.wall_seconds)
                .saturating_add(Duration::from_nanos(activation.wall_nanoseconds)),
        })
    }

    /// Returns these clocks as if the activation had come when the counter read `ticks`, which is
    /// later than their start: monotonic time has stood still until then.
    #[must_use]
    pub fn begun_at(&self, ticks: u64) -> Self {
        Self {
            base: ticks,
            wall: self.wall(ticks),
            ..*self
        }
    }

    /// Returns the nanoseconds since the activation when the counter reads `ticks`.
    #[must_use]
    pub fn since_activation(&self, ticks: u64) -> u64 {
        let ticks = ticks.wrapping_sub(self.base);
        ((u128::from(ticks) * u128::from(self.scale)) >> FRACTION) as u64
    }

    /// Returns the monotonic time in nanoseconds when the counter reads `ticks`.
    #[must_use]
    pub fn monotonic(&self, ticks: u64) -> u64 {
        self.monotonic.saturating_add(self.since_activation(ticks))
    }

    /// Returns the wall time since 1970 when the counter reads `ticks`.
    #[must_use]
    pub fn wall(&self, ticks: u64) -> Duration {
        let since = Duration::from_nanos(self.since_activation(ticks));
        self.wall.saturating_add(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    /// A usual frequency, and slow and fast ones.
    const SPEEDS: [u64; 4] = [2_445_406, 1, 999_999, 6_000_000];

    fn activation(monotonic: u64, wall: Duration, tsc_khz: u64) -> Activation {
        Activation {
            wall_seconds: wall.as_secs(),
            wall_nanoseconds: wall.subsec_nanos().into(),
            monotonic_nanoseconds: monotonic,
            tsc_khz,
            ..Activation::default()
        }
    }

    fn ticks(time: Duration, tsc_khz: u64) -> u64 {
        (time.as_nanos() * u128::from(tsc_khz) / 1_000_000) as u64
    }

    fn nanoseconds(time: Duration) -> u64 {
        time.as_nanos() as u64
    }

    /// Asserts that `value` is `wanted`, or less by at most the resolution of a slow counter.
    #[track_caller]
    fn assert_near(value: u64, wanted: u64, tsc_khz: u64) {
        let off = 2_000_000 / tsc_khz + 10_000;
        assert!(value <= wanted && wanted - value <= off, "{value} {wanted}");
    }

    #[test]
    fn after_an_hour_idle_monotonic_time_continues_and_wall_time_is_real() {
        for khz in SPEEDS {
            let started = Duration::new(1_700_000_000, 999_999_999);
            let boot = ticks(HOUR * 5, khz);
            let seed = Clock::start(&activation(0, started, khz), boot).unwrap();
            // The guest is frozen two seconds later, with a timer that has three to go.
            let frozen_at = boot + ticks(Duration::from_secs(2), khz);
            let frozen = seed.monotonic(frozen_at);
            assert_near(frozen, 2_000_000_000, khz);
            let deadline = frozen + 3_000_000_000;

            let rested = frozen_at + ticks(HOUR, khz);
            let wall = started + Duration::from_secs(2) + HOUR;
            let instance = Clock::start(&activation(frozen, wall, khz), rested).unwrap();
            assert_eq!(instance.since_activation(rested), 0);
            assert_eq!(instance.monotonic(rested), frozen);
            assert_eq!(instance.wall(rested), wall);

            let early = rested + ticks(Duration::from_millis(2_990), khz);
            assert!(instance.monotonic(early) < deadline);
            let late = rested + ticks(Duration::from_millis(3_010), khz);
            assert!(instance.monotonic(late) >= deadline);
            let passed = instance.wall(late) - wall;
            assert_near(nanoseconds(passed), 3_010_000_000, khz);
        }
    }

    #[test]
    fn only_wall_time_passes_while_a_guest_waits_for_a_request() {
        for khz in SPEEDS {
            let wall = Duration::from_secs(1_700_000_000);
            let clock = Clock::start(&activation(7, wall, khz), 1000).unwrap();
            let asked = 1000 + ticks(HOUR, khz);
            let begun = clock.begun_at(asked);
            assert_eq!(
                (begun.monotonic(asked), begun.since_activation(asked)),
                (7, 0)
            );
            assert_near(
                nanoseconds(begun.wall(asked) - wall),
                nanoseconds(HOUR),
                khz,
            );
            let later = asked + ticks(HOUR, khz);
            assert_near(begun.monotonic(later), 7 + nanoseconds(HOUR), khz);
            assert_near(
                nanoseconds(begun.wall(later) - wall),
                2 * nanoseconds(HOUR),
                khz,
            );
        }
    }

    #[test]
    fn an_instance_that_runs_for_an_hour_keeps_time() {
        for khz in SPEEDS {
            let wall = Duration::from_secs(1_700_000_000);
            let start = u64::MAX - ticks(HOUR / 2, khz);
            let clock = Clock::start(&activation(7, wall, khz), start).unwrap();
            // The counter may wrap meanwhile.
            let now = start.wrapping_add(ticks(HOUR, khz));
            assert_near(clock.monotonic(now), 7 + nanoseconds(HOUR), khz);
            assert_near(nanoseconds(clock.wall(now) - wall), nanoseconds(HOUR), khz);
        }
    }

    #[test]
    fn an_activation_without_a_counter_frequency_is_invalid() {
        assert_eq!(Clock::start(&activation(1, HOUR, 0), 1), None);
        assert_eq!(Clock::stopped().monotonic(u64::MAX), 0);
        assert_eq!(Clock::stopped().wall(u64::MAX), Duration::ZERO);
    }

    #[test]
    fn times_that_no_host_has_do_not_overflow() {
        let strange = Activation {
            wall_seconds: u64::MAX,
            wall_nanoseconds: u64::MAX,
            monotonic_nanoseconds: u64::MAX,
            tsc_khz: 1,
            ..Activation::default()
        };
        let clock = Clock::start(&strange, 0).unwrap();
        assert_eq!(clock.monotonic(1_000), u64::MAX);
        assert_eq!(clock.wall(1_000), Duration::MAX);
    }
}

//! The time of day of guests.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Returns the time of day; called each time that a guest runs.
pub type WallClock = fn() -> SystemTime;

/// Returns what `clock` showed when this host's monotonic clock was zero, in nanoseconds since
/// 1970; 0 if that was before 1970.
///
/// A sandbox adds its own reading of the monotonic clock, so that the time that an order takes to
/// arrive, a fork included, does not delay the guest's clock. So sandboxes must not have a time
/// namespace with offsets of its own.
pub fn epoch_nanoseconds(clock: WallClock) -> u64 {
    let monotonic = clock_gettime(ClockId::Monotonic);
    let wall = clock().duration_since(UNIX_EPOCH).unwrap_or_default();
    let monotonic = Duration::try_from(monotonic).unwrap_or_default();
    let epoch = wall.saturating_sub(monotonic).as_nanos();
    u64::try_from(epoch).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_the_year_2100() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(4_102_444_800)
    }

    #[test]
    fn an_epoch_and_the_monotonic_clock_make_the_time_of_day() {
        let epoch = Duration::from_nanos(epoch_nanoseconds(in_the_year_2100));
        let now = clock_gettime(ClockId::Monotonic);
        let wall = epoch + Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
        let real = in_the_year_2100().duration_since(UNIX_EPOCH).unwrap();
        assert!(
            real <= wall && wall < real + Duration::from_secs(10),
            "{wall:?}"
        );
    }

    #[test]
    fn a_clock_that_was_never_set_is_no_panic() {
        assert_eq!(epoch_nanoseconds(|| UNIX_EPOCH), 0);
        assert_eq!(epoch_nanoseconds(|| UNIX_EPOCH - Duration::from_secs(1)), 0);
    }
}

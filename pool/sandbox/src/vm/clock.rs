//! The times that a sandbox passes to its guest.

use rustix::time::{ClockId, clock_gettime};

/// Returns the time of this host's monotonic clock in nanoseconds.
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Measures the ticks of the time-stamp counter per millisecond, for hosts whose KVM does not
/// report them.
pub fn measure_tsc_khz() -> u64 {
    /// Long enough that reading the clock costs less than a ten-thousandth.
    const SPAN: u64 = 10_000_000;
    let start = monotonic();
    // SAFETY: reads a counter.
    let ticks = unsafe { core::arch::x86_64::_rdtsc() };
    let mut now = start;
    while now - start < SPAN {
        now = monotonic();
    }
    // SAFETY: as above.
    let passed = unsafe { core::arch::x86_64::_rdtsc() }.wrapping_sub(ticks);
    (u128::from(passed) * 1_000_000 / u128::from(now - start)) as u64
}

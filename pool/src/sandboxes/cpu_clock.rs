//! CPU time of other processes.

use std::time::Duration;

use rustix::io::Errno;

/// Returns the clock of a process's CPU time.
#[expect(unsafe_code, reason = "no safe interface takes a process's number")]
pub fn clock_of(pid: u64) -> Option<libc::clockid_t> {
    // 0 would be the caller's own.
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
    let mut clock = 0;
    // SAFETY: the pointer is valid for the one `clockid_t` that the call writes.
    let found = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    (found == 0).then_some(clock)
}

/// Reads a clock.
///
/// # Errors
/// Returns `SRCH` if its process is gone.
#[expect(unsafe_code, reason = "no safe interface takes such a clock")]
pub fn cpu_time(clock: libc::clockid_t) -> Result<Duration, Errno> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is valid for the one `timespec` that the call writes.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(Errno::SRCH);
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Ok(Duration::new(
        seconds,
        u32::try_from(time.tv_nsec).unwrap_or(0),
    ))
}

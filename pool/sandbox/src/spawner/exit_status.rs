//! How children end, as the kernel reports it.

use std::mem::MaybeUninit;

use rustix::process::Pid;

/// How a child has ended.
pub(super) struct ExitStatus {
    /// The fields of [`Ended`](faasw_fri::messages::Ended).
    pub(super) signal: u64,
    pub(super) code: u64,
    pub(super) cpu_nanoseconds: u64,
}

/// Returns a child that has ended and is not reaped, if there is one. Until it is reaped, the
/// kernel keeps its record.
pub(super) fn ended() -> Option<Pid> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the call writes at most one value there.
    if unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) } != 0 {
        return None;
    }
    // SAFETY: all zeroes are a value, and so is what the call wrote. For a child that has ended the
    // field is its number; the call writes zero if there is none.
    Pid::from_raw(unsafe { info.assume_init().si_pid() })
}

/// Reaps a child that has ended.
pub(super) fn reap(pid: Pid) -> Option<ExitStatus> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let number = pid.as_raw_nonzero().get();
    // SAFETY: the call writes one value to each of its two output places.
    let reaped = unsafe { libc::wait4(number, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    if reaped != number {
        return None;
    }
    // SAFETY: all zeroes are a valid value, and so is what the call wrote.
    let usage = unsafe { usage.assume_init() };
    let nanoseconds = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let microseconds = u64::try_from(time.tv_usec).unwrap_or(0);
        seconds * 1_000_000_000 + microseconds * 1_000
    };
    let number = |number: i32| u64::try_from(number).unwrap_or(0);
    Some(ExitStatus {
        signal: if libc::WIFSIGNALED(status) {
            number(libc::WTERMSIG(status))
        } else {
            0
        },
        code: if libc::WIFEXITED(status) {
            number(libc::WEXITSTATUS(status))
        } else {
            0
        },
        cpu_nanoseconds: nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime),
    })
}

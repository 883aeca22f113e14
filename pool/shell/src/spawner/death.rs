//! How children end, by the system's account.

use std::mem::MaybeUninit;

use rustix::process::Pid;

/// How a child has ended.
pub(super) struct Death {
    pub(super) pid: Pid,
    /// As [`Ended`](faasw_fri::messages::Ended) has them.
    pub(super) signal: u64,
    pub(super) code: u64,
    pub(super) cpu_nanoseconds: u64,
}

/// A child that has ended, if there is one.
pub(super) fn reaped() -> Option<Death> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes one value to each place that it is given.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    // Nothing, where none has ended or there is none.
    let pid = Pid::from_raw(pid.max(0))?;
    // SAFETY: all zeroes are a value of it, and so is what the call wrote.
    let usage = unsafe { usage.assume_init() };
    let nanoseconds = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let microseconds = u64::try_from(time.tv_usec).unwrap_or(0);
        seconds * 1_000_000_000 + microseconds * 1_000
    };
    let number = |number: i32| u64::try_from(number).unwrap_or(0);
    Some(Death {
        pid,
        signal: match libc::WIFSIGNALED(status) {
            true => number(libc::WTERMSIG(status)),
            false => 0,
        },
        code: match libc::WIFEXITED(status) {
            true => number(libc::WEXITSTATUS(status)),
            false => 0,
        },
        cpu_nanoseconds: nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime),
    })
}

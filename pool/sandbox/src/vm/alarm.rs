//! A timer that calls a polling guest out of its VM if it does not leave by itself.
//!
//! The kernel's timer counts the CPU time of the sandbox's thread. So it counts while the guest
//! runs, and it fires whatever happens to the node. A processor's clock interrupt checks such
//! timers anyway: arming one costs a system call, and no access to hardware. Its signal is blocked
//! except in `KVM_RUN`, as in `super::signals` for sandboxes on threads: it is never delivered. It
//! ends `KVM_RUN`, and is taken then.

use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

use rustix::io::Errno;

/// The signal of the timer.
pub const SIGNAL: libc::c_int = libc::SIGVTALRM;

/// A timer of the thread that made it.
#[derive(Debug)]
pub struct Alarm(libc::timer_t);

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call writes the set, which the second changes.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), SIGNAL);
        set.assume_init()
    }
}

impl Alarm {
    /// Creates a timer for the calling thread, and blocks the signal for it.
    ///
    /// # Errors
    /// Returns the error of blocking the signal or of `timer_create`.
    pub(super) fn new() -> Result<Self, Errno> {
        // SAFETY: reads a set.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set(), ptr::null_mut()) };
        if failed != 0 {
            return Err(Errno::from_raw_os_error(failed));
        }
        // SAFETY: all zeroes are a valid value.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut timer = MaybeUninit::uninit();
        // SAFETY: the call reads one structure and writes one value.
        unsafe {
            let clock = libc::CLOCK_THREAD_CPUTIME_ID;
            match libc::timer_create(clock, &raw mut event, timer.as_mut_ptr()) {
                0 => Ok(Self(timer.assume_init())),
                _ => Err(last_error()),
            }
        }
    }

    /// Makes the timer fire once, after the thread has used so much more CPU time.
    ///
    /// # Errors
    /// Returns the error of `timer_settime`.
    pub fn arm(&self, after: Duration) -> Result<(), Errno> {
        let zero = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let spec = libc::itimerspec {
            it_interval: zero,
            it_value: libc::timespec {
                tv_sec: libc::time_t::try_from(after.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: after.subsec_nanos().into(),
            },
        };
        // SAFETY: the timer belongs to this object, and the call reads one structure.
        match unsafe { libc::timer_settime(self.0, 0, &raw const spec, ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(last_error()),
        }
    }

    /// Whether the timer has fired since the last call. Takes its signal.
    pub fn has_rung(&self) -> bool {
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the call reads a set and a time.
        unsafe { libc::sigtimedwait(&set(), ptr::null_mut(), &raw const now) == SIGNAL }
    }
}

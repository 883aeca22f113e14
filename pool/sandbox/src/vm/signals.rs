//! Stopping a guest that does not stop by itself, on a thread of a program.
//!
//! A guest in a loop leaves `KVM_RUN` only for a signal to its thread. The usual way is a handler
//! that does nothing, and it has two faults. Handlers belong to the whole program, which may want
//! that signal itself. And a signal that is handled just before `KVM_RUN` is lost.
//!
//! So no handler is installed. [`STOP`] is always blocked on the thread, except in the mask that
//! KVM sets inside `KVM_RUN` and resets before it leaves (`KVM_SET_SIGNAL_MASK`; since Linux 4.15
//! the signal counts as blocked in between, too). A signal that is sent once, at any moment, is
//! never delivered and stays pending: the current `KVM_RUN` ends with `EINTR`, or the next one does
//! so at once. The flag with the reason was set before. A thread that waits for the node instead
//! finds its socket shut.

use std::mem::MaybeUninit;

use rustix::io::Errno;

/// The signal that calls a sandbox's thread out of `KVM_RUN`. Linux never sends it, and programs
/// hardly do. Unlike a real-time signal, it needs no room in a queue.
pub const STOP: libc::c_int = libc::SIGSTKFLT;

/// Signals that a thread causes itself, which stay as the program has set them.
const OWN_DOING: [libc::c_int; 7] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGSEGV,
    libc::SIGSYS,
    libc::SIGTRAP,
];

/// Returns the bit of a signal in a mask of the kernel.
pub fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// Blocks all of the program's signals, and [`STOP`], for the calling thread; returns its mask.
pub fn block() -> Result<u64, Errno> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: each set is written by a call before it is read.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for signal in OWN_DOING {
            libc::sigdelset(set.as_mut_ptr(), signal);
        }
        let failed = libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
        if failed != 0 {
            return Err(Errno::from_raw_os_error(failed));
        }
        // The actual mask: the C library has left out the signals that it keeps for itself.
        let failed = libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), blocked.as_mut_ptr());
        if failed != 0 {
            return Err(Errno::from_raw_os_error(failed));
        }
        let blocked = blocked.assume_init();
        Ok((1..=64)
            .filter(|signal| libc::sigismember(&raw const blocked, *signal) == 1)
            .map(bit)
            .sum())
    }
}

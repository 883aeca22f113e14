//! The priority of a sandbox: while no request waits for it, it runs only when nothing else wants
//! to.
//!
//! A sandbox that is made in advance has `SCHED_IDLE` from its birth until its function is known.
//! Leaving that policy requires a privilege, so the spawner restores the usual one. If the spawner
//! lacks the privilege, all sandboxes are made at the usual priority.

use std::mem::MaybeUninit;
use std::sync::mpsc;
use std::thread;

use rustix::process::Pid;

/// Sets the policy of a thread, which is what this system call means by a process. Returns whether
/// that succeeded.
fn set(process: libc::pid_t, policy: libc::c_int) -> bool {
    // SAFETY: all bits zero is a valid value: no real-time priority.
    let priority: libc::sched_param = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the call reads one structure of this type.
    unsafe { libc::sched_setscheduler(process, policy, &raw const priority) == 0 }
}

/// Lowers the calling thread's priority: all others run before it.
pub fn lower() {
    let _ = set(0, libc::SCHED_IDLE);
}

/// Restores the usual policy of a process or thread; returns whether that succeeded.
pub fn restore(process: Pid) -> bool {
    // A process that has ended has no priority.
    set(process.as_raw_nonzero().get(), libc::SCHED_OTHER)
}

/// The nice value of the background priority: against a process of the usual priority it gets
/// about a tenth of a processor that both want, as the compile helper does, so it never starves.
const BACKGROUND_NICE: libc::c_int = 10;

/// Runs a process or thread at the background priority, or at the usual one. Returns whether the
/// kernel allowed it: raising the priority again requires a privilege.
pub fn set_background(process: Pid, background: bool) -> bool {
    let nice = if background { BACKGROUND_NICE } else { 0 };
    let thread = process.as_raw_nonzero().get().unsigned_abs();
    // SAFETY: the call takes numbers, and changes one that the kernel keeps of a thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, nice) == 0 }
}

/// Whether a lowered priority can be restored here, tried with a thread. Call it before a user
/// namespace is entered: the kernel checks for the privilege in the host's namespace, while a
/// process in its own namespace seems to have every privilege.
pub fn can_restore() -> bool {
    let (number, told) = mpsc::channel();
    let (keep, kept) = mpsc::channel::<()>();
    let tried = thread::spawn(move || {
        let _ = number.send(rustix::thread::gettid());
        // The thread sleeps meanwhile: one that lowered itself would have to wait until it may run
        // and restore that, on a busy machine for milliseconds.
        let _ = kept.recv();
    });
    let can_restore = told.recv().is_ok_and(|thread| {
        set(thread.as_raw_nonzero().get(), libc::SCHED_IDLE) && restore(thread)
    });
    drop(keep);
    let _ = tried.join();
    can_restore
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_background_priority_is_a_nice_value_and_ends_where_it_can() {
        let can_restore = can_restore();
        let tried = thread::spawn(|| {
            let own = rustix::thread::gettid();
            // SAFETY: the call takes and returns a number.
            let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            let before = nice();
            let is_set = set_background(own, true);
            let lowered = nice();
            let is_usual = set_background(own, false);
            (before, is_set, lowered, is_usual, nice())
        });
        let (before, is_set, lowered, is_usual, after) = tried.join().unwrap();
        assert_eq!((is_set, lowered), (true, BACKGROUND_NICE), "from {before}");
        assert_eq!(is_usual, after == 0);
        assert!(is_usual || !can_restore);
    }

    #[test]
    fn a_lowered_priority_is_restored_if_permitted() {
        let policy = |thread: Pid| {
            // SAFETY: the call takes and returns a number.
            unsafe { libc::sched_getscheduler(thread.as_raw_nonzero().get()) }
        };
        let can_restore = can_restore();
        let tried = thread::spawn(move || {
            let own = rustix::thread::gettid();
            lower();
            let lowered = policy(own);
            let is_restored = restore(own);
            (lowered, is_restored, policy(own))
        });
        let (lowered, is_restored, now) = tried.join().unwrap();
        assert_eq!((lowered, is_restored), (libc::SCHED_IDLE, can_restore));
        assert_eq!(now == libc::SCHED_OTHER, can_restore);
    }
}

//! When a shell runs: while nobody waits for it, only when nothing else wants to.
//!
//! `SCHED_IDLE` is a shell's from its birth until it is known what it is for. The way
//! back takes a privilege, so it is the spawner that restores it; where it has none,
//! shells are made at the priority of everybody else.

use std::mem::MaybeUninit;

use rustix::process::Pid;

/// What the system calls a process here is a thread. Says whether it was done.
fn set(process: libc::pid_t, policy: libc::c_int) -> bool {
    // SAFETY: all bits zero is a valid value: no real-time priority.
    let priority: libc::sched_param = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the call reads one structure of this type.
    unsafe { libc::sched_setscheduler(process, policy, &raw const priority) == 0 }
}

/// Lets everybody else run before this thread.
pub fn lower() {
    let _ = set(0, libc::SCHED_IDLE);
}

/// Has a process or thread take turns with everybody else again.
pub fn restore(process: Pid) {
    // Who has ended has no priority.
    let _ = set(process.as_raw_nonzero().get(), libc::SCHED_OTHER);
}

/// Whether what was lowered can be restored here, tried with a thread. To be asked
/// before a user namespace is entered: the privilege that it takes is the host's, and in
/// a namespace of one's own one seems to have every privilege.
pub fn can_restore() -> bool {
    let tried = std::thread::spawn(|| set(0, libc::SCHED_IDLE) && set(0, libc::SCHED_OTHER));
    tried.join().unwrap_or(false)
}

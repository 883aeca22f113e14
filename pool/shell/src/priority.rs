//! When a shell runs: while nobody waits for it, only when nothing else wants to.
//!
//! `SCHED_IDLE` is a shell's from its birth until it is known what it is for. The way
//! back takes a privilege, so it is the spawner that restores it; where it has none,
//! shells are made at the priority of everybody else.

use std::mem::MaybeUninit;

use rustix::process::Pid;
use rustix::thread::CapabilitySet;

fn set(process: libc::pid_t, policy: libc::c_int) {
    // SAFETY: all bits zero is a valid value: no real-time priority.
    let priority: libc::sched_param = unsafe { MaybeUninit::zeroed().assume_init() };
    // A process that has ended has no priority.
    // SAFETY: the call reads one structure of this type.
    let _ = unsafe { libc::sched_setscheduler(process, policy, &raw const priority) };
}

/// Lets everybody else run before this process.
pub fn lower() {
    set(0, libc::SCHED_IDLE);
}

/// Has a process take turns with everybody else again.
pub fn restore(process: Pid) {
    set(process.as_raw_nonzero().get(), libc::SCHED_OTHER);
}

/// Whether this process may restore that of others.
pub fn can_restore() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|held| held.effective.contains(CapabilitySet::SYS_NICE))
}

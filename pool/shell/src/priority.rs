//! When a shell runs: while nobody waits for it, only when nothing else wants to.
//!
//! `SCHED_IDLE` rather than a nice value, since the way back from a nice value takes a
//! privilege.

use std::mem::MaybeUninit;

fn set(policy: libc::c_int) {
    // SAFETY: all bits zero is a valid value: no real-time priority.
    let priority: libc::sched_param = unsafe { MaybeUninit::zeroed().assume_init() };
    // A system that refuses makes shells at the priority of everybody else.
    // SAFETY: the call reads one structure of this type.
    let _ = unsafe { libc::sched_setscheduler(0, policy, &raw const priority) };
}

/// Lets everybody else run first.
pub fn lower() {
    set(libc::SCHED_IDLE);
}

/// Takes turns with everybody else again.
pub fn restore() {
    set(libc::SCHED_OTHER);
}

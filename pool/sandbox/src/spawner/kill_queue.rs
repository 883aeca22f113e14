//! Ending the spawner's processes, a limited number at a time.
//!
//! The kernel releases a process's compiled filters in work items of `system_wq`. Each item takes
//! one lock for all compiled programs of the system (`pack_mutex`). The holder of the lock may have
//! to wait for an item of the same queue (`vm_unmap_aliases`). That item never begins while the
//! queue is full of items that wait for the lock: from then on, no process of that machine can ever
//! install a filter again (docs/decisions/0033). A queue takes 256 items at least, 1,024 in Linux
//! 6.18, and a jail has two filters. So at most [`AT_ONCE`] processes are ended at a time. The next
//! follow when a child of the spawner has taken the same lock after them, by installing a filter.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use faasw_jail::filter::Filter;
use rustix::process::{Pid, Signal};

/// The most processes whose filters the kernel may be releasing at once.
const AT_ONCE: usize = 64;

/// How long to wait for an end. A process that takes longer is stuck in the kernel, and must not
/// delay the others.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The processes that are to end, and those that are ending.
#[derive(Debug, Default)]
pub(super) struct KillQueue {
    /// Tokens of the processes that are to end, in the order of the orders.
    waiting: VecDeque<u64>,
    /// Processes that were killed and not reaped, each with the time of the kill.
    killed: Vec<(Pid, Instant)>,
    /// Processes reaped since a child last took the lock.
    reaped: usize,
    /// The child that is about to take the lock.
    settling: Option<Pid>,
}

/// The next thing to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KillStep {
    /// Kill the process with this token if it is still there, and then call [`KillQueue::killed`].
    Kill(u64),
    /// Fork a child that waits for the kernel, and call [`KillQueue::settles`].
    Settle,
    /// Do nothing until a child was reaped, or until this time has passed.
    Wait(Option<Duration>),
}

impl KillQueue {
    /// Orders a process to end.
    pub(super) fn order(&mut self, token: u64) {
        self.waiting.push_back(token);
    }

    /// Returns the next thing to do at `now`.
    pub(super) fn next(&mut self, now: Instant) -> KillStep {
        if self.settling.is_some() {
            return KillStep::Wait(None);
        }
        let oldest =
            |since: &Instant| KILL_TIMEOUT.saturating_sub(now.saturating_duration_since(*since));
        let left = self.killed.iter().map(|(_, since)| oldest(since));
        let left: Vec<_> = left.filter(|left| !left.is_zero()).collect();
        if left.len() + self.reaped < AT_ONCE {
            return match self.waiting.pop_front() {
                Some(token) => KillStep::Kill(token),
                None => KillStep::Wait(None),
            };
        }
        match (left.into_iter().min(), self.waiting.is_empty()) {
            (None, _) => KillStep::Settle,
            (Some(_), true) => KillStep::Wait(None),
            (left, false) => KillStep::Wait(left),
        }
    }

    /// Records that a process was killed at `now`.
    pub(super) fn killed(&mut self, pid: Pid, now: Instant) {
        if self.killed.iter().all(|(other, _)| *other != pid) {
            self.killed.push((pid, now));
        }
    }

    /// Records the child that waits for the kernel. If none could be forked, the next processes end
    /// without it.
    pub(super) fn settles(&mut self, child: Option<Pid>) {
        self.settling = child;
        self.reaped = 0;
    }

    /// Whether a child waits for the kernel.
    pub(super) fn is_settling(&self) -> bool {
        self.settling.is_some()
    }

    /// Records that a child was reaped, whatever it was.
    pub(super) fn reaped(&mut self, pid: Pid) {
        if self.settling == Some(pid) {
            self.settling = None;
            return;
        }
        self.killed.retain(|(other, _)| *other != pid);
        self.reaped += 1;
    }
}

/// Forks a child that ends when the kernel has released filters of processes that were reaped
/// before.
pub(super) fn settle() -> Option<Pid> {
    // SAFETY: this process has one thread; the child has a copy of everything.
    match unsafe { libc::fork() } {
        0 => {
            let _ = Filter::open().install();
            // The spawner's own clean-up must not run in the child.
            // SAFETY: ends this process without running anything.
            unsafe { libc::_exit(0) }
        }
        child => Pid::from_raw(child.max(0)),
    }
}

/// Kills a process, whatever it does.
pub(super) fn kill(pid: Pid) {
    // The process is not reaped yet, so the number is still this child's.
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: usize) -> Pid {
        Pid::from_raw(100 + i32::try_from(number).unwrap()).unwrap()
    }

    /// Kills all processes that may be killed at `now`; returns their tokens, and what comes next.
    fn go_on(ending: &mut KillQueue, now: Instant) -> (Vec<u64>, KillStep) {
        let mut killed = Vec::new();
        loop {
            match ending.next(now) {
                KillStep::Kill(token) => {
                    ending.killed(pid(usize::try_from(token).unwrap()), now);
                    killed.push(token);
                }
                next => return (killed, next),
            }
        }
    }

    #[test]
    fn more_than_so_many_wait_until_a_child_has_had_the_lock() {
        let (mut ending, now) = (KillQueue::default(), Instant::now());
        for token in 0..150 {
            ending.order(token);
        }
        let first: Vec<_> = (0..64).collect();
        assert_eq!(
            go_on(&mut ending, now),
            (first, KillStep::Wait(Some(KILL_TIMEOUT)))
        );
        for number in 0..64 {
            assert_ne!(ending.next(now), KillStep::Settle);
            ending.reaped(pid(number));
        }
        assert_eq!(go_on(&mut ending, now), (vec![], KillStep::Settle));
        ending.settles(Some(pid(900)));
        assert_eq!(go_on(&mut ending, now), (vec![], KillStep::Wait(None)));
        ending.reaped(pid(900));
        let (killed, next) = go_on(&mut ending, now);
        assert_eq!(
            (killed.len(), next),
            (64, KillStep::Wait(Some(KILL_TIMEOUT)))
        );
    }

    #[test]
    fn those_that_end_by_themselves_count() {
        let (mut ending, now) = (KillQueue::default(), Instant::now());
        for number in 0..63 {
            ending.reaped(pid(number));
        }
        ending.order(500);
        ending.order(501);
        assert_eq!(go_on(&mut ending, now).0, [500]);
        ending.reaped(pid(500));
        assert_eq!(ending.next(now), KillStep::Settle);
        // If no child can be forked, the next process ends all the same.
        ending.settles(None);
        assert_eq!(go_on(&mut ending, now), (vec![501], KillStep::Wait(None)));
    }

    #[test]
    fn a_stuck_process_delays_the_kill_queue_briefly() {
        let (mut ending, now) = (KillQueue::default(), Instant::now());
        for token in 0..100 {
            ending.order(token);
        }
        assert_eq!(go_on(&mut ending, now).0.len(), 64);
        let later = now + KILL_TIMEOUT / 2;
        for number in 1..64 {
            ending.reaped(pid(number));
        }
        assert_eq!(ending.next(later), KillStep::Wait(Some(KILL_TIMEOUT / 2)));
        assert_eq!(go_on(&mut ending, now + KILL_TIMEOUT).0, [64]);
        ending.reaped(pid(64));
        assert_eq!(ending.next(now + KILL_TIMEOUT), KillStep::Settle);
    }

    #[test]
    fn one_that_is_killed_twice_is_one() {
        let (mut ending, now) = (KillQueue::default(), Instant::now());
        ending.killed(pid(1), now);
        ending.killed(pid(1), now);
        assert_eq!(ending.killed.len(), 1);
    }
}

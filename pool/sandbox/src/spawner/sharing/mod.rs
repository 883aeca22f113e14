//! Lets the kernel share processors as [`Shares`] determines.
//!
//! The spawner reads the run times of its processes, and writes the weights of their groups and
//! the processors that they may use, in the background. A request pays nothing for it, and no
//! process is moved to another group.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use faasw_jail::group::{Groups, WEIGHT_FULL};
use rustix::process::Pid;

use super::shares::{RunTime, Shares, TICK};
use crate::process::processors;

/// The part of its function's weight that a sandbox has in the background: a sandbox at the usual
/// priority gets ten times as much of a processor that both want.
const BACKGROUND_PART: u64 = 10;

/// Run time of a process since its start, in nanoseconds, by the kernel's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TotalRunTime {
    ran: u64,
    waited: u64,
}

impl RunTime {
    /// Adds the run time of a process between two readings.
    fn add(&mut self, before: TotalRunTime, total: TotalRunTime) {
        self.ran += total.ran.saturating_sub(before.ran);
        self.waited += total.waited.saturating_sub(before.waited);
    }
}

/// A process that shares processors with the others of its function.
#[derive(Debug)]
pub(super) struct Member {
    function: u64,
    /// Run time at the last look.
    total: Option<TotalRunTime>,
    /// The weight that its group has.
    weight: u64,
    /// Processors that it may use; `None` for all.
    processors: Option<u64>,
    is_background: bool,
}

impl Member {
    /// Creates a member of `function` whose group has the full weight. It runs at the background
    /// priority or at the usual one.
    pub(super) fn of(function: u64, is_background: bool) -> Self {
        Self {
            function,
            total: None,
            weight: WEIGHT_FULL,
            processors: None,
            is_background,
        }
    }
}

/// Returns the weight of a sandbox in the background, or at the usual priority, whose function has
/// this weight.
fn weight_of(weight: u64, is_background: bool) -> u64 {
    if is_background {
        (weight / BACKGROUND_PART).max(1)
    } else {
        weight
    }
}

/// The kernel's settings that share processors.
pub(super) trait Scheduler {
    /// Sets the weight of a jail's group.
    fn set_weight(&self, number: u32, weight: u64);

    /// Sets the weight of all jails together.
    fn set_total_weight(&self, is_contended: bool);

    /// Limits a process to so many processors, or to those of the spawner.
    fn limit_processors(&self, pid: Pid, processors: Option<u64>);

    /// Returns the time for which the last `count` processors of the spawner's were idle since the
    /// host's start, all together; `None` if it is not known.
    fn idle(&self, count: u64) -> Option<Duration>;

    /// Whether a jail has the least weight beside all others: its run time takes nothing from them.
    fn is_in_background_group(&self, number: u32) -> bool;
}

impl Scheduler for Groups {
    fn set_weight(&self, number: u32, weight: u64) {
        // If writing fails, the process has ended or keeps its weight.
        let _ = Self::set_weight(self, number, weight);
    }

    fn set_total_weight(&self, is_contended: bool) {
        Self::set_total_weight(self, is_contended);
    }

    fn limit_processors(&self, pid: Pid, processors: Option<u64>) {
        processors::limit(pid, processors);
    }

    fn idle(&self, count: u64) -> Option<Duration> {
        processors::idle(count)
    }

    fn is_in_background_group(&self, number: u32) -> bool {
        Self::is_in_background_group(self, number)
    }
}

/// The shares, and the time of the next look.
#[derive(Debug)]
pub(super) struct Sharing {
    shares: Shares,
    processors: usize,
    /// Time of the last look.
    looked: Instant,
    /// Time of the next look.
    next: Instant,
    /// All jails together have the weight for contention.
    is_contended: bool,
    /// The number of processors that were reserved at the last look, and how long they had been
    /// idle by then.
    idle: (u64, Option<Duration>),
    /// Run times since the last look of members that have ended, by function.
    ended: BTreeMap<u64, RunTime>,
    /// The last look read run times: there are enough members to contend.
    is_looking: bool,
}

impl Sharing {
    /// Creates even shares of so many processors, some of which can be reserved.
    pub(super) fn new(processors: usize, can_reserve: bool, now: Instant) -> Self {
        Self {
            shares: Shares::new(processors as u64, can_reserve),
            processors,
            looked: now,
            next: now,
            is_contended: false,
            idle: (0, None),
            ended: BTreeMap::new(),
            is_looking: false,
        }
    }

    /// Gives a new member the weight and the processors of its function. Reads its run time by
    /// `total`, so that it also counts if it ends before the next look.
    pub(super) fn join(
        &mut self,
        (number, pid, member): (u32, Pid, &mut Member),
        scheduler: &impl Scheduler,
        total: impl Fn(Pid) -> Option<TotalRunTime>,
        now: Instant,
    ) {
        if self.is_looking {
            member.total = total(pid);
        }
        self.write((number, pid, member), scheduler);
        // With it there may be more members than processors.
        self.next = self.next.min(now + TICK);
    }

    /// Counts the run time since the last look of a member that has ended and is not reaped yet.
    pub(super) fn leave(
        &mut self,
        (number, pid, member): (u32, Pid, &Member),
        scheduler: &impl Scheduler,
        total: impl Fn(Pid) -> Option<TotalRunTime>,
    ) {
        if let Some(before) = member.total
            && !scheduler.is_in_background_group(number)
            && let Some(total) = total(pid)
        {
            let did = self.ended.entry(member.function).or_default();
            did.add(before, total);
        }
    }

    /// Runs a member at the background priority, or at the usual one.
    pub(super) fn set_background(
        &self,
        (number, pid, member): (u32, Pid, &mut Member),
        is_background: bool,
        scheduler: &impl Scheduler,
    ) {
        member.is_background = is_background;
        self.write((number, pid, member), scheduler);
    }

    /// If a look is due, reads the run times of all members by `total` and writes the weights that
    /// have changed. Returns the time until the next look; `None` if there are too few members to
    /// contend.
    pub(super) fn look<'a>(
        &mut self,
        members: impl Iterator<Item = (u32, Pid, &'a mut Member)>,
        scheduler: &impl Scheduler,
        total: impl Fn(Pid) -> Option<TotalRunTime>,
        now: Instant,
    ) -> Option<Duration> {
        let members: Vec<_> = members.collect();
        // Each member has one thread.
        if members.len() <= self.processors && !self.is_contended && self.shares.are_even() {
            self.is_looking = false;
            self.ended.clear();
            return None;
        }
        if now < self.next {
            return Some(self.next - now);
        }
        self.is_looking = true;
        let mut did = std::mem::take(&mut self.ended);
        let mut looked_at = Vec::with_capacity(members.len());
        for (number, pid, member) in members {
            let total = total(pid);
            if let (Some(before), Some(total)) = (member.total, total)
                && !scheduler.is_in_background_group(number)
            {
                did.entry(member.function).or_default().add(before, total);
            }
            member.total = total;
            looked_at.push((number, pid, member));
        }
        let elapsed = now - self.looked;
        let idle = self.reserve_idle(scheduler, elapsed);
        self.shares.look(elapsed, &did, idle);
        self.looked = now;
        for member in looked_at {
            self.write(member, scheduler);
        }
        let is_contended = self.shares.are_contended();
        if is_contended != self.is_contended {
            scheduler.set_total_weight(is_contended);
            self.is_contended = is_contended;
        }
        let tick = self.shares.tick();
        self.next = now + tick;
        Some(tick)
    }

    /// Returns the time for which the reserved processors were idle since the last look, all
    /// together. If the host does not report it, they count as idle.
    fn reserve_idle(&mut self, scheduler: &impl Scheduler, elapsed: Duration) -> Duration {
        let reserved = self.shares.reserved();
        let now = (reserved > 0).then(|| scheduler.idle(reserved)).flatten();
        let (reserved_before, before) = std::mem::replace(&mut self.idle, (reserved, now));
        let all = elapsed.saturating_mul(reserved as u32);
        match (before, now) {
            (Some(before), Some(now)) if reserved_before == reserved => {
                now.saturating_sub(before).min(all)
            }
            // Just reserved: nothing is known yet.
            (_, Some(_)) => Duration::ZERO,
            (_, None) => all,
        }
    }

    fn write(&self, (number, pid, member): (u32, Pid, &mut Member), scheduler: &impl Scheduler) {
        let weight = weight_of(self.shares.weight(member.function), member.is_background);
        if weight != member.weight {
            scheduler.set_weight(number, weight);
            member.weight = weight;
        }
        let processors = self.shares.processors(member.function);
        if processors != member.processors {
            scheduler.limit_processors(pid, processors);
            member.processors = processors;
        }
    }
}

/// Returns the run time of a process with one thread; `None` if it has ended, or if the kernel
/// does not count waits.
pub(super) fn total(pid: Pid) -> Option<TotalRunTime> {
    let path = format!("/proc/{}/schedstat", pid.as_raw_nonzero());
    parse(&fs::read_to_string(path).ok()?)
}

/// Parses `/proc/PID/schedstat`: time on a processor and time of waiting for one, in nanoseconds,
/// and the number of runs (`Documentation/scheduler/sched-stats.rst` of the kernel).
fn parse(text: &str) -> Option<TotalRunTime> {
    let mut fields = text.split_whitespace().map(str::parse);
    let (Some(Ok(ran)), Some(Ok(waited))) = (fields.next(), fields.next()) else {
        return None;
    };
    Some(TotalRunTime { ran, waited })
}

#[cfg(test)]
mod tests;

//! Has the kernel share processors among functions as [`Shares`] says.
//!
//! The spawner looks by itself at what its processes did, by the kernel's account, and writes the weights
//! of their groups: a request costs nothing for it, and no process is moved.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use faasw_cell::group::{Groups, WEIGHT_FULL};
use rustix::process::Pid;

use super::shares::{Did, Shares, TICK};

/// What a process did in all, in nanoseconds, by the kernel's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Total {
    ran: u64,
    waited: u64,
}

/// A process that shares processors as one of a function's.
#[derive(Debug)]
pub(super) struct Member {
    function: u64,
    /// What it had done at the last look.
    total: Option<Total>,
    /// The weight of its group.
    weight: u64,
}

impl Member {
    /// One of `function`, whose group has the usual weight.
    pub(super) fn of(function: u64) -> Self {
        Self {
            function,
            total: None,
            weight: WEIGHT_FULL,
        }
    }
}

/// Where weights are written to: the groups of cells.
pub(super) trait Weights {
    /// Sets the weight of a cell's group.
    fn weigh(&self, number: u32, weight: u64);

    /// Sets the weight of all cells together.
    fn weigh_all(&self, is_contended: bool);

    /// Whether everything else comes before the cell: what it does then takes nothing from others.
    fn is_aside(&self, number: u32) -> bool;
}

impl Weights for Groups {
    fn weigh(&self, number: u32, weight: u64) {
        // A group that cannot be written has the weight that it had.
        let _ = Self::weigh(self, number, weight);
    }

    fn weigh_all(&self, is_contended: bool) {
        Self::weigh_all(self, is_contended);
    }

    fn is_aside(&self, number: u32) -> bool {
        Self::is_aside(self, number)
    }
}

/// How processors are shared, and when to look again.
#[derive(Debug)]
pub(super) struct Sharing {
    shares: Shares,
    processors: usize,
    /// The last look, and the next.
    looked: Instant,
    next: Instant,
    /// The weight of all cells is the one for contention.
    is_contended: bool,
}

impl Sharing {
    /// All functions weigh the same on so many processors.
    pub(super) fn new(processors: usize, now: Instant) -> Self {
        Self {
            shares: Shares::new(processors as u64),
            processors,
            looked: now,
            next: now,
            is_contended: false,
        }
    }

    /// A process has become a function's: its group gets the weight that those of the others have.
    pub(super) fn join(
        &mut self,
        (number, member): (u32, &mut Member),
        weights: &impl Weights,
        now: Instant,
    ) {
        self.write((number, member), weights);
        // With it there may be more than there are processors.
        self.next = self.next.min(now + TICK);
    }

    /// Looks at what all members did by `total`, if it is time for that, and writes the weights that have changed.
    /// Returns in how long it is to be done again; nothing while there are too few to contend.
    pub(super) fn look<'a>(
        &mut self,
        members: impl Iterator<Item = (u32, Pid, &'a mut Member)>,
        weights: &impl Weights,
        total: impl Fn(Pid) -> Option<Total>,
        now: Instant,
    ) -> Option<Duration> {
        let members: Vec<_> = members.collect();
        // Each has one thread.
        if members.len() <= self.processors && !self.is_contended && self.shares.are_even() {
            return None;
        }
        if now < self.next {
            return Some(self.next - now);
        }
        let mut did: BTreeMap<u64, Did> = BTreeMap::new();
        let mut numbered = Vec::with_capacity(members.len());
        for (number, pid, member) in members {
            let total = total(pid);
            if let (Some(before), Some(total)) = (member.total, total)
                && !weights.is_aside(number)
            {
                let did = did.entry(member.function).or_default();
                did.ran += total.ran.saturating_sub(before.ran);
                did.waited += total.waited.saturating_sub(before.waited);
            }
            member.total = total;
            numbered.push((number, member));
        }
        self.shares.look(now - self.looked, &did);
        self.looked = now;
        for member in numbered {
            self.write(member, weights);
        }
        let is_contended = self.shares.are_contended();
        if is_contended != self.is_contended {
            weights.weigh_all(is_contended);
            self.is_contended = is_contended;
        }
        let tick = self.shares.tick();
        self.next = now + tick;
        Some(tick)
    }

    fn write(&self, (number, member): (u32, &mut Member), weights: &impl Weights) {
        let weight = self.shares.weight(member.function);
        if weight != member.weight {
            weights.weigh(number, weight);
            member.weight = weight;
        }
    }
}

/// What a process with one thread did; nothing when it has ended, or the kernel does not tell.
pub(super) fn total(pid: Pid) -> Option<Total> {
    let path = format!("/proc/{}/schedstat", pid.as_raw_nonzero());
    parse(&fs::read_to_string(path).ok()?)
}

/// Time on a processor, time of waiting for one, and how often it came to one, in nanoseconds
/// (`Documentation/scheduler/sched-stats.rst` of the kernel).
fn parse(text: &str) -> Option<Total> {
    let mut fields = text.split_whitespace().map(str::parse);
    let (Some(Ok(ran)), Some(Ok(waited))) = (fields.next(), fields.next()) else {
        return None;
    };
    Some(Total { ran, waited })
}

#[cfg(test)]
mod tests;

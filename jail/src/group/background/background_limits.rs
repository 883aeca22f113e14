//! The memory and processes of a jail in the background, with version 2 of control groups.
//!
//! With version 2 a process has one group for all controllers. Memory is charged to the group that
//! the process is in when it first uses it, and stays charged there when the process moves. So a
//! jail in the background has the limits of its own group once more, and all of them together at
//! most a quarter of the limit of all jails ([`PART`]). If memory is still charged to such a group
//! when its jail moves back, the group is kept for the jail until it ends. So moving to and fro
//! does not give a jail more memory each time.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::super::location::{CgroupLocation, has_limit};
use super::super::{CLEAN, CgroupVersion, Groups, get, put, put_limits};

/// The part of the memory limit of all jails that jails in the background may have in addition, all
/// together.
const PART: u64 = 4;

/// The limits of jails that have or had a group beside all others.
#[derive(Debug, Default)]
pub(super) struct BackgroundLimits {
    all: BTreeMap<u32, BackgroundLimit>,
}

/// The limit that one jail has, or had.
#[derive(Debug, Default)]
struct BackgroundLimit {
    /// The limit of its group, in bytes; 0 if it has no such group now.
    memory: u64,
    /// Bytes that stayed charged to those of its groups that were removed; the group above has them
    /// now.
    left: u64,
}

pub(super) struct Limits {
    memory: u64,
    processes: u64,
}

impl Limits {
    pub(super) fn set(&self, folder: BorrowedFd<'_>) -> Result<(), Errno> {
        let folders = [folder; 2];
        put_limits(CgroupVersion::Two, folders, self.memory, self.processes)
    }
}

impl BackgroundLimits {
    /// Returns the sum of the limits of all such groups except that of `number`, in bytes.
    fn sum_except(&self, number: u32) -> u64 {
        let others = self.all.iter().filter(|(other, _)| **other != number);
        others
            .map(|(_, loan)| loan.memory)
            .fold(0, u64::saturating_add)
    }

    /// Records that the jail has ended; returns whether it has a group.
    pub(super) fn end(&mut self, number: u32) -> bool {
        self.all.remove(&number).is_some_and(|loan| loan.memory > 0)
    }

    /// Returns the numbers of the jails that have or had a group.
    pub(super) fn into_jails(self) -> impl Iterator<Item = u32> {
        self.all.into_keys()
    }
}

/// As [`super::check`], for version 2.
pub(super) fn check(place: &CgroupLocation) -> Result<(), &'static str> {
    let Some(folder) = place.folders.first() else {
        return Err("there are no control groups");
    };
    let shared = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
    if !shared
        .split_whitespace()
        .any(|controller| controller == "cpu")
    {
        return Err("control groups have no controller of processors");
    }
    let is_limited_by = |files| folder.ancestors().any(|folder| has_limit(folder, files));
    if is_limited_by(&["cpu.max"]) {
        return Err("the node's processors have a quota");
    }
    // Background limits come on top of the limit of all jails.
    if is_limited_by(&["memory.max", "memory.high"]) {
        return Err(
            "a control group above limits memory, which jails in the background would exceed",
        );
    }
    Ok(())
}

impl Groups {
    /// Reserves limits for the background group of a jail. Returns `None` with version 1.
    ///
    /// # Errors
    /// Returns [`Errno::AGAIN`] if other jails have all that is available; otherwise the error of
    /// reading the limits.
    pub(super) fn reserve_background_limits(&self, number: u32) -> Result<Option<Limits>, Errno> {
        if self.version == CgroupVersion::One {
            return Ok(None);
        }
        let ours = self.hierarchies.first().ok_or(Errno::NOENT)?.ours.as_fd();
        let limits = Limits {
            memory: get(ours, &format!("{number}/{}", self.version.memory()))?,
            processes: get(ours, &format!("{number}/pids.max"))?,
        };
        let all_limits = &mut self.background.borrow_mut().limits;
        let most = self
            .total_memory_limit
            .get()
            .map_or(u64::MAX, |bytes| bytes / PART);
        if all_limits.sum_except(number).saturating_add(limits.memory) > most {
            return Err(Errno::AGAIN);
        }
        all_limits.all.entry(number).or_default().memory = limits.memory;
        Ok(Some(limits))
    }

    /// Changes the memory limit of the jail's group beside all others to `bytes`, if there is one.
    pub(in super::super) fn set_background_memory(
        &self,
        number: u32,
        bytes: u64,
    ) -> Result<(), Errno> {
        if !self.has_background_limits(number) {
            return Ok(());
        }
        if let Some(loan) = self.background.borrow_mut().limits.all.get_mut(&number) {
            loan.memory = bytes;
        }
        let above = self.processors().ok_or(Errno::NOENT)?.above.as_fd();
        let file = format!("{}/{}", self.background_name(number), self.version.memory());
        put(above, &file, &bytes.to_string())
    }

    /// Whether a jail has a group beside all others with limits of its own, whether or not it is in
    /// it.
    pub(in super::super) fn has_background_limits(&self, number: u32) -> bool {
        let all_limits = &self.background.borrow().limits;
        all_limits
            .all
            .get(&number)
            .is_some_and(|loan| loan.memory > 0)
    }

    /// Called when the jail has left its group; returns whether to remove it. The group stays if
    /// removing it would leave more memory charged to the group above than the groups of one jail
    /// may leave there.
    pub(super) fn try_release_limits(&self, number: u32) -> bool {
        if !self.has_background_limits(number) {
            return true;
        }
        let usage = self.processors().ok_or(Errno::NOENT).and_then(|hierarchy| {
            let file = format!("{}/{}", self.background_name(number), self.version.usage());
            get(hierarchy.above.as_fd(), &file)
        });
        let all_limits = &mut self.background.borrow_mut().limits;
        let (Some(loan), Ok(usage)) = (all_limits.all.get_mut(&number), usage) else {
            return false;
        };
        let left = loan.left.saturating_add(usage);
        if left > CLEAN {
            return false;
        }
        *loan = BackgroundLimit { memory: 0, left };
        true
    }
}

//! What a jail has of memory and processes while it is aside, with version 2 of control groups.
//!
//! There a process has one group for all controllers. What it touches is charged to the group that
//! it is in then, and stays there when it moves: so a jail that is aside has the limits of its own
//! group once more, and all of them together a quarter of what all jails may have ([`PART`]). A
//! group that something is still charged to when its jail comes back is kept for it until it ends,
//! so that going to and fro does not let a jail have more each time.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::io::Errno;

use super::super::place::Place;
use super::super::{CLEAN, Groups, Version, get, put};

/// The part of what all jails may have of memory that those aside may have besides, all together.
const PART: u64 = 4;

/// Files by which a group limits its memory.
const LIMITS: [&str; 2] = ["memory.max", "memory.high"];

/// The limits of jails that have or had a group beside all others.
#[derive(Debug, Default)]
pub(super) struct Lent {
    all: BTreeMap<u32, Loan>,
}

/// What one jail has, or had.
#[derive(Debug, Default)]
struct Loan {
    /// The limit of its group, in bytes; 0 where it has none now.
    memory: u64,
    /// What stayed charged to those of its groups that are gone, in bytes: the group above has it.
    left: u64,
}

/// Limits of a group.
pub(super) struct Limits {
    memory: u64,
    processes: u64,
}

impl Limits {
    /// # Errors
    /// The system's.
    pub(super) fn set(&self, folder: BorrowedFd<'_>) -> Result<(), Errno> {
        put(folder, Version::Two.memory(), &self.memory.to_string())?;
        put(folder, "pids.max", &self.processes.to_string())?;
        // Some kernels do not account for swap.
        let _ = put(folder, "memory.swap.max", "0");
        Ok(())
    }
}

impl Lent {
    /// Bytes that all groups there are may have together, but for that of `number`.
    fn beside(&self, number: u32) -> u64 {
        let others = self.all.iter().filter(|(other, _)| **other != number);
        others
            .map(|(_, loan)| loan.memory)
            .fold(0, u64::saturating_add)
    }

    /// The jail has ended; says whether it has a group.
    pub(super) fn end(&mut self, number: u32) -> bool {
        self.all.remove(&number).is_some_and(|loan| loan.memory > 0)
    }

    /// Whose groups there are.
    pub(super) fn kept(self) -> impl Iterator<Item = u32> {
        self.all.into_keys()
    }
}

/// As [`super::check`].
pub(super) fn check(place: &Place) -> Result<(), &'static str> {
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
    let limits = |folder: &Path, file: &str| {
        let limit = fs::read_to_string(folder.join(file));
        limit.is_ok_and(|limit| !limit.trim_start().starts_with("max"))
    };
    if folder.ancestors().any(|folder| limits(folder, "cpu.max")) {
        return Err("the node's processors have a quota");
    }
    // What is lent comes on top of what all jails may have.
    let is_limited = |folder: &Path| LIMITS.iter().any(|file| limits(folder, file));
    if folder.ancestors().any(is_limited) {
        return Err(
            "a control group above limits memory, which jails would exceed that step aside",
        );
    }
    Ok(())
}

impl Groups {
    /// Lends a jail limits for a group beside all others; none with version 1.
    ///
    /// # Errors
    /// The system's; [`Errno::AGAIN`] where others have all that can be lent.
    pub(super) fn lend(&self, number: u32) -> Result<Option<Limits>, Errno> {
        if self.version == Version::One {
            return Ok(None);
        }
        let ours = self.hierarchies.first().ok_or(Errno::NOENT)?.ours.as_fd();
        let limits = Limits {
            memory: get(ours, &format!("{number}/{}", self.version.memory()))?,
            processes: get(ours, &format!("{number}/pids.max"))?,
        };
        let lent = &mut self.aside.borrow_mut().lent;
        let most = self.of_all.get().map_or(u64::MAX, |bytes| bytes / PART);
        if lent.beside(number).saturating_add(limits.memory) > most {
            return Err(Errno::AGAIN);
        }
        lent.all.entry(number).or_default().memory = limits.memory;
        Ok(Some(limits))
    }

    /// The jail may have other `bytes` of memory now.
    pub(in super::super) fn lend_memory(&self, number: u32, bytes: u64) -> Result<(), Errno> {
        if !self.has_lent(number) {
            return Ok(());
        }
        if let Some(loan) = self.aside.borrow_mut().lent.all.get_mut(&number) {
            loan.memory = bytes;
        }
        let above = self.processors().ok_or(Errno::NOENT)?.above.as_fd();
        let file = format!("{}/{}", self.aside_name(number), self.version.memory());
        put(above, &file, &bytes.to_string())
    }

    /// Whether a jail has a group beside all others with limits of its own, in it or not.
    pub(in super::super) fn has_lent(&self, number: u32) -> bool {
        let lent = &self.aside.borrow().lent;
        lent.all.get(&number).is_some_and(|loan| loan.memory > 0)
    }

    /// The jail has left its group; whether that is to go. It stays where more would be left
    /// charged to the group above than one group of a jail may leave there.
    pub(super) fn takes_back(&self, number: u32) -> bool {
        if !self.has_lent(number) {
            return true;
        }
        let usage = self.processors().ok_or(Errno::NOENT).and_then(|hierarchy| {
            let file = format!("{}/{}", self.aside_name(number), self.version.usage());
            get(hierarchy.above.as_fd(), &file)
        });
        let lent = &mut self.aside.borrow_mut().lent;
        let (Some(loan), Ok(usage)) = (lent.all.get_mut(&number), usage) else {
            return false;
        };
        let left = loan.left.saturating_add(usage);
        if left > CLEAN {
            return false;
        }
        *loan = Loan { memory: 0, left };
        true
    }
}

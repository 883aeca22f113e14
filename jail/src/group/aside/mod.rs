//! Jails that all others come before.
//!
//! The scheduler shares a processor among groups level by level, so a group below the one that all
//! jails of a process are in comes behind other jails only: against the process itself the weight
//! of the level above counts. So a jail that is to be aside is moved to a group beside that of all
//! jails, with the least weight that there is: 2 of 1024, which a wake of anybody else interrupts.
//! Moving takes a grace period of RCU, 5 to 30 ms; after that being aside is one word of the
//! kernel's.
//!
//! One that is not aside any more weighs as much as a process at once, and for a moment stays where
//! it is, in case that it is aside again soon. Then it is moved back ([`Groups::bring_home`]): in a
//! group of its own it weighs beside all jails, which would have more than is theirs of the
//! processors together.
//!
//! Not `cpu.idle`, which gives way to everything, too: a processor that runs only what is idle
//! counts as free, so the scheduler puts whoever wakes there first of all, the very process that
//! waits for the jail (`docs/decisions/0025-hot-instances.md`).
//!
//! With version 1 processors are a hierarchy of their own. With version 2 the jail leaves the
//! limits of its memory and its processes as well, so its group beside the others has the same
//! (`lent`). Not where the process is held to a quota of processors, which a guest that looks for
//! requests would use up.

mod lent;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Pid;

use self::lent::Lent;
use super::place::{Place, Version};
use super::{Groups, Hierarchy, PROCESSORS, make_folder, number, open_folder, put, remove};

/// What a group can weigh.
struct Weights {
    /// The file that says it.
    file: &'static str,
    /// The least that it takes.
    least: &'static str,
    /// What a thread outside of groups weighs.
    usual: &'static str,
}

impl Weights {
    const fn of(version: Version) -> Self {
        match version {
            Version::One => Self {
                file: "cpu.shares",
                least: "2",
                usual: "1024",
            },
            Version::Two => Self {
                file: "cpu.weight",
                least: "1",
                usual: "100",
            },
        }
    }
}

/// The file that says who is in a group.
const PROCESSES: &str = "cgroup.procs";

/// How long a jail that is not aside any more stays where it is.
const STAY: Duration = Duration::from_secs(1);

/// Those that have a group of this kind.
#[derive(Debug, Default)]
pub(super) struct Aside {
    used: BTreeMap<u32, Out>,
    /// Whose jail has ended, or was moved back.
    left: BTreeSet<u32>,
    lent: Lent,
}

/// A jail that is not where all are.
#[derive(Debug)]
struct Out {
    pid: Pid,
    /// Since when it is not aside any more; nothing where it is.
    back_since: Option<Instant>,
}

/// Whether jails of a process can be aside that has its groups at `place`, where they are made by
/// now, and if not why, for people to read.
pub(super) fn check(place: &Place) -> Result<(), &'static str> {
    match place.version {
        Version::One => check_one(place),
        Version::Two => lent::check(place),
    }
}

fn check_one(place: &Place) -> Result<(), &'static str> {
    match place.folders.get(PROCESSORS) {
        None => Err("control groups have no controller of processors"),
        Some(folder) if folder.ancestors().any(has_quota) => {
            Err("the node's processors have a quota")
        }
        Some(folder) if others(place).any(|other| is_same(other, folder)) => {
            Err("processors share a hierarchy of control groups with memory or processes")
        }
        Some(_) => Ok(()),
    }
}

/// Folders of what a jail must not leave.
fn others(place: &Place) -> impl Iterator<Item = &Path> {
    place
        .folders
        .iter()
        .take(PROCESSORS)
        .map(|folder| &**folder)
}

/// Whether two folders are of one hierarchy.
fn is_same(one: &Path, other: &Path) -> bool {
    let device = |folder| fs::metadata(folder).map(|metadata| metadata.dev());
    match (device(one), device(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => true,
    }
}

fn as_text(pid: Pid) -> String {
    pid.as_raw_nonzero().get().to_string()
}

fn has_quota(folder: &Path) -> bool {
    let quota = fs::read_to_string(folder.join("cpu.cfs_quota_us"));
    quota.is_ok_and(|quota| number(&quota).is_some_and(|quota| quota > 0))
}

impl Groups {
    /// Whether jails can be aside here, and if not why, for people to read.
    ///
    /// # Errors
    /// That.
    pub fn can_step_aside(&self) -> Result<(), &'static str> {
        self.may_be_aside
    }

    /// Has all that wants a processor come before the process `pid` of group `number`, or not any
    /// more; then [`Groups::bring_home`] moves it back.
    ///
    /// # Errors
    /// The system's, as when there is no such process; `NOTSUP` where it cannot be; `AGAIN` where
    /// too many are aside by now.
    pub fn step_aside(&self, number: u32, pid: Pid, aside: bool) -> Result<(), Errno> {
        self.may_be_aside.map_err(|_| Errno::NOTSUP)?;
        let above = self.processors().ok_or(Errno::NOTSUP)?.above.as_fd();
        let name = self.aside_name(number);
        let weights = Weights::of(self.version);
        let weight = if aside { weights.least } else { weights.usual };
        if let Some(out) = self.aside.borrow_mut().used.get_mut(&number) {
            let written = open_folder(above, &*name)
                .and_then(|folder| put(folder.as_fd(), weights.file, weight));
            // Where its weight cannot be had it is moved back all the same.
            out.back_since = match (aside && written.is_ok(), out.back_since) {
                (true, _) => None,
                (false, since) => since.or_else(|| Some(Instant::now())),
            };
            return written;
        }
        if !aside {
            return Ok(());
        }
        let lent = self.lend(number)?;
        let folder = make_folder(above, &name)?;
        let moved = match lent {
            Some(share) => share.set(folder.as_fd()),
            None => Ok(()),
        };
        let moved = moved
            .and_then(|()| put(folder.as_fd(), weights.file, weight))
            .and_then(|()| put(folder.as_fd(), PROCESSES, &as_text(pid)));
        let mut aside = self.aside.borrow_mut();
        match moved {
            Ok(()) => {
                aside.left.remove(&number);
                let out = Out {
                    pid,
                    back_since: None,
                };
                aside.used.insert(number, out);
            }
            Err(_) => {
                drop(aside);
                if self.takes_back(number) {
                    self.remove_aside(number);
                }
            }
        }
        moved
    }

    /// Whether the jail of group `number` has the least weight beside all other jails.
    #[must_use]
    pub fn is_aside(&self, number: u32) -> bool {
        let used = &self.aside.borrow().used;
        used.get(&number)
            .is_some_and(|out| out.back_since.is_none())
    }

    /// Moves jails back among all others that have not been aside for a second at `now`. In how
    /// long that is to be done again, if there are more.
    pub fn bring_home(&self, now: Instant) -> Option<Duration> {
        let passed = |since: Instant| now.saturating_duration_since(since);
        let is_due = |out: &Out| out.back_since.is_some_and(|since| passed(since) >= STAY);
        let due: Vec<_> = {
            let used = &self.aside.borrow().used;
            let due = used.iter().filter(|(_, out)| is_due(out));
            due.map(|(number, out)| (*number, out.pid)).collect()
        };
        // All at once: they share a grace period.
        for (number, pid) in due {
            if let Some(processors) = self.processors() {
                let file = format!("{number}/{PROCESSES}");
                // One that has just ended is nowhere.
                let _ = put(processors.ours.as_fd(), &file, &as_text(pid));
            }
            self.aside.borrow_mut().used.remove(&number);
            if self.takes_back(number) {
                self.remove_aside(number);
            }
        }
        let used = &self.aside.borrow().used;
        let oldest = used.values().filter_map(|out| out.back_since).min();
        oldest.map(|since| STAY.saturating_sub(passed(since)))
    }

    /// Removes the group beside all others of a jail that has ended.
    pub(super) fn end_aside(&self, number: u32) {
        let was_out = self.aside.borrow_mut().used.remove(&number).is_some();
        let was_lent = self.aside.borrow_mut().lent.end(number);
        if was_out || was_lent {
            self.remove_aside(number);
        }
    }

    /// Removes a group that nobody is to be in any more. One that is still
    /// in use for a moment goes with the next, or at the end.
    fn remove_aside(&self, number: u32) {
        let mut aside = self.aside.borrow_mut();
        aside.left.insert(number);
        if let Some(processors) = self.processors() {
            let above = processors.above.as_fd();
            aside
                .left
                .retain(|number| !remove(above, &self.aside_name(*number)));
        }
    }

    /// Removes all of them. Their jails must have ended.
    pub(super) fn remove_all_aside(&self) {
        let Aside { used, left, lent } = std::mem::take(&mut *self.aside.borrow_mut());
        if let Some(processors) = self.processors() {
            let all = used.into_keys().chain(left).chain(lent.kept());
            for number in all {
                remove(processors.above.as_fd(), &self.aside_name(number));
            }
        }
    }

    pub(super) fn aside_name(&self, number: u32) -> String {
        format!("{}-{number}", self.name)
    }

    /// The hierarchy that is about processors.
    pub(super) fn processors(&self) -> Option<&Hierarchy> {
        match self.version {
            Version::One => self.hierarchies.get(PROCESSORS),
            Version::Two => self.hierarchies.first(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;

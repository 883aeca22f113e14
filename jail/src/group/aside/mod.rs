//! Jails that are aside: behind all others.
//!
//! The scheduler shares a processor among groups level by level. A group below that of all jails is
//! behind other jails only: against the node's process, the weight of the level above counts. So a
//! jail that is to be aside is moved to a group beside that of all jails, with the least possible
//! weight: 2 of 1024, so that any other process that wakes preempts it. Moving takes a grace period
//! of RCU, 5 to 30 ms. After that, being aside is one number in the kernel: the weight of that
//! group.
//!
//! A jail that is no longer aside weighs as much as a process at once. It stays where it is for a
//! moment, in case it is aside again soon. Then it is moved back ([`Groups::bring_home`]): in a
//! group of its own it counts beside all jails, which together would have more than their share of
//! the processors.
//!
//! `cpu.idle` also gives way to everything, but is not used: a processor that runs only idle work
//! counts as free. So the scheduler prefers to place a waking process there, which may be the very
//! one that waits for the jail (`docs/decisions/0025-hot-instances.md`).
//!
//! With version 1, processors are a hierarchy of their own. With version 2, the jail also leaves
//! the limits of its memory and its processes, so its group beside the others has the same limits
//! (`lent`). Jails are never aside if the process has a quota of processors, which a guest that
//! polls for requests would use up.

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

/// The weights of a group.
struct Weights {
    /// The file with the weight.
    file: &'static str,
    /// The least weight that the file accepts.
    least: &'static str,
    /// The weight of a thread outside of groups.
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

/// The file with the processes of a group.
const PROCESSES: &str = "cgroup.procs";

/// How long a jail that is no longer aside stays where it is.
const STAY: Duration = Duration::from_secs(1);

/// The groups beside that of all jails.
#[derive(Debug, Default)]
pub(super) struct Aside {
    used: BTreeMap<u32, Out>,
    /// Numbers of groups whose jail has ended or was moved back.
    left: BTreeSet<u32>,
    lent: Lent,
}

/// A jail in a group beside that of all jails.
#[derive(Debug)]
struct Out {
    pid: Pid,
    /// The time since which it is no longer aside; `None` while it is aside.
    back_since: Option<Instant>,
}

/// Checks whether jails can be aside if their process has its groups at `place`, where they must
/// have been made. The error is the reason, for people to read.
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

/// Returns the folders of the hierarchies that a jail must not leave.
fn others(place: &Place) -> impl Iterator<Item = &Path> {
    place
        .folders
        .iter()
        .take(PROCESSORS)
        .map(|folder| &**folder)
}

/// Whether two folders belong to one hierarchy.
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
    /// Checks whether jails can be aside here.
    ///
    /// # Errors
    /// Returns the reason if they cannot, for people to read.
    pub fn can_step_aside(&self) -> Result<(), &'static str> {
        self.may_be_aside
    }

    /// Puts the process `pid` of group `number` behind everything else that wants a processor, or
    /// ends that; then [`Groups::bring_home`] moves it back.
    ///
    /// # Errors
    /// Returns `NOTSUP` if jails cannot be aside, `AGAIN` if too many are aside already, and
    /// otherwise the error of changing the group, for example if there is no such process.
    pub fn step_aside(&self, number: u32, pid: Pid, aside: bool) -> Result<(), Errno> {
        self.may_be_aside.map_err(|_| Errno::NOTSUP)?;
        let above = self.processors().ok_or(Errno::NOTSUP)?.above.as_fd();
        let name = self.aside_name(number);
        let weights = Weights::of(self.version);
        let weight = if aside { weights.least } else { weights.usual };
        if let Some(out) = self.aside.borrow_mut().used.get_mut(&number) {
            let written = open_folder(above, &*name)
                .and_then(|folder| put(folder.as_fd(), weights.file, weight));
            // If the weight cannot be set, the jail is moved back all the same.
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

    /// Moves back the jails that, at `now`, have not been aside for at least a second (`STAY`).
    /// Returns the time after which to call this again, if there are more.
    pub fn bring_home(&self, now: Instant) -> Option<Duration> {
        let passed = |since: Instant| now.saturating_duration_since(since);
        let is_due = |out: &Out| out.back_since.is_some_and(|since| passed(since) >= STAY);
        let due: Vec<_> = {
            let used = &self.aside.borrow().used;
            let due = used.iter().filter(|(_, out)| is_due(out));
            due.map(|(number, out)| (*number, out.pid)).collect()
        };
        // All at once, because they share a grace period.
        for (number, pid) in due {
            if let Some(processors) = self.processors() {
                let file = format!("{number}/{PROCESSES}");
                // A process that has just ended cannot be moved.
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

    /// Removes a group that is no longer needed. If it is still in use for a moment, it is removed
    /// with the next one, or at the end.
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

    /// Removes all of these groups. Their jails must have ended.
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

    /// Returns the hierarchy with the controller of processors.
    pub(super) fn processors(&self) -> Option<&Hierarchy> {
        match self.version {
            Version::One => self.hierarchies.get(PROCESSORS),
            Version::Two => self.hierarchies.first(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;

//! Jails in the background: they give way to all other processes.
//!
//! The scheduler shares a processor among groups level by level. A group below that of all jails is
//! behind other jails only: against the node's process, the weight of the level above counts. So a
//! jail for the background is moved to a group beside that of all jails, with the least possible
//! weight: 2 of 1024, so that any other process that wakes preempts it. Moving takes a grace period
//! of RCU, 5 to 30 ms. After that, being in the background is one number in the kernel: the weight
//! of that group.
//!
//! A jail that leaves the background weighs as much as a process at once. It stays where it is for
//! a moment, in case it returns to the background soon. Then it is moved back
//! ([`Groups::return_from_background`]): in a group of its own it counts beside all jails, which
//! together would have more than their share of the processors.
//!
//! `cpu.idle` also gives way to everything, but is not used: a processor that runs only idle work
//! counts as free. So the scheduler prefers to place a waking process there, which may be the very
//! one that waits for the jail (`docs/decisions/0025-hot-instances.md`).
//!
//! With version 1, processors are a hierarchy of their own. With version 2, the jail also leaves
//! the limits of its memory and its processes, so its group beside the others has the same limits
//! (`background_limits`). Jails are never in the background if the process has a quota of
//! processors, which a guest that polls for requests would use up.

mod background_limits;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Pid;

use self::background_limits::BackgroundLimits;
use super::location::{CgroupLocation, CgroupVersion};
use super::{
    Groups, Hierarchy, PROCESSORS, make_folder, number, open_folder, put, remove, weight_file,
};

/// The weight of a thread outside of groups.
const USUAL_WEIGHT: u64 = 100;

/// The file with the processes of a group.
const PROCESSES: &str = "cgroup.procs";

/// How long a jail that has left the background stays in its background group.
const RETURN_DELAY: Duration = Duration::from_secs(1);

/// The groups beside that of all jails.
#[derive(Debug, Default)]
pub(super) struct BackgroundGroups {
    used: BTreeMap<u32, BackgroundJail>,
    /// Numbers of groups whose jail has ended or was moved back.
    left: BTreeSet<u32>,
    limits: BackgroundLimits,
}

/// A jail in a group beside that of all jails.
#[derive(Debug)]
struct BackgroundJail {
    pid: Pid,
    /// The time since which it is no longer in the background; `None` while it is.
    back_since: Option<Instant>,
}

/// Checks whether jails can be in the background if their process has its groups at `place`, where
/// they must have been made. The error is the reason, for people to read.
pub(super) fn check(place: &CgroupLocation) -> Result<(), &'static str> {
    match place.version {
        CgroupVersion::One => check_one(place),
        CgroupVersion::Two => background_limits::check(place),
    }
}

fn check_one(place: &CgroupLocation) -> Result<(), &'static str> {
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
fn others(place: &CgroupLocation) -> impl Iterator<Item = &Path> {
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
    /// Checks whether jails can be in the background here.
    ///
    /// # Errors
    /// Returns the reason if they cannot, for people to read.
    pub fn check_background_support(&self) -> Result<(), &'static str> {
        self.background_support
    }

    /// Puts the process `pid` of group `number` behind everything else that wants a processor, or
    /// ends that; then [`Groups::return_from_background`] moves it back.
    ///
    /// # Errors
    /// Returns `NOTSUP` if jails cannot be in the background, `AGAIN` if too many are, and
    /// otherwise the error of changing the group, for example if there is no such process.
    pub fn set_background_group(
        &self,
        number: u32,
        pid: Pid,
        in_background: bool,
    ) -> Result<(), Errno> {
        self.background_support.map_err(|_| Errno::NOTSUP)?;
        let above = self.processors().ok_or(Errno::NOTSUP)?.above.as_fd();
        let name = self.background_name(number);
        // 0 becomes the least weight that the kernel accepts.
        let weight = if in_background { 0 } else { USUAL_WEIGHT };
        let (weight_file, weight) = weight_file(self.version, weight);
        let put_weight = |folder: &OwnedFd| put(folder.as_fd(), weight_file, &weight.to_string());
        if let Some(out) = self.background.borrow_mut().used.get_mut(&number) {
            let written = open_folder(above, &*name).and_then(|folder| put_weight(&folder));
            // If the weight cannot be set, the jail is moved back all the same.
            out.back_since = match (in_background && written.is_ok(), out.back_since) {
                (true, _) => None,
                (false, since) => since.or_else(|| Some(Instant::now())),
            };
            return written;
        }
        if !in_background {
            return Ok(());
        }
        let limits = self.reserve_background_limits(number)?;
        let folder = make_folder(above, &name)?;
        let moved = match limits {
            Some(limits) => limits.set(folder.as_fd()),
            None => Ok(()),
        };
        let moved = moved
            .and_then(|()| put_weight(&folder))
            .and_then(|()| put(folder.as_fd(), PROCESSES, &as_text(pid)));
        let mut background = self.background.borrow_mut();
        match moved {
            Ok(()) => {
                background.left.remove(&number);
                let out = BackgroundJail {
                    pid,
                    back_since: None,
                };
                background.used.insert(number, out);
            }
            Err(_) => {
                drop(background);
                if self.try_release_limits(number) {
                    self.remove_background_group(number);
                }
            }
        }
        moved
    }

    /// Whether the jail of group `number` is in the background.
    #[must_use]
    pub fn is_in_background_group(&self, number: u32) -> bool {
        let used = &self.background.borrow().used;
        used.get(&number)
            .is_some_and(|out| out.back_since.is_none())
    }

    /// Moves back the jails that, at `now`, have been out of the background for at least a second
    /// (`RETURN_DELAY`). Returns the time after which to call this again, if there are more.
    pub fn return_from_background(&self, now: Instant) -> Option<Duration> {
        let passed = |since: Instant| now.saturating_duration_since(since);
        let is_due = |out: &BackgroundJail| {
            out.back_since
                .is_some_and(|since| passed(since) >= RETURN_DELAY)
        };
        let due: Vec<_> = {
            let used = &self.background.borrow().used;
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
            self.background.borrow_mut().used.remove(&number);
            if self.try_release_limits(number) {
                self.remove_background_group(number);
            }
        }
        let used = &self.background.borrow().used;
        let oldest = used.values().filter_map(|out| out.back_since).min();
        oldest.map(|since| RETURN_DELAY.saturating_sub(passed(since)))
    }

    /// Removes the group beside all others of a jail that has ended.
    pub(super) fn end_background(&self, number: u32) {
        let was_moved = self.background.borrow_mut().used.remove(&number).is_some();
        let had_limits = self.background.borrow_mut().limits.end(number);
        if was_moved || had_limits {
            self.remove_background_group(number);
        }
    }

    /// Removes a group that is no longer needed. If it is still in use for a moment, it is removed
    /// with the next one, or at the end.
    fn remove_background_group(&self, number: u32) {
        let mut background = self.background.borrow_mut();
        background.left.insert(number);
        if let Some(processors) = self.processors() {
            let above = processors.above.as_fd();
            background
                .left
                .retain(|number| !remove(above, &self.background_name(*number)));
        }
    }

    /// Removes all of these groups. Their jails must have ended.
    pub(super) fn remove_all_background_groups(&self) {
        let BackgroundGroups { used, left, limits } =
            std::mem::take(&mut *self.background.borrow_mut());
        if let Some(processors) = self.processors() {
            let all = used.into_keys().chain(left).chain(limits.into_jails());
            for number in all {
                remove(processors.above.as_fd(), &self.background_name(number));
            }
        }
    }

    pub(super) fn background_name(&self, number: u32) -> String {
        format!("{}-{number}", self.name)
    }

    /// Returns the hierarchy with the controller of processors.
    pub(super) fn processors(&self) -> Option<&Hierarchy> {
        match self.version {
            CgroupVersion::One => self.hierarchies.get(PROCESSORS),
            CgroupVersion::Two => self.hierarchies.first(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;

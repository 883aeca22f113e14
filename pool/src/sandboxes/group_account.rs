//! The use of control groups by a pool's jails, as its spawners report it, one spawner after the
//! other. They make and keep the groups; see [`faasw_jail::group`].

use std::os::fd::OwnedFd;

use faasw_common::Lock;
use faasw_fri::messages::{FriGroups, KeepGroups};
use faasw_jail::group::read_usage;

use crate::stats::{GroupStats, MemoryStats};

/// The account of control groups and memory.
#[derive(Debug)]
pub struct GroupAccount {
    free_max: u64,
    memory_max: u64,
    reports: Lock<GroupReports>,
}

#[derive(Debug, Default)]
struct GroupReports {
    /// The hits and misses of spawners that have ended.
    before: (u64, u64),
    /// The latest report of the living spawner.
    now: FriGroups,
    /// The file with the memory use of all jails of the living spawner.
    usage: Option<OwnedFd>,
    /// The number of processes, ever, that the kernel killed for lack of memory.
    out_of_memory: u64,
}

impl GroupAccount {
    /// Creates an account without reports. Spawners are to keep at most `free_max` idle groups, and
    /// to limit all their jails to `memory_max` bytes.
    pub fn new(free_max: usize, memory_max: u64) -> Self {
        Self {
            free_max: u64::try_from(free_max).unwrap_or(u64::MAX),
            memory_max,
            reports: Lock::default(),
        }
    }

    /// Returns the first order to a spawner.
    pub fn order(&self) -> KeepGroups {
        KeepGroups {
            free_max: self.free_max,
            memory_bytes: self.memory_max,
        }
    }

    /// Records the introduction of a spawner, with the file of its jails' memory use.
    pub fn record_introduction(&self, usage: Option<OwnedFd>) {
        self.reports.lock().usage = usage;
    }

    /// Counts a process that the kernel killed for lack of memory.
    pub fn count_oom_kill(&self) {
        self.reports.lock().out_of_memory += 1;
    }

    /// Records a report of the spawner.
    pub fn record_report(&self, groups: FriGroups) {
        self.reports.lock().now = groups;
    }

    /// Records that the spawner has ended and its groups are gone.
    pub fn record_spawner_end(&self) {
        let mut reports = self.reports.lock();
        reports.before = reports.ever();
        reports.now = FriGroups::default();
        reports.usage = None;
    }

    /// Returns the memory of all jails.
    pub fn memory(&self) -> MemoryStats {
        let reports = self.reports.lock();
        let usage = reports.usage.as_ref().map(read_usage);
        MemoryStats {
            used: usage.and_then(Result::ok),
            max: self.memory_max,
            out_of_memory: reports.out_of_memory,
        }
    }

    /// Returns the use of control groups.
    pub fn stats(&self) -> GroupStats {
        let reports = self.reports.lock();
        let (hits, misses) = reports.ever();
        GroupStats {
            free: reports.now.free,
            used: reports.now.used,
            free_max: reports.now.free_max,
            hits,
            misses,
        }
    }
}

impl GroupReports {
    fn ever(&self) -> (u64, u64) {
        let ((hits, misses), now) = (self.before, self.now);
        // The numbers are the spawner's word; no value can do harm.
        (
            hits.saturating_add(now.hits),
            misses.saturating_add(now.misses),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_and_misses_outlive_a_spawner_and_its_groups_do_not() {
        let groups = GroupAccount::new(9, 1 << 30);
        assert_eq!(groups.stats(), GroupStats::default());
        let report = FriGroups {
            free: 1,
            used: 2,
            free_max: 9,
            hits: 5,
            misses: 3,
        };
        groups.record_report(report);
        groups.record_spawner_end();
        let ended = groups.stats();
        assert_eq!((ended.free, ended.used, ended.free_max), (0, 0, 0));
        groups.record_report(report);
        let stats = groups.stats();
        assert_eq!((stats.hits, stats.misses, stats.used), (10, 6, 2));
        groups.record_report(FriGroups {
            hits: u64::MAX,
            ..report
        });
        assert_eq!(groups.stats().hits, u64::MAX);
    }

    #[test]
    fn memory_use_is_read_from_the_living_spawners_file() {
        let groups = GroupAccount::new(9, 1 << 30);
        assert_eq!(groups.memory().used, None);
        let usage = crate::snapshots::Code::writable().unwrap();
        rustix::io::write(&usage, b"12345\n").unwrap();
        groups.record_introduction(Some(usage));
        groups.count_oom_kill();
        let memory = groups.memory();
        assert_eq!((memory.used, memory.max), (Some(12_345), 1 << 30));
        groups.record_spawner_end();
        let memory = groups.memory();
        assert_eq!((memory.used, memory.out_of_memory), (None, 1));
    }
}

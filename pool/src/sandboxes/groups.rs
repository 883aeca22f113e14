//! How the control groups of a pool's jails are used: what its spawners tell, one spawner
//! after the other. They make and keep the groups; see [`faasw_jail::group`].

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use faasw_fri::messages::{FriGroups, KeepGroups};
use faasw_jail::group::read_usage;

use crate::stats::{GroupStats, MemoryStats};

/// The account.
#[derive(Debug)]
pub struct Groups {
    free_max: u64,
    memory_max: u64,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// Hits and misses of spawners that have ended.
    before: (u64, u64),
    /// By the one that lives.
    now: FriGroups,
    /// What tells the memory that all jails of the living spawner take.
    usage: Option<OwnedFd>,
    /// Processes, ever, that the system ended for want of memory.
    out_of_memory: u64,
}

impl Groups {
    /// Nothing was told yet; spawners are to keep `free_max` groups at most, and all
    /// their jails to `memory_max` bytes.
    pub fn new(free_max: usize, memory_max: u64) -> Self {
        Self {
            free_max: u64::try_from(free_max).unwrap_or(u64::MAX),
            memory_max,
            told: Mutex::default(),
        }
    }

    /// What a spawner is told first of all.
    pub fn order(&self) -> KeepGroups {
        KeepGroups {
            free_max: self.free_max,
            memory_bytes: self.memory_max,
        }
    }

    /// The spawner has introduced itself, with what tells the memory that its jails take.
    pub fn introduced(&self, usage: Option<OwnedFd>) {
        self.lock().usage = usage;
    }

    /// The system has ended a process for want of memory.
    pub fn out_of_memory(&self) {
        self.lock().out_of_memory += 1;
    }

    /// The spawner has told this.
    pub fn told(&self, groups: FriGroups) {
        self.lock().now = groups;
    }

    /// The spawner has ended, and its groups are gone.
    pub fn spawner_ended(&self) {
        let mut told = self.lock();
        told.before = told.ever();
        told.now = FriGroups::default();
        told.usage = None;
    }

    /// The memory of all jails.
    pub fn memory(&self) -> MemoryStats {
        let told = self.lock();
        let usage = told.usage.as_ref().map(read_usage);
        MemoryStats {
            used: usage.and_then(Result::ok),
            max: self.memory_max,
            out_of_memory: told.out_of_memory,
        }
    }

    /// All of it.
    pub fn stats(&self) -> GroupStats {
        let told = self.lock();
        let (hits, misses) = told.ever();
        GroupStats {
            free: told.now.free,
            used: told.now.used,
            free_max: told.now.free_max,
            hits,
            misses,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        // It changes by single assignments.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    fn ever(&self) -> (u64, u64) {
        let ((hits, misses), now) = (self.before, self.now);
        // The spawner's word: whatever it is, it does no harm.
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
        let groups = Groups::new(9, 1 << 30);
        assert_eq!(groups.stats(), GroupStats::default());
        let told = FriGroups {
            free: 1,
            used: 2,
            free_max: 9,
            hits: 5,
            misses: 3,
        };
        groups.told(told);
        groups.spawner_ended();
        let ended = groups.stats();
        assert_eq!((ended.free, ended.used, ended.free_max), (0, 0, 0));
        groups.told(told);
        let stats = groups.stats();
        assert_eq!((stats.hits, stats.misses, stats.used), (10, 6, 2));
        groups.told(FriGroups {
            hits: u64::MAX,
            ..told
        });
        assert_eq!(groups.stats().hits, u64::MAX);
    }

    #[test]
    fn memory_is_as_the_living_spawners_file_tells_it() {
        let groups = Groups::new(9, 1 << 30);
        assert_eq!(groups.memory().used, None);
        let usage = crate::snapshots::Code::writable().unwrap();
        rustix::io::write(&usage, b"12345\n").unwrap();
        groups.introduced(Some(usage));
        groups.out_of_memory();
        let memory = groups.memory();
        assert_eq!((memory.used, memory.max), (Some(12_345), 1 << 30));
        groups.spawner_ended();
        let memory = groups.memory();
        assert_eq!((memory.used, memory.out_of_memory), (None, 1));
    }
}

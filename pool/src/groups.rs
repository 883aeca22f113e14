//! How the control groups of a pool's cells are used: what its spawners tell, one spawner
//! after the other. They make and keep the groups; see [`faasw_cell::group`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use faasw_fri::messages::FriGroups;

use crate::stats::GroupStats;

/// The account.
#[derive(Debug)]
pub struct Groups {
    free_max: u64,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// Hits and misses of spawners that have ended.
    before: (u64, u64),
    /// By the one that lives.
    now: FriGroups,
}

impl Groups {
    /// Nothing was told yet; spawners are to keep `free_max` groups at most.
    pub fn new(free_max: usize) -> Self {
        Self {
            free_max: u64::try_from(free_max).unwrap_or(u64::MAX),
            told: Mutex::default(),
        }
    }

    /// Most groups that are to wait for a cell.
    pub fn free_max(&self) -> u64 {
        self.free_max
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
        let groups = Groups::new(9);
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
}

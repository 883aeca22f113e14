//! The statistics of a pool.

use std::time::Duration;

pub use faasw_common::{SeedInfo, ShortfallCause, WarmShortfall};

use crate::confinement::Confinement;
use crate::memory::SHORTAGE_PART;

/// The number of sandboxes in each state, and the memory that functions hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// The confinement of each sandbox.
    pub confinement: Confinement,
    /// Zygotes that are ready.
    pub zygotes: usize,
    /// The number of those that are specialised for a seed from which functions descend.
    pub specialised: usize,
    /// The number of zygotes wanted, and how often one was ready.
    pub zygote_pool: ZygotePoolStats,
    /// The control groups of jails.
    pub groups: GroupStats,
    /// The memory of all sandboxes and compilations together.
    pub memory: MemoryStats,
    /// Instances that are warm and wait for a request of their function.
    pub warm: usize,
    /// Instances that should be warm ahead of requests but are missing, by the reason.
    pub shortfall: ShortfallStats,
    /// Instances that poll for their next request.
    pub polling: PollingStats,
    /// Resets of instances after their requests.
    pub resets: ResetStats,
    /// Instances at work, being reset or being ended.
    pub busy: usize,
    /// Requests that wait for a permit.
    pub waiting: usize,
    /// The number of invocations, ever, that were ended while they waited for their clients,
    /// because other requests needed their permits.
    pub evicted: u64,
    /// The worst-case memory in bytes of all instances at work.
    pub memory_taken: u64,
    /// The number of processes, ever, that were killed for a system call that their jail does not
    /// allow. Each means that code broke out of a guest or of the compiler.
    pub forbidden_calls: u64,
    /// Bytes of the layers of functions' seeds.
    pub seed_bytes: u64,
    /// Bytes of the private pages of warm instances, as their sandboxes reported them.
    pub warm_bytes: u64,
    /// The limit that [`PoolOptions::seed_memory`](crate::PoolOptions::seed_memory) sets.
    pub seed_budget: u64,
    /// The limit that [`PoolOptions::function_memory`](crate::PoolOptions::function_memory) sets.
    pub function_budget: u64,
}

/// The number of instances that should be warm ahead of requests
/// ([`PoolOptions::min_warm`](crate::PoolOptions::min_warm)) but are missing, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortfallStats([usize; ShortfallCause::ALL.len()]);

impl ShortfallStats {
    /// Returns how many instances are missing for this reason.
    #[must_use]
    pub fn of(&self, why: ShortfallCause) -> usize {
        self.0.get(why as usize).copied().unwrap_or(0)
    }

    /// Adds the missing instances of one function.
    pub fn add(&mut self, shortfall: WarmShortfall) {
        if let Some(count) = self.0.get_mut(shortfall.why as usize) {
            *count = count.saturating_add(shortfall.instances);
        }
    }
}

/// Statistics of instances that poll for their next request
/// ([`PoolOptions::poll`](crate::PoolOptions::poll)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollingStats {
    /// The number of requests, ever, that a polling guest found.
    pub found: u64,
    /// The number of guests, ever, that did something else than poll for a request, or polled for
    /// too long. They have been ended.
    pub strayed: u64,
    /// The CPU time that polling has taken, as far as it is known: the time of an instance counts
    /// once its polling has ended.
    pub cpu: Duration,
}

/// Statistics of resets after requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResetStats {
    /// The number of resets, ever, that restored the state of the instance's seed.
    pub done: u64,
    /// The number of instances, ever, that were ended instead.
    pub failed: u64,
}

/// Statistics of the zygote pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZygotePoolStats {
    /// The number of zygotes that the current demand needs.
    pub wanted: usize,
    /// The number of zygotes that are kept when the load is low ([`PoolOptions::zygotes`]).
    ///
    /// [`PoolOptions::zygotes`]: crate::PoolOptions::zygotes
    pub low: usize,
    /// The maximum number of zygotes.
    pub high: usize,
    /// The number of instances, ever, for which a zygote was ready.
    pub hits: u64,
    /// The number of those instances whose zygote was specialised for their direct parent, not for
    /// a more distant ancestor or for none.
    pub near: u64,
    /// The number of seeds for which zygotes are specialised now.
    pub parents: usize,
    /// The number of instances, ever, that had to wait for a new sandbox, because no zygote was
    /// ready.
    pub misses: u64,
    /// The number of zygotes, ever, that could not be specialised.
    pub specialise_failures: u64,
    /// The number of seeds, ever, for which zygotes are no longer specialised, because that failed
    /// too often.
    pub abandoned: u64,
}

/// The use of control groups by the jails of sandboxes and of the compile helper. All numbers are
/// zero if there are no groups, as for [`Confinement::InProcess`].
///
/// [`Confinement::InProcess`]: crate::Confinement::InProcess
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Idle groups that wait for a jail.
    pub free: u64,
    /// Groups that hold a jail.
    pub used: u64,
    /// The maximum number of idle groups ([`PoolOptions::groups_kept`]).
    ///
    /// [`PoolOptions::groups_kept`]: crate::PoolOptions::groups_kept
    pub free_max: u64,
    /// The number of jails, ever, that got an idle group.
    pub hits: u64,
    /// The number of jails, ever, for which a group was made.
    pub misses: u64,
}

/// The memory of the processes of all sandboxes and compilations together, seeds included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// The bytes used, by the kernel's account; `None` without control groups.
    pub used: Option<u64>,
    /// The limit in bytes ([`PoolOptions::instance_memory`]).
    ///
    /// [`PoolOptions::instance_memory`]: crate::PoolOptions::instance_memory
    pub max: u64,
    /// The number of processes, ever, that the kernel killed for lack of memory, as far as control
    /// groups report it.
    pub out_of_memory: u64,
}

impl MemoryStats {
    /// Returns whether hardly any memory is left.
    pub(crate) fn is_short(&self) -> bool {
        self.used
            .is_some_and(|used| used > self.max - self.max / SHORTAGE_PART)
    }

    /// Returns whether less is left than twice the amount below which memory
    /// [is short](Self::is_short).
    pub(crate) fn is_tight(&self) -> bool {
        self.used
            .is_some_and(|used| used > self.max - 2 * (self.max / SHORTAGE_PART))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_instances_are_counted_by_reason() {
        let mut stats = ShortfallStats::default();
        for (count, why) in ShortfallCause::ALL.into_iter().enumerate() {
            let instances = count + 1;
            stats.add(WarmShortfall { instances, why });
            stats.add(WarmShortfall { instances, why });
        }
        let all = ShortfallCause::ALL.map(|why| stats.of(why));
        assert_eq!(all, [2, 4, 6, 8, 10, 12, 14]);
    }

    #[test]
    fn memory_is_short_when_its_reported_use_is_near_the_limit() {
        let is_short = |used, max| {
            let stats = MemoryStats {
                used,
                max,
                out_of_memory: 0,
            };
            assert!(!stats.is_short() || stats.is_tight());
            stats.is_short()
        };
        assert!(!is_short(Some(1500), 1600) && is_short(Some(1501), 1600));
        assert!(!is_short(Some(u64::MAX / 2), u64::MAX) && is_short(Some(9), 5));
        assert!(!is_short(None, 0));
    }
}

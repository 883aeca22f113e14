//! What a pool tells of itself.

use std::time::Duration;

pub use faasw_common::{Lack, Lacking, SeedInfo};

use crate::memory::SHORT;
use crate::sandboxes::Confinement;

/// How many microVMs there are, by what they do, and what functions hold in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// The confinement of each microVM.
    pub confinement: Confinement,
    /// Zygotes that hold no function yet.
    pub zygotes: usize,
    /// How many of those are images of seeds that functions descend from.
    pub preset: usize,
    /// How many of those are wanted, and how often one was there.
    pub stock: StockStats,
    /// Control groups of jails.
    pub groups: GroupStats,
    /// Memory of all microVMs and compilations together.
    pub memory: MemoryStats,
    /// Instances that wait for a request of their function.
    pub parked: usize,
    /// Instances that are to be parked ahead of requests and are not, by what keeps them from that.
    pub lacking: LackingStats,
    /// Instances that look for their next request by themselves.
    pub polling: PollingStats,
    /// Resets of instances after their requests.
    pub resets: ResetStats,
    /// Instances at work, being reset or being ended.
    pub busy: usize,
    /// Requests that wait for a place.
    pub waiting: usize,
    /// Exchanges, ever, that were cut while they waited for their clients, because others
    /// wanted their places.
    pub evicted: u64,
    /// Bytes of memory that instances at work may come to at worst.
    pub memory_taken: u64,
    /// Processes that were ended, ever, for a system call that their jail does not
    /// allow: somebody broke out of a microVM or of the compiler.
    pub forbidden_calls: u64,
    /// Bytes of the layers of functions' seeds.
    pub seed_bytes: u64,
    /// Bytes of the private pages of parked instances, as their sandboxes told them.
    pub parked_bytes: u64,
    /// What [`PoolOptions::seed_memory`](crate::PoolOptions::seed_memory) allows.
    pub seed_budget: u64,
    /// What [`PoolOptions::function_memory`](crate::PoolOptions::function_memory) allows.
    pub function_budget: u64,
}

/// Instances that are to be parked ahead of requests
/// ([`PoolOptions::min_parked`](crate::PoolOptions::min_parked)) and are not, by what keeps them
/// from that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LackingStats([usize; Lack::ALL.len()]);

impl LackingStats {
    /// How many this keeps from being made.
    #[must_use]
    pub fn of(&self, why: Lack) -> usize {
        self.0.get(why as usize).copied().unwrap_or(0)
    }

    /// These, too.
    pub fn add(&mut self, lacking: Lacking) {
        if let Some(count) = self.0.get_mut(lacking.why as usize) {
            *count = count.saturating_add(lacking.instances);
        }
    }
}

/// What came of instances that looked for their next request by themselves
/// ([`PoolOptions::poll`](crate::PoolOptions::poll)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollingStats {
    /// Requests, ever, that a guest found.
    pub found: u64,
    /// Guests, ever, that were to look for a request and did something else, or went on for too
    /// long. They have ended.
    pub strayed: u64,
    /// CPU time that looking has taken, as far as it is known: that of an instance counts when it
    /// is taken.
    pub cpu: Duration,
}

/// What became of instances that were to be reset after their requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResetStats {
    /// Resets, ever, that gave an instance its seed's state back.
    pub done: u64,
    /// Instances, ever, that ended instead.
    pub failed: u64,
}

/// How sandboxes are made ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockStats {
    /// Sandboxes that are to be ready now, by demand.
    pub wanted: usize,
    /// Sandboxes that are to be ready when there is little to do
    /// ([`PoolOptions::zygotes`]).
    ///
    /// [`PoolOptions::zygotes`]: crate::PoolOptions::zygotes
    pub low: usize,
    /// Sandboxes that are to be ready at most.
    pub high: usize,
    /// Instances, ever, for which a sandbox was ready.
    pub hits: u64,
    /// Those of them for which it was preset with what they are forked from most directly,
    /// not with something further up or nothing.
    pub near: u64,
    /// Seeds that sandboxes are preset with now.
    pub parents: usize,
    /// Instances, ever, that had to wait until a sandbox was made, because none was ready.
    pub misses: u64,
    /// Sandboxes, ever, that could not be preset.
    pub preset_failures: u64,
    /// Seeds, ever, that sandboxes are not preset with any more, because that failed too often.
    pub abandoned: u64,
}

/// How the control groups of jails are used: those of sandboxes and of the compile helper.
/// All zero where there are none, as for [`Confinement::InProcess`].
///
/// [`Confinement::InProcess`]: crate::Confinement::InProcess
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Groups that wait for a jail.
    pub free: u64,
    /// Groups that have one.
    pub used: u64,
    /// Groups that may wait ([`PoolOptions::groups_kept`]).
    ///
    /// [`PoolOptions::groups_kept`]: crate::PoolOptions::groups_kept
    pub free_max: u64,
    /// Jails, ever, that got a group that had waited.
    pub hits: u64,
    /// Jails, ever, that had a group made for them.
    pub misses: u64,
}

/// What the processes of all microVMs and compilations take of memory together, seeds
/// included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes, by the kernel's account; `None` where there are no control groups.
    pub used: Option<u64>,
    /// Bytes that they may take ([`PoolOptions::instance_memory`]).
    ///
    /// [`PoolOptions::instance_memory`]: crate::PoolOptions::instance_memory
    pub max: u64,
    /// Processes, ever, that the system ended for want of memory, as far as control
    /// groups tell.
    pub out_of_memory: u64,
}

impl MemoryStats {
    /// Whether there is hardly any left.
    pub(crate) fn is_short(&self) -> bool {
        self.used
            .is_some_and(|used| used > self.max - self.max / SHORT)
    }

    /// Whether less than twice as much is left as when it is short.
    pub(crate) fn is_tight(&self) -> bool {
        self.used
            .is_some_and(|used| used > self.max - 2 * (self.max / SHORT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_counted_by_what_it_lacks() {
        let mut stats = LackingStats::default();
        for (count, why) in Lack::ALL.into_iter().enumerate() {
            let instances = count + 1;
            stats.add(Lacking { instances, why });
            stats.add(Lacking { instances, why });
        }
        let all = Lack::ALL.map(|why| stats.of(why));
        assert_eq!(all, [2, 4, 6, 8, 10, 12, 14]);
    }

    #[test]
    fn memory_is_short_when_it_is_nearly_used_up_and_somebody_says_so() {
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

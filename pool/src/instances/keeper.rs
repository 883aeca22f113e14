//! The keeper of all warm instances of a pool: it limits their number and their time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use faasw_common::ShortfallCause;
use tokio::sync::Notify;

use super::polling::Polling;
use super::reset_record::ResetRecord;
use super::warm::WarmInstances;
use crate::memory::{Memory, SHORTAGE_PART};
use crate::open_files::{self, DESCRIPTORS_PER_SEED};
use crate::sandboxes::GroupAccount;

/// How often the keeper checks warm instances, while there are any.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How many instances are warm, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct WarmRules {
    /// An instance that no request has taken for this long is ended.
    pub keep_alive: Duration,
    /// The number of instances of each function that stay warm after that time.
    pub least: usize,
    /// The most instances that are warm at once, of all functions.
    pub most: usize,
    /// The most requests that one instance serves.
    pub max_reuse: u32,
    /// File descriptors of this program that each instance takes. An instance takes one more while
    /// it serves a request.
    pub descriptors: u64,
}

/// Limits the number and the time of all warm instances of a pool.
#[derive(Debug)]
pub struct Keeper {
    rules: WarmRules,
    polling: Arc<Polling>,
    resets: ResetRecord,
    account: Arc<GroupAccount>,
    all: Mutex<Vec<Weak<WarmInstances>>>,
    count: AtomicUsize,
    begun: Arc<Notify>,
    stopped: AtomicBool,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.begun.notify_one();
    }
}

impl Keeper {
    /// Starts the keeper. It watches the machine's memory, and by `account` the memory of all
    /// microVMs. Must be called inside a tokio runtime.
    pub fn start(rules: WarmRules, polling: Arc<Polling>, account: Arc<GroupAccount>) -> Arc<Self> {
        let keeper = Arc::new(Self {
            rules,
            polling,
            resets: ResetRecord::default(),
            account,
            all: Mutex::default(),
            count: AtomicUsize::new(0),
            begun: Arc::default(),
            stopped: AtomicBool::new(false),
        });
        tokio::spawn(run_rounds(Arc::downgrade(&keeper)));
        keeper
    }

    /// Returns the warm instances of one more seed, none so far. They poll for at most `poll`, or
    /// for the pool's default if that is `None`.
    pub fn warm_instances(self: &Arc<Self>, poll: Option<Duration>) -> Arc<WarmInstances> {
        let most = poll.unwrap_or(self.polling.most());
        let warm_instances = Arc::new(WarmInstances::new(self, most));
        let mut all = self.all();
        // Entries of seeds that are gone are removed when the list is full, which is rarer the
        // longer it is.
        if all.len() == all.capacity() {
            all.retain(|warm_instances| warm_instances.strong_count() > 0);
        }
        all.push(Arc::downgrade(&warm_instances));
        warm_instances
    }

    /// Returns the limits of polling.
    pub fn polling(&self) -> &Arc<Polling> {
        &self.polling
    }

    /// Returns the record of the resets of all instances.
    pub fn resets(&self) -> &ResetRecord {
        &self.resets
    }

    /// Returns how many instances are warm, and for how long.
    pub fn rules(&self) -> &WarmRules {
        &self.rules
    }

    /// Returns how many instances are warm.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts one more warm instance. Returns whether the most allowed were warm before.
    pub(super) fn note_warmed(&self) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed) >= self.rules.most
    }

    /// Counts instances that are not warm any more.
    pub(super) fn note_gone(&self, count: usize) {
        self.count.fetch_sub(count, Ordering::Relaxed);
    }

    /// Notifies the keeper's task that an instance is warm.
    pub(super) fn wake(&self) {
        self.begun.notify_one();
    }

    /// Returns whether the keeper has stopped, so that no instance is warm any more.
    pub fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Returns what keeps instances from being warm ahead of requests, if anything does. Such
    /// instances must leave room for those of requests, because warm ones are ended when memory
    /// is short. The `at_work` instances will be warm again, and would then end others, which
    /// would be made again. `provided` functions have instances warm ahead of requests.
    pub fn shortfall_cause(&self, at_work: usize, provided: usize) -> Option<ShortfallCause> {
        let there = self.count().saturating_add(at_work);
        if there >= self.rules.most {
            return Some(ShortfallCause::MaxWarm);
        }
        let is_tight = |memory: Memory| memory.available < 2 * (memory.total / SHORTAGE_PART);
        let of_seeds = (provided as u64).saturating_mul(DESCRIPTORS_PER_SEED);
        let taken = (there as u64 + 1).saturating_mul(self.rules.descriptors);
        let taken = taken
            .saturating_add(of_seeds)
            .saturating_add(at_work as u64);
        if taken > instance_descriptors(open_files::limit()) {
            return Some(ShortfallCause::OpenFiles);
        }
        if self.account.memory().is_tight() {
            return Some(ShortfallCause::InstanceMemory);
        }
        let machine = Memory::now().is_some_and(is_tight);
        machine.then_some(ShortfallCause::MachineMemory)
    }

    /// Ends all warm instances. From now on no instance becomes warm.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // An instance that is warm at this very moment ends, too.
        let soon = Instant::now() + CHECK_INTERVAL;
        for warm_instances in self.warm_sets() {
            warm_instances.expire(soon, 0);
        }
        self.begun.notify_one();
    }

    fn all(&self) -> MutexGuard<'_, Vec<Weak<WarmInstances>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn warm_sets(&self) -> Vec<Arc<WarmInstances>> {
        self.all().iter().filter_map(Weak::upgrade).collect()
    }

    /// Ends the instance that has been warm longest, preferably one of a function that has more
    /// than it must have at all times.
    pub fn end_oldest(&self) {
        let oldest = self
            .warm_sets()
            .into_iter()
            .filter_map(|warm_instances| Some((warm_instances.oldest()?, warm_instances)))
            .min_by_key(|(since, warm_instances)| (!warm_instances.has_surplus(), *since));
        if let Some((since, warm_instances)) = oldest {
            warm_instances.expire(since, 0);
        }
    }

    fn check_all(&self) {
        let now = Instant::now();
        for warm_instances in self.warm_sets() {
            if let Some(before) = now.checked_sub(self.rules.keep_alive) {
                warm_instances.expire(before, self.rules.least);
            }
            // The span is three rounds, so that none is missed if a round is late. Most instances
            // in it were covered by the round before.
            if let (Some(from), Some(until)) = (
                now.checked_sub(4 * CHECK_INTERVAL),
                now.checked_sub(CHECK_INTERVAL),
            ) {
                warm_instances.restore_priority(from, until);
            }
        }
        if machine_is_short() || self.account.memory().is_short() {
            let half = self.count().div_ceil(2);
            tracing::warn!(count = half, "little memory is left: warm instances end");
            for _ in 0..half {
                self.end_oldest();
            }
        }
    }
}

/// Runs rounds for as long as the keeper exists.
async fn run_rounds(keeper: Weak<Keeper>) {
    loop {
        let Some(strong) = keeper.upgrade() else {
            return;
        };
        if strong.has_stopped() {
            return;
        }
        if strong.count() == 0 {
            // Waits without holding the keeper: dropping it notifies.
            let begun = strong.begun.clone();
            drop(strong);
            begun.notified().await;
            continue;
        }
        strong.check_all();
        drop(strong);
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// Returns how many of this program's descriptors instances ahead of requests may take: four
/// fifths, so that clients have some.
fn instance_descriptors(descriptors: u64) -> u64 {
    descriptors - descriptors / 5
}

#[cfg(test)]
impl WarmRules {
    /// Returns rules for few instances, which stay warm for as long as a test may take.
    pub(super) fn of_tests() -> Self {
        Self {
            keep_alive: Duration::from_secs(60),
            least: 0,
            most: 8,
            max_reuse: 100,
            descriptors: 8,
        }
    }
}

#[cfg(test)]
impl Keeper {
    /// Returns a keeper without groups, on two processors, whose instances poll for a request for
    /// `poll`.
    pub(super) fn of_tests(rules: WarmRules, poll: Duration) -> Arc<Self> {
        let groups = Arc::new(GroupAccount::new(1, u64::MAX));
        Self::start(rules, Polling::new(poll, 2), groups)
    }
}

fn machine_is_short() -> bool {
    Memory::now().is_some_and(|memory| memory.available < memory.total / SHORTAGE_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(descriptors: u64) -> Arc<Keeper> {
        let rules = WarmRules {
            least: 1,
            most: 3,
            descriptors,
            ..WarmRules::of_tests()
        };
        Keeper::of_tests(rules, Duration::ZERO)
    }

    #[tokio::test]
    async fn instances_that_will_be_warm_again_take_room() {
        let keeper = keeper(1);
        let is_full = |at_work| keeper.shortfall_cause(at_work, 0) == Some(ShortfallCause::MaxWarm);
        assert!(!is_full(2) && is_full(3) && is_full(usize::MAX));
        keeper.note_warmed();
        assert!(!is_full(1) && is_full(2));
    }

    #[tokio::test]
    async fn seeds_take_descriptors() {
        let instances = instance_descriptors(open_files::limit());
        let lacks_files = |keeper: &Keeper, provided| {
            keeper.shortfall_cause(0, provided) == Some(ShortfallCause::OpenFiles)
        };
        // A further instance takes all descriptors but those of one seed.
        let keeper = keeper(instances - DESCRIPTORS_PER_SEED);
        assert!(!lacks_files(&keeper, 1) && lacks_files(&keeper, 2));
    }
}

//! Who looks after all parked instances of a pool: how many there are, and for how long.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use faasw_common::Lack;
use tokio::sync::Notify;

use super::parking::Parking;
use super::polling::Polling;
use super::reset_record::ResetRecord;
use crate::memory::{Memory, SHORT};
use crate::open_files::{self, OF_A_SEED};
use crate::sandboxes::Groups;

/// How often parked instances are looked after, while there are any.
const ROUND: Duration = Duration::from_secs(1);

/// How many instances are parked, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct ParkingRules {
    /// An instance that nobody took for this long is ended.
    pub keep_alive: Duration,
    /// Instances of each function that stay parked even so.
    pub least: usize,
    /// Most instances parked at once, of all functions.
    pub most: usize,
    /// Most requests that one instance serves.
    pub max_reuse: u32,
    /// Descriptors of this program that each takes; one more as long as it serves a request.
    pub descriptors: u64,
}

/// Looks after all parked instances of a pool.
#[derive(Debug)]
pub struct Keeper {
    rules: ParkingRules,
    polling: Arc<Polling>,
    resets: ResetRecord,
    account: Arc<Groups>,
    all: Mutex<Vec<Weak<Parking>>>,
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
    /// Starts looking, at the machine's memory and at what all microVMs take by
    /// `account`. Must be called inside a tokio runtime.
    pub fn start(rules: ParkingRules, polling: Arc<Polling>, account: Arc<Groups>) -> Arc<Self> {
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
        tokio::spawn(look_after(Arc::downgrade(&keeper)));
        keeper
    }

    /// Room for the instances of one more seed.
    pub fn parking(self: &Arc<Self>, poll: Option<Duration>) -> Arc<Parking> {
        let most = poll.unwrap_or(self.polling.most());
        let parking = Arc::new(Parking::new(self, most));
        let mut all = self.all();
        // Looked through when there is no room, which is the rarer the more there are.
        if all.len() == all.capacity() {
            all.retain(|parking| parking.strong_count() > 0);
        }
        all.push(Arc::downgrade(&parking));
        parking
    }

    /// How much polling there is.
    pub fn polling(&self) -> &Arc<Polling> {
        &self.polling
    }

    /// The resets of all instances.
    pub fn resets(&self) -> &ResetRecord {
        &self.resets
    }

    /// How many instances are parked, and for how long.
    pub fn rules(&self) -> &ParkingRules {
        &self.rules
    }

    /// How many instances are parked.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// One more is parked; whether there were as many as there may be.
    pub(super) fn came(&self) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed) >= self.rules.most
    }

    /// So many are not parked any more.
    pub(super) fn left(&self, count: usize) {
        self.count.fetch_sub(count, Ordering::Relaxed);
    }

    /// There is something to look after.
    pub(super) fn begin(&self) {
        self.begun.notify_one();
    }

    /// Whether none is parked any more.
    pub fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// What keeps instances from being parked that no request has asked for, if anything does. They
    /// leave room for what requests ask for: parked ones yield when memory is short. So many as are
    /// `at_work` come back, and would end others that are made again then; so many functions as
    /// `provided` have instances parked ahead of requests.
    pub fn is_full(&self, at_work: usize, provided: usize) -> Option<Lack> {
        let there = self.count().saturating_add(at_work);
        if there >= self.rules.most {
            return Some(Lack::MaxParked);
        }
        let is_tight = |memory: Memory| memory.available < 2 * (memory.total / SHORT);
        let of_seeds = (provided as u64).saturating_mul(OF_A_SEED);
        let taken = (there as u64 + 1).saturating_mul(self.rules.descriptors);
        let taken = taken
            .saturating_add(of_seeds)
            .saturating_add(at_work as u64);
        if taken > of_instances(open_files::limit()) {
            return Some(Lack::OpenFiles);
        }
        if self.account.memory().is_tight() {
            return Some(Lack::InstanceMemory);
        }
        let machine = Memory::now().is_some_and(is_tight);
        machine.then_some(Lack::MachineMemory)
    }

    /// Ends all parked instances, and parks none any more.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // One that is parked in this very moment ends, too.
        let soon = Instant::now() + ROUND;
        for parking in self.parkings() {
            parking.expire(soon, 0);
        }
        self.begun.notify_one();
    }

    fn all(&self) -> MutexGuard<'_, Vec<Weak<Parking>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parkings(&self) -> Vec<Arc<Parking>> {
        self.all().iter().filter_map(Weak::upgrade).collect()
    }

    /// Ends the instance that has been parked longest: of a function that has more than it is to
    /// have at all times, if there is one.
    pub fn end_oldest(&self) {
        let oldest = self
            .parkings()
            .into_iter()
            .filter_map(|parking| Some((parking.oldest()?, parking)))
            .min_by_key(|(since, parking)| (!parking.has_surplus(), *since));
        if let Some((since, parking)) = oldest {
            parking.expire(since, 0);
        }
    }

    fn round(&self) {
        let now = Instant::now();
        for parking in self.parkings() {
            if let Some(before) = now.checked_sub(self.rules.keep_alive) {
                parking.expire(before, self.rules.least);
            }
            // Some were looked at the last time, where that was late.
            if let (Some(from), Some(until)) = (now.checked_sub(4 * ROUND), now.checked_sub(ROUND))
            {
                parking.bring_back(from, until);
            }
        }
        if machine_is_short() || self.account.memory().is_short() {
            let half = self.count().div_ceil(2);
            tracing::warn!(count = half, "memory is short: parked instances are ended");
            for _ in 0..half {
                self.end_oldest();
            }
        }
    }
}

/// Keeps looking for as long as the keeper exists.
async fn look_after(keeper: Weak<Keeper>) {
    loop {
        let Some(strong) = keeper.upgrade() else {
            return;
        };
        if strong.has_stopped() {
            return;
        }
        if strong.count() == 0 {
            // Waits without keeping the keeper: whoever drops it notifies.
            let begun = strong.begun.clone();
            drop(strong);
            begun.notified().await;
            continue;
        }
        strong.round();
        drop(strong);
        tokio::time::sleep(ROUND).await;
    }
}

/// Descriptors, of so many that this program may have, that instances may take which no request has
/// asked for: four fifths, so that clients have some.
fn of_instances(descriptors: u64) -> u64 {
    descriptors - descriptors / 5
}

#[cfg(test)]
impl ParkingRules {
    /// Few instances, for as long as a test may take.
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
    /// One without groups, on two processors, whose instances look for a request for so long as
    /// `poll`.
    pub(super) fn of_tests(rules: ParkingRules, poll: Duration) -> Arc<Self> {
        let groups = Arc::new(Groups::new(1, u64::MAX));
        Self::start(rules, Polling::new(poll, 2), groups)
    }
}

fn machine_is_short() -> bool {
    Memory::now().is_some_and(|memory| memory.available < memory.total / SHORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(descriptors: u64) -> Arc<Keeper> {
        let rules = ParkingRules {
            least: 1,
            most: 3,
            descriptors,
            ..ParkingRules::of_tests()
        };
        Keeper::of_tests(rules, Duration::ZERO)
    }

    #[tokio::test]
    async fn those_that_come_back_take_room() {
        let keeper = keeper(1);
        let is_full = |at_work| keeper.is_full(at_work, 0) == Some(Lack::MaxParked);
        assert!(!is_full(2) && is_full(3) && is_full(usize::MAX));
        keeper.came();
        assert!(!is_full(1) && is_full(2));
    }

    #[tokio::test]
    async fn seeds_take_descriptors() {
        let instances = of_instances(open_files::limit());
        let lacks_files =
            |keeper: &Keeper, provided| keeper.is_full(0, provided) == Some(Lack::OpenFiles);
        // One more takes all but those of one seed.
        let keeper = keeper(instances - OF_A_SEED);
        assert!(!lacks_files(&keeper, 1) && lacks_files(&keeper, 2));
    }
}

//! Parked instances: specialised, reset to their seed's exact state, warm, and
//! waiting for a request of their function.
//!
//! How many there are follows demand by itself: every instance that ends well
//! is parked, the last one parked is the first one taken, and what nobody took
//! for the keep-alive time is ended (the pooling of AFaaS §4.2 and the warm
//! Zygotes of Catalyzer §4.2, with clean state). A request that comes while an
//! instance is being reset waits for that one: it takes a tenth of a fork.

mod coming;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

pub use self::coming::{Coming, Held};
use super::instance::Instance;
use super::polling::{Arrivals, Polling};
use crate::memory::{Memory, SHORT};
use crate::shells::Groups;

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
}

/// The parked instances of one seed.
#[derive(Debug)]
pub struct Parking {
    keeper: Arc<Keeper>,
    places: Mutex<Places>,
    arrivals: Arrivals,
}

#[derive(Debug, Default)]
struct Places {
    /// Oldest first.
    parked: VecDeque<Parked>,
    /// Bytes of their private pages in all.
    bytes: u64,
    /// Instances that are being reset.
    coming: usize,
    /// Requests that wait for one of those.
    waiting: VecDeque<oneshot::Sender<Instance>>,
    /// Requests that one of those has taken already, and will be handed to.
    held: usize,
    /// Those of them whose guests look for a request, or will: each is told when there is one.
    hot: Vec<Arc<Notify>>,
    /// An instance is being made because one was waited for.
    making: bool,
}

#[derive(Debug)]
struct Parked {
    instance: Instance,
    rest: Rest,
}

impl Places {
    /// Requests that have one of those that are being reset to wait for.
    fn wanted(&self) -> usize {
        self.waiting.len() + self.held
    }
}

/// How an instance is parked.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// Since when.
    pub since: Instant,
    /// Bytes of its private pages, as its shell told them.
    pub bytes: u64,
}

/// The right to make one more instance.
#[derive(Debug)]
pub struct Making(Arc<Parking>);

impl Drop for Making {
    fn drop(&mut self) {
        self.0.places().making = false;
    }
}

impl Parking {
    /// Takes the instance that was parked last.
    pub fn take(&self) -> Option<Instance> {
        loop {
            let parked = {
                let mut places = self.places();
                let parked = places.parked.pop_back()?;
                places.bytes -= parked.rest.bytes;
                parked
            };
            self.keeper.count.fetch_sub(1, Ordering::Relaxed);
            let waited = parked.rest.since.elapsed();
            self.arrivals.note(waited, self.polling().most());
            let mut instance = parked.instance;
            if instance.shell.check_alive() {
                return Some(instance);
            }
        }
    }

    /// Waits for an instance whose guest looks for a request by itself, if there is one. The
    /// channel closes when it comes to nothing.
    pub fn wait_for_hot(&self) -> Option<oneshot::Receiver<Instance>> {
        let mut places = self.places();
        let wanted = places.hot.pop()?;
        let (sender, receiver) = oneshot::channel();
        places.waiting.push_back(sender);
        drop(places);
        wanted.notify_one();
        Some(receiver)
    }

    /// How much polling there may be.
    pub fn polling(&self) -> &Arc<Polling> {
        &self.keeper.polling
    }

    /// When requests come.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Waits for an instance that is being reset, if there is one that nobody
    /// else waits for. The channel closes when it comes to nothing.
    pub fn wait(&self) -> Option<oneshot::Receiver<Instance>> {
        self.arrivals.note(Duration::ZERO, self.polling().most());
        let mut places = self.places();
        places.waiting.retain(|waiting| !waiting.is_closed());
        if places.coming <= places.wanted() {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        places.waiting.push_back(sender);
        Some(receiver)
    }

    /// The right to make one more, because a request had to wait; `None` while
    /// somebody else has it.
    pub fn make_more(self: &Arc<Self>) -> Option<Making> {
        let mut places = self.places();
        if places.making {
            return None;
        }
        places.making = true;
        drop(places);
        Some(Making(self.clone()))
    }

    /// Announces an instance; `None` when it should not come back, because it
    /// has served enough.
    pub fn announce(self: &Arc<Self>, uses: u32) -> Option<Coming> {
        if uses >= self.keeper.rules.max_reuse || self.keeper.stopped.load(Ordering::Acquire) {
            return None;
        }
        self.places().coming += 1;
        Some(Coming {
            parking: self.clone(),
            wanted: None,
        })
    }

    /// How many are parked.
    pub fn count(&self) -> usize {
        self.places().parked.len()
    }

    /// Each that is parked, those first that wait longest.
    pub fn rests(&self) -> Vec<Rest> {
        let places = self.places();
        places.parked.iter().map(|parked| parked.rest).collect()
    }

    /// Bytes of the private pages of those that are parked.
    pub fn bytes(&self) -> u64 {
        self.places().bytes
    }

    /// How many are being reset or made.
    pub fn coming(&self) -> usize {
        self.places().coming
    }

    /// How many are missing of those that are to be parked at all times.
    pub fn missing(&self) -> usize {
        let places = self.places();
        let there = places.parked.len() + places.coming;
        self.keeper.rules.least.saturating_sub(there)
    }

    /// Ends those that were parked before `before`, but for the last `kept`.
    fn expire(&self, before: Instant, kept: usize) {
        let places = self.places();
        let old = places
            .parked
            .partition_point(|parked| parked.rest.since <= before)
            .min(places.parked.len().saturating_sub(kept));
        self.end(places, old);
    }

    /// Ends those `count` that wait longest.
    pub fn end_oldest(&self, count: usize) {
        self.end(self.places(), count);
    }

    fn end(&self, mut places: MutexGuard<'_, Places>, count: usize) {
        let count = count.min(places.parked.len());
        let ended: Vec<_> = places.parked.drain(..count).collect();
        places.bytes -= ended.iter().map(|parked| parked.rest.bytes).sum::<u64>();
        // Ending takes a moment in which others may take the rest.
        drop(places);
        self.keeper.count.fetch_sub(ended.len(), Ordering::Relaxed);
    }

    /// Since when the oldest is parked.
    fn oldest(&self) -> Option<Instant> {
        self.places().parked.front().map(|parked| parked.rest.since)
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Parking {
    fn drop(&mut self) {
        let parked = self.places().parked.len();
        self.keeper.count.fetch_sub(parked, Ordering::Relaxed);
    }
}

/// Looks after all parked instances of a pool.
#[derive(Debug)]
pub struct Keeper {
    rules: ParkingRules,
    polling: Arc<Polling>,
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
    pub fn parking(self: &Arc<Self>) -> Arc<Parking> {
        let parking = Arc::new(Parking {
            keeper: self.clone(),
            places: Mutex::default(),
            arrivals: Arrivals::default(),
        });
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

    /// How many instances are parked.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
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

    /// Ends the instance that has been parked longest.
    fn end_oldest(&self) {
        let oldest = self
            .parkings()
            .into_iter()
            .filter_map(|parking| Some((parking.oldest()?, parking)))
            .min_by_key(|(since, _)| *since);
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
        if strong.stopped.load(Ordering::Acquire) {
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

fn machine_is_short() -> bool {
    Memory::now().is_some_and(|memory| memory.available < memory.total / SHORT)
}

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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

pub use self::coming::{Coming, Held};
use super::instance::Instance;
use super::keeper::Keeper;
use super::polling::{Arrivals, Polling};
use super::reset_record::ResetRecord;

/// The parked instances of one seed.
#[derive(Debug)]
pub struct Parking {
    keeper: Arc<Keeper>,
    places: Mutex<Places>,
    arrivals: Arrivals,
    /// Whether instances are parked ahead of requests, as many as the rules say.
    is_provided: AtomicBool,
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
    waiting: VecDeque<Waiting>,
    /// Requests that one of those has taken already, and will be handed to.
    held: usize,
    /// Those of them whose guests look for a request, or will: each is told when there is one.
    hot: Vec<Arc<Notify>>,
    /// An instance is being made because one was waited for.
    making: bool,
}

/// A request that waits for an instance.
#[derive(Debug)]
struct Waiting {
    sender: oneshot::Sender<Instance>,
    /// Since when.
    since: Instant,
}

impl Waiting {
    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
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

    /// One more request waits.
    fn wait(&mut self) -> oneshot::Receiver<Instance> {
        let (sender, receiver) = oneshot::channel();
        let since = Instant::now();
        self.waiting.push_back(Waiting { sender, since });
        receiver
    }
}

/// How an instance is parked.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// Since when: of one that has looked for a request in vain, since it began to look.
    pub since: Instant,
    /// Bytes of its private pages, as its sandbox told them.
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
    /// Room for the instances of one more seed, which look for requests for so long at most.
    pub(super) fn new(keeper: &Arc<Keeper>, most: Duration) -> Self {
        Self {
            keeper: keeper.clone(),
            places: Mutex::default(),
            arrivals: Arrivals::new(most),
            is_provided: AtomicBool::new(false),
        }
    }

    /// Takes the instance that was parked last.
    pub fn take(&self) -> Option<Instance> {
        loop {
            let parked = {
                let mut places = self.places();
                let parked = places.parked.pop_back()?;
                places.bytes -= parked.rest.bytes;
                parked
            };
            self.keeper.left(1);
            self.note_arrival(parked.rest.since.elapsed());
            let mut instance = parked.instance;
            if instance.sandbox.check_alive() {
                return Some(instance);
            }
        }
    }

    /// Waits for an instance whose guest looks for a request by itself, if there is one. The
    /// channel closes when it comes to nothing.
    pub fn wait_for_hot(&self) -> Option<oneshot::Receiver<Instance>> {
        let mut places = self.places();
        let wanted = places.hot.pop()?;
        let receiver = places.wait();
        drop(places);
        wanted.notify_one();
        Some(receiver)
    }

    /// A request has come for an instance that could have looked for it for so long.
    fn note_arrival(&self, waited: Duration) {
        self.arrivals.note(waited);
    }

    /// How much polling there may be.
    pub fn polling(&self) -> &Arc<Polling> {
        self.keeper.polling()
    }

    /// The resets of all instances of the pool.
    pub fn resets(&self) -> &ResetRecord {
        self.keeper.resets()
    }

    /// When requests come.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Waits for an instance that is being reset, if there is one that nobody
    /// else waits for. The channel closes when it comes to nothing.
    pub fn wait(&self) -> Option<oneshot::Receiver<Instance>> {
        let mut places = self.places();
        places.waiting.retain(|waiting| !waiting.is_closed());
        if places.coming <= places.wanted() {
            drop(places);
            self.note_arrival(Duration::ZERO);
            return None;
        }
        Some(places.wait())
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
        if uses >= self.keeper.rules().max_reuse || self.keeper.has_stopped() {
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

    /// Instances are to be parked ahead of requests from now on; whether that was not so before.
    pub fn begin_to_provide(&self) -> bool {
        // Asked for each request: nearly always it is so already.
        !self.is_provided.load(Ordering::Relaxed) && !self.is_provided.swap(true, Ordering::Relaxed)
    }

    /// How many instances fewer there are than are to be at all times, where so many are at
    /// work or being reset: those count, and of those that are parked the ones that were forked
    /// with the working set of this generation. The others do not come back from a request.
    pub fn missing(&self, generation: u32, at_work: usize) -> usize {
        let places = self.places();
        let parked = places.parked.iter();
        let current = parked.filter(|parked| parked.instance.generation == generation);
        let there = current.count() + places.coming.max(at_work);
        self.keeper.rules().least.saturating_sub(there)
    }

    /// Takes out those that have ended by themselves; how many they were.
    pub fn sweep(&self) -> usize {
        let mut places = self.places();
        let before = places.parked.len();
        let mut bytes = 0;
        places.parked.retain_mut(|parked| {
            let is_alive = parked.instance.sandbox.check_alive();
            bytes += if is_alive { 0 } else { parked.rest.bytes };
            is_alive
        });
        places.bytes -= bytes;
        let ended = before - places.parked.len();
        drop(places);
        self.keeper.left(ended);
        ended
    }

    /// Ends the one that waits longest of those that were forked with another working set than
    /// that of this generation; whether there was one.
    pub fn end_outdated(&self, generation: u32) -> bool {
        let mut places = self.places();
        let mut parked = places.parked.iter();
        let Some(place) = parked.position(|parked| parked.instance.generation != generation) else {
            return false;
        };
        let ended = places.parked.remove(place);
        places.bytes -= ended.as_ref().map_or(0, |ended| ended.rest.bytes);
        drop(places);
        // Ending takes a moment in which others may take the rest.
        drop(ended);
        self.keeper.left(1);
        true
    }

    /// Whether more are parked than have to be at all times.
    pub fn has_surplus(&self) -> bool {
        self.count() > self.keeper.rules().least
    }

    /// Ends those that were parked before `before`, but for the last `kept`.
    pub(super) fn expire(&self, before: Instant, kept: usize) {
        let places = self.places();
        let old = places
            .parked
            .partition_point(|parked| parked.rest.since <= before)
            .min(places.parked.len().saturating_sub(kept));
        self.end(places, old);
    }

    /// Those that were parked between `from` and `until` and come behind everybody else do not any
    /// more: they look for nothing, and whoever takes one would wait for that.
    pub(super) fn bring_back(&self, from: Instant, until: Instant) {
        let places = self.places();
        let is_before = |moment: Instant| move |parked: &Parked| parked.rest.since <= moment;
        let first = places.parked.partition_point(is_before(from));
        let last = places.parked.partition_point(is_before(until));
        for parked in places.parked.range(first..last.max(first)) {
            if parked.instance.sandbox.may_be_aside() {
                parked.instance.sandbox.step_aside(false);
            }
        }
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
        self.keeper.left(ended.len());
    }

    /// Since when the oldest is parked.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.places().parked.front().map(|parked| parked.rest.since)
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Parking {
    fn drop(&mut self) {
        let parked = self.places().parked.len();
        self.keeper.left(parked);
    }
}

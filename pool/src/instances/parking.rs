//! Parked instances: specialised, reset to their seed's exact state, warm, and
//! waiting for a request of their function.
//!
//! How many there are follows demand by itself: every instance that ends well
//! is parked, the last one parked is the first one taken, and what nobody took
//! for the keep-alive time is ended (the pooling of AFaaS §4.2 and the warm
//! Zygotes of Catalyzer §4.2, with clean state). A request that comes while an
//! instance is being reset waits for that one: it takes a tenth of a fork.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use faasw_abi::memory_map::RAM_MAX;
use tokio::sync::{Notify, oneshot};

use super::instance::Instance;
use super::keeper::Keeper;
use super::polling::{Arrivals, Polling};

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

/// How an instance is parked.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// Since when.
    pub since: Instant,
    /// Bytes of its private pages, as its shell told them.
    pub bytes: u64,
}

/// A request that waits for an instance.
pub type Waiting = oneshot::Sender<Instance>;

/// An instance that will be parked, or not.
#[derive(Debug)]
pub struct Coming {
    parking: Arc<Parking>,
    wanted: Option<Arc<Notify>>,
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
    /// Room for the instances of one more seed.
    pub(super) fn new(keeper: &Arc<Keeper>) -> Self {
        Self {
            keeper: keeper.clone(),
            places: Mutex::default(),
            arrivals: Arrivals::default(),
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
        self.keeper.polling()
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
        if places.coming <= places.waiting.len() {
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

    /// Whether there are fewer instances than there are to be at all times, where so many are at
    /// work or being reset: those count, and of those that are parked the ones that were forked
    /// with the working set of this generation. The others do not come back from a request.
    pub fn lacks(&self, generation: u32, at_work: usize) -> bool {
        let places = self.places();
        let parked = places.parked.iter();
        let current = parked.filter(|parked| parked.instance.generation == generation);
        current.count() + places.coming.max(at_work) < self.keeper.rules().least
    }

    /// Takes out those that have ended by themselves; how many they were.
    pub fn sweep(&self) -> usize {
        let mut places = self.places();
        let before = places.parked.len();
        let mut bytes = 0;
        places.parked.retain_mut(|parked| {
            let is_alive = parked.instance.shell.check_alive();
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

impl Coming {
    /// From now on requests know of it before it is parked: its guest looks for one, or will.
    pub fn look_out(&mut self) {
        let wanted = self.wanted.insert(Arc::default()).clone();
        let mut places = self.parking.places();
        match places.waiting.is_empty() {
            true => places.hot.push(wanted),
            // It came before its instance was known to look.
            false => wanted.notify_one(),
        }
    }

    /// Waits until a request wants an instance that looks for one; for ever where it does not look.
    pub async fn wanted(&self) {
        match &self.wanted {
            Some(wanted) => wanted.notified().await,
            None => std::future::pending().await,
        }
    }

    /// The request that waits longest for an instance. If there is none, the next one is told of
    /// again.
    pub fn take_waiting(&self) -> Option<Waiting> {
        let mut places = self.parking.places();
        while let Some(waiting) = places.waiting.pop_front() {
            if !waiting.is_closed() {
                return Some(waiting);
            }
        }
        places.hot.extend(self.wanted.clone());
        None
    }

    /// It waits on.
    pub fn give_back(&self, waiting: Waiting) {
        self.parking.places().waiting.push_front(waiting);
    }

    /// Hands an instance to a request that was taken. Where that has gone meanwhile it ends: it has
    /// been claimed.
    pub fn hand(self, waiting: Waiting, instance: Instance) {
        drop(self);
        drop(waiting.send(instance));
    }

    /// Parks an instance that has `bytes` of private pages, and has looked for a request for so
    /// long as `polled`; or hands it to who waits for one.
    pub fn park(self, mut instance: Instance, bytes: u64, polled: Duration) {
        let keeper = &self.parking.keeper;
        let is_too_many;
        {
            let mut places = self.parking.places();
            while let Some(waiting) = places.waiting.pop_front() {
                match waiting.send(instance) {
                    Ok(()) => return,
                    Err(unwanted) => instance = unwanted,
                }
            }
            if keeper.has_stopped() {
                return;
            }
            // Before anybody can take it and count it out.
            is_too_many = keeper.came();
            // A shell's word, of no more than a guest's memory.
            let bytes = bytes.min(RAM_MAX);
            let now = Instant::now();
            places.bytes += bytes;
            places.parked.push_back(Parked {
                instance,
                rest: Rest {
                    since: now.checked_sub(polled).unwrap_or(now),
                    bytes,
                },
            });
        }
        if is_too_many {
            keeper.end_oldest();
        }
        keeper.begin();
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut places = self.parking.places();
        places.coming -= 1;
        if let Some(wanted) = &self.wanted {
            places.hot.retain(|other| !Arc::ptr_eq(other, wanted));
        }
        // Whoever waits for what does not come is told so.
        while places.waiting.len() > places.coming {
            places.waiting.pop_back();
        }
    }
}

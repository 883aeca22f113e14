//! Warm instances: specialised, reset to their seed's exact state, and waiting for a request of
//! their function.
//!
//! Their number follows demand by itself. Every instance that ends its request well becomes warm,
//! the one that became warm last is taken first, and an instance that no request takes for the
//! keep-alive time is ended (the pooling of AFaaS §4.2 and the cached Zygotes of Catalyzer §3.4,
//! with clean state). A request that arrives while an instance is being reset waits for that one,
//! because a reset takes a tenth of the time of a fork.

mod pending;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

pub use self::pending::{AssignedRequest, PendingInstance};
use super::instance::Instance;
use super::keeper::Keeper;
use super::polling::{Arrivals, Polling};
use super::reset_record::ResetRecord;

/// The warm instances of one seed.
#[derive(Debug)]
pub struct WarmInstances {
    keeper: Arc<Keeper>,
    state: Mutex<State>,
    arrivals: Arrivals,
    /// Whether instances are warm ahead of requests, as many as the rules require.
    is_provisioned: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// The warm instances, oldest first.
    warm: VecDeque<WarmInstance>,
    /// Bytes of the private pages of all warm instances.
    bytes: u64,
    /// The number of instances that are being reset or made.
    pending: usize,
    /// Requests that wait for one of those.
    waiting: VecDeque<WaitingRequest>,
    /// The number of requests that one of those is assigned to, and will be handed to.
    assigned: usize,
    /// The instances among those whose guests poll for a request, or will. A request notifies one
    /// of them.
    hot: Vec<Arc<Notify>>,
    /// An instance is being made because a request had to wait.
    making: bool,
}

/// A request that waits for an instance.
#[derive(Debug)]
struct WaitingRequest {
    sender: oneshot::Sender<Instance>,
    /// Since when the request waits.
    since: Instant,
}

impl WaitingRequest {
    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

#[derive(Debug)]
struct WarmInstance {
    instance: Instance,
    info: WarmInfo,
}

impl State {
    /// Returns the number of requests that have an instance to wait for.
    fn wanted(&self) -> usize {
        self.waiting.len() + self.assigned
    }

    /// Adds a request that waits.
    fn wait(&mut self) -> oneshot::Receiver<Instance> {
        let (sender, receiver) = oneshot::channel();
        let since = Instant::now();
        self.waiting.push_back(WaitingRequest { sender, since });
        receiver
    }
}

/// Since when an instance is warm, and its memory.
#[derive(Clone, Copy, Debug)]
pub struct WarmInfo {
    /// When the instance became warm. If it has polled for a request in vain, when it began to
    /// poll.
    pub since: Instant,
    /// Bytes of its private pages, as its sandbox reported them.
    pub bytes: u64,
}

/// The right to make one more instance.
#[derive(Debug)]
pub struct MakePermit(Arc<WarmInstances>);

impl Drop for MakePermit {
    fn drop(&mut self) {
        self.0.lock().making = false;
    }
}

impl WarmInstances {
    /// Returns the warm instances of one more seed, none so far. They poll for requests for at most
    /// `most`.
    pub(super) fn new(keeper: &Arc<Keeper>, most: Duration) -> Self {
        Self {
            keeper: keeper.clone(),
            state: Mutex::default(),
            arrivals: Arrivals::new(most),
            is_provisioned: AtomicBool::new(false),
        }
    }

    /// Takes the instance that became warm last.
    pub fn take(&self) -> Option<Instance> {
        loop {
            let warm = {
                let mut state = self.lock();
                let warm = state.warm.pop_back()?;
                state.bytes -= warm.info.bytes;
                warm
            };
            self.keeper.note_gone(1);
            self.note_arrival(warm.info.since.elapsed());
            let mut instance = warm.instance;
            if instance.sandbox.check_alive() {
                return Some(instance);
            }
        }
    }

    /// Waits for an instance whose guest polls for a request, if there is one. The channel closes
    /// if the instance does not come.
    pub fn wait_for_hot(&self) -> Option<oneshot::Receiver<Instance>> {
        let mut state = self.lock();
        let wanted = state.hot.pop()?;
        let receiver = state.wait();
        drop(state);
        wanted.notify_one();
        Some(receiver)
    }

    /// Notes the arrival of a request. `waited` is how long an instance could have polled for it.
    fn note_arrival(&self, waited: Duration) {
        self.arrivals.note(waited);
    }

    /// Returns the pool's limits of polling.
    pub fn polling(&self) -> &Arc<Polling> {
        self.keeper.polling()
    }

    /// Returns the record of the resets of all instances of the pool.
    pub fn resets(&self) -> &ResetRecord {
        self.keeper.resets()
    }

    /// Returns the arrivals of requests.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Waits for an instance that is being reset, if there is one that no other request waits for.
    /// The channel closes if no instance comes.
    pub fn wait(&self) -> Option<oneshot::Receiver<Instance>> {
        let mut state = self.lock();
        state.waiting.retain(|waiting| !waiting.is_closed());
        if state.pending <= state.wanted() {
            drop(state);
            self.note_arrival(Duration::ZERO);
            return None;
        }
        Some(state.wait())
    }

    /// Returns the right to make one more instance, because a request had to wait. Returns `None`
    /// while the right is held elsewhere.
    pub fn make_permit(self: &Arc<Self>) -> Option<MakePermit> {
        let mut state = self.lock();
        if state.making {
            return None;
        }
        state.making = true;
        drop(state);
        Some(MakePermit(self.clone()))
    }

    /// Announces an instance. Returns `None` if it should not be warm again, because it has
    /// served enough requests or the keeper has stopped.
    pub fn announce(self: &Arc<Self>, uses: u32) -> Option<PendingInstance> {
        if uses >= self.keeper.rules().max_reuse || self.keeper.has_stopped() {
            return None;
        }
        self.lock().pending += 1;
        Some(PendingInstance {
            warm_instances: self.clone(),
            wanted: None,
        })
    }

    /// Returns how many instances are warm.
    pub fn count(&self) -> usize {
        self.lock().warm.len()
    }

    /// Returns the information about each warm instance, those that wait longest first.
    pub fn infos(&self) -> Vec<WarmInfo> {
        let state = self.lock();
        state.warm.iter().map(|warm| warm.info).collect()
    }

    /// Returns the bytes of the private pages of all warm instances.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Returns how many instances are being reset or made.
    pub fn pending(&self) -> usize {
        self.lock().pending
    }

    /// Notes that instances are to be warm ahead of requests from now on. Returns whether this is
    /// new.
    pub fn set_provisioned(&self) -> bool {
        // Called for each request: nearly always it is set already.
        !self.is_provisioned.load(Ordering::Relaxed)
            && !self.is_provisioned.swap(true, Ordering::Relaxed)
    }

    /// Returns how many instances are missing from those that must be there at all times. `at_work`
    /// instances are at work or being reset, and count as present. Warm instances count if they
    /// were forked with the working set of this generation. The others are not warm again after a
    /// request.
    pub fn missing(&self, generation: u32, at_work: usize) -> usize {
        let state = self.lock();
        let warm = state.warm.iter();
        let current = warm.filter(|warm| warm.instance.generation == generation);
        let there = current.count() + state.pending.max(at_work);
        self.keeper.rules().least.saturating_sub(there)
    }

    /// Removes warm instances that have ended by themselves. Returns how many there were.
    pub fn sweep(&self) -> usize {
        let mut state = self.lock();
        let before = state.warm.len();
        let mut bytes = 0;
        state.warm.retain_mut(|warm| {
            let is_alive = warm.instance.sandbox.check_alive();
            bytes += if is_alive { 0 } else { warm.info.bytes };
            is_alive
        });
        state.bytes -= bytes;
        let ended = before - state.warm.len();
        drop(state);
        self.keeper.note_gone(ended);
        ended
    }

    /// Ends the instance that has waited longest among those that were forked with a working set of
    /// another generation. Returns whether there was one.
    pub fn end_outdated(&self, generation: u32) -> bool {
        let mut state = self.lock();
        let mut warm = state.warm.iter();
        let Some(place) = warm.position(|warm| warm.instance.generation != generation) else {
            return false;
        };
        let ended = state.warm.remove(place);
        state.bytes -= ended.as_ref().map_or(0, |ended| ended.info.bytes);
        drop(state);
        // Ending takes a moment, in which requests may take other instances.
        drop(ended);
        self.keeper.note_gone(1);
        true
    }

    /// Returns whether more instances are warm than must be there at all times.
    pub fn has_surplus(&self) -> bool {
        self.count() > self.keeper.rules().least
    }

    /// Ends instances that were warm before `before`, except for the last `kept`.
    pub(super) fn expire(&self, before: Instant, kept: usize) {
        let state = self.lock();
        let old = state
            .warm
            .partition_point(|warm| warm.info.since <= before)
            .min(state.warm.len().saturating_sub(kept));
        self.end(state, old);
    }

    /// Gives the usual priority to instances that were warm between `from` and `until` and still
    /// have the lowest. They do not poll, and a request that takes one would have to wait for its
    /// processor.
    pub(super) fn restore_priority(&self, from: Instant, until: Instant) {
        let state = self.lock();
        let is_before = |moment: Instant| move |warm: &WarmInstance| warm.info.since <= moment;
        let first = state.warm.partition_point(is_before(from));
        let last = state.warm.partition_point(is_before(until));
        for warm in state.warm.range(first..last.max(first)) {
            if warm.instance.sandbox.process().may_be_in_background_group() {
                warm.instance.sandbox.process().set_background_group(false);
            }
        }
    }

    /// Ends the `count` instances that have waited longest.
    pub fn end_oldest(&self, count: usize) {
        self.end(self.lock(), count);
    }

    fn end(&self, mut state: MutexGuard<'_, State>, count: usize) {
        let count = count.min(state.warm.len());
        let ended: Vec<_> = state.warm.drain(..count).collect();
        state.bytes -= ended.iter().map(|warm| warm.info.bytes).sum::<u64>();
        // Ending takes a moment, in which requests may take other instances.
        drop(state);
        self.keeper.note_gone(ended.len());
    }

    /// Returns since when the oldest instance is warm.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.lock().warm.front().map(|warm| warm.info.since)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WarmInstances {
    fn drop(&mut self) {
        let warm = self.lock().warm.len();
        self.keeper.note_gone(warm);
    }
}

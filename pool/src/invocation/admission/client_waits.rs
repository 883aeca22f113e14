//! Invocations that wait for their clients, and which of them is evicted when other requests need
//! their permits.
//!
//! A client that neither sends what its function waits for nor takes what waits for it costs a
//! permit for nothing. So does a function that waits for outbound calls, once it has waited longer
//! in total than a response may take to begin. While there are enough permits, such an invocation
//! continues within its own limits. When another request finds none, the invocation that has waited
//! longest is evicted. Invocations that began before their request's body was there are evicted
//! first.
//!
//! An evicted invocation has its permit until it has ended. Until then the permit counts as lost
//! by its function and gained by the function that it was evicted for, so that requests that come
//! together do not each count it again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use faasw_fri::messages::FunctionNumber;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::capacity::Amount;

/// An invocation that has waited for less than this counts as at work: it is the time of a round
/// trip to a distant client.
const AT_WORK_MAX: Duration = Duration::from_millis(100);

/// Invocations that have waited for their clients at least once.
#[derive(Debug, Default)]
pub struct ClientWaits {
    invocations: Mutex<Invocations>,
    next: AtomicU64,
    evicted: AtomicU64,
}

#[derive(Debug, Default)]
struct Invocations {
    by_number: BTreeMap<u64, Arc<WaitEntry>>,
    /// The amounts of evicted invocations that have not ended, by the functions concerned.
    pending: HashMap<FunctionNumber, PendingEvictions>,
}

/// The amounts that evicted invocations hold until they have ended, as they concern one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingEvictions {
    /// The amount that the function loses.
    pub lost: Amount,
    /// The amount of invocations that were evicted for the function.
    pub gained: Amount,
}

impl PendingEvictions {
    /// Returns what a function that holds `held` will hold.
    pub fn left_of(self, held: Amount) -> Amount {
        held.plus(self.gained).minus(self.lost)
    }
}

/// The functions that an invocation belongs to, and the memory of its permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitHolder {
    /// The function that answers.
    pub function: FunctionNumber,
    /// The function whose share the permit counts in.
    pub share: FunctionNumber,
    /// Bytes of memory that the instance may use at worst.
    pub memory: u64,
}

impl PermitHolder {
    fn amount(self) -> Amount {
        Amount::one(self.memory)
    }

    /// Returns the holder of a permit in the function's own share.
    #[cfg(test)]
    pub fn alone(function: FunctionNumber) -> Self {
        Self {
            function,
            share: function,
            memory: 1,
        }
    }
}

/// The entry of one invocation. Dropping it removes the invocation and its pending amounts.
#[derive(Debug)]
pub struct ClientWait {
    waits: Arc<ClientWaits>,
    number: u64,
    shared: Arc<WaitEntry>,
}

#[derive(Debug)]
struct WaitEntry {
    holder: PermitHolder,
    state: Mutex<State>,
    /// The function that the invocation was evicted for, once it was.
    evicted_for: OnceLock<FunctionNumber>,
    evicted: Notify,
}

#[derive(Debug)]
struct State {
    /// Since when the invocation waits for its client; `None` while it does not. The time may be in
    /// the future: until then the invocation is at work.
    since: Option<Instant>,
    /// The invocation began before its request's body was there, and the body is still missing.
    is_early: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientWaits {
    /// Adds an invocation.
    pub fn add(self: &Arc<Self>, holder: PermitHolder) -> ClientWait {
        let shared = Arc::new(WaitEntry {
            holder,
            state: Mutex::new(State {
                since: None,
                is_early: false,
            }),
            evicted_for: OnceLock::new(),
            evicted: Notify::new(),
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut invocations = lock(&self.invocations);
        invocations.by_number.insert(number, shared.clone());
        drop(invocations);
        ClientWait {
            waits: self.clone(),
            number,
            shared,
        }
    }

    /// Returns the number of evicted invocations.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Evicts the invocation that has waited longest among those that `may_lose` their permits.
    /// Returns whether it evicted one. The permit is for the function `claimant`, which has
    /// `waiting` requests that wait; none is evicted if a permit is coming for each of them.
    /// `may_lose` takes the pending amounts of the function that would lose the permit, and those
    /// of `claimant`.
    pub fn evict_longest(
        &self,
        claimant: FunctionNumber,
        waiting: usize,
        may_lose: impl Fn(PermitHolder, PendingEvictions, PendingEvictions) -> bool,
    ) -> bool {
        let now = Instant::now();
        let mut invocations = lock(&self.invocations);
        let own = invocations.pending_of(claimant);
        // Each waiting request has a permit coming already.
        if own.gained.permits >= waiting {
            return false;
        }
        let may_go = invocations.by_number.values().filter_map(|shared| {
            if shared.is_evicted() {
                return None;
            }
            let (since, is_early) = {
                let state = lock(&shared.state);
                (state.since?, state.is_early)
            };
            let is_long = is_early || now.saturating_duration_since(since) >= AT_WORK_MAX;
            let holder = shared.holder;
            let may_go = is_long && may_lose(holder, invocations.pending_of(holder.share), own);
            may_go.then_some((!is_early, since, shared))
        });
        let longest = may_go.min_by_key(|(is_usual, since, _)| (*is_usual, *since));
        let Some(shared) = longest.map(|(.., shared)| shared.clone()) else {
            return false;
        };
        let _ = shared.evicted_for.set(claimant);
        let (share, held) = (shared.holder.share, shared.holder.amount());
        invocations.change(share, |pending| pending.lost = pending.lost.plus(held));
        invocations.change(claimant, |pending| {
            pending.gained = pending.gained.plus(held)
        });
        shared.evicted.notify_one();
        self.evicted.fetch_add(1, Ordering::Relaxed);
        true
    }
}

impl Invocations {
    fn pending_of(&self, function: FunctionNumber) -> PendingEvictions {
        self.pending.get(&function).copied().unwrap_or_default()
    }

    fn change(&mut self, function: FunctionNumber, change: impl FnOnce(&mut PendingEvictions)) {
        let pending = self.pending.entry(function).or_default();
        change(pending);
        if *pending == PendingEvictions::default() {
            self.pending.remove(&function);
        }
    }
}

impl WaitEntry {
    fn is_evicted(&self) -> bool {
        self.evicted_for.get().is_some()
    }
}

impl ClientWait {
    /// Sets since when the invocation waits for its client, if it does, and whether its request's
    /// body should have arrived before.
    pub fn set(&self, since: Option<Instant>, is_early: bool) {
        *lock(&self.shared.state) = State { since, is_early };
    }

    /// Waits until the invocation is evicted.
    pub async fn evicted(&self) {
        while !self.shared.is_evicted() {
            self.shared.evicted.notified().await;
        }
    }
}

impl Drop for ClientWait {
    fn drop(&mut self) {
        let mut invocations = lock(&self.waits.invocations);
        invocations.by_number.remove(&self.number);
        if let Some(asking) = self.shared.evicted_for.get() {
            let (share, held) = (self.shared.holder.share, self.shared.holder.amount());
            invocations.change(share, |pending| pending.lost = pending.lost.minus(held));
            invocations.change(*asking, |pending| {
                pending.gained = pending.gained.minus(held)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(wait: &ClientWait) -> bool {
        wait.shared.is_evicted()
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_wait_is_evicted_and_early_requests_first() {
        let waits = Arc::new(ClientWaits::default());
        let [long, longer, early, at_work, not_waiting] =
            [1, 1, 1, 1, 1].map(|of| waits.add(PermitHolder::alone(of)));
        let start = Instant::now();
        tokio::time::advance(Duration::from_secs(9)).await;
        longer.set(Some(start), false);
        long.set(Some(start + Duration::from_secs(1)), false);
        early.set(Some(Instant::now()), true);
        at_work.set(Some(Instant::now()), false);
        not_waiting.set(None, true);
        let to_come = waits.add(PermitHolder::alone(1));
        to_come.set(Some(Instant::now() + Duration::from_secs(1)), false);
        for expected in [&early, &longer, &long] {
            assert!(!is_evicted(expected));
            assert!(waits.evict_longest(9, 9, |_, _, _| true));
            assert!(is_evicted(expected));
            expected.evicted().await;
        }
        assert!(!waits.evict_longest(9, 9, |_, _, _| true));
        assert!(!is_evicted(&at_work) && !is_evicted(&not_waiting) && !is_evicted(&to_come));
        assert_eq!(waits.evicted(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn only_functions_that_may_lose_a_permit_lose_one() {
        let waits = Arc::new(ClientWaits::default());
        let (one, other) = (
            waits.add(PermitHolder::alone(1)),
            waits.add(PermitHolder::alone(2)),
        );
        for wait in [&one, &other] {
            wait.set(Some(Instant::now()), true);
        }
        assert!(waits.evict_longest(9, 9, |holder, _, _| holder.function == 2));
        assert!(is_evicted(&other) && !is_evicted(&one));
        drop((one, other));
        assert!(!waits.evict_longest(9, 9, |_, _, _| true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_is_lost_by_the_function_whose_share_it_counts_in() {
        let waits = Arc::new(ClientWaits::default());
        let holder = PermitHolder {
            share: 1,
            ..PermitHolder::alone(2)
        };
        let wait = waits.add(holder);
        wait.set(Some(Instant::now()), true);
        assert!(waits.evict_longest(9, 9, |other, _, _| other == holder));
        let pending = |function| lock(&waits.invocations).pending_of(function);
        assert_eq!(
            (pending(1).lost, pending(2).lost),
            (Amount::one(1), Amount::default())
        );
        drop(wait);
        assert_eq!(pending(1), PendingEvictions::default());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_invocations_are_evicted_than_requests_wait() {
        let waits = Arc::new(ClientWaits::default());
        let held = [1, 1, 1].map(|of| waits.add(PermitHolder::alone(of)));
        for wait in &held {
            wait.set(Some(Instant::now()), true);
        }
        assert!(waits.evict_longest(2, 1, |_, _, _| true));
        assert!(!waits.evict_longest(2, 1, |_, _, _| true));
        assert!(waits.evict_longest(2, 2, |_, of_one, own| {
            assert_eq!((of_one.lost, own.gained), (Amount::one(1), Amount::one(1)));
            true
        }));
        drop(held);
        assert!(lock(&waits.invocations).pending.is_empty());
    }
}

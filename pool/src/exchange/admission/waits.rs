//! Exchanges that wait for their clients, and which of them has to go when others want
//! their places.
//!
//! A client that neither sends what its function waits for nor takes what waits for it
//! costs a place for nothing; so does whoever a function asks and that does not answer, once that has taken longer
//! than a function may. While there are places enough it may (its own limits hold);
//! when another request finds none, the exchange that has waited longest is cut. First
//! come those that began before their request's body was there.
//!
//! An exchange that was cut has its place until it has ended. Until then it counts as lost
//! by its function and gained by the one that it was cut for, so that requests that come
//! together do not each count it again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::seeds::FunctionNumber;

/// An exchange that waits for less than this is at work.
const AT_WORK: Duration = Duration::from_millis(100);

/// Exchanges that wait, or did.
#[derive(Debug, Default)]
pub struct Waits {
    exchanges: Mutex<Exchanges>,
    next: AtomicU64,
    cut: AtomicU64,
}

#[derive(Debug, Default)]
struct Exchanges {
    by_number: BTreeMap<u64, Arc<Shared>>,
    /// Of those that were cut and have not ended.
    pending: HashMap<FunctionNumber, Pending>,
}

/// Exchanges that were cut and have not ended, as they concern one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// That it loses.
    pub lost: usize,
    /// That were cut for it.
    pub gained: usize,
}

impl Pending {
    /// What a function that has `taken` places will have.
    pub fn left_of(self, taken: usize) -> usize {
        (taken + self.gained).saturating_sub(self.lost)
    }
}

/// Whose an exchange is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// The function that answers.
    pub function: FunctionNumber,
    /// The function that its place counts for.
    pub share: FunctionNumber,
}

impl Who {
    /// A function for itself.
    #[cfg(test)]
    pub fn alone(function: FunctionNumber) -> Self {
        Self {
            function,
            share: function,
        }
    }
}

/// One exchange among them, from its side.
#[derive(Debug)]
pub struct Wait {
    waits: Arc<Waits>,
    number: u64,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    who: Who,
    state: Mutex<State>,
    /// The function that it was cut for, once it was.
    cut_for: OnceLock<FunctionNumber>,
    cut: Notify,
}

#[derive(Debug)]
struct State {
    /// Since when it waits for its client; nothing while it does not. What is to come may be told before: it is
    /// at work until then.
    since: Option<Instant>,
    /// It began before its request's body was there, and that is not there yet.
    is_early: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waits {
    /// One more exchange.
    pub fn add(self: &Arc<Self>, who: Who) -> Wait {
        let shared = Arc::new(Shared {
            who,
            state: Mutex::new(State {
                since: None,
                is_early: false,
            }),
            cut_for: OnceLock::new(),
            cut: Notify::new(),
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut exchanges = lock(&self.exchanges);
        exchanges.by_number.insert(number, shared.clone());
        drop(exchanges);
        Wait {
            waits: self.clone(),
            number,
            shared,
        }
    }

    /// How many were cut.
    pub fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// Cuts the exchange that has waited longest for a request of the function `asking`,
    /// `waiting` of whose requests wait, of those that `may_lose` their places, by what
    /// is pending for whom those count for and for the asking one; says whether there was one.
    pub fn cut_longest(
        &self,
        asking: FunctionNumber,
        waiting: usize,
        may_lose: impl Fn(Who, Pending, Pending) -> bool,
    ) -> bool {
        let now = Instant::now();
        let mut exchanges = lock(&self.exchanges);
        let own = exchanges.pending_of(asking);
        // Each has one coming.
        if own.gained >= waiting {
            return false;
        }
        let may_go = exchanges.by_number.values().filter_map(|shared| {
            if shared.is_cut() {
                return None;
            }
            let (since, is_early) = {
                let state = lock(&shared.state);
                (state.since?, state.is_early)
            };
            let is_long = is_early || now.saturating_duration_since(since) >= AT_WORK;
            let who = shared.who;
            let may_go = is_long && may_lose(who, exchanges.pending_of(who.share), own);
            may_go.then_some((!is_early, since, shared))
        });
        let longest = may_go.min_by_key(|(is_usual, since, _)| (*is_usual, *since));
        let Some(shared) = longest.map(|(.., shared)| shared.clone()) else {
            return false;
        };
        let _ = shared.cut_for.set(asking);
        exchanges.change(shared.who.share, |pending| pending.lost += 1);
        exchanges.change(asking, |pending| pending.gained += 1);
        shared.cut.notify_one();
        self.cut.fetch_add(1, Ordering::Relaxed);
        true
    }
}

impl Exchanges {
    fn pending_of(&self, function: FunctionNumber) -> Pending {
        self.pending.get(&function).copied().unwrap_or_default()
    }

    fn change(&mut self, function: FunctionNumber, change: impl FnOnce(&mut Pending)) {
        let pending = self.pending.entry(function).or_default();
        change(pending);
        if *pending == Pending::default() {
            self.pending.remove(&function);
        }
    }
}

impl Shared {
    fn is_cut(&self) -> bool {
        self.cut_for.get().is_some()
    }
}

impl Wait {
    /// Says since when it waits for its client, if it does, and whether its request's body
    /// should have been there before.
    pub fn set(&self, since: Option<Instant>, is_early: bool) {
        *lock(&self.shared.state) = State { since, is_early };
    }

    /// Waits until it is cut.
    pub async fn cut(&self) {
        while !self.shared.is_cut() {
            self.shared.cut.notified().await;
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut exchanges = lock(&self.waits.exchanges);
        exchanges.by_number.remove(&self.number);
        if let Some(asking) = self.shared.cut_for.get() {
            exchanges.change(self.shared.who.share, |pending| pending.lost -= 1);
            exchanges.change(*asking, |pending| pending.gained -= 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_cut(wait: &Wait) -> bool {
        wait.shared.is_cut()
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_has_waited_longest_goes_and_early_ones_before() {
        let waits = Arc::new(Waits::default());
        let [long, longer, early, at_work, not_waiting] =
            [1, 1, 1, 1, 1].map(|of| waits.add(Who::alone(of)));
        let start = Instant::now();
        tokio::time::advance(Duration::from_secs(9)).await;
        longer.set(Some(start), false);
        long.set(Some(start + Duration::from_secs(1)), false);
        early.set(Some(Instant::now()), true);
        at_work.set(Some(Instant::now()), false);
        not_waiting.set(None, true);
        let to_come = waits.add(Who::alone(1));
        to_come.set(Some(Instant::now() + Duration::from_secs(1)), false);
        for expected in [&early, &longer, &long] {
            assert!(!is_cut(expected));
            assert!(waits.cut_longest(9, 9, |_, _, _| true));
            assert!(is_cut(expected));
            expected.cut().await;
        }
        assert!(!waits.cut_longest(9, 9, |_, _, _| true));
        assert!(!is_cut(&at_work) && !is_cut(&not_waiting) && !is_cut(&to_come));
        assert_eq!(waits.cut(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn only_functions_that_may_lose_one_do() {
        let waits = Arc::new(Waits::default());
        let (one, other) = (waits.add(Who::alone(1)), waits.add(Who::alone(2)));
        for wait in [&one, &other] {
            wait.set(Some(Instant::now()), true);
        }
        assert!(waits.cut_longest(9, 9, |who, _, _| who.function == 2));
        assert!(is_cut(&other) && !is_cut(&one));
        drop((one, other));
        assert!(!waits.cut_longest(9, 9, |_, _, _| true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_lost_by_whom_it_counts_for() {
        let waits = Arc::new(Waits::default());
        let who = Who {
            function: 2,
            share: 1,
        };
        let wait = waits.add(who);
        wait.set(Some(Instant::now()), true);
        assert!(waits.cut_longest(9, 9, |other, _, _| other == who));
        let pending = |function| lock(&waits.exchanges).pending_of(function);
        assert_eq!((pending(1).lost, pending(2).lost), (1, 0));
        drop(wait);
        assert_eq!(pending(1), Pending::default());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_are_cut_than_requests_wait_for() {
        let waits = Arc::new(Waits::default());
        let held = [1, 1, 1].map(|of| waits.add(Who::alone(of)));
        for wait in &held {
            wait.set(Some(Instant::now()), true);
        }
        assert!(waits.cut_longest(2, 1, |_, _, _| true));
        assert!(!waits.cut_longest(2, 1, |_, _, _| true));
        assert!(waits.cut_longest(2, 2, |_, of_one, own| {
            assert_eq!((of_one.lost, own.gained), (1, 1));
            true
        }));
        drop(held);
        assert!(lock(&waits.exchanges).pending.is_empty());
    }
}

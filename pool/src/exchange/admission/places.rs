//! Places among what a node does at once, shared fairly between functions.
//!
//! Whoever finds no place waits. A place that is given back goes to the function that has
//! fewest of those that wait, and among its requests to the one that came first: max-min
//! fairness, in which a function that floods the node waits for itself. And while several
//! functions want places, the last eighth of them is for those that have less than their
//! share, so that a function whose requests take long leaves some free for others. On a
//! node with nobody else on it a function may have them all.
//!
//! A place also takes memory: what the instance may come to at worst. A request that is too
//! large for what is free is overtaken by those that are not, so that it is in nobody's way;
//! and one that stops waiting leaves no trace.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use crate::seeds::FunctionNumber;

/// How long a function that was given a place counts as one that wants some.
const WANTED: Duration = Duration::from_secs(30);
/// The part of all places that is kept free for functions that have less than their
/// share: an eighth.
const KEPT_FREE: usize = 8;

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// By whom.
    pub function: FunctionNumber,
    /// Bytes of memory that come with the place.
    pub memory: u64,
}

/// Places, and who has and wants them.
#[derive(Debug)]
pub struct Places {
    most: usize,
    memory: u64,
    keeps_free: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    memory: u64,
    functions: FxHashMap<FunctionNumber, Share>,
    /// Functions that have a place.
    having: usize,
    /// Requests that wait.
    waiting: usize,
    /// The number of the next one that does.
    next: u64,
    /// The two functions that were given one last.
    last: [Option<(FunctionNumber, Instant)>; 2],
}

#[derive(Debug, Default)]
struct Share {
    taken: usize,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    wanted: Wanted,
    place: oneshot::Sender<Place>,
}

/// A request that waits. Dropping it takes it out of its queue.
#[derive(Debug)]
struct Waiting {
    places: Arc<Places>,
    function: FunctionNumber,
    number: u64,
    /// Dropped after it has left the queue, and with it a place that has come too late.
    place: oneshot::Receiver<Place>,
}

/// A place. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping it gives it back"]
pub struct Place {
    places: Arc<Places>,
    function: FunctionNumber,
    memory: u64,
}

impl Places {
    /// `most` places, and `memory` bytes between them. With `keeps_free` the last ones are
    /// for functions that have less than their share.
    pub fn new(most: usize, memory: u64, keeps_free: bool) -> Arc<Self> {
        Arc::new(Self {
            most,
            memory,
            keeps_free,
            state: Mutex::default(),
        })
    }

    /// How many there are.
    pub fn most(&self) -> usize {
        self.most
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.lock().taken
    }

    /// Bytes of memory that come with those that are taken.
    pub fn memory_taken(&self) -> u64 {
        self.lock().memory
    }

    /// How many requests wait for one.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// How many each function has.
    pub fn taken_by_each(&self) -> HashMap<FunctionNumber, usize> {
        let state = self.lock();
        let shares = state.functions.iter();
        shares
            .map(|(function, share)| (*function, share.taken))
            .collect()
    }

    /// How many requests of a function wait for one.
    pub fn waiting_of(&self, function: FunctionNumber) -> usize {
        let state = self.lock();
        let share = state.functions.get(&function);
        share.map_or(0, |share| share.waiting.len())
    }

    /// Whether there would be a place now.
    pub fn has_room(&self, wanted: Wanted) -> bool {
        self.is_free(&self.lock(), wanted)
    }

    /// A place, if there is one and nobody waits who has fewer.
    pub fn try_place(self: &Arc<Self>, wanted: Wanted) -> Option<Place> {
        let mut state = self.lock();
        if !self.is_free(&state, wanted) || self.has_others_first(&state, wanted.function) {
            return None;
        }
        Some(self.give(&mut state, wanted))
    }

    /// A place, as soon as it is this request's turn to have one. It waits from now on,
    /// until what is returned is dropped.
    pub fn place(self: &Arc<Self>, wanted: Wanted) -> impl Future<Output = Place> + use<> {
        let mut waiting = {
            let mut state = self.lock();
            let (sender, place) = oneshot::channel();
            let number = state.next;
            state.next += 1;
            state.waiting += 1;
            let share = state.functions.entry(wanted.function).or_default();
            share.waiting.push_back(Waiter {
                number,
                wanted,
                place: sender,
            });
            self.hand_out(state);
            Waiting {
                places: self.clone(),
                function: wanted.function,
                number,
                place,
            }
        };
        async move {
            match (&mut waiting.place).await {
                Ok(place) => place,
                // Nobody throws a waiter away that still waits.
                Err(_) => std::future::pending().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a function may have one more place, were there nobody else who waits.
    fn is_free(&self, state: &State, wanted: Wanted) -> bool {
        let taken = state
            .functions
            .get(&wanted.function)
            .map_or(0, |share| share.taken);
        if state.taken >= self.most {
            return false;
        }
        // One that is larger than all the memory there is runs alone.
        if state.taken > 0 && state.memory.saturating_add(wanted.memory) > self.memory {
            return false;
        }
        let free = self.most - state.taken;
        if !self.keeps_free || free > self.most / KEPT_FREE {
            return true;
        }
        if !state.is_wanted_by_others(wanted.function) {
            return true;
        }
        let sharing = state.having + usize::from(taken == 0);
        taken < self.most / sharing.max(2)
    }

    /// Whether anybody waits whose turn comes before one more of `function`, and who could
    /// have a place now.
    fn has_others_first(&self, state: &State, function: FunctionNumber) -> bool {
        if state.waiting == 0 {
            return false;
        }
        let share = state.functions.get(&function);
        let taken = share.map_or(0, |share| share.taken);
        state.functions.values().any(|share| {
            let first = share.waiting.front();
            share.taken <= taken && first.is_some_and(|first| self.is_free(state, first.wanted))
        })
    }

    fn give(self: &Arc<Self>, state: &mut State, wanted: Wanted) -> Place {
        if self.keeps_free {
            state.wants(wanted.function);
        }
        state.taken += 1;
        state.memory = state.memory.saturating_add(wanted.memory);
        let share = state.functions.entry(wanted.function).or_default();
        share.taken += 1;
        if share.taken == 1 {
            state.having += 1;
        }
        Place {
            places: self.clone(),
            function: wanted.function,
            memory: wanted.memory,
        }
    }

    /// Gives places to those whose turn it is, as long as there are any.
    fn hand_out(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut given = Vec::new();
        while state.waiting > 0 {
            let next = state
                .functions
                .iter()
                .filter_map(|(function, share)| {
                    let first = share.waiting.front()?;
                    // What is too large for now is overtaken by what is not.
                    let may_come = self.is_free(&state, first.wanted);
                    may_come.then_some((share.taken, first.number, *function))
                })
                .min_by_key(|(taken, number, _)| (*taken, *number));
            let share = next.and_then(|(.., function)| state.functions.get_mut(&function));
            let Some(waiter) = share.and_then(|share| share.waiting.pop_front()) else {
                break;
            };
            state.waiting -= 1;
            let place = self.give(&mut state, waiter.wanted);
            given.push((waiter.place, place));
        }
        // A place that nobody takes after all is given back, which takes the lock.
        drop(state);
        for (waiter, place) in given {
            let _ = waiter.send(place);
        }
    }
}

impl State {
    /// Takes note of who was given a place.
    fn wants(&mut self, function: FunctionNumber) {
        let now = Instant::now();
        match &mut self.last {
            [Some((last, at)), _] if *last == function => *at = now,
            [last, before] => *before = last.replace((function, now)),
        }
    }

    /// Whether another function waits for a place, or had one given lately.
    fn is_wanted_by_others(&self, function: FunctionNumber) -> bool {
        let share = self.functions.get(&function);
        if self.waiting > share.map_or(0, |share| share.waiting.len()) {
            return true;
        }
        self.last
            .iter()
            .flatten()
            .any(|(other, at)| *other != function && at.elapsed() < WANTED)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        let Some(share) = state.functions.get_mut(&self.function) else {
            return;
        };
        let found = share
            .waiting
            .binary_search_by_key(&self.number, |waiter| waiter.number);
        // One that is not there has been given its place.
        let Ok(index) = found else {
            return;
        };
        let _ = share.waiting.remove(index);
        if share.taken == 0 && share.waiting.is_empty() {
            state.functions.remove(&self.function);
        }
        state.waiting -= 1;
        // It may have been in others' way.
        self.places.hand_out(state);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        state.taken -= 1;
        state.memory = state.memory.saturating_sub(self.memory);
        let mut has_nothing = false;
        if let Some(share) = state.functions.get_mut(&self.function) {
            share.taken -= 1;
            if share.taken == 0 {
                has_nothing = share.waiting.is_empty();
                state.having -= 1;
            }
        }
        if has_nothing {
            state.functions.remove(&self.function);
        }
        if state.waiting > 0 {
            self.places.hand_out(state);
        }
    }
}

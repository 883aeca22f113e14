//! Run permits ("turns"): the right of a request to run before others.
//!
//! A few short requests run at a time. All are done sooner than if they took each other's
//! processors. A request has its turn from before it has a sandbox until it has run for a moment.
//!
//! A returned turn goes to the waiting function that has the fewest, and among its requests to the
//! first. A turn that lasts longer than a moment, such as when a sandbox must be made while all
//! processors are busy, blocks only requests of its own function ([`OVERDUE`]): turns are for
//! processors, and a request that waits needs none.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::seeds::FunctionNumber;

/// How long a turn blocks other functions' requests: 1 ms, the time that a request may run in its
/// turn while others wait.
const OVERDUE: Duration = Duration::from_millis(1);

/// The turns of a node, and its functions' queues for them.
#[derive(Debug)]
pub struct Turns {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    given: Vec<HeldTurn>,
    /// The queue of each function; no queue is empty.
    waiting: FxHashMap<FunctionNumber, VecDeque<Waiter>>,
    /// The last number of a turn or a waiting request.
    next: u64,
}

#[derive(Debug)]
struct HeldTurn {
    number: u64,
    function: FunctionNumber,
    since: Instant,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    turn: oneshot::Sender<Turn>,
}

/// A request that waits. Dropping it takes it out of its queue.
#[derive(Debug)]
struct Waiting {
    turns: Arc<Turns>,
    function: FunctionNumber,
    number: u64,
    turn: oneshot::Receiver<Turn>,
}

/// A turn. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping it gives it back"]
pub struct Turn {
    turns: Arc<Turns>,
    number: u64,
}

impl Turns {
    /// Creates `most` turns.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            state: Mutex::default(),
        })
    }

    /// Returns a turn if one is free and no waiting request comes first.
    pub fn try_turn(self: &Arc<Self>, function: FunctionNumber) -> Option<Turn> {
        let mut state = self.lock();
        let now = Instant::now();
        if !self.is_free(&state, function, now) {
            return None;
        }
        let own = state.given_to(function);
        let mut others = state.waiting.keys();
        let comes_first =
            others.any(|other| state.given_to(*other) <= own && self.is_free(&state, *other, now));
        (!comes_first).then(|| self.give(&mut state, function, now))
    }

    /// Waits for a turn.
    pub async fn turn(self: &Arc<Self>, function: FunctionNumber) -> Turn {
        if let Some(turn) = self.try_turn(function) {
            return turn;
        }
        let mut waiting = self.wait(function);
        let mut turn = pin!(&mut waiting.turn);
        loop {
            let given = match self.overdue_in(function) {
                None => turn.as_mut().await,
                Some(rest) => match timeout(rest, turn.as_mut()).await {
                    Ok(given) => given,
                    Err(_) => {
                        self.hand_out(self.lock());
                        continue;
                    }
                },
            };
            if let Ok(turn) = given {
                return turn;
            }
            // The sender stays in the queue until it has sent, so that this is never reached.
            std::future::pending::<()>().await;
        }
    }

    fn wait(self: &Arc<Self>, function: FunctionNumber) -> Waiting {
        let (sender, turn) = oneshot::channel();
        let mut state = self.lock();
        let number = state.number();
        let queue = state.waiting.entry(function).or_default();
        queue.push_back(Waiter {
            number,
            turn: sender,
        });
        // A turn may have come back since the request looked for one.
        self.hand_out(state);
        Waiting {
            turns: self.clone(),
            function,
            number,
            turn,
        }
    }

    /// Whether a request waits for a turn.
    fn is_wanted(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Whether a function may have one more turn.
    fn is_free(&self, state: &State, function: FunctionNumber, now: Instant) -> bool {
        let counts = |given: &&HeldTurn| given.function == function || given.is_fresh(now);
        state.given.iter().filter(counts).count() < self.most
    }

    /// Returns the time until a turn of another function is overdue; `None` if the function has a
    /// turn itself, whose return it waits for.
    fn overdue_in(&self, function: FunctionNumber) -> Option<Duration> {
        let state = self.lock();
        if state.given_to(function) > 0 {
            return None;
        }
        let now = Instant::now();
        let fresh = state.given.iter().filter(|given| given.is_fresh(now));
        let first = fresh.map(|given| given.since + OVERDUE - now).min();
        Some(first.unwrap_or(OVERDUE))
    }

    fn give(self: &Arc<Self>, state: &mut State, function: FunctionNumber, now: Instant) -> Turn {
        let number = state.number();
        state.given.push(HeldTurn {
            number,
            function,
            since: now,
        });
        Turn {
            turns: self.clone(),
            number,
        }
    }

    /// Gives turns to the requests that come first, as long as there are any.
    fn hand_out(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut given = Vec::new();
        let now = Instant::now();
        while !state.waiting.is_empty() {
            let queues = state.waiting.iter();
            let next = queues
                .filter(|(function, _)| self.is_free(&state, **function, now))
                .filter_map(|(function, queue)| {
                    let first = queue.front()?;
                    Some((state.given_to(*function), first.number, *function))
                })
                .min();
            let Some((.., function)) = next else {
                break;
            };
            let Some(waiter) = state.leave(function, 0) else {
                break;
            };
            let turn = self.give(&mut state, function, now);
            given.push((waiter.turn, turn));
        }
        // A turn whose request is gone is returned at once, which takes the lock.
        drop(state);
        for (waiter, turn) in given {
            let _ = waiter.send(turn);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// How many turns a function has.
    fn given_to(&self, function: FunctionNumber) -> usize {
        let given = self.given.iter();
        given.filter(|given| given.function == function).count()
    }

    /// Takes a request out of its function's queue.
    fn leave(&mut self, function: FunctionNumber, index: usize) -> Option<Waiter> {
        let queue = self.waiting.get_mut(&function)?;
        let waiter = queue.remove(index);
        if queue.is_empty() {
            self.waiting.remove(&function);
        }
        waiter
    }
}

impl HeldTurn {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < OVERDUE
    }
}

impl Turn {
    /// Whether a request waits for one of these.
    pub fn is_wanted(&self) -> bool {
        self.turns.is_wanted()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.given.retain(|given| given.number != self.number);
        if !state.waiting.is_empty() {
            self.turns.hand_out(state);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        let queue = state.waiting.get(&self.function);
        let found = queue.map(|queue| queue.binary_search_by_key(&self.number, |one| one.number));
        // A request that is not in the queue has received its turn.
        if let Some(Ok(index)) = found {
            state.leave(self.function, index);
            // Its request may have blocked others.
            self.turns.hand_out(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOG: FunctionNumber = 1;
    const NEIGHBOUR: FunctionNumber = 2;

    /// Whether a request of a function would have a turn at once.
    async fn has_turn(turns: &Arc<Turns>, function: FunctionNumber) -> bool {
        let turn = pin!(turns.turn(function));
        tokio::select! {
            biased;
            turn = turn => {
                drop(turn);
                true
            }
            () = tokio::task::yield_now() => false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn turns_are_given_in_order_to_the_function_that_has_fewest() {
        let turns = Turns::new(2);
        let held = [turns.turn(HOG).await, turns.turn(HOG).await];
        assert!(!held[0].is_wanted());
        let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
        for (index, function) in [HOG, HOG, NEIGHBOUR, NEIGHBOUR].into_iter().enumerate() {
            let (turns, told) = (turns.clone(), told.clone());
            tokio::spawn(async move {
                let turn = turns.turn(function).await;
                told.send((index, turn)).unwrap();
            });
            tokio::task::yield_now().await;
        }
        assert!(held[0].is_wanted());
        assert!(turns.try_turn(NEIGHBOUR).is_none());
        let [first, second] = held;
        drop(first);
        let (index, of_neighbour) = order.recv().await.unwrap();
        assert_eq!(index, 2);
        drop(second);
        let (index, of_hog) = order.recv().await.unwrap();
        assert_eq!(index, 0);
        drop(of_neighbour);
        let (index, _) = order.recv().await.unwrap();
        assert_eq!(index, 3);
        drop(of_hog);
        let (index, _) = order.recv().await.unwrap();
        assert_eq!(index, 1);
        assert!(!turns.is_wanted() && turns.lock().given.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_takes_long_keeps_only_its_own_function_waiting() {
        let turns = Turns::new(2);
        let held = [turns.turn(HOG).await, turns.turn(HOG).await];
        assert!(!has_turn(&turns, NEIGHBOUR).await);
        let began = Instant::now();
        let of_neighbour = turns.turn(NEIGHBOUR).await;
        assert!(began.elapsed() >= OVERDUE && began.elapsed() <= 2 * OVERDUE);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(!has_turn(&turns, HOG).await, "it has two");
        assert!(has_turn(&turns, NEIGHBOUR).await);
        // No function has more at once than there are.
        let another = turns.turn(NEIGHBOUR).await;
        assert!(!has_turn(&turns, NEIGHBOUR).await);
        drop((held, of_neighbour, another));
        assert!(has_turn(&turns, HOG).await);
        assert!(!turns.is_wanted() && turns.lock().given.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_stops_waiting_leaves_no_trace() {
        let turns = Turns::new(1);
        let held = turns.turn(HOG).await;
        for _ in 0..3 {
            assert!(!has_turn(&turns, HOG).await);
            assert!(!held.is_wanted());
        }
        // A request that is gone passes its turn to the next.
        let (late, next) = (turns.wait(HOG), turns.wait(HOG));
        drop(held);
        drop(late);
        let turn = {
            let mut next = next;
            (&mut next.turn).await.unwrap()
        };
        assert!(!turn.is_wanted());
    }
}

//! Run permits: the right of a request to run before others.
//!
//! A few short requests run at a time. All are done sooner than if they took each other's
//! processors. A request holds its permit from before it has a sandbox until it has run for a
//! moment.
//!
//! A returned permit goes to the waiting function that has the fewest, and within it to the request
//! that came first. A permit may last longer than a moment, for example if a sandbox must be made
//! while all processors are busy. Then it blocks only requests of its own function ([`OVERDUE`]):
//! permits are for processors, and a request that waits needs none.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use faasw_fri::messages::FunctionNumber;
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// How long a permit blocks other functions' requests: 1 ms, the time that a request may run with
/// its permit while others wait.
const OVERDUE: Duration = Duration::from_millis(1);

/// The run permits of a node, and its functions' queues for them.
#[derive(Debug)]
pub struct RunPermits {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: Vec<HeldPermit>,
    /// The queue of each function; no queue is empty.
    waiting: FxHashMap<FunctionNumber, VecDeque<Waiter>>,
    /// The last number of a permit or a waiting request.
    next: u64,
}

#[derive(Debug)]
struct HeldPermit {
    number: u64,
    function: FunctionNumber,
    since: Instant,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    permit: oneshot::Sender<RunPermit>,
}

/// A request that waits. Dropping it takes it out of its queue.
#[derive(Debug)]
struct QueuedRequest {
    permits: Arc<RunPermits>,
    function: FunctionNumber,
    number: u64,
    permit: oneshot::Receiver<RunPermit>,
}

/// The right of a request to run before others. Dropping it returns the right.
#[derive(Debug)]
#[must_use = "dropping a permit returns it"]
pub struct RunPermit {
    permits: Arc<RunPermits>,
    number: u64,
}

impl RunPermits {
    /// Creates `most` permits.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            state: Mutex::default(),
        })
    }

    /// Returns a permit if one is free and no waiting request comes first.
    pub fn try_take(self: &Arc<Self>, function: FunctionNumber) -> Option<RunPermit> {
        let mut state = self.lock();
        let now = Instant::now();
        if !self.is_free(&state, function, now) {
            return None;
        }
        let own = state.permits_of(function);
        let mut others = state.waiting.keys();
        let comes_first = others
            .any(|other| state.permits_of(*other) <= own && self.is_free(&state, *other, now));
        (!comes_first).then(|| self.grant(&mut state, function, now))
    }

    /// Waits for a permit.
    pub async fn take(self: &Arc<Self>, function: FunctionNumber) -> RunPermit {
        if let Some(permit) = self.try_take(function) {
            return permit;
        }
        let mut waiting = self.wait(function);
        let mut permit = pin!(&mut waiting.permit);
        loop {
            let granted = match self.overdue_in(function) {
                None => permit.as_mut().await,
                Some(rest) => match timeout(rest, permit.as_mut()).await {
                    Ok(granted) => granted,
                    Err(_) => {
                        self.grant_waiting(self.lock());
                        continue;
                    }
                },
            };
            if let Ok(permit) = granted {
                return permit;
            }
            // The sender stays in the queue until it has sent, so this is never reached.
            std::future::pending::<()>().await;
        }
    }

    fn wait(self: &Arc<Self>, function: FunctionNumber) -> QueuedRequest {
        let (sender, permit) = oneshot::channel();
        let mut state = self.lock();
        let number = state.number();
        let queue = state.waiting.entry(function).or_default();
        queue.push_back(Waiter {
            number,
            permit: sender,
        });
        // A permit may have been returned since the request looked for one.
        self.grant_waiting(state);
        QueuedRequest {
            permits: self.clone(),
            function,
            number,
            permit,
        }
    }

    /// Returns whether a request waits for a permit.
    fn has_waiters(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Returns whether a function may have one more permit.
    fn is_free(&self, state: &State, function: FunctionNumber, now: Instant) -> bool {
        let counts = |held: &&HeldPermit| held.function == function || held.is_fresh(now);
        state.held.iter().filter(counts).count() < self.most
    }

    /// Returns the time until a permit of another function is overdue. Returns `None` if the
    /// function has a permit itself, because it waits for the return of that.
    fn overdue_in(&self, function: FunctionNumber) -> Option<Duration> {
        let state = self.lock();
        if state.permits_of(function) > 0 {
            return None;
        }
        let now = Instant::now();
        let fresh = state.held.iter().filter(|held| held.is_fresh(now));
        let first = fresh.map(|held| held.since + OVERDUE - now).min();
        Some(first.unwrap_or(OVERDUE))
    }

    fn grant(
        self: &Arc<Self>,
        state: &mut State,
        function: FunctionNumber,
        now: Instant,
    ) -> RunPermit {
        let number = state.number();
        state.held.push(HeldPermit {
            number,
            function,
            since: now,
        });
        RunPermit {
            permits: self.clone(),
            number,
        }
    }

    /// Gives permits to the requests that come first, as long as there are any.
    fn grant_waiting(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut granted = Vec::new();
        let now = Instant::now();
        while !state.waiting.is_empty() {
            let queues = state.waiting.iter();
            let next = queues
                .filter(|(function, _)| self.is_free(&state, **function, now))
                .filter_map(|(function, queue)| {
                    let first = queue.front()?;
                    Some((state.permits_of(*function), first.number, *function))
                })
                .min();
            let Some((.., function)) = next else {
                break;
            };
            let Some(waiter) = state.leave(function, 0) else {
                break;
            };
            let permit = self.grant(&mut state, function, now);
            granted.push((waiter.permit, permit));
        }
        // A permit whose request is gone is returned at once, which takes the lock.
        drop(state);
        for (waiter, permit) in granted {
            let _ = waiter.send(permit);
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

    /// Returns how many permits a function has.
    fn permits_of(&self, function: FunctionNumber) -> usize {
        let held = self.held.iter();
        held.filter(|held| held.function == function).count()
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

impl HeldPermit {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < OVERDUE
    }
}

impl RunPermit {
    /// Returns whether a request waits for a permit.
    pub fn has_waiters(&self) -> bool {
        self.permits.has_waiters()
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        let mut state = self.permits.lock();
        state.held.retain(|held| held.number != self.number);
        if !state.waiting.is_empty() {
            self.permits.grant_waiting(state);
        }
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        let mut state = self.permits.lock();
        let queue = state.waiting.get(&self.function);
        let found = queue.map(|queue| queue.binary_search_by_key(&self.number, |one| one.number));
        // A request that is not in the queue has received its permit.
        if let Some(Ok(index)) = found {
            state.leave(self.function, index);
            // The removed request may have blocked others.
            self.permits.grant_waiting(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOG: FunctionNumber = 1;
    const NEIGHBOUR: FunctionNumber = 2;

    /// Returns whether a request of a function would get a permit at once.
    async fn has_permit(permits: &Arc<RunPermits>, function: FunctionNumber) -> bool {
        let permit = pin!(permits.take(function));
        tokio::select! {
            biased;
            permit = permit => {
                drop(permit);
                true
            }
            () = tokio::task::yield_now() => false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn permits_are_given_in_order_to_the_function_that_has_fewest() {
        let permits = RunPermits::new(2);
        let held = [permits.take(HOG).await, permits.take(HOG).await];
        assert!(!held[0].has_waiters());
        let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
        for (index, function) in [HOG, HOG, NEIGHBOUR, NEIGHBOUR].into_iter().enumerate() {
            let (permits, told) = (permits.clone(), told.clone());
            tokio::spawn(async move {
                let permit = permits.take(function).await;
                told.send((index, permit)).unwrap();
            });
            tokio::task::yield_now().await;
        }
        assert!(held[0].has_waiters());
        assert!(permits.try_take(NEIGHBOUR).is_none());
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
        assert!(!permits.has_waiters() && permits.lock().held.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_that_takes_long_keeps_only_its_own_function_waiting() {
        let permits = RunPermits::new(2);
        let held = [permits.take(HOG).await, permits.take(HOG).await];
        assert!(!has_permit(&permits, NEIGHBOUR).await);
        let began = Instant::now();
        let of_neighbour = permits.take(NEIGHBOUR).await;
        assert!(began.elapsed() >= OVERDUE && began.elapsed() <= 2 * OVERDUE);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(!has_permit(&permits, HOG).await, "it has two");
        assert!(has_permit(&permits, NEIGHBOUR).await);
        // No function has more permits at once than there are.
        let another = permits.take(NEIGHBOUR).await;
        assert!(!has_permit(&permits, NEIGHBOUR).await);
        drop((held, of_neighbour, another));
        assert!(has_permit(&permits, HOG).await);
        assert!(!permits.has_waiters() && permits.lock().held.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_stops_waiting_leaves_no_trace() {
        let permits = RunPermits::new(1);
        let held = permits.take(HOG).await;
        for _ in 0..3 {
            assert!(!has_permit(&permits, HOG).await);
            assert!(!held.has_waiters());
        }
        // A request that is gone passes its permit to the next.
        let (late, next) = (permits.wait(HOG), permits.wait(HOG));
        drop(held);
        drop(late);
        let permit = {
            let mut next = next;
            (&mut next.permit).await.unwrap()
        };
        assert!(!permit.has_waiters());
    }
}

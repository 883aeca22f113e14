//! Resources that functions share: each function has a floor of its own and a part of the rest.
//!
//! The floor belongs to the function alone, whatever others hold. Beyond it, a function may hold at
//! most `free / alpha` of the shared rest (dynamic thresholds, Choudhury and Hahne 1998): one
//! function alone gets much of it, and the more functions want some, the less each may hold. A
//! request that finds nothing waits in its function's queue, and functions take turns.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use tokio::sync::oneshot;

/// How many permits there are, and how functions share them.
#[derive(Clone, Copy, Debug)]
pub struct FairLimits {
    /// Permits that each function has for itself.
    pub floor: usize,
    /// Permits beside the floors, which all functions share.
    pub shared: usize,
    /// A function may hold shared permits as long as it holds fewer than one in `alpha` of those
    /// that are free.
    pub alpha: usize,
}

/// Permits for a resource that functions share.
#[derive(Debug)]
pub struct FairPool {
    limits: FairLimits,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    /// Shared permits that no function holds.
    free: usize,
    /// Functions that hold a permit or wait for one.
    claims: HashMap<u64, Claim>,
    /// Functions that wait, in the order of their turns; each is listed once.
    turns: VecDeque<u64>,
}

#[derive(Debug, Default)]
struct Claim {
    held: usize,
    waiting: VecDeque<oneshot::Sender<FairPermit>>,
    /// Whether `turns` lists the function.
    has_turn: bool,
}

/// A permit. Dropping it returns it to the pool.
#[derive(Debug)]
pub struct FairPermit {
    pool: Rc<FairPool>,
    function: u64,
}

impl FairPool {
    /// Returns a pool with all permits free.
    pub fn new(limits: FairLimits) -> Rc<Self> {
        Rc::new(Self {
            limits,
            state: RefCell::new(State {
                free: limits.shared,
                claims: HashMap::new(),
                turns: VecDeque::new(),
            }),
        })
    }

    /// Takes a permit if the function may have one now.
    pub fn try_acquire(self: &Rc<Self>, function: u64) -> Option<FairPermit> {
        let is_taken = self.state.borrow_mut().try_take(self.limits, function);
        is_taken.then(|| FairPermit {
            pool: self.clone(),
            function,
        })
    }

    /// Waits for a permit. Requests of one function get permits in their order.
    pub async fn acquire(self: &Rc<Self>, function: u64) -> FairPermit {
        loop {
            let receiver = {
                let mut state = self.state.borrow_mut();
                if !state.is_waiting(function) && state.try_take(self.limits, function) {
                    return FairPermit {
                        pool: self.clone(),
                        function,
                    };
                }
                state.wait(function)
            };
            // Each sender stays in the pool, which `self` holds, until it has sent a permit.
            if let Ok(permit) = receiver.await {
                return permit;
            }
        }
    }

    /// Grants permits to waiting requests, one function after the other.
    fn grant(self: &Rc<Self>) {
        loop {
            let next = self.state.borrow_mut().next_grant(self.limits);
            let Some((function, waiting)) = next else {
                return;
            };
            let permit = FairPermit {
                pool: self.clone(),
                function,
            };
            // The receiver is there: `next_grant` has looked, and there is one thread.
            drop(waiting.send(permit));
        }
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        self.pool
            .state
            .borrow_mut()
            .give_back(self.pool.limits, self.function);
        self.pool.grant();
    }
}

impl State {
    fn may_take(&self, limits: FairLimits, held: usize) -> bool {
        match held.checked_sub(limits.floor) {
            None => true,
            Some(extra) => extra.saturating_mul(limits.alpha) < self.free,
        }
    }

    fn try_take(&mut self, limits: FairLimits, function: u64) -> bool {
        let held = self.claims.get(&function).map_or(0, |claim| claim.held);
        if !self.may_take(limits, held) {
            return false;
        }
        if held >= limits.floor {
            self.free -= 1;
        }
        self.claims.entry(function).or_default().held += 1;
        true
    }

    fn give_back(&mut self, limits: FairLimits, function: u64) {
        if let Some(claim) = self.claims.get_mut(&function) {
            claim.held -= 1;
            if claim.held >= limits.floor {
                self.free += 1;
            }
            if claim.held == 0 && !claim.has_turn {
                self.claims.remove(&function);
            }
        }
    }

    /// Returns whether a request of the function waits.
    fn is_waiting(&mut self, function: u64) -> bool {
        self.claims.get_mut(&function).is_some_and(|claim| {
            // Requests that were cancelled do not count, and take no memory for long.
            claim.waiting.retain(|waiting| !waiting.is_closed());
            !claim.waiting.is_empty()
        })
    }

    fn wait(&mut self, function: u64) -> oneshot::Receiver<FairPermit> {
        let (sender, receiver) = oneshot::channel();
        let claim = self.claims.entry(function).or_default();
        claim.waiting.push_back(sender);
        if !claim.has_turn {
            claim.has_turn = true;
            self.turns.push_back(function);
        }
        receiver
    }

    /// Takes a permit for the next function whose turn it is and that may have one.
    fn next_grant(&mut self, limits: FairLimits) -> Option<(u64, oneshot::Sender<FairPermit>)> {
        for _ in 0..self.turns.len() {
            let function = self.turns.pop_front()?;
            if !self.is_waiting(function) {
                let claim = self.claims.get_mut(&function)?;
                claim.has_turn = false;
                if claim.held == 0 {
                    self.claims.remove(&function);
                }
                continue;
            }
            self.turns.push_back(function);
            if self.try_take(limits, function) {
                let claim = self.claims.get_mut(&function)?;
                return Some((function, claim.waiting.pop_front()?));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const LIMITS: FairLimits = FairLimits {
        floor: 2,
        shared: 12,
        alpha: 2,
    };

    /// Takes permits until the pool refuses.
    fn take_all(pool: &Rc<FairPool>, function: u64) -> Vec<FairPermit> {
        std::iter::from_fn(|| pool.try_acquire(function)).collect()
    }

    #[test]
    fn a_function_has_its_floor_and_one_function_cannot_take_all_shared_permits() {
        let pool = FairPool::new(LIMITS);
        let first = take_all(&pool, 1);
        // 4 shared ones: then as many as half of the 8 that are left.
        assert_eq!(first.len(), 2 + 4);
        let hogs: Vec<_> = (2..100).map(|function| take_all(&pool, function)).collect();
        assert!(hogs.iter().all(|held| held.len() >= LIMITS.floor));
        assert_eq!(take_all(&pool, 1000).len(), LIMITS.floor);
        drop((first, hogs));
        assert!(pool.state.borrow().claims.is_empty());
        assert_eq!(pool.state.borrow().free, LIMITS.shared);
    }

    #[test]
    fn functions_that_wait_take_turns_and_cancelled_requests_lose_nothing() {
        let pool = FairPool::new(FairLimits {
            floor: 0,
            shared: 1,
            alpha: 1,
        });
        let held = pool.try_acquire(1).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        // Function 1 has asked three times before function 2 asks once.
        let order = RefCell::new(Vec::new());
        let request = |function| {
            let (pool, order) = (&pool, &order);
            Box::pin(async move {
                let permit = pool.acquire(function).await;
                order.borrow_mut().push(function);
                permit
            })
        };
        let mut requests: Vec<_> = [1, 1, 1, 2, 3].map(request).into_iter().collect();
        for request in &mut requests {
            assert!(request.as_mut().poll(&mut context).is_pending());
        }
        // Function 3 gives up before its turn.
        drop(requests.pop());
        drop(held);
        let mut done = 0;
        while done < 4 {
            let mut granted = None;
            requests.retain_mut(|request| match request.as_mut().poll(&mut context) {
                Poll::Ready(permit) => {
                    assert!(granted.replace(permit).is_none(), "two at once");
                    false
                }
                Poll::Pending => true,
            });
            assert!(granted.is_some());
            done += 1;
        }
        assert_eq!(*order.borrow(), [1, 2, 1, 1]);
        assert!(pool.state.borrow().claims.is_empty());
        // A permit that was granted to a request that is dropped instead of polled comes back.
        let held = pool.try_acquire(1).unwrap();
        {
            let mut request = pin!(pool.acquire(2));
            assert!(request.as_mut().poll(&mut context).is_pending());
            drop(held);
        }
        assert!(pool.try_acquire(3).is_some());
    }

    #[test]
    fn cancelled_requests_take_no_memory() {
        let pool = FairPool::new(FairLimits {
            floor: 1,
            shared: 0,
            alpha: 1,
        });
        let _held = pool.try_acquire(7).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..1000 {
            let mut request = pin!(pool.acquire(7));
            assert!(request.as_mut().poll(&mut context).is_pending());
        }
        let state = pool.state.borrow();
        assert!(state.claims.values().all(|claim| claim.waiting.len() <= 1));
        assert_eq!(state.turns.len(), 1);
    }
}

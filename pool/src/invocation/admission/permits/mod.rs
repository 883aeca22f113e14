//! Permits for invocations, shared fairly between functions.
//!
//! Capacity has two dimensions, and one decision covers both: invocations at once, and the memory
//! that their instances may use at worst. A function's share is its dominant share, which
//! `capacity` defines.
//!
//! **Order.** A request that gets no permit waits. The function whose share would be smallest with
//! the permit goes first, and within a function the request that came first. No request passes a
//! waiting one of a function that would have a smaller share. So a flood of one function waits for
//! itself, and a large request gathers memory before functions that would have more. It does not
//! delay a function that has less.
//!
//! **Reserve.** A function may not use the last part of the capacity while it holds more than that
//! leaves free. So a function that holds nothing finds some capacity free, and it can go on until
//! it holds as much as is left. The part is an eighth, and at least one request of the largest
//! function that takes no more than a third. It is larger while other functions lack what they held
//! or requested in the recent past. That demand decays, and the demand of a function counts for at
//! most an equal share. A function that is alone on its node may use everything.

mod state;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faasw_fri::messages::FunctionNumber;
use tokio::sync::oneshot;

use self::state::{State, Waiter};
use super::capacity::Amount;
use super::demand::{Step, StepClock};
use super::served::ServedFunctions;

/// The least part of the capacity that a function leaves to others: enough for a light neighbour,
/// little enough that one busy function uses most of a node.
const RESERVE: f64 = 1.0 / 8.0;
/// The largest part that recent demand of others keeps free: a function may use half of the
/// capacity whatever others have requested before.
const RESERVE_MAX: f64 = 1.0 / 2.0;
/// The largest part that is kept free so that one request of any function fits: a third, for nodes
/// on which three requests fit. A larger request waits for capacity that others leave.
const RESERVE_OF_ONE: f64 = 1.0 / 3.0;

/// A request for a permit.
#[derive(Clone, Copy, Debug)]
pub struct PermitRequest {
    /// The function whose share the permit counts in.
    pub function: FunctionNumber,
    /// Bytes of memory that the instance may use at worst.
    pub memory: u64,
}

impl PermitRequest {
    fn amount(self) -> Amount {
        Amount::one(self.memory)
    }
}

/// The admission permits of a node, the functions that hold them, and the requests that wait for
/// one.
#[derive(Debug)]
pub struct AdmissionPermits {
    total: Amount,
    /// The functions of the node, if a part of the capacity is kept for them.
    served: Option<Arc<ServedFunctions>>,
    clock: StepClock,
    state: Mutex<State>,
}

/// The position of a request in its queue. Dropping it takes the request out.
#[derive(Debug)]
struct QueuedRequest {
    pool: Arc<AdmissionPermits>,
    function: FunctionNumber,
    number: u64,
    /// Dropped after the request has left the queue, and with it a permit that came too late.
    permit: oneshot::Receiver<AdmissionPermit>,
}

/// The right of an invocation to have an instance. Dropping it returns the right.
#[derive(Debug)]
#[must_use = "dropping a permit returns it"]
pub struct AdmissionPermit {
    pool: Arc<AdmissionPermits>,
    request: PermitRequest,
}

impl AdmissionPermits {
    /// Returns a pool of `total` without a reserve.
    #[cfg(test)]
    pub fn new(total: Amount) -> Arc<Self> {
        Self::build(total, None)
    }

    /// Returns a pool of `total` that keeps a part free while there is more than one function, in
    /// `served` or among those that request permits.
    pub fn with_reserve(total: Amount, served: Arc<ServedFunctions>) -> Arc<Self> {
        Self::build(total, Some(served))
    }

    fn build(total: Amount, served: Option<Arc<ServedFunctions>>) -> Arc<Self> {
        let clock = StepClock::new();
        Arc::new(Self {
            total,
            served,
            state: Mutex::new(State::new(clock.now())),
            clock,
        })
    }

    /// Returns the whole capacity.
    pub fn total(&self) -> Amount {
        self.total
    }

    /// Returns the capacity in use.
    pub fn used(&self) -> Amount {
        self.lock().used
    }

    /// Returns the number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Returns the number of requests of a function that wait.
    pub fn waiting_of(&self, function: FunctionNumber) -> usize {
        self.lock().waiting_of(function)
    }

    /// Returns the amount that each function holds.
    pub fn held_by_each(&self) -> HashMap<FunctionNumber, Amount> {
        let state = self.lock();
        let functions = state.functions.iter();
        let holders = functions.filter(|(_, it)| it.held.permits > 0);
        holders.map(|(number, it)| (*number, it.held)).collect()
    }

    /// Returns whether a request would get a permit now if no other request waited.
    pub fn has_free_permit(&self, request: PermitRequest) -> bool {
        self.may_grant(&self.lock(), request, self.now())
    }

    /// Takes a permit unless there is none, or a waiting request comes first.
    pub fn try_take(self: &Arc<Self>, request: PermitRequest) -> Option<AdmissionPermit> {
        self.take_now(request, false)
    }

    /// Takes a permit as [`AdmissionPermits::try_take`] does for a request that another one of the
    /// same function waits for: it passes the function's own queue.
    pub fn try_take_nested(self: &Arc<Self>, request: PermitRequest) -> Option<AdmissionPermit> {
        self.take_now(request, true)
    }

    fn take_now(
        self: &Arc<Self>,
        request: PermitRequest,
        passes_own: bool,
    ) -> Option<AdmissionPermit> {
        let now = self.now();
        let mut state = self.lock();
        let is_free = self.may_grant(&state, request, now);
        if !is_free || self.is_behind_others(&state, request, passes_own) {
            self.note_refusal(&mut state, request, now);
            return None;
        }
        Some(self.grant(&mut state, request, now))
    }

    /// Waits for a permit. The request is in its queue from this call on, until the returned
    /// future is dropped.
    pub fn take(
        self: &Arc<Self>,
        request: PermitRequest,
    ) -> impl Future<Output = AdmissionPermit> + use<> {
        let now = self.now();
        let mut waiting = {
            let mut state = self.lock();
            self.note_refusal(&mut state, request, now);
            let (sender, permit) = oneshot::channel();
            let number = state.next;
            state.next += 1;
            state.waiting += 1;
            let queue = state.queues.entry(request.function).or_default();
            queue.push_back(Waiter {
                number,
                request,
                permit: sender,
            });
            self.grant_waiting(state, now);
            QueuedRequest {
                pool: self.clone(),
                function: request.function,
                number,
                permit,
            }
        };
        async move {
            match (&mut waiting.permit).await {
                Ok(permit) => permit,
                // Only `QueuedRequest` removes a waiter without a permit, and it is here.
                Err(_) => std::future::pending().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current step of demand, where the pool counts demand.
    fn now(&self) -> Step {
        match &self.served {
            Some(_) => self.clock.now(),
            None => Step::default(),
        }
    }

    /// Returns whether capacity and reserve allow the request.
    fn may_grant(&self, state: &State, request: PermitRequest, now: Step) -> bool {
        if state.used.permits == 0 {
            // A request for more memory than there is runs alone.
            return self.total.permits > 0;
        }
        let one = request.amount();
        let used = state.used.plus(one);
        if !used.fits_in(self.total) {
            return false;
        }
        if self.served.is_none() {
            return true;
        }
        let held = state.held_by(request.function);
        // The reserve is for such functions.
        if held.permits == 0 && one.memory <= self.total.part(RESERVE_OF_ONE).memory {
            return true;
        }
        let (held, free) = (held.plus(one), self.total.minus(used));
        if held.fits_in(free) || self.is_alone(state, request.function, now) {
            return true;
        }
        let kept = self.kept_for_others(state, request, now);
        (held.permits <= free.permits || kept.permits <= free.permits)
            && (held.memory <= free.memory || kept.memory <= free.memory)
    }

    /// Returns whether the node serves no other function and none has requested a permit lately.
    fn is_alone(&self, state: &State, function: FunctionNumber, now: Step) -> bool {
        let served = self.served.as_ref();
        let mut others = state.functions.iter().filter(|it| *it.0 != function);
        served.is_none_or(|served| served.count() <= 1)
            && !others.any(|(number, other)| state.is_remembered(*number, other, now))
    }

    /// Returns the capacity that the function of `request` leaves free.
    fn kept_for_others(&self, state: &State, request: PermitRequest, now: Step) -> Amount {
        let own = state.functions.get(&request.function);
        let own = own.map_or(0.0, |own| own.unmet.at(now));
        let lacking = state.unmet.at(now) - own;
        let kept = self.total.part(lacking.clamp(RESERVE, RESERVE_MAX));
        // On a small node an eighth is less than one request takes.
        let most = self.total.part(RESERVE_OF_ONE);
        let served = self.served.as_ref();
        let largest = served.map_or(0, |served| served.largest_within(most.memory));
        kept.max(Amount::one(largest).min(most))
    }

    /// Returns the share that a function has with one more request.
    fn share_with(&self, state: &State, request: PermitRequest) -> f64 {
        let held = state.held_by(request.function);
        held.plus(request.amount()).share_of(self.total)
    }

    /// Returns whether a waiting request comes before `request`.
    fn is_behind_others(&self, state: &State, request: PermitRequest, passes_own: bool) -> bool {
        if state.waiting == 0 {
            return false;
        }
        let share = self.share_with(state, request);
        state.queues.iter().any(|(function, queue)| {
            if *function == request.function {
                return !passes_own;
            }
            let first = queue.front().map(|first| first.request);
            first.is_some_and(|first| self.share_with(state, first) <= share)
        })
    }

    fn grant(
        self: &Arc<Self>,
        state: &mut State,
        request: PermitRequest,
        now: Step,
    ) -> AdmissionPermit {
        let one = request.amount();
        state.used = state.used.plus(one);
        state.update(request.function, now, |function, _| {
            let before = function.held;
            function.held = before.plus(one);
            if self.served.is_some() {
                let gained = function.held.share_of(self.total) - before.share_of(self.total);
                let unmet = function.unmet.at(now) - gained;
                function.unmet.set(unmet.max(0.0), now);
            }
        });
        AdmissionPermit {
            pool: self.clone(),
            request,
        }
    }

    /// Takes a returned permit back.
    fn put_back(self: &Arc<Self>, request: PermitRequest) {
        let now = self.now();
        let mut state = self.lock();
        let one = request.amount();
        state.used = state.used.minus(one);
        state.update(request.function, now, |function, equal| {
            let before = function.held.share_of(self.total);
            function.held = function.held.minus(one);
            if self.served.is_some() {
                let held = function.held.share_of(self.total);
                let unmet = function.unmet.at(now) + before - held;
                function.unmet.set(unmet.min(equal - held).max(0.0), now);
            }
        });
        if self.served.is_none() && state.held_by(request.function).permits == 0 {
            state.functions.remove(&request.function);
        }
        if state.waiting > 0 {
            self.grant_waiting(state, now);
        }
    }

    /// Counts a request that gets no permit now as demand of its function.
    fn note_refusal(&self, state: &mut State, request: PermitRequest, now: Step) {
        if self.served.is_none() {
            return;
        }
        let requests = 1 + state.waiting_of(request.function);
        let wanted = request.amount().share_of(self.total) * requests as f64;
        state.update(request.function, now, |function, equal| {
            let held = function.held.share_of(self.total);
            let unmet = function.unmet.at(now).max(wanted);
            function.unmet.set(unmet.min(equal - held).max(0.0), now);
        });
    }

    /// Grants permits to waiting requests in order, as long as the first one may have one.
    fn grant_waiting(self: &Arc<Self>, mut state: MutexGuard<'_, State>, now: Step) {
        let mut granted = Vec::new();
        loop {
            let firsts = state.queues.iter();
            let firsts = firsts.filter_map(|(_, queue)| queue.front());
            let first = firsts
                .map(|first| (self.share_with(&state, first.request), first))
                .min_by(|(a, first), (b, other)| {
                    a.total_cmp(b).then(first.number.cmp(&other.number))
                })
                .map(|(_, first)| first.request);
            let Some(request) = first.filter(|first| self.may_grant(&state, *first, now)) else {
                break;
            };
            let Some(waiter) = state.remove_first(request.function) else {
                break;
            };
            granted.push((waiter.permit, self.grant(&mut state, request, now)));
        }
        // A permit whose receiver is gone is returned, which takes the lock.
        drop(state);
        for (waiter, permit) in granted {
            let _ = waiter.send(permit);
        }
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        let Some(queue) = state.queues.get(&self.function) else {
            return;
        };
        let found = queue.binary_search_by_key(&self.number, |waiter| waiter.number);
        // A request that is in no queue has its permit.
        let Ok(index) = found else {
            return;
        };
        drop(state.remove(self.function, index));
        // Requests may have waited behind this one.
        self.pool.grant_waiting(state, self.pool.now());
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        self.pool.put_back(self.request);
    }
}

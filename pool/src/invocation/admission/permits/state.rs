//! The state of a pool of permits: what functions hold and lack, and the requests that wait.

use std::collections::VecDeque;

use faasw_fri::messages::FunctionNumber;
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use super::{AdmissionPermit, PermitRequest};
use crate::invocation::admission::capacity::Amount;
use crate::invocation::admission::demand::{DecayingShare, Step};

/// Demand below this share of the capacity is forgotten: less than one of the 256 invocations
/// that a node admits by default.
const DEMAND_MIN: f64 = 1.0 / 512.0;
/// The number of remembered functions below which functions without demand are not searched for.
const REMEMBERED_MIN: usize = 64;

#[derive(Debug)]
pub(super) struct State {
    pub(super) used: Amount,
    /// Functions that hold permits, wait, or have requested some lately.
    pub(super) functions: FxHashMap<FunctionNumber, FunctionState>,
    /// Requests that wait, by function. No queue is empty.
    pub(super) queues: FxHashMap<FunctionNumber, VecDeque<Waiter>>,
    /// The length of all queues.
    pub(super) waiting: usize,
    /// The number of the next waiter.
    pub(super) next: u64,
    /// The unmet demand of all functions.
    pub(super) unmet: DecayingShare,
    /// The number of remembered functions at which those without demand are searched for and
    /// removed.
    remembered_max: usize,
}

#[derive(Debug)]
pub(super) struct FunctionState {
    pub(super) held: Amount,
    /// The share that the function held or requested lately and does not hold now.
    pub(super) unmet: DecayingShare,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) number: u64,
    pub(super) request: PermitRequest,
    pub(super) permit: oneshot::Sender<AdmissionPermit>,
}

impl State {
    pub(super) fn new(now: Step) -> Self {
        Self {
            used: Amount::default(),
            functions: FxHashMap::default(),
            queues: FxHashMap::default(),
            waiting: 0,
            next: 0,
            unmet: DecayingShare::zero(now),
            remembered_max: REMEMBERED_MIN,
        }
    }

    pub(super) fn held_by(&self, function: FunctionNumber) -> Amount {
        let function = self.functions.get(&function);
        function.map_or_else(Amount::default, |function| function.held)
    }

    pub(super) fn waiting_of(&self, function: FunctionNumber) -> usize {
        self.queues.get(&function).map_or(0, VecDeque::len)
    }

    /// Changes the state of a function, which is remembered from now on. The second argument of
    /// `change` is an equal share of the capacity.
    pub(super) fn update(
        &mut self,
        number: FunctionNumber,
        now: Step,
        change: impl FnOnce(&mut FunctionState, f64),
    ) {
        if self.functions.len() >= self.remembered_max && !self.functions.contains_key(&number) {
            self.forget_idle(now);
        }
        let known = self.functions.len();
        let mut is_new = false;
        let function = self.functions.entry(number).or_insert_with(|| {
            is_new = true;
            FunctionState {
                held: Amount::default(),
                unmet: DecayingShare::zero(now),
            }
        });
        let before = function.unmet.at(now);
        change(function, 1.0 / (known + usize::from(is_new)) as f64);
        let after = function.unmet.at(now);
        self.unmet.add(after - before, now);
    }

    pub(super) fn is_remembered(
        &self,
        number: FunctionNumber,
        it: &FunctionState,
        now: Step,
    ) -> bool {
        it.held.permits > 0 || self.queues.contains_key(&number) || it.unmet.at(now) >= DEMAND_MIN
    }

    /// Removes functions without permits, waiting requests and demand.
    fn forget_idle(&mut self, now: Step) {
        let mut functions = std::mem::take(&mut self.functions);
        functions.retain(|number, it| self.is_remembered(*number, it, now));
        self.functions = functions;
        // The sum is computed anew, without what rounding has added up to.
        let unmet = self.functions.values().map(|it| it.unmet.at(now)).sum();
        self.unmet.set(unmet, now);
        self.remembered_max = REMEMBERED_MIN.max(2 * self.functions.len());
    }

    pub(super) fn remove_first(&mut self, function: FunctionNumber) -> Option<Waiter> {
        self.remove(function, 0)
    }

    pub(super) fn remove(&mut self, function: FunctionNumber, index: usize) -> Option<Waiter> {
        let queue = self.queues.get_mut(&function)?;
        let waiter = queue.remove(index)?;
        if queue.is_empty() {
            self.queues.remove(&function);
        }
        self.waiting -= 1;
        Some(waiter)
    }
}

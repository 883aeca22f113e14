//! The budget that one client's request shares with the nested invocations that it causes.
//!
//! A function may call functions of its own node, and these may call others. Each call is an
//! invocation with limits of its own, so a small request could become any number of them. A
//! [`RequestBudget`] belongs to the client's request and bounds the sum.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

/// The budget of one client's request.
#[derive(Debug)]
pub struct RequestBudget {
    cpu: Duration,
    cpu_used: AtomicU64,
    invocations: u64,
    invocations_begun: AtomicU64,
    deadline: Option<Instant>,
    was_reported: AtomicBool,
}

/// Why a request may cause no more nested invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BudgetError {
    /// The request has caused as many invocations as it may.
    #[error("the client's request has caused {0} invocations, the limit of a request")]
    Invocations(u64),
    /// The request and its invocations have used the CPU time that the request may use.
    #[error(
        "the client's request and the invocations that it caused have used its {} s of CPU time",
        .0.as_secs_f64()
    )]
    Cpu(Duration),
    /// The deadline of the request has passed.
    #[error("the total time of the client's request is used up")]
    Deadline,
}

impl RequestBudget {
    /// Returns the budget of a request that may use `cpu` of CPU time and cause `invocations`
    /// nested invocations, until `deadline`.
    #[must_use]
    pub fn new(cpu: Duration, invocations: u64, deadline: Option<Instant>) -> Arc<Self> {
        Arc::new(Self {
            cpu,
            cpu_used: AtomicU64::new(0),
            invocations,
            invocations_begun: AtomicU64::new(0),
            deadline,
            was_reported: AtomicBool::new(false),
        })
    }

    /// Counts one more nested invocation.
    ///
    /// # Errors
    /// Returns a [`BudgetError`] that names the exhausted part of the budget. The invocation must
    /// not begin then.
    pub fn begin_nested(&self) -> Result<(), BudgetError> {
        if self.time_left().is_some_and(|left| left.is_zero()) {
            return Err(BudgetError::Deadline);
        }
        if self.cpu_left().is_zero() {
            return Err(BudgetError::Cpu(self.cpu));
        }
        let begun = self.invocations_begun.fetch_add(1, Ordering::Relaxed);
        if begun < self.invocations {
            Ok(())
        } else {
            Err(BudgetError::Invocations(self.invocations))
        }
    }

    /// Returns the CPU time that nested invocations may still use together.
    #[must_use]
    pub fn cpu_left(&self) -> Duration {
        let used = Duration::from_nanos(self.cpu_used.load(Ordering::Relaxed));
        self.cpu.saturating_sub(used)
    }

    /// Returns the CPU time that the request may use.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.cpu
    }

    /// Returns the time until the deadline, if there is one.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns whether this is the first call. The exhausted budget is logged once, however many
    /// calls meet it.
    pub fn is_first_report(&self) -> bool {
        !self.was_reported.swap(true, Ordering::Relaxed)
    }
}

/// The account of one invocation in the budget of the request that caused it.
#[derive(Debug)]
pub struct BudgetAccount {
    budget: Arc<RequestBudget>,
    /// CPU time that the budget has been charged so far.
    charged: AtomicU64,
    is_nested: bool,
}

impl BudgetAccount {
    /// Returns the account of the invocation that answers the client.
    #[must_use]
    pub fn of_request(budget: Arc<RequestBudget>) -> Arc<Self> {
        Self::open(budget, false)
    }

    /// Returns the account of a nested invocation.
    #[must_use]
    pub fn nested(budget: Arc<RequestBudget>) -> Arc<Self> {
        Self::open(budget, true)
    }

    fn open(budget: Arc<RequestBudget>, is_nested: bool) -> Arc<Self> {
        Arc::new(Self {
            budget,
            charged: AtomicU64::new(0),
            is_nested,
        })
    }

    /// Returns the budget.
    #[must_use]
    pub fn budget(&self) -> &Arc<RequestBudget> {
        &self.budget
    }

    /// Charges the budget for the part of `used` that was not charged before. `used` is the CPU
    /// time of the whole invocation so far.
    pub fn charge(&self, used: Duration) {
        let used = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
        let charged = self.charged.fetch_max(used, Ordering::Relaxed);
        let new = used.saturating_sub(charged);
        self.budget.cpu_used.fetch_add(new, Ordering::Relaxed);
    }

    /// Charges as [`BudgetAccount::charge`] does. Returns the CPU time that the budget leaves the
    /// invocation. The invocation that answers the client has only its own limit, so that it can
    /// still answer after nested ones have used everything.
    pub(crate) fn charge_and_limit(&self, used: Duration) -> Duration {
        self.charge(used);
        if self.is_nested {
            self.budget.cpu_left()
        } else {
            Duration::MAX
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn invocations_share_one_budget_of_cpu_time() {
        let budget = RequestBudget::new(10 * SECOND, 100, None);
        let root = BudgetAccount::of_request(budget.clone());
        let [one, other] = [0; 2].map(|_| BudgetAccount::nested(budget.clone()));
        assert_eq!(root.charge_and_limit(SECOND), Duration::MAX);
        assert_eq!(one.charge_and_limit(3 * SECOND), 6 * SECOND);
        // CPU time is charged once, in whatever order it is reported.
        assert_eq!(one.charge_and_limit(2 * SECOND), 6 * SECOND);
        assert_eq!(other.charge_and_limit(5 * SECOND), SECOND);
        assert_eq!(budget.begin_nested(), Ok(()));
        one.charge(4 * SECOND);
        assert_eq!(other.charge_and_limit(5 * SECOND), Duration::ZERO);
        let exhausted = BudgetError::Cpu(10 * SECOND);
        assert_eq!(budget.begin_nested(), Err(exhausted));
        assert_eq!(root.charge_and_limit(2 * SECOND), Duration::MAX);
    }

    #[test]
    fn a_request_causes_no_more_invocations_than_it_may() {
        let budget = RequestBudget::new(SECOND, 3, None);
        for _ in 0..3 {
            assert_eq!(budget.begin_nested(), Ok(()));
        }
        for _ in 0..3 {
            assert_eq!(budget.begin_nested(), Err(BudgetError::Invocations(3)));
        }
        assert!(budget.is_first_report() && !budget.is_first_report());
    }

    #[tokio::test(start_paused = true)]
    async fn no_nested_invocation_begins_after_the_deadline() {
        let budget = RequestBudget::new(SECOND, 3, Some(Instant::now() + SECOND));
        assert_eq!(budget.time_left(), Some(SECOND));
        assert_eq!(budget.begin_nested(), Ok(()));
        tokio::time::advance(SECOND).await;
        assert_eq!(budget.begin_nested(), Err(BudgetError::Deadline));
    }
}

//! The budget that a client's request shares with the nested invocations that it causes.

use std::{sync::Arc, time::Duration};

use faasw_client::RequestLimits;
use faasw_pool::{BudgetAccount, InvocationLimits, RequestBudget};
use tokio::time::Instant;

use crate::message::CallerContext;

/// Nested invocations that one client's request may cause in all: a function may make 16 calls at
/// the same time, 64 times over. Without this limit, a loop that is eight deep with 16 calls each
/// is four thousand million invocations.
const NESTED_MAX: u64 = 1024;

/// How often the CPU time of a nested invocation is charged to its client's request while it runs.
/// All nested invocations together exceed the limit by at most this time on each processor.
const CPU_CHECK: Duration = Duration::from_millis(100);

/// Returns the account of an invocation in the budget of its client's request. A nested one, made
/// `within` another invocation, shares that one's budget. There is none for a function that neither
/// is called by another nor makes calls.
pub(crate) fn account(
    within: Option<&CallerContext>,
    makes_calls: bool,
    limits: &RequestLimits,
) -> Option<Arc<BudgetAccount>> {
    match within {
        Some(within) => Some(BudgetAccount::nested(within.budget.clone())),
        None if makes_calls => {
            let total = limits.total_time;
            let deadline = total.and_then(|total| Instant::now().checked_add(total));
            let budget = RequestBudget::new(limits.cpu_time, NESTED_MAX, deadline);
            Some(BudgetAccount::of_request(budget))
        }
        None => None,
    }
}

/// Returns the limits of an invocation. One `within` another invocation ends with its client's
/// request at the latest.
pub(crate) fn call_limits(
    limits: &RequestLimits,
    within: Option<&CallerContext>,
) -> InvocationLimits {
    let left = within.and_then(|within| within.budget.time_left());
    InvocationLimits {
        cpu: limits.cpu_time,
        cpu_check: within.map_or(Duration::MAX, |_| CPU_CHECK),
        first_byte: limits.first_byte,
        idle_client: limits.idle_client,
        idle_guest: limits.idle_guest,
        total: limits.total_time.into_iter().chain(left).min(),
        ..InvocationLimits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits(cpu: u64, total: Option<u64>) -> RequestLimits {
        RequestLimits {
            cpu_time: Duration::from_secs(cpu),
            total_time: total.map(Duration::from_secs),
            ..Limits::default().of_request(&Default::default())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_self_call_has_the_remaining_time_of_its_client_request() {
        let outer = limits(2, Some(10));
        assert!(account(None, false, &outer).is_none());
        let root = account(None, true, &outer).unwrap();
        let within = CallerContext {
            share: None,
            budget: root.budget().clone(),
        };
        assert_eq!(call_limits(&outer, None).total, Some(10 * SECOND));
        tokio::time::advance(4 * SECOND).await;
        // Limits of the other function do not extend this time.
        for (total, least) in [(None, 6), (Some(20), 6), (Some(3), 3)] {
            let nested = call_limits(&limits(60, total), Some(&within));
            assert_eq!(nested.total, Some(least * SECOND));
            assert_eq!(nested.cpu_check, CPU_CHECK);
        }
        let nested = account(Some(&within), true, &limits(60, None)).unwrap();
        nested.charge(SECOND);
        assert_eq!(root.budget().cpu_left(), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_total_time_has_no_deadline() {
        let root = account(None, true, &limits(2, None)).unwrap();
        assert_eq!(root.budget().time_left(), None);
    }
}

//! Time limits for what the SDK waits for, which has none of its own.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, select};
use spin_executor::{CancelOnDropToken, push_waker_and_get_token};
use wasi::clocks::monotonic_clock;

/// What `future` comes to, or `None` if it takes longer.
pub async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    match select(pin!(future), pin!(sleep(time))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

async fn sleep(time: Duration) {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let end = monotonic_clock::now().saturating_add(nanoseconds);
    // Dropped with the future, so that nothing waits for a timer that nobody needs.
    let mut registered = None;
    poll_fn(|context| {
        if monotonic_clock::now() >= end {
            return Poll::Ready(());
        }
        let timer = monotonic_clock::subscribe_instant(end);
        let token = push_waker_and_get_token(timer, context.waker().clone());
        registered = Some(CancelOnDropToken::from(token));
        Poll::Pending
    })
    .await;
    drop(registered);
}

//! Whose turn it is to make a seed: what requests wait for comes first, and what nobody
//! asked for is made few at a time, and not begun while one is made for requests.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;

/// Seeds that are made for requests at once. Each takes a microVM and, by its
/// function's initialisation, a processor; those that take none for long are not held
/// up by this many that do.
const REQUESTED: usize = 16;

/// Whose turn it is to make a seed.
#[derive(Debug)]
pub struct Makings {
    requested: Semaphore,
    /// How many are made, or wait to be, for requests.
    urgent: watch::Sender<usize>,
    ahead: Semaphore,
}

/// A turn to make a seed; dropping it ends it.
#[derive(Debug)]
#[must_use = "dropping it ends it"]
pub struct Turn<'a> {
    urgent: Option<&'a watch::Sender<usize>>,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(urgent) = self.urgent {
            urgent.send_modify(|count| *count -= 1);
        }
    }
}

impl Makings {
    /// Turns on a machine with so many processors: those ahead of requests leave some
    /// of them alone.
    pub fn new(processors: usize) -> Self {
        Self {
            requested: Semaphore::new(REQUESTED),
            urgent: watch::Sender::new(0),
            ahead: Semaphore::new(processors.div_ceil(2)),
        }
    }

    /// A turn that a request waits for.
    pub async fn for_a_request(&self) -> Turn<'_> {
        self.urgent.send_modify(|count| *count += 1);
        // Counted from here on, also when nobody waits for the permit any more.
        let mut turn = Turn {
            urgent: Some(&self.urgent),
            _permit: None,
        };
        turn._permit = self.requested.acquire().await.ok();
        turn
    }

    /// A turn that nobody waits for.
    pub async fn ahead_of_requests(&self) -> Turn<'_> {
        let permit = self.ahead.acquire().await.ok();
        let mut urgent = self.urgent.subscribe();
        // The sender is there as long as this is.
        let _ = urgent.wait_for(|count| *count == 0).await;
        Turn {
            urgent: None,
            _permit: permit,
        }
    }

    /// Waits until no seed is made for requests, but no longer than so: some take long. It is no
    /// turn: whoever waits does one thing at a time, and keeps no seed from being made.
    pub async fn behind_requests(&self, most: Duration) {
        let mut urgent = self.urgent.subscribe();
        // The sender is there as long as this is.
        let _ = timeout(most, urgent.wait_for(|count| *count == 0)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn now<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn what_requests_ask_for_waits_for_nothing_that_they_do_not() {
        let makings = Makings::new(2);
        let slow = now(pin!(makings.ahead_of_requests())).unwrap();
        let mut next = pin!(makings.ahead_of_requests());
        assert!(now(next.as_mut()).is_none());
        let asked = now(pin!(makings.for_a_request())).unwrap();
        drop(slow);
        // The place is free, but first comes what was asked for.
        assert!(now(next.as_mut()).is_none());
        drop(asked);
        assert!(now(next.as_mut()).is_some());
    }

    #[tokio::test]
    async fn what_is_no_seed_waits_for_those_that_requests_ask_for_and_not_for_ever() {
        let (makings, long) = (Makings::new(2), Duration::from_secs(600));
        let ahead = now(pin!(makings.ahead_of_requests())).unwrap();
        assert!(now(pin!(makings.behind_requests(long))).is_some());
        drop(ahead);
        let asked = now(pin!(makings.for_a_request())).unwrap();
        let mut waiting = pin!(makings.behind_requests(long));
        assert!(now(waiting.as_mut()).is_none());
        makings.behind_requests(Duration::from_millis(1)).await;
        drop(asked);
        assert!(now(waiting.as_mut()).is_some());
    }

    #[tokio::test]
    async fn few_are_made_at_once_for_nobody_and_many_for_requests() {
        let makings = Makings::new(4);
        let turns: Vec<_> = (0..3)
            .map_while(|_| now(pin!(makings.ahead_of_requests())))
            .collect();
        assert_eq!(turns.len(), 2);
        let asked: Vec<_> = (0..REQUESTED + 1)
            .map_while(|_| now(pin!(makings.for_a_request())))
            .collect();
        assert_eq!(asked.len(), REQUESTED);
    }
}

//! Making seeds of functions that are known: for requests, and ahead of them.
//!
//! A request that finds no seed has it made at once, whatever else is being made, and
//! is served from an ancestor meanwhile; where the missing steps take long, it waits
//! for the seed instead of doing them for itself alone. What no request asked for is
//! made when nothing else is: few at a time, and none is begun while one is made for
//! requests.

use std::sync::Arc;
use std::time::Duration;

use faasw_text::Line;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot, watch};

use super::{Function, lock};
use crate::error::{InvokeError, SeedError};
use crate::frozen::Frozen;
use crate::limits::CallLimits;
use crate::tree::Tree;

/// Seeds that are made for requests at once. Each takes a microVM and, by its
/// function's initialisation, a processor; those that take none for long are not held
/// up by this many that do.
const REQUESTED: usize = 16;

/// An initialisation that takes longer is waited for rather than repeated by every
/// request that comes meanwhile.
const REPEATED_MOST: Duration = Duration::from_secs(1);

/// Room for what an ancestor's instance does beside initialising: it loads the code.
const LOADING: Duration = Duration::from_millis(10);

/// How many times what is known it may take under load, and still fit a request's limits.
const MARGIN: u32 = 4;

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
struct Turn<'a> {
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

    async fn for_a_request(&self) -> Turn<'_> {
        self.urgent.send_modify(|count| *count += 1);
        // Counted from here on, also when nobody waits for the permit any more.
        let mut turn = Turn {
            urgent: Some(&self.urgent),
            _permit: None,
        };
        turn._permit = self.requested.acquire().await.ok();
        turn
    }

    async fn ahead_of_requests(&self) -> Turn<'_> {
        let permit = self.ahead.acquire().await.ok();
        let mut urgent = self.urgent.subscribe();
        // The sender is there as long as this is.
        let _ = urgent.wait_for(|count| *count == 0).await;
        Turn {
            urgent: None,
            _permit: permit,
        }
    }
}

impl Function {
    /// Has its seed made in the background for requests, unless that is so already.
    pub(crate) fn make_again(self: &Arc<Self>, tree: &Arc<Tree>) {
        self.ask(tree, None);
    }

    /// Its seed once it is made, for a request of these limits, where it would take the
    /// request too long to do without; at once nothing where it would not.
    ///
    /// # Errors
    /// Why it was not made.
    pub(crate) async fn worth_waiting_for(
        self: &Arc<Self>,
        tree: &Arc<Tree>,
        limits: &CallLimits,
    ) -> Result<Option<Arc<Frozen>>, InvokeError> {
        if self.is_quick(limits) || self.frozen().is_some() {
            return Ok(None);
        }
        let (sender, made) = oneshot::channel();
        self.ask(tree, Some(sender));
        match made.await {
            Ok(made) => made.map(Some),
            // The runtime ends.
            Err(_) => Ok(None),
        }
    }

    /// Whether a request of these limits may do the steps that lead to its seed.
    fn is_quick(&self, limits: &CallLimits) -> bool {
        if *lock(&self.after_init) == Some(false) {
            // A seed would not save it the initialisation.
            return true;
        }
        let takes = *lock(&self.instantiation);
        let limit = limits.cpu.min(limits.first_byte);
        takes <= REPEATED_MOST && (takes + LOADING) * MARGIN <= limit
    }

    /// Has its seed made, unless that is so already, and somebody told.
    fn ask(
        self: &Arc<Self>,
        tree: &Arc<Tree>,
        teller: Option<oneshot::Sender<Result<Arc<Frozen>, InvokeError>>>,
    ) {
        {
            let mut waiting = lock(&self.waiting);
            let is_made = waiting.is_some();
            waiting.get_or_insert_default().extend(teller);
            if is_made {
                return;
            }
        }
        let (function, tree) = (self.clone(), tree.clone());
        tokio::spawn(async move {
            let _turn = tree.makings().for_a_request().await;
            function.make_known(&tree).await;
        });
    }

    /// Has its seed made when nothing else is, unless a request asks for it before.
    pub(super) fn make_in_the_background(self: &Arc<Self>, tree: &Arc<Tree>) {
        let makings = tree.makings().clone();
        // The function may be removed before its turn comes, and the pool end.
        let (function, tree) = (Arc::downgrade(self), Arc::downgrade(tree));
        tokio::spawn(async move {
            let _turn = makings.ahead_of_requests().await;
            let Some((function, tree)) = function.upgrade().zip(tree.upgrade()) else {
                return;
            };
            {
                let mut waiting = lock(&function.waiting);
                if waiting.is_some() || function.frozen().is_some() {
                    return;
                }
                *waiting = Some(Vec::new());
            }
            function.make_known(&tree).await;
        });
    }

    /// Makes its seed, and tells those who wait for it.
    async fn make_known(&self, tree: &Arc<Tree>) {
        let made = self.make(tree).await;
        let made = made.map(|(frozen, _)| Arc::new(frozen));
        if let Err(error) = &made {
            let error = Line(error);
            tracing::warn!(function = self.name(), %error, "its seed was not made");
        }
        {
            let mut waiting = lock(&self.waiting);
            if let Ok(frozen) = &made {
                *lock(&self.frozen) = Some(frozen.clone());
            }
            let made = made.map_err(of_a_request);
            for teller in waiting.take().into_iter().flatten() {
                // Who has gone away does not listen.
                let _ = teller.send(made.clone());
            }
        }
        tree.fit();
    }
}

/// What a request hears of a seed that was not made.
fn of_a_request(error: SeedError) -> InvokeError {
    match error {
        SeedError::Function(error) => error,
        SeedError::Platform(error) => error.into(),
        other => InvokeError::LoadFailed {
            report: other.to_string(),
        },
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

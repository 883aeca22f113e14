//! How many instances there may be at once, and who gets the next place.
//!
//! A place stays taken while its instance is reset or ended, which takes a moment
//! that whoever sends one request after the other does not see. So a request waits
//! a little for a place before it is refused, in the order of arrival; one that a
//! node has no room for still hears so soon.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::error::InvokeError;

/// How long a request waits for a place: longer than ending a process takes on a
/// machine whose processors have twice as much to do as they can (50 ms were not).
pub const PATIENCE: Duration = Duration::from_millis(200);

/// The places of a pool.
#[derive(Debug)]
pub struct Capacity {
    places: Arc<Semaphore>,
    most: usize,
    patience: Duration,
}

impl Capacity {
    /// `most` places, each waited for at most as long as `patience`.
    pub fn new(most: usize, patience: Duration) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        Self {
            places: Arc::new(Semaphore::new(most)),
            most,
            patience,
        }
    }

    /// A place, as soon as it is this request's turn to have one.
    ///
    /// # Errors
    /// [`InvokeError::OverCapacity`] when there is none in time.
    pub async fn place(&self) -> Result<OwnedSemaphorePermit, InvokeError> {
        timeout(self.patience, self.places.clone().acquire_owned())
            .await
            .ok()
            .and_then(Result::ok)
            .ok_or(InvokeError::OverCapacity(self.most))
    }

    /// Places that are taken.
    pub fn taken(&self) -> usize {
        self.most.saturating_sub(self.places.available_permits())
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_full_pool_refuses_after_its_patience() {
        let capacity = Capacity::new(1, PATIENCE);
        let held = capacity.place().await.unwrap();
        assert_eq!(capacity.taken(), 1);
        let asked = Instant::now();
        let refused = capacity.place().await;
        assert!(matches!(refused, Err(InvokeError::OverCapacity(1))));
        assert!(asked.elapsed() >= PATIENCE);
        drop(held);
        assert_eq!(capacity.taken(), 0);
        drop(capacity.place().await.unwrap());
    }

    #[tokio::test]
    async fn a_pool_without_places_refuses_too() {
        let refused = Capacity::new(0, Duration::ZERO).place().await;
        assert!(matches!(refused, Err(InvokeError::OverCapacity(0))));
    }

    #[tokio::test]
    async fn places_are_given_in_the_order_of_arrival() {
        let capacity = Capacity::new(1, LONG);
        let held = capacity.place().await.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let (mut first, mut second) = (pin!(capacity.place()), pin!(capacity.place()));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(held);
        // Nobody who comes later is served before those who wait.
        let mut third = pin!(capacity.place());
        assert!(third.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        let held = first.await.unwrap();
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(held);
        drop(second.await.unwrap());
        drop(third.await.unwrap());
    }

    #[tokio::test]
    async fn whoever_stops_waiting_is_passed_over() {
        let capacity = Capacity::new(1, LONG);
        let held = capacity.place().await.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut left = pin!(capacity.place());
            assert!(left.as_mut().poll(&mut context).is_pending());
        }
        drop(held);
        drop(capacity.place().await.unwrap());
    }
}

//! Instances that will be warm, and requests that wait for one of them.

use std::sync::Arc;
use std::time::Instant;

use faasw_abi::memory_map::RAM_MAX;
use tokio::sync::Notify;

use super::{Places, Rest, Waiting, WarmInstance, WarmInstances};
use crate::instances::Instance;

/// An announced instance: it is warm later, or ends.
#[derive(Debug)]
pub struct PendingInstance {
    pub(super) warm_instances: Arc<WarmInstances>,
    pub(super) wanted: Option<Arc<Notify>>,
}

/// A request that waits for one particular instance. No other request gets that instance: for them,
/// it counts as not coming. Dropping this closes the request's channel, so that it goes elsewhere.
#[derive(Debug)]
pub struct Held {
    /// `None` once the request was taken out.
    waiting: Option<Waiting>,
    warm_instances: Arc<WarmInstances>,
}

impl Held {
    /// Returns whether the request has stopped waiting.
    pub fn is_closed(&self) -> bool {
        self.waiting.as_ref().is_none_or(Waiting::is_closed)
    }

    /// Waits until the request has stopped waiting.
    pub async fn gone(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.sender.closed().await;
        }
    }

    fn let_go(&mut self, places: &mut Places) -> Option<Waiting> {
        let waiting = self.waiting.take()?;
        places.held -= 1;
        Some(waiting)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.waiting.is_some() {
            let warm_instances = self.warm_instances.clone();
            self.let_go(&mut warm_instances.places());
        }
    }
}

impl PendingInstance {
    /// Makes the instance known to requests before it is warm, because its guest polls for one,
    /// or will.
    pub fn look_out(&mut self) {
        let wanted = self.wanted.insert(Arc::default()).clone();
        let mut places = self.warm_instances.places();
        if places.waiting.is_empty() {
            places.hot.push(wanted)
        } else {
            // The request came before the instance was known to poll.
            wanted.notify_one()
        }
    }

    /// Waits until a request wants this instance, which polls for one. Pends for ever if it does
    /// not poll.
    pub async fn wanted(&self) {
        match &self.wanted {
            Some(wanted) => wanted.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Takes the request that has waited longest; from then on the instance is for that request
    /// alone. If no request waits, the instance is listed again, so that the next request notifies
    /// it.
    pub fn take_waiting(&self) -> Option<Held> {
        let mut places = self.warm_instances.places();
        while let Some(waiting) = places.waiting.pop_front() {
            if !waiting.is_closed() {
                places.held += 1;
                return Some(Held {
                    waiting: Some(waiting),
                    warm_instances: self.warm_instances.clone(),
                });
            }
        }
        if let Some(wanted) = &self.wanted
            && !places.hot.iter().any(|other| Arc::ptr_eq(other, wanted))
        {
            places.hot.push(wanted.clone());
        }
        None
    }

    /// Returns a request to the front of the queue, where it waits for the first instance that is
    /// ready.
    pub fn give_back(&self, mut held: Held) {
        let mut places = self.warm_instances.places();
        if let Some(waiting) = held.let_go(&mut places) {
            places.waiting.push_front(waiting);
        }
    }

    /// Hands the instance to a request that was taken. If the request is gone, the instance ends,
    /// because it has been claimed.
    pub fn hand(self, mut held: Held, instance: Instance) {
        let waiting = held.let_go(&mut self.warm_instances.places());
        drop(self);
        if let Some(waiting) = waiting {
            drop(waiting.sender.send(instance));
        }
    }

    /// Keeps an instance warm that has `bytes` of private pages and has had nothing to do since `since`,
    /// or hands it to a request that waits for one.
    pub fn keep_warm(self, mut instance: Instance, bytes: u64, since: Instant) {
        let keeper = &self.warm_instances.keeper;
        instance.sandbox.release_faults();
        let is_too_many;
        {
            let mut places = self.warm_instances.places();
            while let Some(waiting) = places.waiting.pop_front() {
                let waited = waiting.since.saturating_duration_since(since);
                match waiting.sender.send(instance) {
                    Ok(()) => return self.warm_instances.note_arrival(waited),
                    Err(unwanted) => instance = unwanted,
                }
            }
            if keeper.has_stopped() {
                return;
            }
            // Counted before a request can take the instance and count it out.
            is_too_many = keeper.came();
            // The sandbox reports this number, so it is limited to the memory of a guest.
            let bytes = bytes.min(RAM_MAX);
            places.bytes += bytes;
            places.warm.push_back(WarmInstance {
                instance,
                rest: Rest { since, bytes },
            });
        }
        if is_too_many {
            keeper.end_oldest();
        }
        keeper.begin();
    }
}

impl Drop for PendingInstance {
    fn drop(&mut self) {
        let mut places = self.warm_instances.places();
        places.pending -= 1;
        if let Some(wanted) = &self.wanted {
            places.hot.retain(|other| !Arc::ptr_eq(other, wanted));
        }
        // Requests that wait for an instance that does not come are notified.
        while places.wanted() > places.pending && places.waiting.pop_back().is_some() {}
    }
}

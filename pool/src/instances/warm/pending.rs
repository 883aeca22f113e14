//! Instances that will be warm, and requests that wait for one of them.

use std::sync::Arc;
use std::time::Instant;

use faasw_abi::memory_map::RAM_MAX;
use tokio::sync::Notify;

use super::{State, WaitingRequest, WarmInfo, WarmInstance, WarmInstances};
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
pub struct AssignedRequest {
    /// `None` once the request was taken out.
    waiting: Option<WaitingRequest>,
    warm_instances: Arc<WarmInstances>,
}

impl AssignedRequest {
    /// Returns whether the request has stopped waiting.
    pub fn is_closed(&self) -> bool {
        self.waiting.as_ref().is_none_or(WaitingRequest::is_closed)
    }

    /// Waits until the request has stopped waiting.
    pub async fn closed(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.sender.closed().await;
        }
    }

    fn unassign(&mut self, state: &mut State) -> Option<WaitingRequest> {
        let waiting = self.waiting.take()?;
        state.assigned -= 1;
        Some(waiting)
    }
}

impl Drop for AssignedRequest {
    fn drop(&mut self) {
        if self.waiting.is_some() {
            let warm_instances = self.warm_instances.clone();
            self.unassign(&mut warm_instances.lock());
        }
    }
}

impl PendingInstance {
    /// Makes the instance known to requests before it is warm, because its guest polls for one,
    /// or will.
    pub fn list_as_hot(&mut self) {
        let wanted = self.wanted.insert(Arc::default()).clone();
        let mut state = self.warm_instances.lock();
        if state.waiting.is_empty() {
            state.hot.push(wanted)
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
    pub fn assign_request(&self) -> Option<AssignedRequest> {
        let mut state = self.warm_instances.lock();
        while let Some(waiting) = state.waiting.pop_front() {
            if !waiting.is_closed() {
                state.assigned += 1;
                return Some(AssignedRequest {
                    waiting: Some(waiting),
                    warm_instances: self.warm_instances.clone(),
                });
            }
        }
        if let Some(wanted) = &self.wanted
            && !state.hot.iter().any(|other| Arc::ptr_eq(other, wanted))
        {
            state.hot.push(wanted.clone());
        }
        None
    }

    /// Returns a request to the front of the queue, where it waits for the first instance that is
    /// ready.
    pub fn requeue(&self, mut assigned: AssignedRequest) {
        let mut state = self.warm_instances.lock();
        if let Some(waiting) = assigned.unassign(&mut state) {
            state.waiting.push_front(waiting);
        }
    }

    /// Hands the instance to a request that was taken. If the request is gone, the instance ends,
    /// because it has been claimed.
    pub fn hand_over(self, mut assigned: AssignedRequest, instance: Instance) {
        let waiting = assigned.unassign(&mut self.warm_instances.lock());
        drop(self);
        if let Some(waiting) = waiting {
            drop(waiting.sender.send(instance));
        }
    }

    /// Keeps an instance warm that has `bytes` of private pages and has had nothing to do since
    /// `since`, or hands it to a request that waits for one.
    pub fn keep_warm(self, mut instance: Instance, bytes: u64, since: Instant) {
        let keeper = &self.warm_instances.keeper;
        instance.sandbox.release_faults();
        let is_too_many;
        {
            let mut state = self.warm_instances.lock();
            while let Some(waiting) = state.waiting.pop_front() {
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
            is_too_many = keeper.note_warmed();
            // The sandbox reports this number, so it is limited to the memory of a guest.
            let bytes = bytes.min(RAM_MAX);
            state.bytes += bytes;
            state.warm.push_back(WarmInstance {
                instance,
                info: WarmInfo { since, bytes },
            });
        }
        if is_too_many {
            keeper.end_oldest();
        }
        keeper.wake();
    }
}

impl Drop for PendingInstance {
    fn drop(&mut self) {
        let mut state = self.warm_instances.lock();
        state.pending -= 1;
        if let Some(wanted) = &self.wanted {
            state.hot.retain(|other| !Arc::ptr_eq(other, wanted));
        }
        // Requests that wait for an instance that does not come are notified.
        while state.wanted() > state.pending && state.waiting.pop_back().is_some() {}
    }
}

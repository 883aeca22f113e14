//! Instances that will be parked, and requests that wait for one of them.

use std::sync::Arc;
use std::time::Instant;

use faasw_abi::memory_map::RAM_MAX;
use tokio::sync::Notify;

use super::{Parked, Parking, Places, Rest, Waiting};
use crate::instances::Instance;

/// An instance that will be parked, or not.
#[derive(Debug)]
pub struct Coming {
    pub(super) parking: Arc<Parking>,
    pub(super) wanted: Option<Arc<Notify>>,
}

/// A request that waits for one instance, which nobody else gets: to others it is as if the
/// instance did not come. Dropping it sends the request elsewhere.
#[derive(Debug)]
pub struct Held {
    /// Nothing once it was let go.
    waiting: Option<Waiting>,
    parking: Arc<Parking>,
}

impl Held {
    /// Whether it waits no more.
    pub fn is_closed(&self) -> bool {
        self.waiting.as_ref().is_none_or(Waiting::is_closed)
    }

    /// Waits until it waits no more.
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
            let parking = self.parking.clone();
            self.let_go(&mut parking.places());
        }
    }
}

impl Coming {
    /// From now on requests know of it before it is parked: its guest looks for one, or will.
    pub fn look_out(&mut self) {
        let wanted = self.wanted.insert(Arc::default()).clone();
        let mut places = self.parking.places();
        if places.waiting.is_empty() {
            places.hot.push(wanted)
        } else {
            // It came before its instance was known to look.
            wanted.notify_one()
        }
    }

    /// Waits until a request wants an instance that looks for one; for ever where it does not look.
    pub async fn wanted(&self) {
        match &self.wanted {
            Some(wanted) => wanted.notified().await,
            None => std::future::pending().await,
        }
    }

    /// The request that waits longest for an instance, which is for it and nobody else then. If
    /// there is none, the next one is told of again.
    pub fn take_waiting(&self) -> Option<Held> {
        let mut places = self.parking.places();
        while let Some(waiting) = places.waiting.pop_front() {
            if !waiting.is_closed() {
                places.held += 1;
                return Some(Held {
                    waiting: Some(waiting),
                    parking: self.parking.clone(),
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

    /// It waits on, for whichever instance is there first.
    pub fn give_back(&self, mut held: Held) {
        let mut places = self.parking.places();
        if let Some(waiting) = held.let_go(&mut places) {
            places.waiting.push_front(waiting);
        }
    }

    /// Hands an instance to a request that was taken. Where that has gone meanwhile it ends: it has
    /// been claimed.
    pub fn hand(self, mut held: Held, instance: Instance) {
        let waiting = held.let_go(&mut self.parking.places());
        drop(self);
        if let Some(waiting) = waiting {
            drop(waiting.sender.send(instance));
        }
    }

    /// Parks an instance that has `bytes` of private pages and has had nothing to do `since` then;
    /// or hands it to who waits for one.
    pub fn park(self, mut instance: Instance, bytes: u64, since: Instant) {
        let keeper = &self.parking.keeper;
        instance.sandbox.let_go_of_faults();
        let is_too_many;
        {
            let mut places = self.parking.places();
            while let Some(waiting) = places.waiting.pop_front() {
                let waited = waiting.since.saturating_duration_since(since);
                match waiting.sender.send(instance) {
                    Ok(()) => return self.parking.note_arrival(waited),
                    Err(unwanted) => instance = unwanted,
                }
            }
            if keeper.has_stopped() {
                return;
            }
            // Before anybody can take it and count it out.
            is_too_many = keeper.came();
            // A sandbox's word, of no more than a guest's memory.
            let bytes = bytes.min(RAM_MAX);
            places.bytes += bytes;
            places.parked.push_back(Parked {
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

impl Drop for Coming {
    fn drop(&mut self) {
        let mut places = self.parking.places();
        places.coming -= 1;
        if let Some(wanted) = &self.wanted {
            places.hot.retain(|other| !Arc::ptr_eq(other, wanted));
        }
        // Whoever waits for what does not come is told so.
        while places.wanted() > places.coming && places.waiting.pop_back().is_some() {}
    }
}

//! Slots that owners share fairly.
//!
//! A slot is a counted right to proceed. If no slot is free, a request for one waits. A free slot
//! goes to foreground work before background work, then to the owner that holds the fewest, then
//! to the owner that was served the longest ago, and within an owner to the first that came. So an
//! owner that floods the queue waits behind itself.
//!
//! An owner is a function today. The type is a parameter, so that a tenant can take its place.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use faasw_common::Lock;
use tokio::sync::{oneshot, watch};

/// Whether a client waits for the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A request or a deployment waits for it.
    Foreground,
    /// The work is done ahead of need.
    Background,
}

/// The number of slots, and their limits.
#[derive(Clone, Copy, Debug)]
pub struct SlotRules {
    /// The number of slots in all.
    pub total: usize,
    /// The maximum number of slots of one owner. If that is more than one, its background work gets
    /// all but one.
    pub per_owner: usize,
    /// The maximum number of slots of background work. Background work may take the same part of
    /// the memory.
    pub background: usize,
    /// Whether background work gets a slot only while no foreground work holds or awaits one.
    pub background_yields: bool,
}

/// A request for a slot.
#[derive(Clone, Copy, Debug)]
pub struct SlotRequest<O> {
    /// The owner that the slot counts for.
    pub owner: O,
    /// Whether a client waits.
    pub urgency: Urgency,
    /// The worst-case memory of the work in bytes; 0 if memory is not bounded.
    pub bytes: u64,
}

/// Slots, and the queue for them.
#[derive(Debug)]
pub struct FairSlots<O: Ord> {
    rules: SlotRules,
    /// The worst-case memory in bytes that the work in all slots may take.
    bytes_max: AtomicU64,
    state: Lock<State<O>>,
    /// How many foreground requests hold or await a slot.
    foreground: watch::Sender<usize>,
}

#[derive(Debug)]
struct State<O> {
    held: usize,
    held_in_background: usize,
    held_bytes: u64,
    /// The part of `held_bytes` that background work has.
    background_bytes: u64,
    /// Owners that hold or await a slot.
    owners: BTreeMap<O, Owner>,
    /// The number of the next request.
    next: u64,
    /// How many slots were granted so far.
    granted: u64,
}

/// An owner's slots and its queue.
///
/// Because each owner has a queue, a grant looks at one request of each owner, unless memory bounds
/// the slots. So a long queue of one owner does not slow down the others.
#[derive(Debug)]
struct Owner {
    share: OwnerShare,
    /// Foreground work first, then by arrival.
    waiting: BTreeMap<QueueKey, Waiter>,
}

/// The key of a request in its owner's queue: its urgency, then the number of the request.
type QueueKey = (Urgency, u64);

#[derive(Debug)]
struct Waiter {
    bytes: u64,
    granted: oneshot::Sender<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct OwnerShare {
    held: usize,
    held_in_background: usize,
    /// The count of grants when it was served last. An owner that was not served since it came
    /// counts as served just before the last grant at that time: it comes before the owner that
    /// was served then, but owners that come and go do not overtake one that waits.
    served: u64,
}

impl OwnerShare {
    /// Returns the order in which requests of several owners are served.
    fn rank(&self, (urgency, number): QueueKey) -> (Urgency, usize, u64, u64) {
        (urgency, self.held, self.served, number)
    }
}

/// A slot. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping it gives the slot back"]
pub struct Slot<O: Ord + Clone> {
    slots: Arc<FairSlots<O>>,
    number: u64,
    request: SlotRequest<O>,
}

/// A slot that was requested. It becomes the slot; dropping it withdraws the request.
#[derive(Debug)]
#[must_use = "dropping it withdraws the request"]
pub struct PendingSlot<O: Ord + Clone> {
    /// `None` once the slot was taken out.
    slot: Option<Slot<O>>,
    granted: oneshot::Receiver<()>,
}

/// The position of a request in the queue.
#[derive(Clone, Debug)]
pub struct QueuePosition<O: Ord> {
    slots: Arc<FairSlots<O>>,
    owner: O,
    key: QueueKey,
}

/// Returns the range of an owner's requests of one urgency.
fn queue_of(urgency: Urgency) -> RangeInclusive<QueueKey> {
    (urgency, 0)..=(urgency, u64::MAX)
}

impl<O: Ord + Clone> FairSlots<O> {
    /// Creates slots with these rules.
    pub fn new(rules: SlotRules) -> Arc<Self> {
        Arc::new(Self {
            rules,
            bytes_max: AtomicU64::new(u64::MAX),
            state: Lock::new(State {
                held: 0,
                held_in_background: 0,
                held_bytes: 0,
                background_bytes: 0,
                owners: BTreeMap::new(),
                next: 0,
                granted: 0,
            }),
            foreground: watch::Sender::new(0),
        })
    }

    /// Bounds the worst-case memory of the work in all slots.
    pub fn limit_bytes(&self, bytes: u64) {
        if self.bytes_max.swap(bytes, Ordering::Relaxed) < bytes {
            self.grant(&mut self.state.lock());
        }
    }

    /// Requests a slot. When this returns, the request is in the queue or has its slot.
    pub fn request(self: &Arc<Self>, request: SlotRequest<O>) -> PendingSlot<O> {
        let (sender, granted) = oneshot::channel();
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        let share = OwnerShare {
            served: state.granted.saturating_sub(1),
            ..OwnerShare::default()
        };
        let owner = state.owners.entry(request.owner.clone());
        let owner = owner.or_insert_with(|| Owner {
            share,
            waiting: BTreeMap::new(),
        });
        let waiter = Waiter {
            bytes: request.bytes,
            granted: sender,
        };
        owner.waiting.insert((request.urgency, number), waiter);
        if request.urgency == Urgency::Foreground {
            self.foreground.send_modify(|count| *count += 1);
        }
        self.grant(&mut state);
        drop(state);
        let slots = self.clone();
        PendingSlot {
            slot: Some(Slot {
                slots,
                number,
                request,
            }),
            granted,
        }
    }

    /// Returns how many requests are served before the last one of an owner in the present queue,
    /// or `None` if no request of the owner waits.
    pub fn queued_behind(&self, owner: &O) -> Option<usize> {
        let state = self.state.lock();
        let (last, _) = state.owners.get(owner)?.waiting.last_key_value()?;
        state.behind(owner, *last)
    }

    /// Waits until no foreground work holds or awaits a slot.
    pub async fn foreground_done(&self) {
        let mut foreground = self.foreground.subscribe();
        // Waiting fails only without a sender, which `self` has.
        let _ = foreground.wait_for(|count| *count == 0).await;
    }

    /// Grants free slots to waiting requests.
    fn grant(&self, state: &mut State<O>) {
        while let Some((owner, key)) = self.next(state) {
            let Some(waiter) = state.take_out(&owner, key) else {
                return;
            };
            state.count(&owner, key, waiter.bytes);
            // If the receiver is gone, dropping its slot gives this one back.
            let _ = waiter.granted.send(());
        }
    }

    /// Returns the request that gets the next slot, if one can have it now.
    fn next(&self, state: &State<O>) -> Option<(O, QueueKey)> {
        if state.held >= self.rules.total {
            return None;
        }
        self.next_of(state, Urgency::Foreground).or_else(|| {
            // Memory that becomes free is for the foreground work that waits for it.
            let mut owners = state.owners.values();
            let is_short = owners.any(|owner| self.waits_for_memory(state, owner));
            if is_short {
                None
            } else {
                self.next_of(state, Urgency::Background)
            }
        })
    }

    /// Returns the request of one urgency that gets the next slot.
    fn next_of(&self, state: &State<O>, urgency: Urgency) -> Option<(O, QueueKey)> {
        let able = state.owners.iter().filter_map(|(name, owner)| {
            let key = self.first_able(state, owner, urgency)?;
            Some((owner.share.rank(key), name, key))
        });
        let (_, name, key) = able.min_by_key(|(rank, ..)| *rank)?;
        Some((name.clone(), key))
    }

    /// Returns the first request of an owner, of one urgency, that can have a slot now.
    fn first_able(&self, state: &State<O>, owner: &Owner, urgency: Urgency) -> Option<QueueKey> {
        if owner.share.held >= self.rules.per_owner || !self.has_slot(state, owner, urgency) {
            return None;
        }
        let mut queue = owner.waiting.range(queue_of(urgency));
        let (key, _) = queue.find(|(_, waiter)| self.fits(state, urgency, waiter.bytes))?;
        Some(*key)
    }

    /// Returns whether an owner's next foreground request lacks nothing but memory.
    fn waits_for_memory(&self, state: &State<O>, owner: &Owner) -> bool {
        let urgency = Urgency::Foreground;
        let mut queue = owner.waiting.range(queue_of(urgency));
        owner.share.held < self.rules.per_owner
            && queue
                .next()
                .is_some_and(|(_, waiter)| !self.fits(state, urgency, waiter.bytes))
    }

    /// Returns whether the counts of all owners together, and those of this one, allow one more
    /// slot.
    fn has_slot(&self, state: &State<O>, owner: &Owner, urgency: Urgency) -> bool {
        let rules = &self.rules;
        match urgency {
            Urgency::Foreground => true,
            Urgency::Background => {
                let is_quiet = !rules.background_yields || *self.foreground.borrow() == 0;
                let of_owner = rules.per_owner.saturating_sub(1).max(1);
                is_quiet
                    && state.held_in_background < rules.background
                    && owner.share.held_in_background < of_owner
            }
        }
    }

    /// Returns whether the memory allows it. A request for more than the whole memory gets a slot
    /// alone.
    fn fits(&self, state: &State<O>, urgency: Urgency, bytes: u64) -> bool {
        let most = self.bytes_max.load(Ordering::Relaxed);
        let fits = |held: u64, most| held.saturating_add(bytes) <= most;
        if state.held > 0 && !fits(state.held_bytes, most) {
            return false;
        }
        let (part, total) = (self.rules.background as u64, self.rules.total as u64);
        match urgency {
            Urgency::Foreground => true,
            Urgency::Background if state.held_in_background == 0 => true,
            Urgency::Background => fits(state.background_bytes, most / total.max(1) * part),
        }
    }

    /// Removes a request, whether it holds its slot or waits.
    fn leave(&self, number: u64, request: &SlotRequest<O>) {
        let mut state = self.state.lock();
        let key = (request.urgency, number);
        if state.take_out(&request.owner, key).is_none() {
            state.held -= 1;
            state.held_bytes = state.held_bytes.saturating_sub(request.bytes);
            if request.urgency == Urgency::Background {
                state.held_in_background -= 1;
                state.background_bytes = state.background_bytes.saturating_sub(request.bytes);
            }
            if let Some(owner) = state.owners.get_mut(&request.owner) {
                owner.share.held -= 1;
                owner.share.held_in_background -=
                    usize::from(request.urgency == Urgency::Background);
            }
        }
        state.forget_idle(&request.owner);
        if request.urgency == Urgency::Foreground {
            self.foreground.send_modify(|count| *count -= 1);
        }
        self.grant(&mut state);
    }
}

impl<O: Ord + Clone> State<O> {
    /// Takes a request out of its owner's queue.
    fn take_out(&mut self, owner: &O, key: QueueKey) -> Option<Waiter> {
        self.owners.get_mut(owner)?.waiting.remove(&key)
    }

    /// Forgets an owner that neither holds nor awaits a slot.
    fn forget_idle(&mut self, owner: &O) {
        let is_idle = |owner: &Owner| owner.share.held == 0 && owner.waiting.is_empty();
        if self.owners.get(owner).is_some_and(is_idle) {
            self.owners.remove(owner);
        }
    }

    /// Returns how many requests are served before this one, or `None` if it does not wait.
    fn behind(&self, owner: &O, key: QueueKey) -> Option<usize> {
        if !self.owners.get(owner)?.waiting.contains_key(&key) {
            return None;
        }
        // Replays the order in which slots are granted.
        let mut queues: Vec<_> = self
            .owners
            .iter()
            .map(|(name, owner)| (name, owner.share, owner.waiting.keys().peekable()))
            .collect();
        let mut behind = 0;
        loop {
            let firsts = queues.iter_mut().filter_map(|(name, share, queue)| {
                let first = **queue.peek()?;
                Some((share.rank(first), &**name, first, share, queue))
            });
            let (_, name, first, share, queue) = firsts.min_by_key(|(rank, ..)| *rank)?;
            if (name, first) == (owner, key) {
                return Some(behind);
            }
            queue.next();
            behind += 1;
            share.held += 1;
            share.served = self.granted + behind as u64;
        }
    }

    /// Counts a slot that was granted to a request that has left the queue.
    fn count(&mut self, owner: &O, (urgency, _): QueueKey, bytes: u64) {
        self.granted += 1;
        self.held += 1;
        self.held_bytes = self.held_bytes.saturating_add(bytes);
        if urgency == Urgency::Background {
            self.held_in_background += 1;
            self.background_bytes = self.background_bytes.saturating_add(bytes);
        }
        if let Some(owner) = self.owners.get_mut(owner) {
            owner.share.held += 1;
            owner.share.held_in_background += usize::from(urgency == Urgency::Background);
            owner.share.served = self.granted;
        }
    }
}

impl<O: Ord + Clone> Drop for Slot<O> {
    fn drop(&mut self) {
        self.slots.leave(self.number, &self.request);
    }
}

impl<O: Ord + Clone> PendingSlot<O> {
    /// Returns the slot, if it has been granted.
    ///
    /// # Errors
    /// Returns the request itself while it waits.
    pub fn try_take(mut self) -> Result<Slot<O>, Self> {
        if self.granted.try_recv().is_err() {
            return Err(self);
        }
        self.slot.take().ok_or(self)
    }

    /// Returns the means to report the place in the queue.
    pub fn position(&self) -> Option<QueuePosition<O>> {
        self.slot.as_ref().map(|slot| QueuePosition {
            slots: slot.slots.clone(),
            owner: slot.request.owner.clone(),
            key: (slot.request.urgency, slot.number),
        })
    }
}

impl<O: Ord + Clone + Unpin> Future for PendingSlot<O> {
    type Output = Slot<O>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Slot<O>> {
        match Pin::new(&mut self.granted).poll(context) {
            Poll::Ready(Ok(())) => match self.slot.take() {
                Some(slot) => Poll::Ready(slot),
                None => Poll::Pending,
            },
            // A sender is dropped only with its slot.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl<O: Ord + Clone> QueuePosition<O> {
    /// Returns how many requests are served before this one in the present queue, or `None` once it
    /// has its slot.
    pub fn behind(&self) -> Option<usize> {
        self.slots.state.lock().behind(&self.owner, self.key)
    }
}

#[cfg(test)]
mod tests;

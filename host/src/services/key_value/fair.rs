//! Fair queueing of the stores' work: round robin between functions, first come first served within
//! each.
//!
//! A function with many requests delays only itself. A neighbour waits for at most one piece of
//! work of each other function, however many of theirs are queued. The callers bound the size of a
//! piece.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

/// Identifies an item of a queue, so that its owner can take it back.
pub(super) type Ticket = u64;

/// Items that wait, in a queue for each owner.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    /// No queue is empty.
    queues: HashMap<Arc<str>, VecDeque<(Ticket, T)>>,
    /// The owners of `queues`: the first is served next.
    order: VecDeque<Arc<str>>,
    next: Ticket,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            queues: HashMap::new(),
            order: VecDeque::new(),
            next: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Appends an item to its owner's queue.
    pub(super) fn push(&mut self, owner: &str, item: T) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        match self.queues.get_mut(owner) {
            Some(queue) => queue.push_back((ticket, item)),
            None => {
                let owner: Arc<str> = owner.into();
                self.queues
                    .insert(owner.clone(), VecDeque::from([(ticket, item)]));
                self.order.push_back(owner);
            }
        }
        ticket
    }

    /// Removes the oldest item of the owner whose turn it is, among those owners that `may`.
    pub(super) fn pop(&mut self, may: impl Fn(&str) -> bool) -> Option<(Arc<str>, T)> {
        let place = self.order.iter().position(|owner| may(owner))?;
        let owner = self.order.remove(place)?;
        let queue = self.queues.get_mut(&owner)?;
        let (_, item) = queue.pop_front()?;
        if queue.is_empty() {
            drop(self.queues.remove(&owner))
        } else {
            self.order.push_back(owner.clone())
        }
        Some((owner, item))
    }

    /// Removes an item that its owner does not wait for any more, unless it was popped before.
    pub(super) fn remove(&mut self, owner: &str, ticket: Ticket) -> Option<T> {
        let queue = self.queues.get_mut(owner)?;
        // Tickets grow within a queue.
        let place = queue
            .binary_search_by_key(&ticket, |(ticket, _)| *ticket)
            .ok()?;
        let (_, item) = queue.remove(place)?;
        if queue.is_empty() {
            self.queues.remove(owner);
            self.order.retain(|other| **other != *owner);
        }
        Some(item)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// A bounded number of turns, handed out fairly between owners.
#[derive(Debug)]
pub(super) struct FairPermits {
    /// The most turns that one owner holds at once.
    each: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Turns taken by each owner that has any.
    taken: HashMap<Arc<str>, usize>,
    waiting: FairQueue<oneshot::Sender<FairPermit>>,
}

/// The right to do one piece of work. Dropping it hands it to the next.
#[derive(Debug)]
#[must_use = "dropping it gives the turn back"]
pub(super) struct FairPermit {
    turns: Arc<FairPermits>,
    owner: Arc<str>,
}

/// A caller that waits for its turn. Dropping it removes it from the queue.
struct PermitWaiter<'a> {
    turns: &'a FairPermits,
    owner: &'a str,
    ticket: Ticket,
}

impl FairPermits {
    /// Creates `all` turns, of which one owner has `each` at most.
    pub(super) fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self {
            each,
            state: Mutex::new(State {
                free: all,
                taken: HashMap::new(),
                waiting: FairQueue::default(),
            }),
        })
    }

    /// Waits for a turn of `owner`. Returns `None` only if the turns were dropped, which cannot
    /// happen while they are borrowed.
    pub(super) async fn take(self: &Arc<Self>, owner: &str) -> Option<FairPermit> {
        let (sender, turn) = oneshot::channel();
        let waiting = PermitWaiter {
            turns: self,
            owner,
            ticket: self.state().waiting.push(owner, sender),
        };
        self.hand_out();
        let turn = turn.await.ok();
        drop(waiting);
        turn
    }

    /// Hands free turns to waiting callers.
    fn hand_out(self: &Arc<Self>) {
        let mut granted = Vec::new();
        {
            let mut state = self.state();
            let state = &mut *state;
            while state.free > 0 {
                let has_room = |owner: &str| {
                    state
                        .taken
                        .get(owner)
                        .is_none_or(|taken| *taken < self.each)
                };
                let Some((owner, sender)) = state.waiting.pop(has_room) else {
                    break;
                };
                state.free -= 1;
                *state.taken.entry(owner.clone()).or_default() += 1;
                granted.push((sender, owner));
            }
        }
        for (sender, owner) in granted {
            let turns = self.clone();
            // A caller that left at this moment drops the turn, which hands it on. The lock is free
            // by now.
            drop(sender.send(FairPermit { turns, owner }));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of free turns.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.state().free
    }

    /// Returns the number of waiting callers.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state()
            .waiting
            .queues
            .values()
            .map(VecDeque::len)
            .sum()
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.free += 1;
        if let Some(taken) = state.taken.get_mut(&self.owner) {
            *taken -= 1;
            if *taken == 0 {
                state.taken.remove(&self.owner);
            }
        }
        drop(state);
        self.turns.hand_out();
    }
}

impl Drop for PermitWaiter<'_> {
    fn drop(&mut self) {
        let gone = self.turns.state().waiting.remove(self.owner, self.ticket);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn all(queue: &mut FairQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop(|_| true))
            .map(|(_, item)| item)
            .collect()
    }

    #[test]
    fn owners_are_served_round_robin_and_each_in_order() {
        let mut queue = FairQueue::default();
        for item in 0..4 {
            queue.push("busy", item);
        }
        queue.push("quiet", 10);
        queue.push("other", 20);
        queue.push("other", 21);
        assert_eq!(all(&mut queue), [0, 10, 20, 1, 21, 2, 3]);
        assert!(queue.is_empty() && queue.queues.is_empty());
    }

    #[test]
    fn a_withdrawn_item_is_removed_and_so_is_an_empty_owner() {
        let mut queue = FairQueue::default();
        let [first, second, other] = [("a", 1), ("a", 2), ("b", 3)].map(|(owner, item)| {
            let ticket = queue.push(owner, item);
            (owner, ticket)
        });
        assert_eq!(queue.remove(first.0, first.1), Some(1));
        assert_eq!(queue.remove(first.0, first.1), None);
        assert_eq!(queue.remove("b", second.1), None);
        assert_eq!(queue.remove(other.0, other.1), Some(3));
        assert_eq!(all(&mut queue), [2]);
        assert_eq!(queue.remove(second.0, second.1), None);
    }

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn is_granted(
        waits: &mut Pin<Box<impl Future<Output = Option<FairPermit>>>>,
    ) -> Option<FairPermit> {
        match poll(waits.as_mut()) {
            Poll::Ready(turn) => turn,
            Poll::Pending => None,
        }
    }

    #[test]
    fn an_owner_waits_for_one_permit_of_a_busy_owner_at_most() {
        let turns = FairPermits::new(1, 1);
        let mut busy: Vec<_> = (0..100).map(|_| Box::pin(turns.take("busy"))).collect();
        let mut granted: Vec<_> = busy.iter_mut().filter_map(is_granted).collect();
        assert_eq!(granted.len(), 1);
        let mut quiet = pin!(turns.take("quiet"));
        assert!(poll(quiet.as_mut()).is_pending());
        // The busy function's second request was queued first.
        granted.clear();
        granted.extend(busy.iter_mut().skip(1).filter_map(is_granted));
        assert_eq!(granted.len(), 1);
        assert!(poll(quiet.as_mut()).is_pending());
        granted.clear();
        assert!(poll(quiet.as_mut()).is_ready());
    }

    #[test]
    fn an_owner_has_a_limited_number_of_permits() {
        let turns = FairPermits::new(4, 2);
        let mut busy: Vec<_> = (0..3).map(|_| Box::pin(turns.take("busy"))).collect();
        let granted: Vec<_> = busy.iter_mut().filter_map(is_granted).collect();
        assert_eq!((granted.len(), turns.free()), (2, 2));
        let mut quiet = Box::pin(turns.take("quiet"));
        assert!(is_granted(&mut quiet).is_some());
        drop(granted);
        let granted: Vec<_> = busy.iter_mut().skip(2).filter_map(is_granted).collect();
        assert_eq!(granted.len(), 1);
    }

    #[test]
    fn a_caller_that_leaves_wastes_no_permit() {
        let turns = FairPermits::new(1, 1);
        let mut first = Box::pin(turns.take("a"));
        let held = is_granted(&mut first).unwrap();
        let mut leaves = Box::pin(turns.take("a"));
        let mut granted_and_leaves = Box::pin(turns.take("b"));
        let mut stays = Box::pin(turns.take("c"));
        assert!(is_granted(&mut leaves).is_none());
        assert!(is_granted(&mut granted_and_leaves).is_none());
        assert!(is_granted(&mut stays).is_none());
        drop(leaves);
        // The turn is handed to a caller that no longer polls for it.
        drop(held);
        drop(granted_and_leaves);
        assert!(is_granted(&mut stays).is_some());
        assert_eq!(turns.free(), 1);
        let state = turns.state();
        assert!(state.waiting.is_empty() && state.taken.is_empty());
    }
}

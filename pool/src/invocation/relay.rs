//! Slots for moving response bodies from guests to clients.
//!
//! All requests share the node's threads, which serve ready tasks in turn. Without slots each of a
//! function's downloads has a task ready, and a request of another function waits behind all of
//! them. So a stream needs a slot to move a few parts, until its connection has taken them, and
//! functions share the slots fairly.

use std::sync::Arc;
use std::time::Duration;

use faasw_fri::messages::FunctionNumber;
use tokio::time::{Instant, sleep_until};

use super::body::{PARTS, PartSender};
use crate::fair_slots::{FairSlots, PendingSlot, Slot, SlotRequest, SlotRules, Urgency};

/// Slots for moving responses, by function.
pub type RelaySlots = FairSlots<FunctionNumber>;

/// Parts that a stream moves with one slot: 128 KiB, so that passing the slot on costs little.
const PARTS_PER_SLOT: usize = 2;

/// How long a slot is held for parts that the connection does not take: a client that reads
/// nothing, or slowly, delays no others. It is some ten times what writing the parts takes.
const UNTAKEN_MAX: Duration = Duration::from_millis(1);

/// Returns slots for a node with so many processors: each function can use all threads, and two
/// functions do so without waiting for each other.
pub fn relay_slots(processors: usize) -> Arc<RelaySlots> {
    FairSlots::new(SlotRules {
        total: 2 * processors,
        per_owner: processors,
        background: 0,
        background_yields: false,
    })
}

/// How one response's stream uses the slots.
#[derive(Debug)]
pub(super) struct Relay {
    slots: Arc<RelaySlots>,
    function: FunctionNumber,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle,
    Waiting(PendingSlot<FunctionNumber>),
    Held(HeldSlot),
}

#[derive(Debug)]
struct HeldSlot {
    _slot: Slot<FunctionNumber>,
    /// The number of parts that may still be moved.
    left: usize,
    /// When the last part was moved; before the first part, when the slot was granted.
    since: Instant,
}

impl Relay {
    /// Creates the use of `slots` by one response of a function.
    pub fn new(slots: Arc<RelaySlots>, function: FunctionNumber) -> Self {
        Self {
            slots,
            function,
            state: State::Idle,
        }
    }

    /// Waits for a slot unless one with parts left is held. The position in the queue stays if the
    /// future is dropped.
    pub async fn acquire(&mut self) {
        loop {
            match &mut self.state {
                State::Held(held) if held.left > 0 => return,
                State::Held(_) | State::Idle => {
                    let request = SlotRequest {
                        owner: self.function,
                        urgency: Urgency::Foreground,
                        bytes: 0,
                    };
                    self.state = State::Waiting(self.slots.request(request));
                }
                State::Waiting(pending) => {
                    self.state = State::Held(HeldSlot {
                        _slot: pending.await,
                        left: PARTS_PER_SLOT,
                        since: Instant::now(),
                    });
                }
            }
        }
    }

    /// Counts a part that was moved with the slot.
    pub fn moved(&mut self) {
        if let State::Held(held) = &mut self.state {
            held.left = held.left.saturating_sub(1);
            held.since = Instant::now();
        }
    }

    /// Releases a slot whose parts were all moved, once the connection has taken them or time is
    /// up.
    pub async fn release_used(&mut self, client: &PartSender) {
        if let State::Held(HeldSlot { left: 0, since, .. }) = &self.state {
            taken(client, *since).await;
            self.state = State::Idle;
        }
    }

    /// Releases the slot, or leaves the queue, at once.
    pub fn reset(&mut self) {
        self.state = State::Idle;
    }

    /// Ends the use of a stream that has nothing to move: releases its slot, once the connection
    /// has taken what was moved or time is up, or leaves the queue.
    pub async fn release(&mut self, client: &PartSender) {
        if let State::Held(held) = &self.state {
            taken(client, held.since).await;
        }
        self.reset();
    }
}

/// Waits until the connection has taken all parts, is gone, or has had its time for that.
async fn taken(client: &PartSender, since: Instant) {
    tokio::select! {
        biased;
        _ = client.reserve_many(PARTS) => {}
        () = sleep_until(since + UNTAKEN_MAX) => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::super::backlog::{Account, Backlog, BacklogLimits};
    use super::super::body::{self, ResponsePart};
    use super::super::delivery::Delivery;
    use super::*;

    /// Longer than any wait that ends by itself; tests pause the clock.
    const LONG: Duration = Duration::from_secs(3600);

    fn send(client: &PartSender, relay: &mut Relay) {
        let part = ResponsePart::Data(vec![7; 10].into());
        client.try_send(Ok(part)).unwrap();
        relay.moved();
    }

    async fn is_served(relay: &mut Relay) -> bool {
        // The clock does not advance, so only a slot that is already granted counts.
        tokio::select! {
            biased;
            () = relay.acquire() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_functions_streams_leaves_slots_for_another() {
        let slots = relay_slots(2);
        let relay = |number| Relay::new(slots.clone(), number);
        let mut flood: Vec<_> = (0..40).map(|_| relay(1)).collect();
        let mut served = 0;
        for stream in &mut flood {
            served += usize::from(is_served(stream).await);
        }
        assert_eq!(served, 2);
        let mut others = [relay(2), relay(2)];
        for other in &mut others {
            assert!(is_served(other).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_goes_on_once_the_connection_has_taken_the_parts() {
        let slots = relay_slots(1);
        let (client, mut connection) = body::channel();
        let mut relay = Relay::new(slots.clone(), 1);
        let mut next = Relay::new(slots, 1);
        for _ in 0..PARTS_PER_SLOT {
            assert!(is_served(&mut relay).await);
            send(&client, &mut relay);
        }
        assert!(!is_served(&mut next).await);
        let started = Instant::now();
        let take = async {
            for _ in 0..PARTS_PER_SLOT {
                std::future::poll_fn(|context| connection.poll_part(context)).await;
            }
        };
        tokio::join!(relay.release_used(&client), take);
        assert!(is_served(&mut next).await);
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_holds_its_slot_for_a_moment_only() {
        let slots = relay_slots(1);
        let (client, _connection) = body::channel();
        let mut stalled = Relay::new(slots.clone(), 1);
        let mut next = Relay::new(slots, 1);
        stalled.acquire().await;
        send(&client, &mut stalled);
        assert!(!is_served(&mut next).await);
        // The slot has one part left, and the guest makes nothing.
        let started = Instant::now();
        timeout(LONG, stalled.release(&client)).await.unwrap();
        assert!(started.elapsed() <= 2 * UNTAKEN_MAX);
        assert!(is_served(&mut next).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_position_survives_a_wait_and_ends_when_nothing_is_to_move() {
        let slots = relay_slots(1);
        let (client, _connection) = body::channel();
        let relay = || Relay::new(slots.clone(), 1);
        let (mut holder, mut first, mut second) = (relay(), relay(), relay());
        assert!(is_served(&mut holder).await);
        assert!(!is_served(&mut first).await);
        assert!(!is_served(&mut second).await);
        drop(holder);
        assert!(!is_served(&mut second).await, "the first came before");
        first.release(&client).await;
        assert!(is_served(&mut second).await);
    }

    const BYTES: u64 = 10;

    /// Returns an account with a budget of so many bytes for what clients have not taken.
    fn account(bytes: u64) -> Account {
        let node = Backlog::new(BacklogLimits {
            node: bytes,
            function: bytes,
            connection: bytes,
        });
        Account::new(node.function(), node.connection())
    }

    /// Asserts that a stream that can move nothing leaves its slot to the next.
    async fn leaves_its_slot(
        delivery: &Delivery,
        waiting: &mut Relay,
        account: &Account,
        next: &mut Relay,
    ) {
        let reserved = delivery.reserve_part(waiting, account, Some(BYTES));
        tokio::select! {
            _ = reserved => panic!("it can move a part"),
            () = next.acquire() => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_waits_for_its_client_holds_no_slot_though_it_used_half_of_it() {
        let slots = relay_slots(1);
        let (client, _connection) = body::channel();
        let mut stalled = Relay::new(slots.clone(), 1);
        let mut next = Relay::new(slots, 1);
        stalled.acquire().await;
        send(&client, &mut stalled);
        while client.capacity() > 0 {
            client
                .try_send(Ok(ResponsePart::Data(vec![7].into())))
                .unwrap();
        }
        let account = account(u64::MAX);
        let delivery = Delivery::streaming(client);
        leaves_its_slot(&delivery, &mut stalled, &account, &mut next).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_waits_for_its_budget_holds_no_slot() {
        let slots = relay_slots(1);
        let (client, _connection) = body::channel();
        let delivery = Delivery::streaming(client);
        let account = account(BYTES);
        let mut waiting = Relay::new(slots.clone(), 1);
        let mut next = Relay::new(slots, 1);
        let first = delivery.reserve_part(&mut waiting, &account, Some(BYTES));
        first.await.unwrap().send(vec![7; 10].into());
        waiting.moved();
        leaves_its_slot(&delivery, &mut waiting, &account, &mut next).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_body_needs_no_slot_and_a_stream_without_client_has_none() {
        let slots = relay_slots(1);
        let (client, _connection) = body::channel();
        let account = account(u64::MAX);
        let mut holder = Relay::new(slots.clone(), 1);
        let mut ending = Relay::new(slots.clone(), 1);
        holder.acquire().await;
        let delivery = Delivery::streaming(client);
        let end = delivery.reserve_part(&mut ending, &account, Some(0)).await;
        assert!(end.is_some());
        // The guest continues after its response.
        let mut next = Relay::new(slots, 1);
        leaves_its_slot(&Delivery::Complete, &mut holder, &account, &mut next).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_disconnect_is_noticed_in_the_queue() {
        let slots = relay_slots(1);
        let (client, connection) = body::channel();
        let account = account(u64::MAX);
        let mut holder = Relay::new(slots.clone(), 1);
        let mut queued = Relay::new(slots, 1);
        holder.acquire().await;
        let delivery = Delivery::streaming(client);
        let gone = delivery.reserve_part(&mut queued, &account, Some(BYTES));
        drop(connection);
        assert!(timeout(LONG, gone).await.unwrap().is_none());
    }
}

use super::*;

const RULES: SlotRules = SlotRules {
    total: 2,
    per_owner: 2,
    background: 1,
    background_yields: true,
};

fn slots(rules: SlotRules) -> Arc<FairSlots<&'static str>> {
    FairSlots::new(rules)
}

fn foreground(owner: &'static str) -> SlotRequest<&'static str> {
    SlotRequest {
        owner,
        urgency: Urgency::Foreground,
        bytes: 0,
    }
}

fn background(owner: &'static str) -> SlotRequest<&'static str> {
    SlotRequest {
        urgency: Urgency::Background,
        ..foreground(owner)
    }
}

/// Grants one slot after the other by returning the one before. Returns the order of owners.
fn order_of(
    slots: &Arc<FairSlots<&'static str>>,
    mut pending: Vec<(&'static str, PendingSlot<&'static str>)>,
) -> Vec<&'static str> {
    let mut order = Vec::new();
    loop {
        let mut left = Vec::new();
        let mut granted = Vec::new();
        for (name, one) in pending {
            match one.try_take() {
                Ok(slot) => granted.push((name, slot)),
                Err(one) => left.push((name, one)),
            }
        }
        pending = left;
        if granted.is_empty() {
            assert!(pending.is_empty(), "{slots:?}");
            return order;
        }
        order.extend(granted.iter().map(|(name, _)| *name));
        drop(granted);
    }
}

#[test]
fn an_owner_that_floods_the_queue_waits_behind_itself() {
    let slots = slots(SlotRules { total: 1, ..RULES });
    let held = slots.request(foreground("flood"));
    let mut pending: Vec<_> = (0..3)
        .map(|_| ("flood", slots.request(foreground("flood"))))
        .collect();
    pending.push(("neighbour", slots.request(foreground("neighbour"))));
    pending.push(("neighbour", slots.request(foreground("neighbour"))));
    pending.push(("other", slots.request(foreground("other"))));
    let behind = |at: usize| pending[at].1.position().unwrap().behind();
    let told: Vec<_> = (0..6).map(behind).collect();
    // In the order in which they are served, with one slot that is passed on.
    assert_eq!(told[3], Some(0), "{told:?}");
    assert!(told[2] > told[4] && told[2] > told[5], "{told:?}");
    drop(held);
    let order = order_of(&slots, pending);
    assert_eq!(order[..2], ["neighbour", "other"]);
    assert_eq!(order.len(), 6);
    assert_eq!(order.last(), Some(&"flood"));
}

#[test]
fn owners_that_come_and_go_do_not_overtake_one_that_waits() {
    let slots = slots(SlotRules { total: 1, ..RULES });
    let held = slots.request(foreground("steady")).try_take().unwrap();
    let steady = slots.request(foreground("steady"));
    let first = slots.request(foreground("first"));
    drop(held);
    // The steady owner was served last, so another one that comes is served before it.
    let held = first.try_take().unwrap();
    let second = slots.request(foreground("second"));
    drop(held);
    let held = steady.try_take().unwrap();
    let first = slots.request(foreground("first"));
    drop(held);
    drop(second.try_take().unwrap());
    drop(first.try_take().unwrap());
}

#[test]
fn one_owner_never_holds_more_than_its_bound() {
    let slots = slots(SlotRules {
        total: 4,
        per_owner: 2,
        ..RULES
    });
    let all: Vec<_> = (0..4).map(|_| slots.request(foreground("one"))).collect();
    let (held, waiting): (Vec<_>, Vec<_>) = all
        .into_iter()
        .map(PendingSlot::try_take)
        .partition(Result::is_ok);
    assert_eq!((held.len(), waiting.len()), (2, 2));
    assert!(slots.request(foreground("other")).try_take().is_ok());
}

#[test]
fn background_work_waits_for_foreground_work_and_is_bounded() {
    let slots = slots(RULES);
    let first = slots.request(background("a")).try_take().unwrap();
    let second = slots.request(background("b")).try_take().unwrap_err();
    let urgent = slots.request(foreground("c")).try_take().unwrap();
    drop(first);
    // A slot is free, but foreground work holds one.
    let second = second.try_take().unwrap_err();
    assert_eq!(second.position().unwrap().behind(), Some(0));
    drop(urgent);
    let second = second.try_take().unwrap();
    // Foreground work that comes later does not wait for it.
    let later = slots.request(foreground("c")).try_take().unwrap();
    drop((second, later));
    assert!(slots.state.lock().owners.is_empty());
}

#[test]
fn memory_bounds_slots_and_the_largest_request_runs_alone() {
    let slots = slots(SlotRules { total: 8, ..RULES });
    slots.limit_bytes(100);
    let of = |owner, bytes| SlotRequest {
        bytes,
        ..foreground(owner)
    };
    let large = slots.request(of("a", 1000)).try_take().unwrap();
    let small = slots.request(of("b", 10)).try_take().unwrap_err();
    drop(large);
    let small = small.try_take().unwrap();
    let large = slots.request(of("a", 91)).try_take().unwrap_err();
    // A request that is too large delays no request that fits.
    let other = slots.request(of("c", 90)).try_take().unwrap();
    drop(other);
    let large = large.try_take().unwrap_err();
    slots.limit_bytes(101);
    let large = large.try_take().unwrap();
    drop((small, large));
    assert_eq!(slots.state.lock().held_bytes, 0);
}

#[test]
fn background_work_takes_its_part_of_the_memory_only() {
    let slots = slots(SlotRules {
        total: 8,
        background: 2,
        background_yields: false,
        ..RULES
    });
    slots.limit_bytes(800);
    let of = |owner, bytes| SlotRequest {
        bytes,
        ..background(owner)
    };
    // A single request may be larger than that part.
    let first = slots.request(of("a", 300)).try_take().unwrap();
    let second = slots.request(of("b", 1)).try_take().unwrap_err();
    let urgent = slots.request(SlotRequest {
        bytes: 500,
        ..foreground("c")
    });
    let urgent = urgent.try_take().unwrap();
    drop(first);
    let second = second.try_take().unwrap();
    let third = slots.request(of("a", 200)).try_take().unwrap_err();
    let fourth = slots.request(of("a", 199)).try_take().unwrap();
    drop((urgent, second, third, fourth));
    let state = slots.state.lock();
    assert_eq!((state.held_bytes, state.background_bytes), (0, 0));
}

#[tokio::test]
async fn a_request_that_is_withdrawn_leaves_nothing() {
    let slots = slots(SlotRules { total: 1, ..RULES });
    let held = slots.request(foreground("a")).await;
    let gone = slots.request(foreground("b"));
    let next = slots.request(foreground("c"));
    let position = next.position().unwrap();
    assert_eq!(position.behind(), Some(1));
    drop(gone);
    assert_eq!(position.behind(), Some(0));
    // Granted, and dropped before it was taken: the slot is passed on.
    let never_taken = slots.request(foreground("d"));
    drop(held);
    assert_eq!(position.behind(), None);
    drop(next);
    let last = never_taken.await;
    assert_eq!(*slots.foreground.borrow(), 1);
    drop(last);
    slots.foreground_done().await;
    let state = slots.state.lock();
    assert!(state.held == 0 && state.owners.is_empty());
}

#[test]
fn background_work_of_an_owner_leaves_it_a_slot_for_foreground_work() {
    let slots = slots(SlotRules {
        total: 8,
        per_owner: 3,
        background: 8,
        background_yields: false,
    });
    let first = slots.request(background("a")).try_take().unwrap();
    let second = slots.request(background("a")).try_take().unwrap();
    let third = slots.request(background("a")).try_take().unwrap_err();
    let other = slots.request(background("b")).try_take().unwrap();
    let urgent = slots.request(foreground("a")).try_take().unwrap();
    drop(first);
    let third = third.try_take().unwrap();
    drop((second, third, other, urgent));
    assert!(slots.state.lock().owners.is_empty());
    // The only slot of an owner may do background work.
    let slots = self::slots(SlotRules {
        per_owner: 1,
        ..RULES
    });
    assert!(slots.request(background("a")).try_take().is_ok());
}

#[test]
fn background_work_takes_no_memory_that_foreground_work_waits_for() {
    let slots = slots(SlotRules {
        total: 8,
        background: 8,
        background_yields: false,
        ..RULES
    });
    slots.limit_bytes(100);
    let of = |request, bytes| SlotRequest { bytes, ..request };
    let held = slots.request(of(background("a"), 60)).try_take().unwrap();
    let urgent = slots.request(of(foreground("b"), 60));
    let urgent = urgent.try_take().unwrap_err();
    let small = slots.request(of(background("c"), 10));
    let small = small.try_take().unwrap_err();
    // Foreground work that fits does not wait.
    assert!(slots.request(of(foreground("d"), 10)).try_take().is_ok());
    drop(held);
    let urgent = urgent.try_take().unwrap();
    let small = small.try_take().unwrap();
    drop((urgent, small));
    assert!(slots.state.lock().owners.is_empty());
}

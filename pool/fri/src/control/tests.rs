//! Tests of node and sandbox at one page, in every order of their steps.

use std::sync::Arc;

use loom::sync::atomic::AtomicU32 as Modelled;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use zerocopy::IntoBytes;

use super::*;

impl Word for Arc<Modelled> {
    fn get(&self) -> u32 {
        self.load(Ordering::SeqCst)
    }

    fn set(&self, value: u32) {
        self.store(value, Ordering::SeqCst);
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

/// Node and sandbox, in every order of their steps after an offer: the node's request is served
/// once, by a guest that polled or by a message, and it is never wiped away.
#[test]
fn exactly_one_of_them_has_it() {
    loom::model(|| {
        let word = Arc::new(Modelled::new(COLD));
        let owner = Owner(word.clone());
        owner.offer();
        // The request in the mailbox, the word that a polling guest reads, and an order.
        let [request, go, order] = [(); 3].map(|()| Arc::new(Modelled::new(0)));
        let sandbox = {
            let (owner, request, go) = (Owner(word), request.clone(), go.clone());
            loom::thread::spawn(move || {
                // The guest polls once, and rings: it has found no request.
                if go.get() == 0 && owner.take_back() {
                    request.set(0);
                    owner.left();
                    return false;
                }
                assert!(owner.is_claimed());
                // The guest continues, and polls until the request is announced.
                while go.get() == 0 {
                    loom::thread::yield_now();
                }
                assert_eq!(request.get(), 1);
                true
            })
        };
        let is_claimed = owner.claim();
        while owner.is_leaving() {
            loom::thread::yield_now();
        }
        request.set(1);
        if is_claimed {
            go.set(1)
        } else {
            order.set(1)
        }
        let was_found = sandbox.join().unwrap();
        assert_eq!(was_found, is_claimed);
        assert_eq!(order.get() == 1, !was_found);
        assert_eq!(request.get(), 1);
    });
}

/// The order to reset an instance arrives once, by the word or by a message, in every order of
/// steps. If it arrives by the word, its fields are there.
#[test]
fn an_order_comes_by_one_of_both_ways() {
    loom::model(|| {
        let word = Arc::new(Modelled::new(NONE));
        let [fields, message] = [(); 2].map(|()| Arc::new(Modelled::new(0)));
        let sandbox = {
            let (order, fields, message) = (Order(word.clone()), fields.clone(), message.clone());
            loom::thread::spawn(move || {
                // The guest is done: the sandbox polls, and then sleeps unless there is an order.
                if order.take() || (!order.sleep() && order.take()) {
                    assert_eq!(fields.load(Ordering::Relaxed), 7);
                    assert_eq!(message.get(), 0);
                    return true;
                }
                while message.get() == 0 {
                    loom::thread::yield_now();
                }
                order.wake();
                false
            })
        };
        let order = Order(word);
        fields.store(7, Ordering::Relaxed);
        let was_given = order.give();
        if !was_given {
            message.set(1);
        }
        assert_eq!(sandbox.join().unwrap(), was_given);
        assert!(!order.is_untaken());
    });
}

#[test]
fn orders_and_reports_arrive_as_they_were_written() {
    let file = memfd_create("control", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, FILE_BYTES).unwrap();
    let (node, sandbox) = (Control::map(&file).unwrap(), Control::map(&file).unwrap());
    assert!(sandbox.take_order().is_none());
    let order = Reset {
        count_unused: true.into(),
        poll_nanoseconds: 8,
        wall_epoch_nanoseconds: 9,
    };
    assert!(node.order(&order) && node.has_untaken_order());
    assert!(!sandbox.sleep());
    let taken = sandbox.take_order().unwrap();
    assert!(taken.count_unused.is_yes() && !node.has_untaken_order());
    assert_eq!(
        (taken.poll_nanoseconds, taken.wall_epoch_nanoseconds),
        (8, 9)
    );
    assert!(sandbox.sleep());
    assert!(!node.order(&order) && sandbox.take_order().is_none());
    sandbox.wake();
    assert!(node.order(&order));
    let warm = WarmReport {
        filled: 1,
        outside: 2,
        counted: true.into(),
        unused: 3,
        exits: 4,
        page_faults: 5,
        nanoseconds: 6,
        polled_nanoseconds: 0,
        is_offered: Answer::Yes,
    };
    sandbox.report(&warm);
    assert_eq!(node.told().as_bytes(), warm.as_bytes());
}

/// A sandbox that notices a claim late does not take it for anything else, whatever the node has
/// wanted or refused by then.
#[test]
fn who_was_claimed_sees_it_however_late() {
    loom::model(|| {
        let word = Arc::new(Modelled::new(COLD));
        let owner = Owner(word.clone());
        owner.offer();
        let node = loom::thread::spawn(move || {
            let owner = Owner(word);
            owner.claim() && owner.want() && owner.refuse() == Refusal::Unwanted
        });
        let is_taken_back = owner.take_back();
        if !is_taken_back {
            assert!(owner.is_claimed());
        }
        assert_eq!(node.join().unwrap(), !is_taken_back);
    });
}

/// A node that wants an instance gets it without polling for ever: it claims the instance, or a
/// message says that it can, in every order of steps.
#[test]
fn who_wants_it_has_it_or_is_told() {
    loom::model(|| {
        let word = Arc::new(Modelled::new(TAKEN));
        let message = Arc::new(Modelled::new(0));
        let sandbox = {
            let (owner, message) = (Owner(word.clone()), message.clone());
            loom::thread::spawn(move || {
                let is_wanted = owner.offer() == Offer::Wanted;
                message.set(u32::from(is_wanted));
            })
        };
        let owner = Owner(word);
        let mut has_it = owner.claim();
        let is_told = !has_it && owner.want();
        if !has_it && !is_told {
            // The instance was offered between the two.
            has_it = owner.claim();
            assert!(has_it);
        }
        sandbox.join().unwrap();
        assert_eq!(message.get() == 1, is_told);
        assert!(has_it || owner.claim());
    });
}

#[test]
fn both_sides_see_one_page() {
    let file = memfd_create("control", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, FILE_BYTES).unwrap();
    let (node, sandbox) = (Control::map(&file).unwrap(), Control::map(&file).unwrap());
    assert!(!node.claim(1), "nothing was offered");
    assert_eq!(sandbox.offer(70), Offer::Made);
    assert!(!sandbox.is_claimed() && node.is_offered());
    assert!(node.claim(77) && node.offered_at() == 70 && !node.is_offered());
    assert!(sandbox.is_claimed() && sandbox.claimed_at() == 77);
    assert!(!node.claim(78) && !sandbox.take_back());
    assert!(node.want());
    assert_eq!(sandbox.offer(78), Offer::Wanted);
    assert_eq!(node.refuse(), Refusal::TooLate, "it is offered");
    assert!(sandbox.take_back());
    assert!(!node.claim(79) && !sandbox.is_claimed() && node.is_leaving() && node.is_offered());
    sandbox.left();
    assert!(!node.claim(80) && !node.is_leaving() && !node.is_offered());
    assert_eq!(node.refuse(), Refusal::Made);
    assert!(!node.want());
    assert_eq!(sandbox.offer(81), Offer::Refused);
    assert!(!node.claim(82) && !sandbox.is_claimed());
    assert_eq!(sandbox.offer(83), Offer::Made, "once");
}

/// An instance that is refused is warm, unless it was offered before and can be claimed. After a
/// refusal in time, a message that the node had asked for is not sent. The two sides never differ
/// on which happened.
#[test]
fn who_refuses_it_has_it_warm_unless_it_was_offered() {
    for is_wanted in [false, true] {
        loom::model(move || {
            let word = Arc::new(Modelled::new(TAKEN));
            let sandbox = {
                let owner = Owner(word.clone());
                loom::thread::spawn(move || owner.offer())
            };
            let owner = Owner(word);
            let is_told = is_wanted && owner.want();
            let refusal = owner.refuse();
            let is_refused = refusal != Refusal::TooLate;
            // A node that gets a message about an offer has not refused it.
            assert_eq!(refusal == Refusal::Unwanted, is_told && is_refused);
            assert!(!(is_refused && owner.claim()));
            let offer = sandbox.join().unwrap();
            assert_eq!(offer == Offer::Refused, is_refused);
            if !is_refused {
                assert_eq!(offer == Offer::Wanted, is_told);
            }
            assert_eq!(owner.claim(), !is_refused);
        });
    }
}

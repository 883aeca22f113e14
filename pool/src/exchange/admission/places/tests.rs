use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use super::*;

fn of(function: FunctionNumber) -> Wanted {
    Wanted {
        function,
        memory: 1,
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn take(places: &Arc<Places>, function: FunctionNumber, count: usize) -> Vec<Place> {
    let taken = (0..count).map(|_| places.try_place(of(function)));
    taken.flatten().collect()
}

#[test]
fn a_function_that_is_alone_may_have_them_all() {
    let places = Places::new(16, 100, true);
    let all = take(&places, 1, 20);
    assert_eq!((all.len(), places.taken()), (16, 16));
    drop(all);
    assert_eq!((places.taken(), places.memory_taken()), (0, 0));
}

#[test]
fn the_last_ones_are_for_those_who_have_less_than_their_share() {
    let places = Places::new(16, 100, true);
    drop(places.try_place(of(2)));
    let greedy = take(&places, 1, 20);
    assert_eq!(greedy.len(), 14);
    assert!(places.has_room(of(2)) && !places.has_room(of(1)));
    assert_eq!(take(&places, 2, 3).len(), 2);
}

#[test]
fn a_place_that_comes_back_is_for_who_has_fewest() {
    let places = Places::new(4, 100, false);
    let mut of_one = take(&places, 1, 3);
    let of_two = take(&places, 2, 1);
    let mut first = pin!(places.place(of(1)));
    let mut second = pin!(places.place(of(2)));
    let mut third = pin!(places.place(of(2)));
    assert!(poll(first.as_mut()).is_none());
    assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
    assert_eq!(places.waiting(), 3);
    drop(of_one.pop());
    let second = poll(second).unwrap();
    assert!(poll(first.as_mut()).is_none() && poll(third.as_mut()).is_none());
    // Both have two now, and the first one came first.
    drop(of_two);
    assert!(poll(third.as_mut()).is_some());
    drop(second);
    assert!(poll(first).is_some());
}

#[test]
fn nobody_overtakes_those_who_wait() {
    let places = Places::new(1, 100, false);
    let held = places.try_place(of(1));
    let mut waiting = pin!(places.place(of(1)));
    assert!(poll(waiting.as_mut()).is_none());
    drop(held);
    assert!(places.try_place(of(1)).is_none());
    assert!(poll(waiting).is_some());
}

#[test]
fn whoever_stops_waiting_is_passed_over() {
    let places = Places::new(1, 100, false);
    let held = places.try_place(of(1));
    let mut waiting = {
        let mut left = Box::pin(places.place(of(1)));
        assert!(poll(left.as_mut()).is_none());
        Box::pin(places.place(of(1)))
    };
    assert!(poll(waiting.as_mut()).is_none());
    drop(held);
    let place = poll(waiting.as_mut()).unwrap();
    // One that has got its place and never looks gives it back.
    let mut waiting = Box::pin(places.place(of(1)));
    assert!(poll(waiting.as_mut()).is_none());
    drop(place);
    drop(waiting);
    assert_eq!((places.taken(), places.waiting()), (0, 0));
}

#[test]
fn memory_counts_as_places_do() {
    let places = Places::new(10, 100, false);
    let large = |memory| Wanted { memory, ..of(1) };
    let first = places.try_place(large(60)).unwrap();
    assert!(places.try_place(large(60)).is_none());
    let second = places.try_place(large(40)).unwrap();
    drop((first, second));
    // Larger than all there is: alone.
    let alone = places.try_place(large(200)).unwrap();
    assert!(places.try_place(large(1)).is_none());
    drop(alone);
    assert_eq!(places.memory_taken(), 0);
}

/// Several functions, one of which wants more memory than is free while others work.
#[test]
fn what_is_too_large_for_now_is_in_nobodys_way() {
    let places = Places::new(10, 100, false);
    let held = places.try_place(of(1)).unwrap();
    let mut large = Box::pin(places.place(Wanted {
        function: 2,
        memory: 100,
    }));
    assert!(poll(large.as_mut()).is_none());
    let other = places.try_place(of(1)).unwrap();
    let mut queued = Box::pin(places.place(of(3)));
    drop(poll(queued.as_mut()).unwrap());
    drop((held, other));
    assert!(poll(large.as_mut()).is_some());
}

#[test]
fn whoever_stops_waiting_leaves_nothing_behind() {
    let places = Places::new(1, 100, false);
    let held = places.try_place(of(1)).unwrap();
    for function in [1, 2] {
        let mut left = Box::pin(places.place(of(function)));
        assert!(poll(left.as_mut()).is_none());
        assert_eq!(places.waiting_of(function), 1);
        drop(left);
        assert_eq!((places.waiting(), places.waiting_of(function)), (0, 0));
    }
    assert_eq!(places.lock().functions.len(), 1);
    drop(held);
    assert!(places.lock().functions.is_empty());
}

#[test]
fn whoever_stops_waiting_lets_those_behind_it_come() {
    let places = Places::new(10, 100, false);
    let held = places.try_place(of(1)).unwrap();
    let mut large = Box::pin(places.place(Wanted {
        function: 2,
        memory: 100,
    }));
    let mut behind = Box::pin(places.place(of(2)));
    assert!(poll(large.as_mut()).is_none() && poll(behind.as_mut()).is_none());
    drop(large);
    assert!(poll(behind.as_mut()).is_some());
    drop(held);
}

#[test]
fn only_who_waits_or_was_given_a_place_wants_some() {
    let places = Places::new(16, 100, true);
    let held = take(&places, 1, 16);
    assert!(places.try_place(of(2)).is_none());
    drop(held);
    // Refused, so it is no reason to keep any free.
    assert_eq!(take(&places, 1, 16).len(), 16);
    let held = take(&places, 1, 16);
    let mut waiting = Box::pin(places.place(of(2)));
    assert!(poll(waiting.as_mut()).is_none());
    assert!(places.lock().is_wanted_by_others(1));
    drop(waiting);
    assert!(!places.lock().is_wanted_by_others(1));
    drop(held);
}

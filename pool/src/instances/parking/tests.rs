//! Requests that wait for instances, as far as the tests need no instance for that.

use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::instances::ParkingRules;

fn parking() -> Arc<Parking> {
    Keeper::of_tests(ParkingRules::of_tests(), Duration::ZERO).parking(None)
}

/// Announces an instance whose guest polls for a request, or will.
fn looking(parking: &Arc<Parking>) -> Coming {
    let mut coming = parking.announce(1).unwrap();
    coming.look_out();
    coming
}

#[tokio::test]
async fn nobody_waits_for_what_another_request_has() {
    let parking = parking();
    let first = looking(&parking);
    let mut hot = parking.wait_for_hot().unwrap();
    let held = first.take_waiting().unwrap();
    assert!(parking.wait().is_none(), "it is for that one");
    let second = parking.announce(1).unwrap();
    let mut other = parking.wait().unwrap();
    assert!(parking.wait().is_none());
    // The end of an announcement is noticed at once, whichever request has the other instance.
    drop(second);
    assert_eq!(other.try_recv().unwrap_err(), TryRecvError::Closed);
    assert_eq!(hot.try_recv().unwrap_err(), TryRecvError::Empty);
    first.give_back(held);
    assert!(parking.wait().is_none());
    assert_eq!(hot.try_recv().unwrap_err(), TryRecvError::Empty);
    drop(first);
    assert_eq!(hot.try_recv().unwrap_err(), TryRecvError::Closed);
}

#[tokio::test]
async fn one_that_goes_makes_room_for_another() {
    let parking = parking();
    let first = looking(&parking);
    let hot = parking.wait_for_hot().unwrap();
    let mut held = first.take_waiting().unwrap();
    assert!(parking.wait_for_hot().is_none());
    drop(hot);
    held.gone().await;
    assert!(held.is_closed());
    drop(held);
    // However often it finds no request, it is listed once.
    assert!(first.take_waiting().is_none() && first.take_waiting().is_none());
    let mut next = parking.wait_for_hot().unwrap();
    assert!(parking.wait_for_hot().is_none() && parking.wait().is_none());
    drop(first.take_waiting().unwrap());
    assert_eq!(next.try_recv().unwrap_err(), TryRecvError::Closed);
    assert!(parking.wait().is_some());
}

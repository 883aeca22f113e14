//! Requests that wait for instances, as far as the tests need no instance for that.

use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::instances::WarmRules;

fn warm_instances() -> Arc<WarmInstances> {
    Keeper::of_tests(WarmRules::of_tests(), Duration::ZERO).warm_instances(None)
}

/// Announces an instance whose guest polls for a request, or will.
fn hot(warm_instances: &Arc<WarmInstances>) -> PendingInstance {
    let mut pending = warm_instances.announce(1).unwrap();
    pending.list_as_hot();
    pending
}

#[tokio::test]
async fn no_request_waits_for_an_instance_assigned_to_another() {
    let warm_instances = warm_instances();
    let first = hot(&warm_instances);
    let mut hot = warm_instances.wait_for_hot().unwrap();
    let assigned = first.assign_request().unwrap();
    assert!(warm_instances.wait().is_none(), "it is for that one");
    let second = warm_instances.announce(1).unwrap();
    let mut other = warm_instances.wait().unwrap();
    assert!(warm_instances.wait().is_none());
    // The end of an announcement is noticed at once, whichever request has the other instance.
    drop(second);
    assert_eq!(other.try_recv().unwrap_err(), TryRecvError::Closed);
    assert_eq!(hot.try_recv().unwrap_err(), TryRecvError::Empty);
    first.requeue(assigned);
    assert!(warm_instances.wait().is_none());
    assert_eq!(hot.try_recv().unwrap_err(), TryRecvError::Empty);
    drop(first);
    assert_eq!(hot.try_recv().unwrap_err(), TryRecvError::Closed);
}

#[tokio::test]
async fn a_request_that_leaves_frees_its_instance_for_another() {
    let warm_instances = warm_instances();
    let first = hot(&warm_instances);
    let hot = warm_instances.wait_for_hot().unwrap();
    let mut assigned = first.assign_request().unwrap();
    assert!(warm_instances.wait_for_hot().is_none());
    drop(hot);
    assigned.closed().await;
    assert!(assigned.is_closed());
    drop(assigned);
    // However often it finds no request, it is listed once.
    assert!(first.assign_request().is_none() && first.assign_request().is_none());
    let mut next = warm_instances.wait_for_hot().unwrap();
    assert!(warm_instances.wait_for_hot().is_none() && warm_instances.wait().is_none());
    drop(first.assign_request().unwrap());
    assert_eq!(next.try_recv().unwrap_err(), TryRecvError::Closed);
    assert!(warm_instances.wait().is_some());
}

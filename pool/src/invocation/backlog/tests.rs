use std::time::Duration;

use super::*;

const KIB: u64 = 1 << 10;

fn backlog(node: u64, function: u64, connection: u64) -> Arc<Backlog> {
    Backlog::new(BacklogLimits {
        node: node * KIB,
        function: function * KIB,
        connection: connection * KIB,
    })
}

fn account(node: &Arc<Backlog>) -> Account {
    Account::new(node.function(), node.connection())
}

#[test]
fn a_lease_lasts_as_long_as_any_piece_of_the_bytes() {
    let node = backlog(1000, 1000, 1000);
    let account = account(&node);
    let lease = account.try_lease(100 * KIB).unwrap();
    let mut bytes = lease.hold(Bytes::from(vec![0; 100 << 10]));
    let piece = bytes.split_to(10);
    drop(bytes);
    assert_eq!(node.held(), 100 * KIB);
    assert_eq!(account.connection.held(), 100 * KIB);
    drop(piece);
    assert_eq!((node.held(), account.connection.held()), (0, 0));
    assert_eq!(account.function.held.load(Ordering::Relaxed), 0);
}

#[test]
fn every_budget_is_enforced_and_a_refusal_takes_nothing() {
    let node = backlog(800, 400, 200);
    let one = account(&node);
    let first = one.try_lease(150 * KIB).unwrap();
    assert!(one.try_lease(100 * KIB).is_none(), "the connection's");
    assert_eq!(one.connection.held(), 150 * KIB);
    let of_the_same = Account::new(one.function.clone(), node.connection());
    let second = of_the_same.try_lease(200 * KIB).unwrap();
    let third = Account::new(one.function.clone(), node.connection());
    assert!(third.try_lease(100 * KIB).is_none(), "the function's");
    assert_eq!((node.held(), third.connection.held()), (350 * KIB, 0));
    let others: Vec<_> = (0..2)
        .map(|_| account(&node).try_lease(170 * KIB))
        .collect();
    assert!(others.iter().all(Option::is_some));
    assert!(account(&node).try_lease(100 * KIB).is_none(), "the node's");
    drop((first, second, others));
    assert_eq!(node.held(), 0);
}

#[test]
fn the_last_eighth_is_for_connections_that_hold_little() {
    let node = backlog(800, 800, 700);
    let greedy = account(&node);
    let most = greedy.try_lease(700 * KIB).unwrap();
    assert!(account(&node).try_lease(80 * KIB).is_none());
    let small = account(&node).try_lease(60 * KIB);
    assert!(small.is_some());
    drop((most, small));
}

#[tokio::test]
async fn a_waiting_task_gets_room_when_some_is_freed() {
    let node = backlog(800, 800, 800);
    let first = account(&node);
    let held = first.try_lease(700 * KIB).unwrap();
    first.connection.moves(u64::MAX / 2);
    let waiting = tokio::spawn({
        let second = account(&node);
        async move { second.lease(600 * KIB).await.bytes }
    });
    while node.waiting.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    drop(held);
    assert_eq!(waiting.await.unwrap(), 600 * KIB);
    assert_eq!(node.held(), 0);
}

/// Waits until a lease of `bytes` is granted, which happens when the connections that are closed
/// release what they hold. Returns which connections were closed.
async fn closed_for(node: &Arc<Backlog>, held: Vec<(Account, Lease)>, bytes: u64) -> Vec<usize> {
    let wanting = account(node);
    let lease = wanting.lease(bytes);
    let mut lease = std::pin::pin!(lease);
    let mut held: Vec<_> = held.into_iter().map(Some).collect();
    let mut closed = Vec::new();
    let done = loop {
        if let Ok(lease) = timeout(LOOK_AGAIN, &mut lease).await {
            break lease;
        }
        for (place, slot) in held.iter_mut().enumerate() {
            if slot
                .as_ref()
                .is_some_and(|(of, _)| of.connection.is_closed())
            {
                closed.push(place);
                *slot = None;
            }
        }
    };
    drop(done);
    closed
}

#[tokio::test(start_paused = true)]
async fn stalled_connections_are_closed_before_one_that_moves() {
    let node = backlog(1600, 1600, 700);
    let moving = account(&node);
    let stalled = account(&node);
    let held = [(&moving, 600), (&stalled, 500), (&stalled, 100)].map(|(of, bytes)| {
        let lease = of.try_lease(bytes * KIB).unwrap();
        (of.clone(), lease)
    });
    let walking = moving.connection.clone();
    let moves = tokio::spawn(async move {
        loop {
            walking.moves(KIB);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    });
    let closed = closed_for(&node, held.into(), 400 * KIB).await;
    moves.abort();
    assert_eq!(closed, [1, 2]);
    assert_eq!(node.closed(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_small_stalled_connections_are_closed_together() {
    let node = backlog(1600, 1600, 700);
    let held: Vec<_> = (0..25)
        .map(|_| {
            let of = account(&node);
            let lease = of.try_lease(60 * KIB).unwrap();
            (of, lease)
        })
        .collect();
    // A connection that holds next to nothing is served meanwhile.
    let tiny = account(&node).try_lease(8 * KIB).unwrap();
    let begun = Instant::now();
    let closed = closed_for(&node, held, 400 * KIB).await;
    assert!((4..25).contains(&closed.len()), "{closed:?}");
    assert!(begun.elapsed() < Duration::from_secs(3));
    drop(tiny);
    assert_eq!(node.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn if_no_connection_is_stalled_the_slowest_is_closed() {
    let node = backlog(1600, 1600, 800);
    let (slow, quick) = (account(&node), account(&node));
    let held = [&slow, &quick].map(|of| (of.clone(), of.try_lease(650 * KIB).unwrap()));
    let both = [slow.connection.clone(), quick.connection.clone()];
    let moves = tokio::spawn(async move {
        loop {
            both[0].moves(10);
            both[1].moves(100 * KIB);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    });
    let closed = closed_for(&node, held.into(), 400 * KIB).await;
    moves.abort();
    assert_eq!(closed, [0]);
}

#[tokio::test(start_paused = true)]
async fn a_full_connection_closes_no_other_connection() {
    let node = backlog(800, 800, 200);
    let other = account(&node);
    let others = other.try_lease(200 * KIB);
    let full = account(&node);
    let own = full.try_lease(200 * KIB);
    let more = timeout(2 * LOOK_AGAIN, full.lease(100 * KIB)).await;
    assert!(more.is_err());
    assert_eq!(node.closed(), 0);
    drop((own, others));
}

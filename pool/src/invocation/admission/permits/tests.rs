use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::*;

const MIB: u64 = 1 << 20;

/// The memory that an instance of a function with the default limit may use.
const USUAL: u64 = 144 * MIB;

fn of(function: FunctionNumber) -> PermitRequest {
    PermitRequest {
        function,
        memory: 1,
    }
}

fn sized(function: FunctionNumber, memory: u64) -> PermitRequest {
    PermitRequest { function, memory }
}

/// A pool without a reserve.
fn plain(permits: usize, memory: u64) -> Arc<AdmissionPermits> {
    AdmissionPermits::new(Amount { permits, memory })
}

/// The pool of a node that serves so many functions with negligible memory.
fn serving(functions: usize, permits: usize, memory: u64) -> Arc<AdmissionPermits> {
    serving_limits(&vec![0; functions], permits, memory)
}

/// The pool of a node that serves functions with these memory limits.
fn serving_limits(limits: &[u64], permits: usize, memory: u64) -> Arc<AdmissionPermits> {
    let served = Arc::<ServedFunctions>::default();
    limits.iter().for_each(|limit| served.add(*limit));
    AdmissionPermits::with_reserve(Amount { permits, memory }, served)
}

fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Takes permits until there is none, at most `count`.
fn take(
    pool: &Arc<AdmissionPermits>,
    request: PermitRequest,
    count: usize,
) -> Vec<AdmissionPermit> {
    (0..count).map_while(|_| pool.try_take(request)).collect()
}

/// Checks the invariants.
fn check(pool: &Arc<AdmissionPermits>) {
    let now = pool.now();
    let state = pool.lock();
    let functions = || state.functions.values();
    let held = functions().fold(Amount::default(), |sum, it| sum.plus(it.held));
    assert_eq!(held, state.used);
    let unmet: f64 = functions().map(|it| it.unmet.at(now)).sum();
    assert!((unmet - state.unmet.at(now)).abs() < 1e-6);
    assert!(state.queues.values().all(|queue| !queue.is_empty()));
    let waiting: usize = state.queues.values().map(|queue| queue.len()).sum();
    assert_eq!(waiting, state.waiting);
}

#[test]
fn a_function_that_is_alone_may_use_everything() {
    for pool in [serving(1, 16, 100), plain(16, 100)] {
        let all = take(&pool, of(1), 20);
        assert_eq!((all.len(), pool.used().permits), (16, 16));
        drop(all);
        assert_eq!(pool.used(), Amount::default());
    }
}

#[test]
fn a_function_leaves_an_eighth_of_permits_and_of_memory() {
    let by_permits = (serving(2, 16, 1 << 40), 1);
    let by_memory = (serving(2, 1 << 20, 16 * USUAL), USUAL);
    for (pool, memory) in [by_permits, by_memory] {
        let greedy = take(&pool, sized(1, memory), 20);
        assert_eq!(greedy.len(), 14);
        assert!(pool.has_free_permit(sized(2, memory)) && !pool.has_free_permit(sized(1, memory)));
        // A second function leaves as much as it has.
        let other = take(&pool, sized(2, memory), 20);
        assert_eq!(other.len(), 1);
        let third = take(&pool, sized(3, memory), 20);
        assert_eq!(third.len(), 1);
        check(&pool);
    }
}

/// 300 requests at once that do not end, with the default memory budget of a machine of 8 GiB.
#[test]
fn a_flood_rejects_no_occasional_request_of_a_neighbour() {
    let pool = serving(2, 256, 7168 * MIB);
    let flood = take(&pool, sized(1, USUAL), 300);
    assert_eq!(flood.len(), 43);
    for _ in 0..45 {
        let asked = pool.try_take(sized(2, USUAL));
        assert!(asked.is_some());
        assert!(pool.try_take(sized(1, USUAL)).is_none());
    }
    check(&pool);
}

#[test]
fn a_neighbour_grows_as_the_flood_ends_until_both_have_the_same() {
    let pool = serving(2, 32, 1 << 40);
    let mut flood = take(&pool, of(1), 40);
    assert_eq!(flood.len(), 28);
    let mut flooding: Vec<_> = (0..40).map(|_| Box::pin(pool.take(of(1)))).collect();
    let mut asking: Vec<_> = (0..40).map(|_| Box::pin(pool.take(of(2)))).collect();
    let mut other = Vec::new();
    for _ in 0..200 {
        drop(flood.pop());
        for (waiting, held) in [(&mut flooding, &mut flood), (&mut asking, &mut other)] {
            waiting.retain_mut(|it| match poll(it.as_mut()) {
                Some(permit) => {
                    held.push(permit);
                    false
                }
                None => true,
            });
        }
        check(&pool);
        if flooding.is_empty() {
            break;
        }
    }
    // Seven eighths of 32, in halves.
    assert!(other.len() >= 14, "{}", other.len());
}

#[tokio::test(start_paused = true)]
async fn a_function_that_was_refused_counts_as_one_that_wants_permits() {
    // The number of functions is known only from their requests.
    let pool = serving(0, 16, 1 << 40);
    let held = take(&pool, of(1), 16);
    assert_eq!(held.len(), 16);
    assert!(pool.try_take(of(2)).is_none());
    drop(held);
    let held = take(&pool, of(1), 16);
    assert_eq!(held.len(), 14);
    drop(held);
    // Demand that is not renewed is forgotten.
    tokio::time::advance(Duration::from_secs(120)).await;
    assert_eq!(take(&pool, of(1), 16).len(), 16);
}

#[tokio::test(start_paused = true)]
async fn permits_that_a_function_had_recently_stay_reserved_for_a_while() {
    let pool = serving(2, 64, 1 << 40);
    drop(take(&pool, of(2), 24));
    let flood = take(&pool, of(1), 64);
    assert_eq!(flood.len(), 64 - 24);
    assert!(take(&pool, of(2), 24).len() >= 12);
    drop(flood);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(take(&pool, of(1), 64).len(), 56);
    check(&pool);
}

/// A function whose demand comes and goes keeps others from no more than the half that they may
/// always have, and one of many from less.
#[tokio::test(start_paused = true)]
async fn demand_without_use_takes_no_fair_share() {
    for hostile in [1, 20] {
        let pool = serving(hostile + 1, 64, 1 << 40);
        let mut least = usize::MAX;
        for _ in 0..20 {
            for function in 1..=hostile as u64 {
                let all = take(&pool, of(function), 64);
                let refused: Vec<_> = (0..64).map(|_| pool.try_take(of(function))).collect();
                drop((all, refused));
            }
            tokio::time::advance(Duration::from_secs(1)).await;
            least = least.min(take(&pool, of(100), 64).len());
            check(&pool);
        }
        assert!(least >= 32, "{hostile}: {least}");
    }
}

#[test]
fn functions_that_come_together_leave_some_for_the_next() {
    let pool = serving(9, 128, 128 * USUAL);
    let mut held = Vec::new();
    for function in 1..=4 {
        held.push(take(&pool, sized(function, USUAL), 200));
    }
    let counts: Vec<_> = held.iter().map(Vec::len).collect();
    assert_eq!(counts, [112, 8, 4, 2]);
    assert!(pool.try_take(sized(9, USUAL)).is_some());
}

#[test]
fn a_large_request_fills_the_reserve_until_others_have_returned_as_much() {
    let pool = serving(9, 128, 128 * USUAL);
    let mut flood = take(&pool, sized(1, USUAL), 200);
    let large = pool.try_take(sized(2, 16 * USUAL));
    assert!(large.is_some() && pool.try_take(sized(9, USUAL)).is_none());
    for _ in 0..16 {
        drop(flood.pop());
        assert!(pool.try_take(sized(1, USUAL)).is_none());
        assert!(pool.try_take(sized(9, USUAL)).is_some());
    }
}

#[test]
fn a_small_node_keeps_room_for_one() {
    for (memory, size, most) in [(512, USUAL, 2), (1792, 20 * MIB, 78), (768, 17 * MIB, 36)] {
        let pool = serving_limits(&[128 * MIB, 4 * MIB], 256, memory * MIB);
        let flood = take(&pool, sized(1, size), 300);
        assert_eq!(flood.len(), most, "{memory}");
        assert!(pool.try_take(sized(2, USUAL)).is_some());
    }
    // If one or two requests fit, any function may use them.
    for permits in [1, 2] {
        assert_eq!(take(&serving(2, permits, 1 << 40), of(1), 9).len(), permits);
    }
    assert_eq!(take(&serving(2, 3, 1 << 40), of(1), 9).len(), 2);
}

#[test]
fn a_returned_permit_is_for_the_function_with_the_smallest_share() {
    let pool = plain(4, 100);
    let mut of_one = take(&pool, of(1), 3);
    let of_two = take(&pool, of(2), 1);
    let mut first = pin!(pool.take(of(1)));
    let mut second = pin!(pool.take(of(2)));
    let mut third = pin!(pool.take(of(2)));
    assert!(poll(first.as_mut()).is_none());
    assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
    assert_eq!(pool.waiting(), 3);
    drop(of_one.pop());
    let second = poll(second).unwrap();
    assert!(poll(first.as_mut()).is_none() && poll(third.as_mut()).is_none());
    drop(of_two);
    assert!(poll(third.as_mut()).is_some());
    drop(second);
    assert!(poll(first).is_some());
}

#[test]
fn no_request_passes_one_that_waits() {
    let pool = plain(1, 100);
    let held = pool.try_take(of(1));
    let mut waiting = pin!(pool.take(of(1)));
    assert!(poll(waiting.as_mut()).is_none());
    drop(held);
    assert!(pool.try_take(of(1)).is_none());
    assert!(poll(waiting).is_some());
}

#[test]
fn a_nested_request_passes_its_own_functions_queue_alone() {
    let pool = plain(3, 100);
    let mut held = take(&pool, of(1), 3);
    let mut own = pin!(pool.take(sized(1, 100)));
    assert!(poll(own.as_mut()).is_none());
    drop(held.pop());
    assert!(pool.try_take(of(1)).is_none());
    let nested = pool.try_take_nested(of(1));
    assert!(nested.is_some());
    let mut others = pin!(pool.take(of(2)));
    assert!(poll(others.as_mut()).is_none());
    drop(nested);
    let others = poll(others);
    assert!(others.is_some());
    let mut large = pin!(pool.take(sized(2, 50)));
    assert!(poll(large.as_mut()).is_none());
    drop(held.pop());
    assert!(poll(large.as_mut()).is_some());
}

#[test]
fn a_request_that_stops_waiting_is_passed_over() {
    let pool = plain(1, 100);
    let held = pool.try_take(of(1));
    let mut waiting = {
        let mut left = Box::pin(pool.take(of(1)));
        assert!(poll(left.as_mut()).is_none());
        Box::pin(pool.take(of(1)))
    };
    assert!(poll(waiting.as_mut()).is_none());
    drop(held);
    let permit = poll(waiting.as_mut()).unwrap();
    // A future that has its permit and is not polled again returns it.
    let mut waiting = Box::pin(pool.take(of(1)));
    assert!(poll(waiting.as_mut()).is_none());
    drop(permit);
    drop(waiting);
    assert_eq!((pool.used().permits, pool.waiting()), (0, 0));
}

#[test]
fn memory_counts_as_permits_do() {
    let pool = plain(10, 100);
    let first = pool.try_take(sized(1, 60)).unwrap();
    assert!(pool.try_take(sized(1, 60)).is_none());
    let second = pool.try_take(sized(1, 40)).unwrap();
    drop((first, second));
    // A request for more than there is runs alone.
    let alone = pool.try_take(sized(1, 200)).unwrap();
    assert!(pool.try_take(of(1)).is_none());
    drop(alone);
    assert_eq!(pool.used().memory, 0);
}

#[test]
fn a_large_request_holds_up_no_function_that_has_less() {
    for pool in [plain(10, 100), serving(3, 10, 100)] {
        let held = pool.try_take(of(1)).unwrap();
        let mut large = Box::pin(pool.take(sized(2, 100)));
        assert!(poll(large.as_mut()).is_none());
        let other = pool.try_take(of(1)).unwrap();
        let mut queued = Box::pin(pool.take(of(3)));
        drop(poll(queued.as_mut()).unwrap());
        drop((held, other));
        assert!(poll(large.as_mut()).is_some());
    }
}

#[test]
fn a_large_request_gathers_memory_before_functions_that_would_have_more() {
    let pool = serving(3, 100, 100);
    let mut flood = take(&pool, sized(1, 5), 100);
    assert_eq!(flood.len(), 17);
    let mut large = Box::pin(pool.take(sized(2, 25)));
    assert!(poll(large.as_mut()).is_none());
    let mut refused = 0;
    while poll(large.as_mut()).is_none() {
        // A function with less goes on meanwhile.
        assert!(pool.try_take(sized(3, 5)).is_some());
        drop(flood.pop());
        let again = take(&pool, sized(1, 5), 1);
        refused += usize::from(again.is_empty());
        flood.extend(again);
        check(&pool);
    }
    assert!(refused > 0);
    assert_eq!(flood.len(), (100 - 25) / 5);
}

#[test]
fn a_request_that_stops_waiting_leaves_nothing_behind() {
    let pool = plain(1, 100);
    let held = pool.try_take(of(1)).unwrap();
    for function in [1, 2] {
        let mut left = Box::pin(pool.take(of(function)));
        assert!(poll(left.as_mut()).is_none());
        assert_eq!(pool.waiting_of(function), 1);
        drop(left);
        assert_eq!((pool.waiting(), pool.waiting_of(function)), (0, 0));
    }
    assert_eq!(pool.lock().functions.len(), 1);
    drop(held);
    let state = pool.lock();
    assert!(state.functions.is_empty() && state.queues.is_empty());
}

#[test]
fn a_request_that_stops_waiting_lets_those_behind_it_pass() {
    let pool = plain(10, 100);
    let held = pool.try_take(of(1)).unwrap();
    let mut large = Box::pin(pool.take(sized(2, 100)));
    let mut behind = Box::pin(pool.take(of(2)));
    assert!(poll(large.as_mut()).is_none() && poll(behind.as_mut()).is_none());
    drop(large);
    assert!(poll(behind.as_mut()).is_some());
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn functions_that_came_once_are_forgotten() {
    let pool = serving(1000, 256, 1 << 40);
    for function in 0..10_000 {
        drop(pool.try_take(of(function)).unwrap());
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    check(&pool);
    let remembered = pool.lock().functions.len();
    assert!(remembered <= 3 * 64, "{remembered}");
}

/// Random requests of ten functions, sizes and ends: the books balance at any time, no function
/// that holds nothing is refused one small request while a single other one holds permits, and
/// everything is free at the end.
#[tokio::test(start_paused = true)]
async fn counts_balance_under_random_requests() {
    let pool = serving(10, 40, 40 * USUAL);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for _ in 0..20_000 {
        let request = sized(next(10), USUAL << next(5) >> next(3));
        match next(6) {
            0 | 1 => held.extend(pool.try_take(request)),
            2 => held.extend(pool.try_take_nested(request)),
            3 => waiting.push(Box::pin(pool.take(request))),
            4 if !held.is_empty() => drop(held.swap_remove(next(held.len() as u64) as usize)),
            _ if !waiting.is_empty() => {
                let index = next(waiting.len() as u64) as usize;
                let mut left = waiting.swap_remove(index);
                held.extend(poll(left.as_mut()));
            }
            _ => tokio::time::advance(Duration::from_millis(next(3000))).await,
        }
        check(&pool);
        let holders = pool.held_by_each();
        let holders = || holders.values().filter(|it| it.permits > 0);
        if holders().count() == 1 && holders().all(|it| it.memory <= 40 * USUAL * 7 / 8) {
            assert!(pool.has_free_permit(sized(99, USUAL)));
        }
    }
    drop((held, waiting));
    assert_eq!((pool.used(), pool.waiting()), (Amount::default(), 0));
}

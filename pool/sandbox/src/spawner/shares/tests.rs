//! Tests of weights as a function of run times.

use super::*;

const HOG: u64 = 1;
const NEIGHBOUR: u64 = 2;
const OTHER: u64 = 3;
const PROCESSORS: u64 = 2;

/// Returns the run time of one look. Both numbers are in thousandths: sandboxes that want to run,
/// and processors in use.
fn did(wanting: u64, using: u64) -> RunTime {
    let of = |thousandths: u64| thousandths * TICK.as_nanos() as u64 / ONE;
    RunTime {
        ran: of(using),
        waited: of(wanting - using),
    }
}

fn look(shares: &mut Shares, did: &[(u64, RunTime)], looks: u32) {
    let did: BTreeMap<u64, RunTime> = did.iter().copied().collect();
    for _ in 0..looks {
        // The sandboxes alone use processors here.
        let used: u64 = did.values().map(|did| did.ran).sum();
        let all = TICK.as_nanos() as u64 * shares.processors;
        let reserved = TICK * shares.reserved() as u32;
        let idle = Duration::from_nanos(all.saturating_sub(used)).min(reserved);
        shares.look(TICK, &did, idle);
    }
}

fn of_all(shares: &Shares, function: u64, sandboxes: u64) -> u64 {
    shares.weight(function) * sandboxes
}

#[test]
fn without_contention_all_weigh_the_same_however_many_they_are() {
    let mut shares = Shares::new(PROCESSORS, true);
    let quiet = [(HOG, did(1500, 1500)), (NEIGHBOUR, did(400, 400))];
    look(&mut shares, &quiet, 100);
    let weights = [HOG, NEIGHBOUR, OTHER].map(|function| shares.weight(function));
    assert_eq!((weights, shares.are_contended()), ([WEIGHT_FULL; 3], false));
    assert_eq!(shares.tick(), TICK, "one more would be too many");
    look(&mut shares, &[], 20);
    assert_eq!(shares.tick(), TICK_QUIET);
}

#[test]
fn one_function_alone_takes_no_weight_from_the_node() {
    let mut shares = Shares::new(PROCESSORS, true);
    look(&mut shares, &[(HOG, did(24_000, 2000))], 50);
    assert!(!shares.are_contended());
    // A first request of another function finds it divided.
    assert_eq!(shares.weight(HOG), WEIGHT_FULL / 32);
    assert_eq!(shares.weight(NEIGHBOUR), WEIGHT_FULL);
}

#[test]
fn a_neighbour_outweighs_any_number_of_sandboxes_of_one_function() {
    for sandboxes in [3, 4, 24, 200, 256] {
        let mut shares = Shares::new(PROCESSORS, true);
        let both = [
            (HOG, did(sandboxes * ONE, 1900)),
            (NEIGHBOUR, did(500, 100)),
        ];
        look(&mut shares, &both, 50);
        assert!(shares.are_contended());
        assert_eq!(shares.weight(NEIGHBOUR), WEIGHT_FULL, "{sandboxes}");
        let hog = of_all(&shares, HOG, sandboxes);
        let held_back = WEIGHT_FULL >> HELD_BACK_MOST;
        assert!(
            hog <= held_back && hog >= held_back / 4,
            "{sandboxes} {hog}"
        );
    }
}

#[test]
fn no_weight_is_less_than_the_kernel_takes() {
    let mut shares = Shares::new(PROCESSORS, true);
    let both = [(HOG, did(1 << 30, 1900)), (NEIGHBOUR, did(500, 100))];
    look(&mut shares, &both, 50);
    assert_eq!(shares.weight(HOG), 1);
}

#[test]
fn functions_that_both_want_all_come_to_weigh_the_same() {
    let mut shares = Shares::new(PROCESSORS, true);
    let (many, few) = (200, 4);
    // The kernel gives each function its part of two processors by weight.
    for _ in 0..100 {
        let weights = (of_all(&shares, HOG, many), of_all(&shares, OTHER, few));
        let hog = (2 * ONE * weights.0 / (weights.0 + weights.1)).max(1);
        let both = [
            (HOG, did(many * ONE, hog)),
            (OTHER, did(few * ONE, (2 * ONE - hog).max(1))),
        ];
        look(&mut shares, &both, 1);
    }
    let (hog, other) = (of_all(&shares, HOG, many), of_all(&shares, OTHER, few));
    assert!(hog <= 3 * other && other <= 3 * hog, "{hog} {other}");
}

#[test]
fn weights_come_back_when_contention_has_ended_and_not_before_it_has_for_a_while() {
    let mut shares = Shares::new(PROCESSORS, true);
    let both = [(HOG, did(64_000, 1900)), (NEIGHBOUR, did(500, 100))];
    look(&mut shares, &both, 50);
    let weight = shares.weight(HOG);
    let calm = [(HOG, did(500, 500)), (NEIGHBOUR, did(500, 500))];
    let mut looks = 0;
    while shares.are_contended() {
        look(&mut shares, &calm, 1);
        looks += 1;
    }
    assert!(TICK * looks >= LINGER, "{looks}");
    assert!(weight < WEIGHT_FULL && shares.weight(HOG) == WEIGHT_FULL);
    // Functions that have ended are forgotten.
    look(&mut shares, &[], 400);
    assert!(shares.functions.is_empty());
}

#[test]
fn a_number_that_swings_by_little_changes_no_weight() {
    for wanting in [3900, 4100] {
        assert_eq!(divided(3, wanting), 3);
    }
    assert_eq!(divided(3, 2600), 2);
    assert_eq!(divided(0, 1), 0);
    assert_eq!((divided(0, 1001), divided(0, 200_000)), (1, 8));
    assert_eq!(divided(8, 0), 0);
}

#[test]
fn a_processor_is_reserved_for_a_neighbour_and_none_without_one() {
    for sandboxes in [3, 24, 200] {
        let mut shares = Shares::new(PROCESSORS, true);
        let hog = (HOG, did(sandboxes * ONE, 1600));
        look(&mut shares, &[hog], 50);
        assert_eq!(shares.processors(HOG), None, "alone with {sandboxes}");
        let both = [hog, (NEIGHBOUR, did(500, 300))];
        look(&mut shares, &both, 8);
        assert_eq!(shares.processors(HOG), Some(1), "{sandboxes}");
        assert_eq!(shares.processors(NEIGHBOUR), None, "{sandboxes}");
        // A few requests a second reserve nothing.
        let trickle = [hog, (NEIGHBOUR, did(20, 1))];
        let mut looks = 0;
        while shares.processors(HOG).is_some() {
            look(&mut shares, &trickle, 1);
            looks += 1;
        }
        assert!(
            TICK * looks >= LINGER && TICK * looks < 2 * LINGER,
            "{looks}"
        );
    }
}

#[test]
fn light_functions_have_as_many_processors_reserved_as_they_want_up_to_an_even_part() {
    for (want, reserved) in [(300, 1), (1300, 1), (1700, 2), (3700, 4)] {
        let mut shares = Shares::new(8, true);
        let both = [
            (HOG, did(64_000, 6000)),
            (NEIGHBOUR, did(want, want.min(1800))),
        ];
        look(&mut shares, &both, 20);
        assert_eq!(shares.processors(HOG), Some(8 - reserved), "{want}");
    }
    // Most of the wait is for its own sandboxes.
    let mut shares = Shares::new(8, true);
    let bursts = [(HOG, did(64_000, 6000)), (NEIGHBOUR, did(2500, 130))];
    look(&mut shares, &bursts, 20);
    assert_eq!(shares.processors(HOG), Some(7));
}

#[test]
fn nothing_is_reserved_under_a_quota() {
    let mut shares = Shares::new(PROCESSORS, false);
    let both = [(HOG, did(64_000, 1600)), (NEIGHBOUR, did(500, 300))];
    look(&mut shares, &both, 20);
    assert!(shares.are_contended());
    assert_eq!(shares.processors(HOG), None);
}

/// Shares processors among functions that have so many sandboxes which always want to run, as the
/// kernel does by weight. Returns the use of each, in thousandths.
fn greedy(shares: &Shares, processors: u64, functions: &[(u64, u64)]) -> Vec<(u64, RunTime)> {
    let weight = |(function, sandboxes): (u64, u64)| of_all(shares, function, sandboxes);
    let all: u64 = functions.iter().map(|one| weight(*one)).sum();
    let shared = functions.iter().map(|one| {
        let even = processors * ONE * weight(*one) / all;
        let most = shares.processors(one.0).unwrap_or(processors) * ONE;
        (one.0, did(one.1 * ONE, even.min(most).min(one.1 * ONE)))
    });
    shared.collect()
}

#[test]
fn functions_that_all_want_everything_reserve_nothing_from_each_other() {
    for (processors, sandboxes) in [
        (2, vec![20, 9]),
        (2, vec![3, 4]),
        (4, vec![33, 64]),
        (8, vec![33, 32, 48]),
    ] {
        let mut shares = Shares::new(processors, true);
        let functions: Vec<_> = (1..).zip(sandboxes).collect();
        for looks in 0..600 {
            let used = greedy(&shares, processors, &functions);
            look(&mut shares, &used, 1);
            // Weights are powers of two: a function may have less than its share until it has once
            // had a reserve.
            if looks < 30 {
                continue;
            }
            let limited = functions
                .iter()
                .any(|(function, _)| shares.processors(*function).is_some());
            assert!(!limited, "{processors} {functions:?}");
        }
        let used = greedy(&shares, processors, &functions);
        let least = used.iter().map(|(_, did)| did.ran).min().unwrap();
        let even = processors * TICK.as_nanos() as u64 / functions.len() as u64;
        assert!(2 * least > even, "{processors} {functions:?}: {least}");
    }
}

#[test]
fn a_burst_is_worked_off_beside_a_neighbour() {
    // Thousandths of a processor: both functions together need less than there is.
    let (steady, neighbour) = (1200, 200);
    let mut shares = Shares::new(PROCESSORS, true);
    // Requests of 10 ms; the queue is in milliseconds of run time.
    let mut queue = 500;
    let (mut was_limited, mut looks) = (false, 0);
    while looks < 1200 && (queue > steady / 10 || !was_limited) {
        queue += steady / 10;
        let most = shares.processors(HOG).unwrap_or(PROCESSORS) * ONE;
        let served = queue.min(most.min(PROCESSORS * ONE - neighbour) / 10);
        let sandboxes = (queue / 10).min(200) * ONE;
        queue -= served;
        let hog = did(sandboxes.max(10 * served), 10 * served);
        look(
            &mut shares,
            &[(HOG, hog), (NEIGHBOUR, did(300, neighbour))],
            1,
        );
        was_limited |= shares.processors(HOG).is_some();
        looks += 1;
    }
    assert!(was_limited, "the queue ended before anything was reserved");
    assert!(
        queue <= steady / 10,
        "{queue} ms are queued after {looks} looks"
    );
}

#[test]
fn heavy_functions_share_unreserved_processors_and_equal_functions_reserve_none() {
    let mut shares = Shares::new(PROCESSORS, true);
    let (hog, other) = ((HOG, did(9000, 800)), (OTHER, did(5000, 900)));
    look(&mut shares, &[hog, other], 50);
    assert_eq!([HOG, OTHER].map(|of| shares.processors(of)), [None; 2]);
    look(&mut shares, &[hog, other, (NEIGHBOUR, did(300, 200))], 50);
    let of = [HOG, OTHER, NEIGHBOUR].map(|of| shares.processors(of));
    assert_eq!(of, [Some(1), Some(1), None]);
}

#[test]
fn the_only_processor_is_never_reserved() {
    let mut shares = Shares::new(1, true);
    let both = [(HOG, did(64_000, 800)), (NEIGHBOUR, did(500, 100))];
    look(&mut shares, &both, 50);
    assert!(shares.are_contended());
    assert_eq!(shares.processors(HOG), None);
    assert!(shares.weight(HOG) < shares.weight(NEIGHBOUR));
}

#[test]
fn many_functions_that_want_little_do_not_make_a_moderate_one_heavy() {
    let mut shares = Shares::new(PROCESSORS, true);
    let mut all = vec![(HOG, did(20_000, 1200)), (OTHER, did(550, 500))];
    all.extend((10..60).map(|function| (function, did(3, 2))));
    look(&mut shares, &all, 50);
    assert_eq!(shares.processors(HOG), Some(1));
    assert_eq!(shares.processors(OTHER), None);
    assert_eq!(shares.weight(OTHER), WEIGHT_FULL);
}

/// A neighbour that waits behind a flood uses little, and a stall of a second is none of its end.
#[test]
fn a_starved_neighbour_has_its_reserve_and_keeps_it_through_a_stall() {
    let mut shares = Shares::new(PROCESSORS, true);
    let hog = (HOG, did(200 * ONE, 1950));
    look(&mut shares, &[hog, (NEIGHBOUR, did(900, 20))], 20);
    assert_eq!(shares.processors(HOG), Some(1));
    for _ in 0..LINGER.as_millis() / TICK.as_millis() - 1 {
        look(&mut shares, &[hog, (NEIGHBOUR, did(0, 0))], 1);
        assert_eq!(shares.processors(HOG), Some(1));
    }
    // With the reserve it is served at once.
    for _ in 0..200 {
        look(&mut shares, &[hog, (NEIGHBOUR, did(60, 50))], 1);
        assert_eq!(shares.processors(HOG), Some(1));
    }
}

/// The idle time of a reserve lowers the use of all together, not what each could have.
#[test]
fn a_neighbour_that_waits_does_not_count_as_heavy() {
    for (wanting, using) in [(700, 60), (1400, 60), (4000, 60), (1400, 700)] {
        let mut shares = Shares::new(PROCESSORS, true);
        let hog = (HOG, did(64 * ONE, 1950));
        look(&mut shares, &[hog, (NEIGHBOUR, did(wanting, 50))], 20);
        assert_eq!(shares.processors(HOG), Some(1), "{wanting}");
        let hog = (HOG, did(64 * ONE, 1000));
        for _ in 0..30 {
            look(&mut shares, &[hog, (NEIGHBOUR, did(wanting, using))], 1);
            assert_eq!(shares.processors(NEIGHBOUR), None, "{wanting}");
        }
    }
}

#[test]
fn a_reserve_ends_at_once_when_all_functions_are_heavy() {
    let mut shares = Shares::new(PROCESSORS, true);
    let hog = (HOG, did(200 * ONE, 1300));
    look(&mut shares, &[hog, (OTHER, did(200 * ONE, 300))], 20);
    assert_eq!(
        shares.processors(HOG),
        Some(1),
        "the other has less than its share"
    );
    let mut looks = 0;
    while shares.processors(HOG).is_some() {
        look(
            &mut shares,
            &[(HOG, did(200 * ONE, 900)), (OTHER, did(200 * ONE, 1050))],
            1,
        );
        looks += 1;
    }
    assert!(TICK * looks < LINGER, "{looks} looks");
}

#[test]
fn a_function_that_has_stopped_keeps_no_reserve() {
    let mut shares = Shares::new(PROCESSORS, true);
    let hog = (HOG, did(64 * ONE, 1600));
    look(&mut shares, &[hog, (NEIGHBOUR, did(16 * ONE, 300))], 20);
    assert_eq!(shares.processors(HOG), Some(1));
    let mut looks = 0;
    while shares.processors(HOG).is_some() {
        look(&mut shares, &[(HOG, did(64 * ONE, 1000))], 1);
        looks += 1;
    }
    assert!(TICK * looks <= LINGER, "{looks} looks");
}

/// A function alone on a reserved processor gets what it wants there, while two heavy functions
/// share the rest.
#[test]
fn a_function_that_fills_its_reserve_beside_heavy_ones_loses_it() {
    let mut shares = Shares::new(PROCESSORS, true);
    let hogs = |using| [HOG, OTHER].map(|hog| (hog, did(64 * ONE, using)));
    let [one, other] = hogs(900);
    look(&mut shares, &[one, other, (NEIGHBOUR, did(200, 100))], 50);
    assert_eq!(shares.processors(HOG), Some(1));
    let [one, other] = hogs(500);
    look(&mut shares, &[one, other, (NEIGHBOUR, did(1000, 990))], 20);
    assert_eq!(shares.processors(HOG), None);
}

#[test]
fn a_spark_now_and_then_does_not_keep_an_idle_reserve() {
    let mut shares = Shares::new(PROCESSORS, true);
    let hog = (HOG, did(64 * ONE, 1900));
    look(&mut shares, &[hog, (NEIGHBOUR, did(500, 100))], 10);
    assert_eq!(shares.processors(HOG), Some(1));
    let hog = (HOG, did(64 * ONE, 1000));
    let mut unlimited = 0;
    for looks in 0..200 {
        // A look is busy once in 2.5 s.
        let spark = if looks % 25 == 0 { 900 } else { 20 };
        look(&mut shares, &[hog, (NEIGHBOUR, did(spark, spark))], 1);
        unlimited += u32::from(shares.processors(HOG).is_none());
    }
    assert!(TICK * unlimited >= 2 * RESERVE_PAUSE, "{unlimited} looks");
}

#[test]
fn a_constant_value_is_its_own_average() {
    for value in [0, 1, 12, 13, 1000, 200_000] {
        let reached = (0..200).fold(0, |before, _| average(before, value));
        assert_eq!(reached, value);
        let reached = (0..200).fold(300_000, |before, _| average(before, value));
        assert_eq!(reached, value);
    }
}

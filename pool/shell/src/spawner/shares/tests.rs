//! Weights as a function of run times.

use super::*;

const HOG: u64 = 1;
const NEIGHBOUR: u64 = 2;
const OTHER: u64 = 3;
const PROCESSORS: u64 = 2;

/// Run time of one look, in thousandths: sandboxes that want to run, and processors in use.
fn did(wanting: u64, using: u64) -> Did {
    let of = |thousandths: u64| thousandths * TICK.as_nanos() as u64 / ONE;
    Did {
        ran: of(using),
        waited: of(wanting - using),
    }
}

fn look(shares: &mut Shares, did: &[(u64, Did)], looks: u32) {
    let did = did.iter().copied().collect();
    for _ in 0..looks {
        shares.look(TICK, &did);
    }
}

fn of_all(shares: &Shares, function: u64, sandboxes: u64) -> u64 {
    shares.weight(function) * sandboxes
}

#[test]
fn without_contention_all_weigh_the_same_however_many_they_are() {
    let mut shares = Shares::new(PROCESSORS);
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
    let mut shares = Shares::new(PROCESSORS);
    look(&mut shares, &[(HOG, did(24_000, 2000))], 50);
    assert!(!shares.are_contended());
    // A first request of another function finds it divided.
    assert_eq!(shares.weight(HOG), WEIGHT_FULL / 32);
    assert_eq!(shares.weight(NEIGHBOUR), WEIGHT_FULL);
}

#[test]
fn a_neighbour_outweighs_any_number_of_sandboxes_of_one_function() {
    for sandboxes in [3, 4, 24, 200, 256] {
        let mut shares = Shares::new(PROCESSORS);
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
    let mut shares = Shares::new(PROCESSORS);
    let both = [(HOG, did(1 << 30, 1900)), (NEIGHBOUR, did(500, 100))];
    look(&mut shares, &both, 50);
    assert_eq!(shares.weight(HOG), 1);
}

#[test]
fn functions_that_both_want_all_come_to_weigh_the_same() {
    let mut shares = Shares::new(PROCESSORS);
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
    let mut shares = Shares::new(PROCESSORS);
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
        let mut shares = Shares::new(PROCESSORS);
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
    for (want, reserved) in [(300, 1), (1300, 2), (3500, 4), (6000, 4)] {
        let mut shares = Shares::new(8);
        let both = [
            (HOG, did(64_000, 6000)),
            (NEIGHBOUR, did(want, want.min(1800))),
        ];
        look(&mut shares, &both, 50);
        assert_eq!(shares.processors(HOG), Some(8 - reserved), "{want}");
    }
}

#[test]
fn heavy_functions_share_what_is_not_reserved_and_functions_alike_reserve_nothing() {
    let mut shares = Shares::new(PROCESSORS);
    let (hog, other) = ((HOG, did(9000, 800)), (OTHER, did(5000, 900)));
    look(&mut shares, &[hog, other], 50);
    assert_eq!([HOG, OTHER].map(|of| shares.processors(of)), [None; 2]);
    look(&mut shares, &[hog, other, (NEIGHBOUR, did(300, 200))], 50);
    let of = [HOG, OTHER, NEIGHBOUR].map(|of| shares.processors(of));
    assert_eq!(of, [Some(1), Some(1), None]);
}

#[test]
fn the_only_processor_is_never_reserved() {
    let mut shares = Shares::new(1);
    let both = [(HOG, did(64_000, 800)), (NEIGHBOUR, did(500, 100))];
    look(&mut shares, &both, 50);
    assert!(shares.are_contended());
    assert_eq!(shares.processors(HOG), None);
    assert!(shares.weight(HOG) < shares.weight(NEIGHBOUR));
}

#[test]
fn many_functions_that_want_little_do_not_make_a_moderate_one_heavy() {
    let mut shares = Shares::new(PROCESSORS);
    let mut all = vec![(HOG, did(20_000, 1200)), (OTHER, did(550, 500))];
    all.extend((10..60).map(|function| (function, did(3, 2))));
    look(&mut shares, &all, 50);
    assert_eq!(shares.processors(HOG), Some(1));
    assert_eq!(shares.processors(OTHER), None);
    assert_eq!(shares.weight(OTHER), WEIGHT_FULL);
}

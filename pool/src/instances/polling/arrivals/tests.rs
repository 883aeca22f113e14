use super::super::slots::Polling;
use super::*;
use crate::stats::PollingStats;

const MOST: Duration = Duration::from_micros(200);

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

#[test]
fn polling_time_grows_while_requests_come_and_shrinks_otherwise() {
    let arrivals = Arrivals::new(MOST);
    assert_eq!(arrivals.bound(), Duration::ZERO);
    for bound in [20, 40, 80, 160, 160] {
        arrivals.note(micros(60));
        assert_eq!(arrivals.bound(), micros(bound));
    }
    for _ in 0..9 {
        arrivals.note(micros(190));
    }
    assert_eq!(arrivals.bound(), MOST);
    for bound in [100, 50, 25, 12, 0, 0] {
        arrivals.note(micros(201));
        assert_eq!(arrivals.bound().as_micros(), bound);
    }
    arrivals.note(micros(151));
    assert_eq!(arrivals.bound(), Duration::ZERO, "that is not begun with");
    arrivals.note(micros(150));
    assert_eq!(arrivals.bound(), FIRST_POLL);
    let off = Arrivals::new(Duration::ZERO);
    for _ in 0..9 {
        off.note(micros(1));
    }
    assert_eq!(off.bound(), Duration::ZERO, "polling is off");
}

#[test]
fn answers_are_polled_for_while_enough_are_prompt_and_occasionally_as_a_trial() {
    let arrivals = Arrivals::new(MOST);
    // However long answers took that the node did not poll for.
    arrivals.note_answer(micros(400), true);
    assert!(
        (0..2 * TRIAL_INTERVAL).all(|_| arrivals.is_quick()),
        "nothing is known"
    );
    for nth in 0..400 {
        arrivals.note_poll(nth % 2 == 0);
    }
    assert!(
        (0..2 * TRIAL_INTERVAL).all(|_| arrivals.is_quick()),
        "half of them"
    );
    for _ in 0..100 {
        arrivals.note_poll(false);
    }
    let looked = |arrivals: &Arrivals| {
        (0..2 * TRIAL_INTERVAL)
            .filter(|_| arrivals.is_quick())
            .count()
    };
    assert_eq!(looked(&arrivals), 2);
    for _ in 0..2 {
        arrivals.note_poll(true);
    }
    assert_eq!(looked(&arrivals), 2, "that was not enough");
    arrivals.note_poll(true);
    assert_eq!(looked(&arrivals), 2 * TRIAL_INTERVAL as usize);
}

#[test]
fn a_function_with_slow_answers_is_not_hot() {
    let arrivals = Arrivals::new(MOST);
    arrivals.note_answer(micros(80_000), true);
    assert!(arrivals.is_slow() || arrivals.is_slow());
    for _ in 0..64 {
        arrivals.note_answer(micros(5), false);
    }
    assert!(
        !arrivals.is_slow(),
        "one that was late does not count for ever"
    );
}

#[test]
fn a_function_polls_no_longer_than_its_share() {
    let (arrivals, begun) = (Arrivals::new(MOST), Instant::now());
    arrivals.note(micros(1));
    let polling = Polling::new(MOST, 2);
    assert_eq!(polling.bound(&arrivals), Some(FIRST_POLL));
    polling.charge(&arrivals, 2 * BUDGET_MAX, true);
    assert!(!arrivals.has_budget(begun));
    assert!(arrivals.has_budget(begun + BUDGET_MAX));
    arrivals.charge(BUDGET_MAX * CPU_SHARE / 100);
    assert!(!arrivals.has_budget(begun + BUDGET_MAX));
    let stats = PollingStats {
        found: 1,
        strayed: 0,
        cpu: 2 * BUDGET_MAX,
    };
    assert_eq!(polling.stats(), stats);
}

#[test]
fn a_function_that_strays_is_not_hot_for_long() {
    let (polling, arrivals) = (Polling::new(MOST, 2), Arrivals::new(MOST));
    let others = Arrivals::new(MOST);
    arrivals.note(micros(1));
    others.note(micros(1));
    let begun = Instant::now();
    assert_eq!(polling.bound(&arrivals), Some(FIRST_POLL));
    polling.note_stray(&arrivals);
    assert_eq!(polling.stats().strayed, 1);
    assert_eq!(polling.bound_at(&arrivals, begun + STRAY_HOLD_OFF), None);
    let later = Instant::now() + STRAY_HOLD_OFF;
    assert_eq!(polling.bound_at(&arrivals, later), Some(FIRST_POLL));
    assert_eq!(polling.bound(&others), Some(FIRST_POLL));
}

#[test]
fn no_instance_is_hot_for_a_while_after_one_had_no_processor() {
    let (polling, arrivals) = (Polling::new(MOST, 2), Arrivals::new(MOST));
    arrivals.note(micros(1));
    for held_off in [HOLD_OFF_LEAST, 2 * HOLD_OFF_LEAST, 4 * HOLD_OFF_LEAST] {
        let begun = Instant::now();
        arrivals.hold_off();
        let last = begun + held_off - Duration::from_nanos(1);
        assert_eq!(polling.bound_at(&arrivals, last), None);
        let now = Instant::now();
        assert_eq!(
            polling.bound_at(&arrivals, now + held_off),
            Some(FIRST_POLL)
        );
    }
    for _ in 0..16 {
        arrivals.hold_off();
    }
    let now = Instant::now();
    assert_eq!(
        polling.bound_at(&arrivals, now + HOLD_OFF_MOST),
        Some(FIRST_POLL)
    );
    arrivals.note_poll(true);
    arrivals.hold_off();
    let now = Instant::now();
    assert_eq!(
        polling.bound_at(&arrivals, now + HOLD_OFF_LEAST),
        Some(FIRST_POLL)
    );
    // This does not shorten the time after an instance has strayed.
    let begun = Instant::now();
    arrivals.note_stray();
    arrivals.hold_off();
    assert_eq!(polling.bound_at(&arrivals, begun + STRAY_HOLD_OFF), None);
}

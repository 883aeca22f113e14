use super::*;
use faasw_abi::memory_map::PAGE;

fn pages(start: u64, end: u64) -> PageRange {
    PageRange::of_bytes(start * PAGE, end * PAGE)
}

fn written(told: &[PageRange]) -> UsedPages {
    UsedPages {
        written: told.to_vec(),
        changed: told.iter().map(|range| range.count()).sum(),
        read: Vec::new(),
        code: Vec::new(),
    }
}

/// Returns a set that its first instance reported.
fn recorded(told: &[PageRange]) -> WorkingSet {
    let set = WorkingSet::of(Owner::Function(7));
    assert!(set.is_wanted());
    set.learn(0, &written(told), 100_000 * PAGE);
    assert!(!set.is_wanted());
    set
}

/// The report of a sandbox about its code, whose instance has written one page.
fn of_code(told: &[PageRange]) -> UsedPages {
    UsedPages {
        code: told.to_vec(),
        ..written(&[pages(1, 2)])
    }
}

fn learnt(told: &[PageRange]) -> Vec<PageRange> {
    recorded(told).current().written.ranges().to_vec()
}

#[test]
fn a_shared_seed_learns_no_working_set() {
    let set = WorkingSet::of(Owner::Shared);
    let lost = Misses {
        outside: 5000,
        unused: Some(1000),
    };
    for _ in 0..1000 {
        assert!(!set.is_wanted() && !set.count_reset());
        set.learn(0, &written(&[pages(1, 3)]), 100_000 * PAGE);
        set.note(0, lost);
    }
    let PageSets {
        written,
        read,
        code,
        generation,
    } = &*set.current();
    assert!(written.is_empty() && read.is_empty() && *generation == 0);
    assert!(code.is_empty());
}

/// Simulates one reset of an instance of the current set.
fn reset(set: &WorkingSet, outside: u64, unused: u64) {
    let unused = set.count_reset().then_some(unused);
    set.note(set.current().generation, Misses { outside, unused });
}

/// Resets with `unused` until the set is forgotten, at most `most`.
fn until_forgotten(set: &WorkingSet, unused: u64, most: u32) -> Option<u32> {
    let generation = set.current().generation;
    (1..=most).find(|_| {
        reset(set, 0, unused);
        set.current().generation != generation
    })
}

#[test]
fn a_write_set_is_the_valid_part_of_a_report() {
    let good = [pages(1, 3), pages(5, 6)];
    assert_eq!(learnt(&good), good);
    assert_eq!(learnt(&[]), []);
    for lie in [pages(2, 4), pages(9, 7), pages(99_999, 100_001)] {
        assert_eq!(learnt(&[pages(1, 3), lie]), [pages(1, 3)]);
    }
}

#[test]
fn a_write_set_is_bounded() {
    let most = SET_PAGES_MAX;
    assert_eq!(learnt(&[pages(0, most)]), [pages(0, most)]);
    assert_eq!(learnt(&[pages(0, most + 1)]), []);
    let scattered: Vec<_> = (0..2 * SET_MAX as u64)
        .map(|at| pages(at * 2, at * 2 + 1))
        .collect();
    assert_eq!(learnt(&scattered).len(), SET_MAX);
    let far: Vec<_> = (0..2 * SET_MAX as u64)
        .map(|at| pages(at * 99, at * 99 + 1))
        .collect();
    assert_eq!(learnt(&far), []);
}

#[test]
fn a_set_that_keeps_missing_is_recorded_anew_ever_more_rarely() {
    let set = recorded(&[pages(0, 100)]);
    for round in 0..4 {
        assert_eq!(set.current().generation, round + 1);
        let mut misses = 0;
        while !set.is_wanted() {
            reset(&set, 26, 0);
            misses += 1;
        }
        assert_eq!(misses, MISSES << round);
        set.learn(round + 1, &written(&[pages(0, 100)]), 100_000 * PAGE);
        reset(&set, 25, 0);
        assert!(!set.is_wanted());
    }
}

#[test]
fn an_unused_set_is_forgotten_with_growing_backoff() {
    let large = [pages(0, 1000)];
    let set = recorded(&large);
    for round in 0..4 {
        let first = COUNT_EVERY * (IDLE_COUNTS << round);
        assert_eq!(until_forgotten(&set, 501, first), Some(first));
        assert!(set.is_wanted());
        let current = set.current();
        assert!(current.written.is_empty());
        // No set is known, so nothing is recorded.
        reset(&set, 5000, 0);
        assert!(!set.count_reset());
        assert_eq!(set.current().generation, current.generation);
        set.learn(current.generation, &written(&large), 100_000 * PAGE);
        assert!(!set.is_wanted());
        assert_eq!(set.current().generation, current.generation + 1);
    }
}

#[test]
fn a_set_that_is_used_now_and_then_is_kept() {
    let set = recorded(&[pages(0, 1000)]);
    assert_eq!(until_forgotten(&set, 500, 10_000), None);
    for count in 1..100 {
        let unused = if count % IDLE_COUNTS == 0 { 500 } else { 1000 };
        assert_eq!(until_forgotten(&set, unused, COUNT_EVERY), None);
    }
}

#[test]
fn a_set_of_few_pages_is_kept_and_its_gaps_are_not_held_against_it() {
    let set = recorded(&[pages(0, FEW)]);
    assert_eq!(until_forgotten(&set, FEW, 10_000), None);
    let used = SET_MAX as u64 * 3 / 2;
    let gaps: Vec<_> = (0..used).map(|at| pages(at * 4, at * 4 + 1)).collect();
    let set = recorded(&gaps);
    let all = set.current().written.count();
    assert!(all >= 2 * used, "{all}");
    assert_eq!(until_forgotten(&set, all - used, 10_000), None);
    assert!(until_forgotten(&set, all - used / 2 + 1, 10_000).is_some());
}

#[test]
fn a_set_that_grew_is_held_to_all_that_it_was_for() {
    let (small, all) = ([pages(5000, 5600)], [pages(0, 2000), pages(5000, 5600)]);
    let set = recorded(&all[..1]);
    for _ in 0..MISSES {
        reset(&set, 600, 2000);
    }
    let told = UsedPages {
        changed: small[0].count(),
        ..written(&all)
    };
    set.learn(1, &told, 100_000 * PAGE);
    assert_eq!(set.current().written.ranges(), all);
    assert!(until_forgotten(&set, 2000, 10_000).is_some());
    // The additional pages of large pages were never used, and do not count as unused.
    let told = UsedPages {
        changed: 100,
        ..written(&[pages(0, 2048)])
    };
    set.learn(3, &told, 100_000 * PAGE);
    assert_eq!(until_forgotten(&set, 1998, 10_000), None);
    assert!(until_forgotten(&set, 1999, 10_000).is_some());
}

#[test]
fn growing_and_forgetting_are_damped_apart() {
    let set = recorded(&[pages(0, 1000)]);
    for _ in 0..3 {
        assert!(until_forgotten(&set, 1000, 100_000).is_some());
        let generation = set.current().generation;
        set.learn(generation, &written(&[pages(0, 1000)]), 100_000 * PAGE);
    }
    for _ in 0..MISSES {
        assert!(!set.is_wanted());
        reset(&set, 900, 0);
    }
    assert!(set.is_wanted());
}

#[test]
fn reports_of_older_sets_are_ignored() {
    let set = recorded(&[pages(0, 1000)]);
    let lost = Misses {
        outside: 5000,
        unused: Some(1000),
    };
    for _ in 0..1000 {
        set.note(0, lost);
    }
    set.learn(0, &written(&[pages(7, 8)]), 100_000 * PAGE);
    assert!(!set.is_wanted());
    assert_eq!(set.current().written.ranges(), [pages(0, 1000)]);
    assert_eq!(set.current().generation, 1);
}

#[test]
fn how_a_set_is_used_is_counted_until_it_is_another() {
    let set = recorded(&[pages(0, 100)]);
    assert_eq!(set.reuse(), Reuse::default());
    for _ in 0..COUNT_EVERY {
        reset(&set, 3, 40);
    }
    let expected = Reuse {
        resets: COUNT_EVERY.into(),
        outside: 3 * u64::from(COUNT_EVERY),
        counted: 1,
        inside: 60,
    };
    assert_eq!(set.reuse(), expected);
    // The report of an instance with an earlier set counts for that set only.
    set.note(0, Misses::default());
    assert_eq!(set.reuse(), expected);
    while !set.is_wanted() {
        reset(&set, 99, 0);
    }
    set.learn(
        set.current().generation,
        &written(&[pages(0, 50)]),
        100_000 * PAGE,
    );
    assert_eq!(set.reuse(), Reuse::default());
}

#[test]
fn used_code_is_reported_in_units_and_few_ranges() {
    let learnt = |told: &[PageRange]| {
        let set = WorkingSet::of(Owner::Function(7));
        set.learn(0, &of_code(told), 100_000 * PAGE);
        set.current().code.clone()
    };
    let unit = u64::from(CODE_UNIT.get());
    let code = learnt(&[pages(3, 4), pages(17, 18), pages(100, 101)]);
    assert_eq!(code.ranges(), [pages(0, 2 * unit), pages(96, 96 + unit)]);
    // The pages need not lie in the function's memory, but in the space for code, and in order.
    let most = CODE_MAX / PAGE;
    assert_eq!(
        learnt(&[pages(0, 16), pages(most - 1, most), pages(most, most + 1)]).ranges(),
        [pages(0, 16), pages(most - unit, most)]
    );
    assert_eq!(
        learnt(&[pages(16, 32), pages(0, 16)]).ranges(),
        [pages(16, 32)]
    );
    let many: Vec<_> = (0..1000).map(|at| pages(at * 64, at * 64 + 1)).collect();
    assert_eq!(learnt(&many).ranges().len(), SET_MAX);
}

#[test]
fn used_code_stays_known_without_newer_reports() {
    let set = WorkingSet::of(Owner::Function(7));
    set.learn(0, &of_code(&[pages(16, 32)]), 100_000 * PAGE);
    let known = set.current().code.clone();
    // The code is in large pages by now.
    set.learn(1, &written(&[pages(1, 1000)]), 100_000 * PAGE);
    assert_eq!(set.current().code, known);
    assert!(until_forgotten(&set, 999, 10_000).is_some());
    assert!(set.current().written.is_empty());
    assert_eq!(set.current().code, known);
    set.learn(3, &of_code(&[pages(64, 80)]), 100_000 * PAGE);
    assert_eq!(set.current().code.ranges(), [pages(64, 80)]);
}

/// A set of 1000 pages in memory, and 320 of code.
fn restored() -> WorkingSet {
    let set = WorkingSet::of(Owner::Function(7));
    let told = UsedPages {
        written: vec![pages(0, 400)],
        changed: 400,
        read: vec![pages(1000, 1600)],
        code: vec![pages(64, 384)],
    };
    assert!(set.learn(0, &told, 100_000 * PAGE));
    set
}

#[test]
fn late_pages_are_added_if_there_are_many() {
    let late = |start, end| PageSet::from(pages(start, end));
    let none = PageSet::new();
    let set = restored();
    // Three hundredths of 1320 pages are 39.
    assert!(!set.learn_late(&late(5000, 5039), &none));
    assert!(!set.learn_late(&late(5000, 5007), &late(512, 544)));
    assert!(!set.learn_late(&none, &none));
    assert_eq!(set.current().generation, 1);
    assert!(set.learn_late(&late(5000, 5008), &late(512, 544)));
    let now = set.current();
    assert_eq!(now.generation, 2);
    assert_eq!(now.written.ranges(), [pages(0, 400)]);
    assert_eq!(now.read.ranges(), [pages(1000, 1600), pages(5000, 5008)]);
    assert_eq!(now.code.ranges(), [pages(64, 384), pages(512, 544)]);
    // The pages are in the set by now, and written pages stay in the write set.
    assert!(!set.learn_late(&late(5000, 5008), &late(512, 544)));
    assert!(!set.learn_late(&late(300, 400), &none));
    assert_eq!(set.current().generation, 2);
    assert!(!set.is_wanted());
}

#[test]
fn a_set_grows_up_to_its_limit() {
    let none = PageSet::new();
    let set = restored();
    let most = PageSet::from(pages(2000, 2000 + SET_PAGES_MAX));
    assert!(!set.learn_late(&most, &none));
    // Ranges that fit are added without the others.
    let some: PageSet = [pages(2000, 2100), pages(3000, 3000 + SET_PAGES_MAX)]
        .into_iter()
        .collect();
    assert!(set.learn_late(&some, &none));
    let now = set.current();
    assert_eq!(now.read.ranges(), [pages(1000, 1600), pages(2000, 2100)]);
    let set = restored();
    let scattered: PageSet = (0..4 * SET_MAX as u64)
        .map(|at| pages(2000 + at * 3, 2001 + at * 3))
        .collect();
    assert!(set.learn_late(&scattered, &scattered));
    let now = set.current();
    assert!(now.read.ranges().len() <= SET_MAX && now.code.ranges().len() <= SET_MAX);
    assert!(scattered.without(&now.read).is_empty());
    assert!(scattered.without(&now.code).is_empty());
}

#[test]
fn late_pages_are_ignored_without_a_known_set() {
    let late = PageSet::from(pages(2000, 2100));
    let set = WorkingSet::of(Owner::Function(7));
    assert!(!set.learn_late(&late, &late) && set.is_wanted());
    // Without a known set of code, all of the code is read first.
    let set = recorded(&[pages(1, 3)]);
    assert!(set.learn_late(&late, &late));
    assert!(set.current().code.is_empty() && set.current().read == late);
    let shared = WorkingSet::of(Owner::Shared);
    assert!(!shared.learn_late(&late, &late));
}

//! The pages that instances of a seed use, what they write apart from what they
//! only read (Spice §4).
//!
//! REAP (§5.1) records the pages of the first invocation and fills them in for
//! all later ones, and records anew when too many faults fall outside (§7.1). A set
//! that is recorded while it is filled in can only grow: an instance has all of it,
//! whatever it uses. So now and then a reset compares its pages with the seed's, and
//! a set that goes largely unused is forgotten: the next instance is forked without
//! one, and tells what it uses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faasw_abi::memory_map::PAGE;
use faasw_fri::messages::{SET_MAX, SET_PAGES_MAX};
use faasw_seedtree::{Extent, coalesce};

use crate::function::ResetEffort;
use crate::shell::UsedPages;

/// Resets in a row that find too many pages outside before the set is recorded anew,
/// the first time.
const MISSES: u32 = 16;
/// Resets between two that count unused pages: comparing takes longer than filling,
/// 0.3 µs a page.
const COUNT_EVERY: u32 = 64;
/// Counts in a row that find the set largely unused before it is forgotten, the first
/// time.
const IDLE_COUNTS: u32 = 4;
/// Pages outside, or unused, that are never too many.
const FEW: u64 = 16;

/// The working set as it was recorded last.
#[derive(Debug, Default)]
pub struct PageSets {
    /// What is written, in order; nothing before the first recording.
    pub written: Vec<Extent>,
    /// What is only read.
    pub read: Vec<Extent>,
    /// Raised with every recording, and when the set is forgotten.
    pub generation: u32,
}

/// What is known of a seed's working set.
#[derive(Debug, Default)]
pub struct WorkingSet(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    sets: Arc<PageSets>,
    is_recorded: bool,
    /// Pages of the set that differed from the seed in instances that were asked. The
    /// set has more: the gaps between them, and the rest of large pages.
    changed: u64,
    /// Resets since unused pages were counted.
    resets: u32,
    misses: Habit,
    idle: Habit,
}

/// Something that counts when it happens several times in a row, and twice as many
/// times each time that it has: functions that keep changing their habits are
/// followed ever more rarely.
#[derive(Debug, Default)]
struct Habit {
    in_a_row: u32,
    followed: u32,
}

impl Habit {
    fn note(&mut self, happened: bool) {
        self.in_a_row = match happened {
            true => self.in_a_row.saturating_add(1),
            false => 0,
        };
    }

    /// Whether it counts now, where it did the first time after `first`.
    fn is_firm(&self, first: u32) -> bool {
        u64::from(self.in_a_row) >= u64::from(first) << self.followed.min(u32::BITS - 1)
    }

    /// It was followed.
    fn follow(&mut self) {
        self.in_a_row = 0;
        self.followed = self.followed.saturating_add(1);
    }
}

impl WorkingSet {
    /// The set as it is now.
    pub fn current(&self) -> Arc<PageSets> {
        self.known().sets.clone()
    }

    /// Whether the next instance of the current set that is done should be asked.
    pub fn is_wanted(&self) -> bool {
        let known = self.known();
        !known.is_recorded || known.misses.is_firm(MISSES)
    }

    /// Whether the reset that is about to begin should count unused pages. Counts it.
    pub fn is_count_due(&self) -> bool {
        let mut known = self.known();
        if !known.is_recorded || known.changed <= FEW {
            return false;
        }
        known.resets += 1;
        let is_due = known.resets >= COUNT_EVERY;
        if is_due {
            known.resets = 0;
        }
        is_due
    }

    /// Takes note of what resetting an instance took that was forked with the set of
    /// `generation`.
    pub fn note(&self, generation: u32, reset: &ResetEffort) {
        let mut known = self.known();
        if generation != known.sets.generation || !known.is_recorded {
            return;
        }
        let pages = pages_of(&known.sets.written);
        known.misses.note(reset.outside > FEW.max(pages / 4));
        if let Some(unused) = reset.unused {
            let used = pages.saturating_sub(unused);
            let is_idle = known.changed.saturating_sub(used) > FEW.max(known.changed / 2);
            known.idle.note(is_idle);
        }
        if known.idle.is_firm(IDLE_COUNTS) {
            known.idle.follow();
            known.is_recorded = false;
            known.replace(PageSets::default());
        }
    }

    /// Takes what a shell says that its instance, which was forked with the set of
    /// `generation`, has used, as far as that makes sense in `ram_bytes` of memory.
    pub fn learn(&self, generation: u32, told: &UsedPages, ram_bytes: u64) {
        let written = sensible(&told.written, ram_bytes);
        let read = sensible(&told.read, ram_bytes);
        let mut known = self.known();
        if generation != known.sets.generation {
            // Another one has told already.
            return;
        }
        let before = match known.is_recorded {
            // What the last set was for is filled in, and so told, whether it was
            // used or not.
            true => known.changed,
            false => 0,
        };
        if known.is_recorded {
            known.misses.follow();
        }
        known.is_recorded = true;
        known.changed = before.saturating_add(told.changed).min(pages_of(&written));
        known.replace(PageSets {
            written,
            read,
            generation,
        });
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Puts sets in the current ones' place, of which nothing is known yet.
    fn replace(&mut self, sets: PageSets) {
        self.sets = Arc::new(PageSets {
            generation: self.sets.generation.saturating_add(1),
            ..sets
        });
        self.resets = 0;
        self.misses.in_a_row = 0;
        self.idle.in_a_row = 0;
    }
}

/// What makes sense of a set in `ram_bytes` of memory, bounded.
fn sensible(told: &[Extent], ram_bytes: u64) -> Vec<Extent> {
    let mut pages = 0;
    let mut end = 0;
    let sound: Vec<Extent> = told
        .iter()
        .copied()
        .take_while(|stretch| {
            let sound = end <= stretch.start
                && stretch.start < stretch.end
                && stretch.end <= ram_bytes
                && stretch.start.is_multiple_of(PAGE)
                && stretch.end.is_multiple_of(PAGE);
            end = stretch.end;
            pages += stretch.bytes() / PAGE;
            sound && pages <= SET_PAGES_MAX
        })
        .collect();
    let joined = coalesce(&sound, PAGE, SET_MAX);
    // Joining takes gaps in; a set that grew too much by it is none.
    if pages_of(&joined) <= SET_PAGES_MAX {
        joined
    } else {
        Vec::new()
    }
}

fn pages_of(stretches: &[Extent]) -> u64 {
    stretches.iter().map(|stretch| stretch.bytes() / PAGE).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, end: u64) -> Extent {
        Extent {
            start: start * PAGE,
            end: end * PAGE,
        }
    }

    fn written(extents: &[Extent]) -> UsedPages {
        UsedPages {
            written: extents.to_vec(),
            changed: pages_of(extents),
            read: Vec::new(),
        }
    }

    /// A set that was told by its first instance.
    fn recorded(told: &[Extent]) -> WorkingSet {
        let set = WorkingSet::default();
        assert!(set.is_wanted());
        set.learn(0, &written(told), 100_000 * PAGE);
        assert!(!set.is_wanted());
        set
    }

    fn learnt(told: &[Extent]) -> Vec<Extent> {
        recorded(told).current().written.clone()
    }

    /// One reset of an instance of the current set.
    fn reset(set: &WorkingSet, outside: u64, unused: u64) {
        let unused = set.is_count_due().then_some(unused);
        let effort = ResetEffort {
            outside,
            unused,
            ..ResetEffort::default()
        };
        set.note(set.current().generation, &effort);
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
    fn a_write_set_is_what_makes_sense_of_what_was_told() {
        let good = [extent(1, 3), extent(5, 6)];
        assert_eq!(learnt(&good), good);
        assert_eq!(learnt(&[]), []);
        for lie in [extent(2, 4), extent(9, 7), extent(99_999, 100_001)] {
            assert_eq!(learnt(&[extent(1, 3), lie]), [extent(1, 3)]);
        }
        let odd = Extent {
            start: 1,
            end: PAGE,
        };
        assert_eq!(learnt(&[odd]), []);
    }

    #[test]
    fn a_write_set_is_bounded() {
        let most = SET_PAGES_MAX;
        assert_eq!(learnt(&[extent(0, most)]), [extent(0, most)]);
        assert_eq!(learnt(&[extent(0, most + 1)]), []);
        let scattered: Vec<_> = (0..2 * SET_MAX as u64)
            .map(|at| extent(at * 2, at * 2 + 1))
            .collect();
        assert_eq!(learnt(&scattered).len(), SET_MAX);
        let far: Vec<_> = (0..2 * SET_MAX as u64)
            .map(|at| extent(at * 99, at * 99 + 1))
            .collect();
        assert_eq!(learnt(&far), []);
    }

    #[test]
    fn a_set_that_keeps_missing_is_recorded_anew_ever_more_rarely() {
        let set = recorded(&[extent(0, 100)]);
        for round in 0..4 {
            assert_eq!(set.current().generation, round + 1);
            let mut misses = 0;
            while !set.is_wanted() {
                reset(&set, 26, 0);
                misses += 1;
            }
            assert_eq!(misses, MISSES << round);
            set.learn(round + 1, &written(&[extent(0, 100)]), 100_000 * PAGE);
            reset(&set, 25, 0);
            assert!(!set.is_wanted());
        }
    }

    #[test]
    fn a_set_that_goes_unused_is_forgotten_ever_more_rarely() {
        let large = [extent(0, 1000)];
        let set = recorded(&large);
        for round in 0..4 {
            let first = COUNT_EVERY * (IDLE_COUNTS << round);
            assert_eq!(until_forgotten(&set, 501, first), Some(first));
            assert!(set.is_wanted());
            let current = set.current();
            assert!(current.written.is_empty());
            // Nothing is known of it, so nothing is noted.
            reset(&set, 5000, 0);
            assert!(!set.is_count_due());
            assert_eq!(set.current().generation, current.generation);
            set.learn(current.generation, &written(&large), 100_000 * PAGE);
            assert!(!set.is_wanted());
            assert_eq!(set.current().generation, current.generation + 1);
        }
    }

    #[test]
    fn a_set_that_is_used_now_and_then_is_kept() {
        let set = recorded(&[extent(0, 1000)]);
        assert_eq!(until_forgotten(&set, 500, 10_000), None);
        for count in 1..100 {
            let unused = if count % IDLE_COUNTS == 0 { 500 } else { 1000 };
            assert_eq!(until_forgotten(&set, unused, COUNT_EVERY), None);
        }
    }

    #[test]
    fn a_set_of_few_pages_is_kept_and_its_gaps_are_not_held_against_it() {
        let set = recorded(&[extent(0, FEW)]);
        assert_eq!(until_forgotten(&set, FEW, 10_000), None);
        let used = SET_MAX as u64 * 3 / 2;
        let gaps: Vec<_> = (0..used).map(|at| extent(at * 4, at * 4 + 1)).collect();
        let set = recorded(&gaps);
        let all = pages_of(&set.current().written);
        assert!(all >= 2 * used, "{all}");
        assert_eq!(until_forgotten(&set, all - used, 10_000), None);
        assert!(until_forgotten(&set, all - used / 2 + 1, 10_000).is_some());
    }

    #[test]
    fn a_set_that_grew_is_held_to_all_that_it_was_for() {
        let (small, all) = ([extent(5000, 5600)], [extent(0, 2000), extent(5000, 5600)]);
        let set = recorded(&all[..1]);
        for _ in 0..MISSES {
            reset(&set, 600, 2000);
        }
        let told = UsedPages {
            changed: pages_of(&small),
            ..written(&all)
        };
        set.learn(1, &told, 100_000 * PAGE);
        assert_eq!(set.current().written, all);
        assert!(until_forgotten(&set, 2000, 10_000).is_some());
        // What large pages bring along was never used, and is not missed.
        let told = UsedPages {
            changed: 100,
            ..written(&[extent(0, 2048)])
        };
        set.learn(3, &told, 100_000 * PAGE);
        assert_eq!(until_forgotten(&set, 1998, 10_000), None);
        assert!(until_forgotten(&set, 1999, 10_000).is_some());
    }

    #[test]
    fn growing_and_forgetting_are_damped_apart() {
        let set = recorded(&[extent(0, 1000)]);
        for _ in 0..3 {
            assert!(until_forgotten(&set, 1000, 100_000).is_some());
            let generation = set.current().generation;
            set.learn(generation, &written(&[extent(0, 1000)]), 100_000 * PAGE);
        }
        for _ in 0..MISSES {
            assert!(!set.is_wanted());
            reset(&set, 900, 0);
        }
        assert!(set.is_wanted());
    }

    #[test]
    fn instances_of_older_sets_are_not_heard() {
        let set = recorded(&[extent(0, 1000)]);
        let lost = ResetEffort {
            outside: 5000,
            unused: Some(1000),
            ..ResetEffort::default()
        };
        for _ in 0..1000 {
            set.note(0, &lost);
        }
        set.learn(0, &written(&[extent(7, 8)]), 100_000 * PAGE);
        assert!(!set.is_wanted());
        assert_eq!(set.current().written, [extent(0, 1000)]);
        assert_eq!(set.current().generation, 1);
    }

    #[test]
    fn a_habit_that_was_followed_for_ever_takes_for_ever() {
        let mut habit = Habit::default();
        habit.follow();
        habit.followed = u32::MAX;
        habit.in_a_row = u32::MAX;
        assert!(!habit.is_firm(IDLE_COUNTS));
        habit.follow();
        assert_eq!(habit.followed, u32::MAX);
    }
}

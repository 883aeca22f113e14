//! The pages that instances of a seed use, what they write apart from what they
//! only read (Spice §4).
//!
//! REAP (§5.1) records the pages of the first invocation and fills them in for
//! all later ones, and records anew when too many faults fall outside (§7.1). A set
//! that is recorded while it is filled in can only grow: an instance has all of it,
//! whatever it uses. So now and then a reset compares its pages with the seed's, and
//! a set that goes largely unused is forgotten: the next instance is forked without
//! one, and tells what it uses.
//!
//! A seed that is read from its image in parts shows more: what guests had to wait for was
//! used, and was in no set. Where that is much it is taken in at once.

mod habit;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faasw_abi::memory_map::CODE_MAX;
use faasw_abi::pages::{PageRange, PageSet};

use self::habit::Habit;
use crate::key::Owner;
use crate::limits::{CODE_UNIT, SET_MAX, SET_PAGES_MAX};

/// Resets in a row that find too many pages outside before the set is recorded anew,
/// the first time.
const MISSES: u32 = 16;
/// Resets between two that count unused pages: comparing takes longer than filling,
/// 0.3 µs a page.
const COUNT_EVERY: u32 = 64;
/// Counts in a row that find the set largely unused before it is forgotten, the first
/// time.
const IDLE_COUNTS: u32 = 4;
/// Pages outside, or unused, or late, that are never too many.
const FEW: u64 = 16;
/// Of a set's pages, in hundredths, so many may be late, in memory and code together, when a seed
/// is read in parts.
const LATE_MOST: u64 = 3;

/// The working set as it was recorded last.
#[derive(Debug, Default)]
pub struct PageSets {
    /// What is written; nothing before the first recording.
    pub written: PageSet,
    /// What is only read.
    pub read: PageSet,
    /// What is used of its compiled code, whose pages are counted from its own beginning;
    /// nothing where that is not known.
    pub code: PageSet,
    /// Raised with every recording, and when the set is forgotten.
    pub generation: u32,
}

/// The pages that an instance has used, as its sandbox told it.
#[derive(Debug, Default)]
pub struct UsedPages {
    /// Those that it has made its own.
    pub written: Vec<PageRange>,
    /// How many of those pages differ from its seed's.
    pub changed: u64,
    /// Those that it shares with its seed.
    pub read: Vec<PageRange>,
    /// Those of its code; none where it cannot be told which.
    pub code: Vec<PageRange>,
}

/// A working set, and how much of it was no gap.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub sets: Arc<PageSets>,
    /// Pages of it that had changed.
    pub changed: u64,
}

/// What a reset says of the set that its instance was forked with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Misses {
    /// Private pages that were not in the set.
    pub outside: u64,
    /// Pages of the set that were as the seed has them, where that was counted.
    pub unused: Option<u64>,
}

/// How the instances that were forked with a set have used it, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Resets that told how many pages were outside.
    pub resets: u64,
    /// Private pages that were not in the set.
    pub outside: u64,
    /// Resets that told how many were not used, too.
    pub counted: u64,
    /// Pages of the write set that those had used.
    pub inside: u64,
}

/// What is known of a seed's working set.
///
/// Of a seed that all share nothing ever is: its instances run one function's code or
/// another's, and what one of them uses would show in how fast the next one is.
#[derive(Debug)]
pub struct WorkingSet {
    is_learnt: bool,
    known: Mutex<Known>,
}

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
    /// Since the set was replaced.
    reuse: Reuse,
}

impl WorkingSet {
    /// That of a seed of `owner`, of which nothing is known yet.
    #[must_use]
    pub fn of(owner: Owner) -> Self {
        Self {
            is_learnt: owner != Owner::Shared,
            known: Mutex::default(),
        }
    }

    /// The set as it is now.
    #[must_use]
    pub fn current(&self) -> Arc<PageSets> {
        self.known().sets.clone()
    }

    /// What is to be told of it to those who know as much of the seed later; empty sets before
    /// the first recording.
    pub(crate) fn recorded(&self) -> Recorded {
        let known = self.known();
        Recorded {
            sets: known.sets.clone(),
            changed: known.changed,
        }
    }

    /// Takes what was known of the seed when it was in memory before, if anything was.
    pub(crate) fn restore(&self, sets: PageSets, changed: u64) {
        let mut known = self.known();
        if !self.is_learnt || sets.written.is_empty() && sets.read.is_empty() {
            return;
        }
        known.is_recorded = true;
        known.changed = changed.min(sets.written.count());
        known.replace(sets);
    }

    /// Whether the next instance of the current set that is done should be asked.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        let known = self.known();
        self.is_learnt && (!known.is_recorded || known.misses.is_firm(MISSES))
    }

    /// A reset is about to begin: whether it should count unused pages.
    #[must_use]
    pub fn count_reset(&self) -> bool {
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

    /// Takes note of what resetting an instance said that was forked with the set of
    /// `generation`.
    pub fn note(&self, generation: u32, reset: Misses) {
        let mut known = self.known();
        if generation != known.sets.generation || !known.is_recorded {
            return;
        }
        let pages = known.sets.written.count();
        known.misses.note(reset.outside > FEW.max(pages / 4));
        known.reuse.resets += 1;
        known.reuse.outside = known.reuse.outside.saturating_add(reset.outside);
        if let Some(unused) = reset.unused {
            let used = pages.saturating_sub(unused);
            known.reuse.counted += 1;
            known.reuse.inside = known.reuse.inside.saturating_add(used);
            let is_idle = known.changed.saturating_sub(used) > FEW.max(known.changed / 2);
            known.idle.note(is_idle);
        }
        if known.idle.is_firm(IDLE_COUNTS) {
            known.idle.follow();
            known.is_recorded = false;
            // What is used of code is not filled in for anybody.
            let code = known.sets.code.clone();
            known.replace(PageSets {
                code,
                ..PageSets::default()
            });
        }
    }

    /// Takes what a sandbox says that its instance, which was forked with the set of
    /// `generation`, has used, as far as that makes sense in `ram_bytes` of memory; says whether
    /// more is known by it.
    pub fn learn(&self, generation: u32, told: &UsedPages, ram_bytes: u64) -> bool {
        let written = sensible(&told.written, ram_bytes);
        let read = sensible(&told.read, ram_bytes);
        let code = sensible_code(&told.code);
        let mut known = self.known();
        // Or another one has told already.
        if !self.is_learnt || generation != known.sets.generation {
            return false;
        }
        let before = if known.is_recorded {
            // What the last set was for is filled in, and so told, whether it was
            // used or not.
            known.changed
        } else {
            0
        };
        if known.is_recorded {
            known.misses.follow();
        }
        known.is_recorded = true;
        known.changed = before.saturating_add(told.changed).min(written.count());
        let code = if code.is_empty() {
            known.sets.code.clone()
        } else {
            code
        };
        known.replace(PageSets {
            written,
            read,
            code,
            generation,
        });
        true
    }

    /// Takes in what guests have waited for of memory, and of code, when the seed was read in
    /// parts, if that is more than a set may leave out; says whether more is known by it.
    pub fn learn_late(&self, memory: &PageSet, code: &PageSet) -> bool {
        let mut known = self.known();
        let sets = known.sets.clone();
        let pages = sets.written.count() + sets.read.count() + sets.code.count();
        let late = memory.count() + code.count();
        if !self.is_learnt || !known.is_recorded || late <= FEW.max(pages * LATE_MOST / 100) {
            return false;
        }
        let is_new = memory.without(&sets.written).without(&sets.read);
        // As much of it as a set has room for.
        let room = SET_PAGES_MAX.saturating_sub(sets.read.count());
        let read = sets.read.union(&is_new.first_ranges(room));
        let read = read.coalesced(NonZeroU32::MIN, SET_MAX);
        // Joining takes gaps in: one that is too large by that stays as it was.
        let read = if read.count() <= SET_PAGES_MAX {
            read
        } else {
            sets.read.clone()
        };
        let code = if sets.code.is_empty() {
            // Where nothing is known of it all is read first.
            PageSet::new()
        } else {
            sets.code.union(code).coalesced(CODE_UNIT, SET_MAX)
        };
        if read == sets.read && code == sets.code {
            return false;
        }
        known.replace(PageSets {
            written: sets.written.clone(),
            read,
            code,
            generation: sets.generation,
        });
        true
    }

    /// How the set of now has been used.
    #[must_use]
    pub fn reuse(&self) -> Reuse {
        self.known().reuse
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.reuse = Reuse::default();
        self.misses.begin_anew();
        self.idle.begin_anew();
    }
}

/// What makes sense of a set in `ram_bytes` of memory, bounded.
fn sensible(told: &[PageRange], ram_bytes: u64) -> PageSet {
    let believed = PageSet::of_told(told, PageRange::around(0, ram_bytes));
    let joined = believed
        .first_ranges(SET_PAGES_MAX)
        .coalesced(NonZeroU32::MIN, SET_MAX);
    // Joining takes gaps in; a set that grew too much by it is none.
    if joined.count() <= SET_PAGES_MAX {
        joined
    } else {
        PageSet::new()
    }
}

/// What makes sense of a set of pages of code, in few ranges of whole units.
fn sensible_code(told: &[PageRange]) -> PageSet {
    let all = PageRange::around(0, CODE_MAX);
    PageSet::of_told(told, all).coalesced(CODE_UNIT, SET_MAX)
}

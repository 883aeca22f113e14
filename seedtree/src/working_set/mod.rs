//! The pages that instances of a seed use. Written pages are recorded separately from pages that
//! are only read (Spice §3.3.1).
//!
//! REAP (§5.1) records the pages of the first invocation and prefills them for all later ones, and
//! records anew when too many faults fall outside (§7.2). A set that is recorded while it is
//! prefilled can only grow: an instance has all of it, whatever it uses. So from time to time a
//! reset compares the instance's pages with the seed's, and a set that goes largely unused is
//! forgotten. The next instance is then forked without a set, and reports the pages that it uses.
//!
//! A seed that is read from its image in parts shows more: pages that guests had to wait for were
//! used, but were in no set. If there are many of them, they are added to the set at once.

mod habit;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::sync::Arc;

use faasw_abi::memory_map::CODE_MAX;
use faasw_abi::pages::{PageRange, PageSet};
use faasw_common::Lock;

use self::habit::Habit;
use crate::key::Owner;
use crate::limits::{CODE_UNIT, SET_MAX, SET_PAGES_MAX};

/// Resets in a row with too many pages outside the set, after which the set is recorded anew for
/// the first time.
const MISSES: u32 = 16;
/// Resets between two that count unused pages, because comparing takes longer than filling: 0.3 µs
/// per page.
const COUNT_EVERY: u32 = 64;
/// Counts in a row that find the set largely unused, after which it is forgotten for the first
/// time.
const IDLE_COUNTS: u32 = 4;
/// Number of pages outside, unused or late that is never too many.
const FEW: u64 = 16;
/// Maximum share of late pages, in hundredths of a set's pages in memory and code together, when a
/// seed is read in parts.
const LATE_MOST: u64 = 3;

/// The most recently recorded working set.
#[derive(Debug, Default)]
pub struct PageSets {
    /// Written pages; empty before the first recording.
    pub written: PageSet,
    /// Pages that are only read.
    pub read: PageSet,
    /// Used pages of the compiled code, counted from the beginning of the code; empty if they are
    /// not known.
    pub code: PageSet,
    /// Increases with every recording, and when the set is forgotten.
    pub generation: u32,
}

/// The pages that an instance has used, as its sandbox reports them.
#[derive(Debug, Default)]
pub struct UsedPages {
    /// Pages that are private to the instance.
    pub written: Vec<PageRange>,
    /// Number of these pages that differ from the seed's.
    pub changed: u64,
    /// Pages that the instance shares with its seed.
    pub read: Vec<PageRange>,
    /// Pages of the code; empty if they cannot be determined.
    pub code: Vec<PageRange>,
}

/// A working set, and the number of its pages that are no gaps.
#[derive(Debug)]
pub(crate) struct RecordedSets {
    pub sets: Arc<PageSets>,
    /// Pages of the set that had changed.
    pub changed: u64,
}

/// The report of a reset about the set that its instance was forked with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Misses {
    /// Private pages outside the set.
    pub outside: u64,
    /// Pages of the set that were equal to the seed's, if they were counted.
    pub unused: Option<u64>,
}

/// Use of a set by all instances that were forked with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Resets that reported the number of pages outside.
    pub resets: u64,
    /// Private pages outside the set.
    pub outside: u64,
    /// Resets that also reported the number of unused pages.
    pub counted: u64,
    /// Pages of the write set that the instances of these resets had used.
    pub inside: u64,
}

/// The known working set of a seed.
///
/// The working set of a shared seed is never learnt: its instances run the code of different
/// functions, and the pages that one of them uses would affect how fast the next one is.
#[derive(Debug)]
pub struct WorkingSet {
    is_learnt: bool,
    known: Lock<WorkingSetState>,
}

#[derive(Debug, Default)]
struct WorkingSetState {
    sets: Arc<PageSets>,
    is_recorded: bool,
    /// Pages of the set that differed from the seed in instances that reported. The set has more
    /// pages: the gaps between them, and the rest of large pages.
    changed: u64,
    /// Resets since unused pages were last counted.
    resets: u32,
    misses: Habit,
    idle: Habit,
    /// Use of the set since it was last replaced.
    reuse: Reuse,
}

impl WorkingSet {
    /// Returns the working set of a seed of `owner`, of which nothing is known yet.
    #[must_use]
    pub fn of(owner: Owner) -> Self {
        Self {
            is_learnt: owner != Owner::Shared,
            known: Lock::default(),
        }
    }

    /// Returns the current set.
    #[must_use]
    pub fn current(&self) -> Arc<PageSets> {
        self.known.lock().sets.clone()
    }

    /// Returns the set for the seed's image; it is empty before the first recording.
    pub(crate) fn recorded(&self) -> RecordedSets {
        let known = self.known.lock();
        RecordedSets {
            sets: known.sets.clone(),
            changed: known.changed,
        }
    }

    /// Restores the set that was known when the seed was in memory before, if it is not empty.
    pub(crate) fn restore(&self, sets: PageSets, changed: u64) {
        let mut known = self.known.lock();
        if !self.is_learnt || sets.written.is_empty() && sets.read.is_empty() {
            return;
        }
        known.is_recorded = true;
        known.changed = changed.min(sets.written.count());
        known.replace(sets);
    }

    /// Returns whether the next instance of the current set should report its used pages when it is
    /// done.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        let known = self.known.lock();
        self.is_learnt && (!known.is_recorded || known.misses.is_firm(MISSES))
    }

    /// Counts a reset that is about to begin, and returns whether it should count unused pages.
    #[must_use]
    pub fn count_reset(&self) -> bool {
        let mut known = self.known.lock();
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

    /// Records the report of a reset, for an instance that was forked with the set of `generation`.
    pub fn note(&self, generation: u32, reset: Misses) {
        let mut known = self.known.lock();
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
            // The set of code pages stays, because it is not prefilled.
            let code = known.sets.code.clone();
            known.replace(PageSets {
                code,
                ..PageSets::default()
            });
        }
    }

    /// Learns the pages that an instance used, which was forked with the set of `generation`, as
    /// its sandbox reports them. Pages outside `ram_bytes` of memory are ignored. Returns whether
    /// the report was accepted: not for a shared seed, nor if the set was replaced meanwhile.
    pub fn learn(&self, generation: u32, reported: &UsedPages, ram_bytes: u64) -> bool {
        let written = sensible(&reported.written, ram_bytes);
        let read = sensible(&reported.read, ram_bytes);
        let code = sensible_code(&reported.code);
        let mut known = self.known.lock();
        // A different generation means that another instance has reported already.
        if !self.is_learnt || generation != known.sets.generation {
            return false;
        }
        let before = if known.is_recorded {
            // The pages of the last set were prefilled, and are therefore reported whether they
            // were used or not.
            known.changed
        } else {
            0
        };
        if known.is_recorded {
            known.misses.follow();
        }
        known.is_recorded = true;
        known.changed = before.saturating_add(reported.changed).min(written.count());
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

    /// Adds the pages of memory and code that guests had to wait for when the seed was read in
    /// parts, if they are more than a set may leave out. Returns whether the set has changed.
    pub fn learn_late(&self, memory: &PageSet, code: &PageSet) -> bool {
        let mut known = self.known.lock();
        let sets = known.sets.clone();
        let pages = sets.written.count() + sets.read.count() + sets.code.count();
        let late = memory.count() + code.count();
        if !self.is_learnt || !known.is_recorded || late <= FEW.max(pages * LATE_MOST / 100) {
            return false;
        }
        let is_new = memory.without(&sets.written).without(&sets.read);
        // Only as many pages as the set has space for.
        let room = SET_PAGES_MAX.saturating_sub(sets.read.count());
        let read = sets.read.union(&is_new.first_ranges(room));
        let read = read.coalesced(NonZeroU32::MIN, SET_MAX);
        // Joining adds gaps. A set that becomes too large by that stays as it was.
        let read = if read.count() <= SET_PAGES_MAX {
            read
        } else {
            sets.read.clone()
        };
        let code = if sets.code.is_empty() {
            // If the code pages are not known, all code is read first.
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

    /// Returns how the current set has been used.
    #[must_use]
    pub fn reuse(&self) -> Reuse {
        self.known.lock().reuse
    }
}

impl WorkingSetState {
    /// Replaces the current sets by others, whose use is not known yet.
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

/// Returns the valid part of a reported set for `ram_bytes` of memory, within the limits.
fn sensible(reported: &[PageRange], ram_bytes: u64) -> PageSet {
    let believed = PageSet::from_reported_clipped(reported, PageRange::around(0, ram_bytes));
    let joined = believed
        .first_ranges(SET_PAGES_MAX)
        .coalesced(NonZeroU32::MIN, SET_MAX);
    // Joining adds gaps. A set that grew too much by that is dropped.
    if joined.count() <= SET_PAGES_MAX {
        joined
    } else {
        PageSet::new()
    }
}

/// Returns the valid part of a reported set of code pages, in few ranges of whole units.
fn sensible_code(reported: &[PageRange]) -> PageSet {
    let all = PageRange::around(0, CODE_MAX);
    PageSet::from_reported_clipped(reported, all).coalesced(CODE_UNIT, SET_MAX)
}

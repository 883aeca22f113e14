//! The pages that instances of a seed use, what they write apart from what they
//! only read (Spice §4).
//!
//! REAP (§5.1) records the pages of the first invocation and fills them in for
//! all later ones, and records anew when too many faults fall outside (§7.1). A set
//! that is recorded while it is filled in can only grow: an instance has all of it,
//! whatever it uses. So now and then a reset compares its pages with the seed's, and
//! a set that goes largely unused is forgotten: the next instance is forked without
//! one, and tells what it uses.

mod habit;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faasw_abi::memory_map::PAGE;
use faasw_fri::messages::{SET_MAX, SET_PAGES_MAX};
use faasw_seedtree::{Extent, coalesce, sound};

use self::habit::Habit;
use crate::ablation::Mechanism;
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
        let unless_off = |told: &[Extent], what: Mechanism| match what.is_off() {
            true => Vec::new(),
            false => sensible(told, ram_bytes),
        };
        let written = unless_off(&told.written, Mechanism::WriteSet);
        let read = unless_off(&told.read, Mechanism::ReadSet);
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
        self.misses.begin_anew();
        self.idle.begin_anew();
    }
}

/// What makes sense of a set in `ram_bytes` of memory, bounded.
fn sensible(told: &[Extent], ram_bytes: u64) -> Vec<Extent> {
    let mut pages = 0;
    let bounded: Vec<Extent> = sound(told, PAGE, ram_bytes)
        .iter()
        .copied()
        .take_while(|stretch| {
            pages += stretch.bytes() / PAGE;
            pages <= SET_PAGES_MAX
        })
        .collect();
    let joined = coalesce(&bounded, PAGE, SET_MAX);
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

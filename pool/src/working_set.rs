//! The pages that instances of a seed use, what they write apart from what they
//! only read (Spice §4).
//!
//! REAP (§5.1) records the pages of the first invocation and fills them in for
//! all later ones, and records anew when too many faults fall outside (§7.1).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use faasw_abi::memory_map::PAGE;
use faasw_fri::messages::SET_MAX;
use faasw_seedtree::{Extent, coalesce};

use crate::shell::UsedPages;

/// Most pages of either set: what a request writes beyond that is its own
/// doing, and is not to cost every other one.
const PAGES_MAX: u64 = 4096;
/// Resets that find too many pages outside before the set is recorded anew. It
/// doubles each time, for functions that never write the same pages twice.
const STRIKES: u32 = 8;
/// Pages outside that are never too many.
const FEW: u64 = 16;

/// The working set as it was recorded last.
#[derive(Debug, Default)]
pub struct PageSets {
    /// What is written, in order; nothing before the first recording.
    pub written: Vec<Extent>,
    /// What is only read.
    pub read: Vec<Extent>,
    /// Raised with every recording.
    pub generation: u32,
}

/// What is known of a seed's working set.
#[derive(Debug, Default)]
pub struct WorkingSet {
    current: Mutex<Arc<PageSets>>,
    strikes: AtomicU32,
}

impl WorkingSet {
    /// The set as it is now.
    pub fn current(&self) -> Arc<PageSets> {
        let current = self.current.lock();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the next instance that is done should be asked.
    pub fn is_wanted(&self) -> bool {
        let recorded = self.current().generation;
        let most = STRIKES.checked_shl(recorded).unwrap_or(u32::MAX);
        recorded == 0 || self.strikes.load(Ordering::Relaxed) >= most
    }

    /// Takes note of how many private pages an instance of the current set had
    /// outside of it.
    pub fn note(&self, outside: u64) {
        if outside > FEW.max(pages_of(&self.current().written) / 4) {
            self.strikes.fetch_add(1, Ordering::Relaxed);
        } else {
            self.strikes.store(0, Ordering::Relaxed);
        }
    }

    /// Takes what a shell says that its instance has used, as far as that makes
    /// sense in `ram_bytes` of memory.
    pub fn learn(&self, told: &UsedPages, ram_bytes: u64) {
        let written = sensible(&told.written, ram_bytes);
        let read = sensible(&told.read, ram_bytes);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(PageSets {
            written,
            read,
            generation: current.generation.saturating_add(1),
        });
        self.strikes.store(0, Ordering::Relaxed);
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
            sound && pages <= PAGES_MAX
        })
        .collect();
    let joined = coalesce(&sound, PAGE, SET_MAX);
    // Joining takes gaps in; a set that grew too much by it is none.
    if pages_of(&joined) <= PAGES_MAX {
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
            read: Vec::new(),
        }
    }

    fn learnt(told: &[Extent]) -> Vec<Extent> {
        let set = WorkingSet::default();
        assert!(set.is_wanted());
        set.learn(&written(told), 100_000 * PAGE);
        assert!(!set.is_wanted());
        set.current().written.clone()
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
        let most = PAGES_MAX;
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
        let set = WorkingSet::default();
        for generation in 1..5 {
            set.learn(&written(&[extent(0, 100)]), 100_000 * PAGE);
            assert_eq!(set.current().generation, generation);
            let mut misses = 0;
            while !set.is_wanted() {
                set.note(26);
                misses += 1;
            }
            assert_eq!(misses, STRIKES << generation);
            set.note(25);
            assert!(!set.is_wanted());
        }
    }
}

//! Memory or code that is filled from a disk while guests already use it (Catalyzer §3.1, on-demand
//! paging; REAP §5.2, prefetching beside it).
//!
//! The pages that requests use are loaded before anything is forked from it. The rest follows in
//! the order of the file. If a guest needs another page earlier, its part is read at once. Verified
//! pages are written whole to the file in memory, and never through a mapping, because touching a
//! hole of a mapped file makes a page of zeroes. When all pages are present, the file is sealed,
//! and is like any other.
//!
//! The caller handles the guests that wait.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use faasw_abi::pages::{Page, PageRange, PageSet};
use faasw_common::Lock;

use super::buffers::AlignedBuffer;
use super::load_progress::LoadProgress;
use super::load_runs;
use super::parts::Parts;

/// The number of parts that are read at once while guests may wait: a page that a guest needs
/// meanwhile waits for these.
const STEP: usize = 4;

/// Memory or code on a disk, in parts, and the file in memory that it is read into.
pub trait PartSource: fmt::Debug + Send + Sync {
    /// Why a part cannot be loaded.
    type Error: Send + From<io::Error>;

    /// The error of finishing before all parts are present.
    const INCOMPLETE: Self::Error;

    /// Returns the number of parts.
    fn count(&self) -> usize;

    /// Returns the part that has a page, and the contiguous pages around that page in the part.
    /// Returns `None` if the page is not stored.
    fn part_of(&self, page: Page) -> Option<(usize, PageRange)>;

    /// Returns the pages of a part.
    fn pages_of(&self, part: usize) -> impl Iterator<Item = PageRange>;

    /// Returns how many threads read so many parts in so many runs.
    fn readers(parts: usize, runs: usize) -> usize;

    /// Reads these parts, verifies them, and writes them to the file in memory.
    ///
    /// # Errors
    /// Returns an error if a part is not what was stored, or if the disk or the memory fails.
    fn load(&self, parts: Range<usize>, buffer: &mut AlignedBuffer) -> Result<(), Self::Error>;

    /// Seals the file in memory.
    ///
    /// # Errors
    /// Returns the error of the system.
    fn seal(&self) -> Result<(), Self::Error>;
}

/// Partly loaded memory or code, and the source of the rest. If it is dropped before
/// [`DemandFill::finish`], what it fills is unusable.
///
/// Several threads may fill it at once: each part is read by one of them, and the others wait for
/// it.
#[derive(Debug)]
pub struct DemandFill<S: PartSource> {
    source: S,
    parts: Parts,
    progress: LoadProgress,
    /// The number of times that a guest needed a part before it was present.
    requested: AtomicU64,
    /// The pages of these parts that are contiguous with the needed ones.
    late: Lock<PageSet>,
}

impl<S: PartSource> DemandFill<S> {
    /// Returns a filling of which no part is present.
    pub fn new(source: S) -> Self {
        Self {
            parts: Parts::new(source.count()),
            source,
            progress: LoadProgress::pending(),
            requested: AtomicU64::new(0),
            late: Lock::default(),
        }
    }

    /// Returns the source.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Returns the progress of the filling.
    pub fn progress(&self) -> &LoadProgress {
        &self.progress
    }

    /// Returns the pages that are not present yet.
    #[must_use]
    pub fn missing(&self) -> PageSet {
        let missing = self.parts.missing().into_iter();
        missing
            .flat_map(|part| self.source.pages_of(part))
            .collect()
    }

    /// Returns the missing parts that have any of these pages, in order.
    pub fn missing_parts(&self, pages: &PageSet) -> Vec<usize> {
        let has_any = |part: &usize| {
            let mut ranges = self.source.pages_of(*part);
            ranges.any(|range| pages.first_in(range).is_some())
        };
        let mut missing = self.parts.missing();
        missing.retain(has_any);
        missing
    }

    /// Returns whether a page is stored.
    #[must_use]
    pub fn has(&self, page: Page) -> bool {
        self.source.part_of(page).is_some()
    }

    /// Returns whether a page is stored, and not present yet.
    #[must_use]
    pub fn is_missing(&self, page: Page) -> bool {
        let part = self.source.part_of(page);
        part.is_some_and(|(part, _)| self.parts.is_missing(part))
    }

    /// Loads a page that a guest waits for, and returns whether it is stored.
    ///
    /// # Errors
    /// Returns the errors of [`DemandFill::fill_next`].
    pub fn fill_page(&self, page: Page) -> Result<bool, S::Error> {
        let Some((part, range)) = self.source.part_of(page) else {
            return Ok(false);
        };
        if self.parts.is_missing(part) {
            self.requested.fetch_add(1, Ordering::Relaxed);
            let mut late = self.late.lock();
            *late = late.union(&range.into());
            drop(late);
            self.fill(part..part + 1)?;
        }
        Ok(true)
    }

    /// Loads all of these pages that are stored: those that are needed next. Many are loaded by
    /// several threads.
    ///
    /// # Errors
    /// Returns the errors of [`DemandFill::fill_next`].
    pub fn fill_set(&self, pages: &PageSet) -> Result<(), S::Error> {
        let parts = self.missing_parts(pages);
        let readers = |runs| S::readers(parts.len(), runs);
        load_runs(&parts, readers, |run| self.fill(run))
    }

    /// Loads some more pages, in the file's order, and returns whether there were any.
    ///
    /// # Errors
    /// Returns the errors of [`PartSource::load`]. Not everything can ever be loaded then.
    pub fn fill_next(&self) -> Result<bool, S::Error> {
        self.parts
            .load_next(STEP, |run, buffer| self.source.load(run, buffer))
    }

    /// Returns how often a guest needed a part before it was present.
    #[must_use]
    pub fn requested(&self) -> u64 {
        self.requested.load(Ordering::Relaxed)
    }

    /// Returns the pages that were loaded because a guest needed one of them. Whether the others
    /// were used is not known.
    #[must_use]
    pub fn late(&self) -> PageSet {
        self.late.lock().clone()
    }

    /// Seals the file in memory, all of whose pages must be present.
    ///
    /// # Errors
    /// Returns [`PartSource::INCOMPLETE`] if pages are missing, and the errors of
    /// [`PartSource::seal`].
    pub fn finish(&self) -> Result<(), S::Error> {
        if !self.parts.missing().is_empty() {
            return Err(S::INCOMPLETE);
        }
        self.source.seal()?;
        self.progress.end(true);
        Ok(())
    }

    /// Records that no more pages will be loaded. Has no effect if everything is fully loaded.
    pub fn give_up(&self) {
        self.progress.end(false);
    }

    /// Loads these parts, or waits until other threads have loaded them.
    fn fill(&self, parts: Range<usize>) -> Result<(), S::Error> {
        self.parts
            .load(parts, |run, buffer| self.source.load(run, buffer))
    }
}

impl<S: PartSource> Drop for DemandFill<S> {
    fn drop(&mut self) {
        self.give_up();
    }
}

//! Reads the rest of a function's code while guests already run it: in order, except for pieces
//! that a guest needs earlier. `faasw_seedtree::image::Filling` does the same for a layer.
//!
//! The pager knows which guests wait for a page; this module does not.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faasw_abi::pages::{Page, PageSet};
use faasw_seedtree::reading::Parts;

use super::load_progress::LoadProgress;
use super::read::{CodeError, ReadBuffer, StoredCode, in_turns};

/// The number of pieces that are read at once while guests may wait: requests that arrive meanwhile
/// wait for these.
const PIECES_PER_STEP: usize = 4;

/// Partly loaded code, and the source of the rest. If the filling is dropped before
/// [`CodeFilling::finish`], the code is unusable.
///
/// Several threads may fill it at once: one thread reads a piece, and the others wait for it.
#[derive(Debug)]
pub struct CodeFilling {
    stored: StoredCode,
    memory: OwnedFd,
    pieces: Parts<ReadBuffer>,
    progress: Arc<LoadProgress>,
    /// The number of pieces that a guest requested before they were present.
    requested: AtomicU64,
    /// The pages of those pieces.
    late: Mutex<PageSet>,
}

impl CodeFilling {
    /// Creates a filling that reads into `memory` all pieces except those in `present`, which are
    /// present.
    pub(super) fn new(
        stored: StoredCode,
        memory: OwnedFd,
        present: impl IntoIterator<Item = usize>,
        progress: Arc<LoadProgress>,
    ) -> Self {
        Self {
            pieces: Parts::new(stored.count(), present, ReadBuffer::new),
            stored,
            memory,
            progress,
            requested: AtomicU64::new(0),
            late: Mutex::default(),
        }
    }

    /// Returns the pages that are not present yet.
    #[must_use]
    pub fn missing(&self) -> PageSet {
        let missing = self.pieces.missing().into_iter();
        missing.map(|piece| self.stored.pages_of(piece)).collect()
    }

    /// Returns whether a page contains any of the code.
    #[must_use]
    pub fn has(&self, page: Page) -> bool {
        self.stored.pages().contains(page)
    }

    /// Returns whether a page is not present yet.
    #[must_use]
    pub fn is_missing(&self, page: Page) -> bool {
        self.pieces.is_missing(StoredCode::piece(page))
    }

    /// Loads a page that a guest waits for. Returns whether the page belongs to the code.
    ///
    /// # Errors
    /// Returns the errors of [`CodeFilling::fill_next`].
    pub fn fill_page(&self, page: Page) -> Result<bool, CodeError> {
        let piece = StoredCode::piece(page);
        if self.pieces.is_missing(piece) {
            self.requested.fetch_add(1, Ordering::Relaxed);
            let mut late = self.lock_late();
            *late = late.union(&self.stored.pages_of(piece).into());
            drop(late);
            self.fill(piece..piece + 1)?;
        }
        Ok(self.has(page))
    }

    /// Loads all of these pages, which are needed next. Many pages are loaded by several threads.
    ///
    /// # Errors
    /// Returns the errors of [`CodeFilling::fill_next`].
    pub fn fill_set(&self, pages: &PageSet) -> Result<(), CodeError> {
        let mut missing = self.pieces.missing();
        missing.retain(|piece| pages.first_in(self.stored.pages_of(*piece)).is_some());
        in_turns(&missing, |run| self.fill(run))
    }

    /// Loads some more pages. Returns whether any were missing.
    ///
    /// # Errors
    /// Returns [`CodeError::Damaged`] if a piece is not what was stored, or the error of the disk
    /// or of the memory. The code will never be complete then.
    pub fn fill_next(&self) -> Result<bool, CodeError> {
        let bring =
            |run, buffer: &mut ReadBuffer| self.stored.load_pieces(run, &self.memory, buffer);
        self.pieces.load_next(PIECES_PER_STEP, bring)
    }

    /// Returns how many pieces guests have requested before they were present.
    #[must_use]
    pub fn requested(&self) -> u64 {
        self.requested.load(Ordering::Relaxed)
    }

    /// Returns the pages of those pieces.
    #[must_use]
    pub fn late(&self) -> PageSet {
        self.lock_late().clone()
    }

    /// Seals the file once all of the code is present.
    ///
    /// # Errors
    /// Returns [`CodeError::Size`] if some is missing, or [`CodeError::Memory`] if the file cannot
    /// be sealed.
    pub fn finish(&self) -> Result<(), CodeError> {
        if !self.pieces.missing().is_empty() {
            return Err(CodeError::Size);
        }
        faasw_seedtree::seal(&self.memory)?;
        self.progress.end(true);
        Ok(())
    }

    /// Marks the code as never to be complete. Has no effect if the code is complete.
    pub fn give_up(&self) {
        self.progress.end(false);
    }

    /// Loads these pieces, and waits for those that other threads read.
    fn fill(&self, pieces: Range<usize>) -> Result<(), CodeError> {
        let bring =
            |run, buffer: &mut ReadBuffer| self.stored.load_pieces(run, &self.memory, buffer);
        self.pieces.load(pieces, bring)
    }

    fn lock_late(&self) -> MutexGuard<'_, PageSet> {
        // The set changes by single assignments.
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CodeFilling {
    fn drop(&mut self) {
        self.give_up();
    }
}

//! The rest of code that is read while guests run with it already: in order, but for what one of
//! them asks for before. As a layer is filled from its image (`faasw_seedtree::image::Filling`).
//!
//! Whoever fills it knows of guests that wait; nothing here does.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faasw_abi::pages::{Page, PageSet};
use faasw_seedtree::reading::Parts;

use super::progress::Progress;
use super::read::{CodeError, Room, Stored, in_turns};

/// Pieces that are read at once while guests may wait: what they ask for meanwhile waits for
/// these.
const STEP: usize = 4;

/// Code of which some is there, and where the rest is. Dropped before [`CodeFilling::finish`], it
/// leaves code that is of no use.
///
/// Several may fill it at once: each piece is read by one of them, and others wait for it.
#[derive(Debug)]
pub struct CodeFilling {
    stored: Stored,
    memory: OwnedFd,
    pieces: Parts<Room>,
    progress: Arc<Progress>,
    /// Pieces that a guest asked for before they were there.
    asked: AtomicU64,
    /// Those, in pages.
    late: Mutex<PageSet>,
}

impl CodeFilling {
    /// What brings the pieces to `memory` that these, which are there, are not.
    pub(super) fn new(
        stored: Stored,
        memory: OwnedFd,
        there: impl IntoIterator<Item = usize>,
        progress: Arc<Progress>,
    ) -> Self {
        Self {
            pieces: Parts::new(stored.count(), there, Room::new),
            stored,
            memory,
            progress,
            asked: AtomicU64::new(0),
            late: Mutex::default(),
        }
    }

    /// Pages that are not there yet.
    #[must_use]
    pub fn missing(&self) -> PageSet {
        let missing = self.pieces.missing().into_iter();
        missing.map(|piece| self.stored.pages_of(piece)).collect()
    }

    /// Whether a page is one of those that the code has something in.
    #[must_use]
    pub fn has(&self, page: Page) -> bool {
        self.stored.pages().contains(page)
    }

    /// Whether a page is not there yet.
    #[must_use]
    pub fn is_missing(&self, page: Page) -> bool {
        self.pieces.is_missing(Stored::piece(page))
    }

    /// Has a page there that a guest waits for; says whether it is one of the code's.
    ///
    /// # Errors
    /// As [`CodeFilling::fill_next`].
    pub fn fill_page(&self, page: Page) -> Result<bool, CodeError> {
        let piece = Stored::piece(page);
        if self.pieces.is_missing(piece) {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let mut late = self.lock_late();
            *late = late.union(&self.stored.pages_of(piece).into());
            drop(late);
            self.fill(piece..piece + 1)?;
        }
        Ok(self.has(page))
    }

    /// Has all of these pages there, by several threads where they are many: those that somebody
    /// needs next.
    ///
    /// # Errors
    /// As [`CodeFilling::fill_next`].
    pub fn fill_set(&self, pages: &PageSet) -> Result<(), CodeError> {
        let mut missing = self.pieces.missing();
        missing.retain(|piece| pages.first_in(self.stored.pages_of(*piece)).is_some());
        in_turns(&missing, |run| self.fill(run))
    }

    /// Has some more pages there; says whether there were any.
    ///
    /// # Errors
    /// When a piece is not what was stored; the disk's and the system's. The code will never be
    /// whole then.
    pub fn fill_next(&self) -> Result<bool, CodeError> {
        let bring = |run, room: &mut Room| self.stored.bring(run, &self.memory, room);
        self.pieces.bring_next(STEP, bring)
    }

    /// Pieces that guests have asked for before they were there.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Those pieces, in pages.
    #[must_use]
    pub fn late(&self) -> PageSet {
        self.lock_late().clone()
    }

    /// All of it is there: nobody writes to its file any more.
    ///
    /// # Errors
    /// When some is missing; the system's.
    pub fn finish(&self) -> Result<(), CodeError> {
        if !self.pieces.missing().is_empty() {
            return Err(CodeError::Size);
        }
        faasw_seedtree::seal(&self.memory)?;
        self.progress.end(true);
        Ok(())
    }

    /// No more of it will be there. Nothing changes where it is whole.
    pub fn give_up(&self) {
        self.progress.end(false);
    }

    /// Has these pieces there, whoever reads them. Those that are missing are read at once.
    fn fill(&self, pieces: Range<usize>) -> Result<(), CodeError> {
        let bring = |run, room: &mut Room| self.stored.bring(run, &self.memory, room);
        self.pieces.bring(pieces, bring)
    }

    fn lock_late(&self) -> MutexGuard<'_, PageSet> {
        // It changes by single assignments.
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CodeFilling {
    fn drop(&mut self) {
        self.give_up();
    }
}

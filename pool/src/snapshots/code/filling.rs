//! The rest of code that is read while guests run with it already: in order, but for what one of
//! them asks for before. As a layer is filled from its image (`faasw_seedtree::image::Filling`).
//!
//! Whoever fills it knows of guests that wait; nothing here does.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faasw_abi::pages::{Page, PageRange, PageSet};
use faasw_seedtree::limits::CODE_UNIT;

use super::progress::Progress;
use super::read::{CodeError, Room, Stored};

/// Pages that are read at once while guests may wait: what they ask for meanwhile waits for
/// these.
const STEP: u32 = 64;

/// Code of which some is there, and where the rest is. Dropped before [`CodeFilling::finish`], it
/// leaves code that is of no use.
#[derive(Debug)]
pub struct CodeFilling {
    stored: Stored,
    memory: OwnedFd,
    state: Mutex<State>,
    progress: Arc<Progress>,
    /// Pieces that a guest asked for before they were there.
    asked: AtomicU64,
}

struct State {
    /// Whole pieces.
    missing: PageSet,
    /// Pieces that a guest waited for.
    late: PageSet,
    room: Room,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("State").field(&self.missing).finish()
    }
}

impl CodeFilling {
    /// What brings the pages that are `missing` in `memory`: whole pieces.
    pub(super) fn new(
        stored: Stored,
        memory: OwnedFd,
        missing: PageSet,
        progress: Arc<Progress>,
    ) -> Self {
        Self {
            stored,
            memory,
            state: Mutex::new(State {
                missing,
                late: PageSet::new(),
                room: Room::new(),
            }),
            progress,
            asked: AtomicU64::new(0),
        }
    }

    /// Pages that are not there yet.
    #[must_use]
    pub fn missing(&self) -> PageSet {
        self.state().missing.clone()
    }

    /// Whether a page is one of those that the code has something in.
    #[must_use]
    pub fn has(&self, page: Page) -> bool {
        self.stored.pages().contains(page)
    }

    /// Has a page there that a guest waits for; says whether it is one of the code's.
    ///
    /// # Errors
    /// As [`CodeFilling::fill_next`].
    pub fn fill_page(&self, page: Page) -> Result<bool, CodeError> {
        let mut state = self.state();
        if state.missing.contains(page) {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let piece = self.stored.whole_pieces(&PageRange::one(page).into());
            state.late = state.late.union(&piece);
            for run in piece.iter() {
                self.fill(run, &mut state)?;
            }
        }
        Ok(self.has(page))
    }

    /// Has some more pages there; says whether there were any.
    ///
    /// # Errors
    /// When a piece is not what was stored; the disk's and the system's. The code will never be
    /// whole then.
    pub fn fill_next(&self) -> Result<bool, CodeError> {
        let mut state = self.state();
        let next = state.missing.iter().next();
        let Some(next) = next else {
            return Ok(false);
        };
        let (run, _) = next.split_at(STEP);
        self.fill(run, &mut state)?;
        Ok(true)
    }

    /// Pieces that guests have asked for before they were there.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Those pieces, in pages.
    #[must_use]
    pub fn late(&self) -> PageSet {
        self.state().late.clone()
    }

    /// All of it is there: nobody writes to its file any more.
    ///
    /// # Errors
    /// When some is missing; the system's.
    pub fn finish(&self) -> Result<(), CodeError> {
        if !self.state().missing.is_empty() {
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

    /// Brings pages that are whole pieces.
    fn fill(&self, run: PageRange, state: &mut State) -> Result<(), CodeError> {
        let State { missing, room, .. } = state;
        self.stored.bring(run, &self.memory, room)?;
        *missing = missing.without(&run.into());
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is not missing is there.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CodeFilling {
    fn drop(&mut self) {
        self.give_up();
    }
}

const _: () = assert!(STEP.is_multiple_of(CODE_UNIT.get()));

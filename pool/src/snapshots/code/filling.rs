//! The rest of code that is read while guests run with it already: in order, but for what one of
//! them asks for before. As a layer is filled from its image (`faasw_seedtree::image::Filling`).
//!
//! Whoever fills it knows of guests that wait; nothing here does.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use faasw_abi::pages::{Page, PageRange, PageSet};
use faasw_seedtree::limits::CODE_UNIT;

use super::progress::Progress;
use super::read::{CodeError, Room, Stored, in_turns};

/// Pages that are read at once while guests may wait: what they ask for meanwhile waits for
/// these.
const STEP: u32 = 64;

/// Code of which some is there, and where the rest is. Dropped before [`CodeFilling::finish`], it
/// leaves code that is of no use.
///
/// Several may fill it at once: each piece is read by one of them, and others wait for it.
#[derive(Debug)]
pub struct CodeFilling {
    stored: Stored,
    memory: OwnedFd,
    state: Mutex<State>,
    /// Pieces have come, or did not.
    changed: Condvar,
    progress: Arc<Progress>,
    /// Pieces that a guest asked for before they were there.
    asked: AtomicU64,
}

struct State {
    /// Whole pieces, and of these those that somebody reads.
    missing: PageSet,
    /// Pieces that a guest waited for.
    late: PageSet,
    coming: PageSet,
    /// What could not be read: whoever comes next finds that, too.
    failed: Option<PageRange>,
    /// Of those who have read.
    rooms: Vec<Room>,
}

impl State {
    /// The first pieces that nobody reads yet.
    fn first_missing(&self) -> Option<PageRange> {
        let failed = self
            .failed
            .filter(|run| self.missing.first_in(*run).is_some());
        let idle = self.missing.without(&self.coming);
        let next = failed.or_else(|| idle.iter().next())?;
        Some(next.split_at(STEP).0)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("State").field(&self.missing).finish()
    }
}

/// Pieces that one reads. Dropped before they are there, it says that they did not come.
struct Coming<'a> {
    filling: &'a CodeFilling,
    run: PageRange,
    is_there: bool,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let mut state = self.filling.state();
        let run = self.run.into();
        state.coming = state.coming.without(&run);
        match self.is_there {
            true => state.missing = state.missing.without(&run),
            // Of those that were to be read together the first that was not.
            false
                if state
                    .failed
                    .is_none_or(|run| state.missing.first_in(run).is_none()) =>
            {
                state.failed = Some(self.run);
            }
            false => {}
        }
        drop(state);
        self.filling.changed.notify_all();
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
                coming: PageSet::new(),
                failed: None,
                rooms: Vec::new(),
            }),
            changed: Condvar::new(),
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
        if self.state().missing.contains(page) {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let piece = self.stored.whole_pieces(&PageRange::one(page).into());
            let mut state = self.state();
            state.late = state.late.union(&piece);
            drop(state);
            piece.iter().try_for_each(|run| self.fill(run))?;
        }
        Ok(self.has(page))
    }

    /// Has all of these pages there, by several threads where they are many: those that somebody
    /// needs next.
    ///
    /// # Errors
    /// As [`CodeFilling::fill_next`].
    pub fn fill_set(&self, pages: &PageSet) -> Result<(), CodeError> {
        let wanted = self.stored.whole_pieces(pages);
        let missing = wanted.intersection(&self.state().missing);
        in_turns(&missing, |run| self.fill(run))
    }

    /// Has some more pages there; says whether there were any.
    ///
    /// # Errors
    /// When a piece is not what was stored; the disk's and the system's. The code will never be
    /// whole then.
    pub fn fill_next(&self) -> Result<bool, CodeError> {
        let mut state = self.state();
        loop {
            if let Some(run) = state.first_missing() {
                drop(state);
                self.fill(run)?;
                return Ok(true);
            }
            if state.missing.is_empty() {
                return Ok(false);
            }
            state = self.wait(state);
        }
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

    /// Has pages there that are whole pieces, whoever reads them. Those that are missing are read at
    /// once.
    fn fill(&self, run: PageRange) -> Result<(), CodeError> {
        let mut state = self.state();
        while state.coming.first_in(run).is_some() {
            state = self.wait(state);
        }
        let rest = state.missing.intersection(&run.into());
        state.coming = state.coming.union(&rest);
        let room = state.rooms.pop();
        drop(state);
        if rest.is_empty() {
            return Ok(());
        }
        let mut room = room.unwrap_or_else(Room::new);
        // All of them are somebody's from here on, whatever becomes of the first.
        let mut coming: Vec<Coming<'_>> = rest
            .iter()
            .map(|run| Coming {
                filling: self,
                run,
                is_there: false,
            })
            .collect();
        for part in &mut coming {
            self.stored.bring(part.run, &self.memory, &mut room)?;
            part.is_there = true;
        }
        drop(coming);
        self.state().rooms.push(room);
        Ok(())
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
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

//! A layer that is filled from its image while instances of it run already (Catalyzer §3.2,
//! on-demand paging; REAP §5.2, prefetching beside it).
//!
//! What requests use is in the layer before there is a snapshot. The rest follows in the order
//! of the image, but for what a guest asks for before: its chunk is read at once. Pages come
//! whole, after they were verified, by a write to the layer's file, and never through a mapping:
//! whoever touches a hole of one that is mapped makes a page of zeroes. When all are there the
//! layer is sealed, and is as any other.
//!
//! Whoever fills it knows of guests that wait; nothing here does.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use faasw_abi::pages::{Page, PageRange, PageSet};

use super::error::ImageError;
use super::pages::{CHUNKS_AT_ONCE, Pages, Room};
use super::read::Source;
use crate::layer::{LayerBuilder, Progress};

/// Chunks that are read at once while guests may wait: what they ask for meanwhile waits for
/// these.
const STEP: usize = 4;

/// Where the pages are, whatever they are read from.
trait Fill: fmt::Debug + Send + Sync {
    fn fill(
        &self,
        chunks: Range<usize>,
        layer: &LayerBuilder,
        room: &mut Room,
    ) -> Result<(), ImageError>;
}

impl<F: Source + fmt::Debug + Send + Sync> Fill for Pages<F> {
    fn fill(
        &self,
        chunks: Range<usize>,
        layer: &LayerBuilder,
        room: &mut Room,
    ) -> Result<(), ImageError> {
        Pages::fill(self, chunks, layer, room)
    }
}

/// A layer that has some of its pages, and where the others are. Dropped before
/// [`Filling::finish`], it leaves a layer that is of no use.
#[derive(Debug)]
pub struct Filling {
    pages: Box<dyn Fill>,
    layer: LayerBuilder,
    /// Each page that is stored, in order, with its chunk.
    places: Vec<(PageRange, usize)>,
    /// Whether each chunk is in the layer.
    state: Mutex<State>,
    progress: Arc<Progress>,
    /// Pages that a guest asked for before they were there.
    asked: AtomicU64,
}

struct State {
    filled: Vec<bool>,
    /// All before it are filled.
    next: usize,
    /// What a guest waited for, with the pages round it that came with it.
    late: PageSet,
    room: Room,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("next", &self.next).finish()
    }
}

impl Filling {
    /// A layer in which the chunks `first` are.
    pub(super) fn new<F: Source + fmt::Debug + Send + Sync + 'static>(
        pages: Pages<F>,
        layer: LayerBuilder,
        first: &[usize],
        progress: Arc<Progress>,
    ) -> Self {
        let pieces = pages.pieces();
        let mut filled = vec![false; pieces.len()];
        for chunk in first {
            if let Some(filled) = filled.get_mut(*chunk) {
                *filled = true;
            }
        }
        let numbered = pieces.iter().enumerate();
        let mut places: Vec<(PageRange, usize)> = numbered
            .flat_map(|(number, piece)| piece.iter().map(move |range| (*range, number)))
            .collect();
        places.sort_by_key(|(range, _)| range.start);
        Self {
            pages: Box::new(pages),
            layer,
            places,
            state: Mutex::new(State {
                filled,
                next: 0,
                late: PageSet::new(),
                room: Room::for_chunks(),
            }),
            progress,
            asked: AtomicU64::new(0),
        }
    }

    /// Pages that are not in the layer yet.
    #[must_use]
    pub fn missing(&self) -> PageSet {
        let state = self.state();
        let is_missing = |chunk: &usize| !state.filled.get(*chunk).copied().unwrap_or(true);
        let missing = self.places.iter().filter(|(_, chunk)| is_missing(chunk));
        missing.map(|(range, _)| *range).collect()
    }

    /// Has a page in the layer that a guest waits for; says whether it is one that is stored: all
    /// others that its layer has are there.
    ///
    /// # Errors
    /// As [`Filling::fill_next`].
    pub fn fill_page(&self, page: Page) -> Result<bool, ImageError> {
        let behind = self
            .places
            .partition_point(|(range, _)| range.start <= page);
        let place = behind.checked_sub(1).and_then(|at| self.places.get(at));
        let Some((range, chunk)) = place.filter(|(range, _)| range.contains(page)) else {
            return Ok(false);
        };
        let mut state = self.state();
        if state.filled.get(*chunk).copied() == Some(false) {
            self.asked.fetch_add(1, Ordering::Relaxed);
            state.late = state.late.union(&(*range).into());
            self.fill(*chunk..*chunk + 1, &mut state)?;
        }
        Ok(true)
    }

    /// Has some more pages in the layer, in the image's order; says whether there were any.
    ///
    /// # Errors
    /// When a chunk is not what was sealed; the disk's and the system's. There will be no whole
    /// layer then.
    pub fn fill_next(&self) -> Result<bool, ImageError> {
        let mut state = self.state();
        let chunks = state.filled.len();
        let is_filled = |state: &State, at: usize| state.filled.get(at).copied().unwrap_or(true);
        while state.next < chunks && is_filled(&state, state.next) {
            state.next += 1;
        }
        let start = state.next;
        let most = chunks.min(start + STEP.min(CHUNKS_AT_ONCE));
        let end = (start..most)
            .find(|at| is_filled(&state, *at))
            .unwrap_or(most);
        if start == end {
            return Ok(false);
        }
        self.fill(start..end, &mut state)?;
        Ok(true)
    }

    /// Pages that guests have asked for before they were there.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// The pages that came because guests have asked for one of them: of each chunk those that lie
    /// together with that. What else of them was used nobody can tell.
    #[must_use]
    pub fn late(&self) -> PageSet {
        self.state().late.clone()
    }

    /// All pages are there: nobody writes to the layer any more.
    ///
    /// # Errors
    /// When some are missing; the system's.
    pub fn finish(&self) -> Result<(), ImageError> {
        if self.state().filled.contains(&false) {
            return Err(ImageError::CutOff);
        }
        self.layer.seal().map_err(ImageError::Layer)?;
        self.progress.end(true);
        Ok(())
    }

    /// No more pages will be there: nothing is to be forked from the layer. Nothing changes where
    /// it is whole.
    pub fn give_up(&self) {
        self.progress.end(false);
    }

    fn fill(&self, chunks: Range<usize>, state: &mut State) -> Result<(), ImageError> {
        let State { filled, room, .. } = state;
        self.pages.fill(chunks.clone(), &self.layer, room)?;
        if let Some(filled) = filled.get_mut(chunks) {
            filled.fill(true);
        }
        Ok(())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // What is marked as filled is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.give_up();
    }
}

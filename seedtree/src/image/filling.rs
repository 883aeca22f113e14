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
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use faasw_abi::pages::{Page, PageRange, PageSet};

use super::error::ImageError;
use super::pages::{CHUNKS_AT_ONCE, Pages, Room, in_turns};
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
///
/// Several may fill it at once: each chunk is read by one of them, and others wait for it.
#[derive(Debug)]
pub struct Filling {
    pages: Box<dyn Fill>,
    layer: LayerBuilder,
    /// Each page that is stored, in order, with its chunk.
    places: Vec<(PageRange, usize)>,
    state: Mutex<State>,
    /// A chunk has come, or did not.
    changed: Condvar,
    progress: Arc<Progress>,
    /// Pages that a guest asked for before they were there.
    asked: AtomicU64,
}

/// Where a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    /// On the disk.
    Missing,
    /// Somebody reads it.
    Coming,
    /// In the layer.
    There,
}

struct State {
    chunks: Vec<Chunk>,
    /// All before it are there, or come.
    next: usize,
    /// What a guest waited for, with the pages round it that came with it.
    late: PageSet,
    /// What could not be read: whoever comes next finds that, too.
    failed: Option<usize>,
    /// Of those who have read.
    rooms: Vec<Room>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("next", &self.next).finish()
    }
}

impl State {
    fn is(&self, chunk: usize, what: Chunk) -> bool {
        self.chunks.get(chunk).copied() == Some(what)
    }

    fn mark(&mut self, chunks: Range<usize>, what: Chunk) {
        if let Some(chunks) = self.chunks.get_mut(chunks) {
            chunks.fill(what);
        }
    }

    /// The first chunks that nobody reads yet, as many as are read at once.
    fn first_missing(&mut self) -> Option<Range<usize>> {
        if let Some(failed) = self
            .failed
            .filter(|failed| self.is(*failed, Chunk::Missing))
        {
            return Some(failed..failed + 1);
        }
        let count = self.chunks.len();
        while self.next < count && !self.is(self.next, Chunk::Missing) {
            self.next += 1;
        }
        let most = count.min(self.next + STEP.min(CHUNKS_AT_ONCE));
        let mut run = self.next..most;
        let end = run.find(|at| !self.is(*at, Chunk::Missing)).unwrap_or(most);
        (self.next < end).then_some(self.next..end)
    }
}

/// Chunks that one reads. Dropped before they are in the layer, it says that they did not come.
struct Coming<'a> {
    filling: &'a Filling,
    chunks: Range<usize>,
    became: Chunk,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let mut state = self.filling.state();
        state.mark(self.chunks.clone(), self.became);
        if self.became == Chunk::Missing {
            state.next = state.next.min(self.chunks.start);
            state.failed = Some(self.chunks.start);
        }
        drop(state);
        self.filling.changed.notify_all();
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
        let mut chunks = vec![Chunk::Missing; pieces.len()];
        for chunk in first {
            if let Some(chunk) = chunks.get_mut(*chunk) {
                *chunk = Chunk::There;
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
                chunks,
                next: 0,
                late: PageSet::new(),
                failed: None,
                rooms: Vec::new(),
            }),
            changed: Condvar::new(),
            progress,
            asked: AtomicU64::new(0),
        }
    }

    /// Pages that are not in the layer yet.
    #[must_use]
    pub fn missing(&self) -> PageSet {
        let state = self.state();
        let is_missing = |chunk: &usize| !state.is(*chunk, Chunk::There);
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
        if !self.state().is(*chunk, Chunk::There) {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let mut state = self.state();
            state.late = state.late.union(&(*range).into());
            drop(state);
            self.fill(*chunk..*chunk + 1)?;
        }
        Ok(true)
    }

    /// Has all of these pages in the layer that are stored, by two threads where they are many: those
    /// that somebody needs next.
    ///
    /// # Errors
    /// As [`Filling::fill_next`].
    pub fn fill_set(&self, pages: &PageSet) -> Result<(), ImageError> {
        let wanted: Vec<usize> = {
            let state = self.state();
            let is_wanted = |range: PageRange, chunk| {
                !state.is(chunk, Chunk::There) && pages.first_in(range).is_some()
            };
            let wanted = self
                .places
                .iter()
                .filter(|(range, chunk)| is_wanted(*range, *chunk));
            let mut wanted: Vec<usize> = wanted.map(|(_, chunk)| *chunk).collect();
            wanted.sort_unstable();
            wanted.dedup();
            wanted
        };
        in_turns(&wanted, |run| self.fill(run))
    }

    /// Has some more pages in the layer, in the image's order; says whether there were any.
    ///
    /// # Errors
    /// When a chunk is not what was sealed; the disk's and the system's. There will be no whole
    /// layer then.
    pub fn fill_next(&self) -> Result<bool, ImageError> {
        let mut state = self.state();
        loop {
            if let Some(run) = state.first_missing() {
                drop(state);
                self.fill(run)?;
                return Ok(true);
            }
            if !state.chunks.contains(&Chunk::Coming) {
                return Ok(false);
            }
            state = self.wait(state);
        }
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
        if self
            .state()
            .chunks
            .iter()
            .any(|chunk| *chunk != Chunk::There)
        {
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

    /// Has these chunks in the layer, whoever reads them. Those that are missing are read at once.
    fn fill(&self, chunks: Range<usize>) -> Result<(), ImageError> {
        let mut at = chunks.start;
        while at < chunks.end {
            let mut state = self.state();
            while state.is(at, Chunk::Coming) {
                state = self.wait(state);
            }
            let mut run = at..chunks.end;
            let end = run.find(|at| !state.is(*at, Chunk::Missing));
            let run = at..end.unwrap_or(chunks.end);
            if run.is_empty() {
                at += 1;
                continue;
            }
            state.mark(run.clone(), Chunk::Coming);
            let mut room = state.rooms.pop().unwrap_or_else(Room::for_chunks);
            drop(state);
            let mut coming = Coming {
                filling: self,
                chunks: run.clone(),
                became: Chunk::Missing,
            };
            self.pages.fill(run.clone(), &self.layer, &mut room)?;
            coming.became = Chunk::There;
            drop(coming);
            self.state().rooms.push(room);
            at = run.end;
        }
        Ok(())
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is marked as there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.give_up();
    }
}

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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faasw_abi::pages::{Page, PageRange, PageSet};

use super::error::ImageError;
use super::pages::{CHUNKS_AT_ONCE, Pages, Room, chunks_with, in_turns};
use super::read::Source;
use crate::layer::{LayerBuilder, Progress};
use crate::reading::Parts;

/// Chunks that are read at once while guests may wait: what they ask for meanwhile waits for
/// these.
const STEP: usize = 4;

/// Where the pages are, whatever they are read from.
trait Fill: fmt::Debug + Send + Sync {
    /// The chunks that have any of these pages, in order.
    fn chunks_with(&self, pages: &PageSet) -> Vec<usize>;

    fn fill(
        &self,
        chunks: Range<usize>,
        layer: &LayerBuilder,
        room: &mut Room,
    ) -> Result<(), ImageError>;
}

impl<F: Source + fmt::Debug + Send + Sync> Fill for Pages<F> {
    fn chunks_with(&self, pages: &PageSet) -> Vec<usize> {
        chunks_with(self.pieces(), pages)
    }

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
    chunks: Parts<Room>,
    progress: Arc<Progress>,
    /// Pages that a guest asked for before they were there.
    asked: AtomicU64,
    /// Those, with the pages round them that came with them.
    late: Mutex<PageSet>,
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
        let chunks = Parts::new(pieces.len(), first.iter().copied(), Room::for_chunks);
        let numbered = pieces.iter().enumerate();
        let mut places: Vec<(PageRange, usize)> = numbered
            .flat_map(|(number, piece)| piece.iter().map(move |range| (*range, number)))
            .collect();
        places.sort_by_key(|(range, _)| range.start);
        Self {
            pages: Box::new(pages),
            layer,
            places,
            chunks,
            progress,
            asked: AtomicU64::new(0),
            late: Mutex::default(),
        }
    }

    /// Pages that are not in the layer yet.
    #[must_use]
    pub fn missing(&self) -> PageSet {
        let chunks = self.chunks.missing();
        let is_missing = |chunk: &usize| chunks.binary_search(chunk).is_ok();
        let missing = self.places.iter().filter(|(_, chunk)| is_missing(chunk));
        missing.map(|(range, _)| *range).collect()
    }

    /// The pages that lie together with one, and their chunk, if it is stored.
    fn place(&self, page: Page) -> Option<(PageRange, usize)> {
        let behind = self
            .places
            .partition_point(|(range, _)| range.start <= page);
        let place = self.places.get(behind.checked_sub(1)?).copied();
        place.filter(|(range, _)| range.contains(page))
    }

    /// Whether a page is stored, and not in the layer yet.
    #[must_use]
    pub fn is_missing(&self, page: Page) -> bool {
        let place = self.place(page);
        place.is_some_and(|(_, chunk)| self.chunks.is_missing(chunk))
    }

    /// Has a page in the layer that a guest waits for; says whether it is one that is stored: all
    /// others that its layer has are there.
    ///
    /// # Errors
    /// As [`Filling::fill_next`].
    pub fn fill_page(&self, page: Page) -> Result<bool, ImageError> {
        let Some((range, chunk)) = self.place(page) else {
            return Ok(false);
        };
        if self.chunks.is_missing(chunk) {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let mut late = self.lock_late();
            *late = late.union(&range.into());
            drop(late);
            self.fill(chunk..chunk + 1)?;
        }
        Ok(true)
    }

    /// Has all of these pages in the layer that are stored, by two threads where they are many:
    /// those that somebody needs next.
    ///
    /// # Errors
    /// As [`Filling::fill_next`].
    pub fn fill_set(&self, pages: &PageSet) -> Result<(), ImageError> {
        let mut wanted = self.pages.chunks_with(pages);
        wanted.retain(|chunk| self.chunks.is_missing(*chunk));
        in_turns(&wanted, |run| self.fill(run))
    }

    /// Has some more pages in the layer, in the image's order; says whether there were any.
    ///
    /// # Errors
    /// When a chunk is not what was sealed; the disk's and the system's. There will be no whole
    /// layer then.
    pub fn fill_next(&self) -> Result<bool, ImageError> {
        let fill = |run, room: &mut Room| self.pages.fill(run, &self.layer, room);
        self.chunks.bring_next(STEP.min(CHUNKS_AT_ONCE), fill)
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
        self.lock_late().clone()
    }

    /// All pages are there: nobody writes to the layer any more.
    ///
    /// # Errors
    /// When some are missing; the system's.
    pub fn finish(&self) -> Result<(), ImageError> {
        if !self.chunks.missing().is_empty() {
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
        let fill = |run, room: &mut Room| self.pages.fill(run, &self.layer, room);
        self.chunks.bring(chunks, fill)
    }

    fn lock_late(&self) -> MutexGuard<'_, PageSet> {
        // It changes by single assignments.
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.give_up();
    }
}

//! A layer that is filled from its image while instances of it already run (Catalyzer §3.1,
//! on-demand paging; REAP §5.2, prefetching beside it).
//!
//! Pages that requests use are in the layer before there is a snapshot. The rest follows in the
//! order of the image. If a guest needs another page earlier, its chunk is read at once. Verified
//! pages are written whole to the layer's file, and never through a mapping, because touching a
//! hole of a mapped file makes a page of zeroes. When all pages are present, the layer is sealed,
//! and is like any other.
//!
//! The caller handles the guests that wait.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faasw_abi::pages::{Page, PageRange, PageSet};

use super::error::ImageError;
use super::pages::{CHUNKS_AT_ONCE, ChunkBuffer, Pages, chunks_with, fill_concurrently};
use super::source::Source;
use crate::layer::{LayerBuilder, Progress};
use crate::reading::Parts;

/// Chunks that are read at once while guests may wait: a page that a guest needs meanwhile waits
/// for these.
const STEP: usize = 4;

/// The source of the pages, whatever they are read from.
trait Fill: fmt::Debug + Send + Sync {
    /// Returns the chunks that have any of these pages, in order.
    fn chunks_with(&self, pages: &PageSet) -> Vec<usize>;

    fn fill(
        &self,
        chunks: Range<usize>,
        layer: &LayerBuilder,
        room: &mut ChunkBuffer,
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
        room: &mut ChunkBuffer,
    ) -> Result<(), ImageError> {
        Pages::fill(self, chunks, layer, room)
    }
}

/// A layer that has some of its pages, and the source of the others. If it is dropped before
/// [`Filling::finish`], the layer is unusable.
///
/// Several threads may fill it at once: each chunk is read by one of them, and the others wait for
/// it.
#[derive(Debug)]
pub struct Filling {
    pages: Box<dyn Fill>,
    layer: LayerBuilder,
    /// Each stored range of pages, in order of address, with its chunk.
    places: Vec<(PageRange, usize)>,
    chunks: Parts<ChunkBuffer>,
    progress: Arc<Progress>,
    /// Number of pages that a guest needed before they were present.
    asked: AtomicU64,
    /// The pages that guests needed too early, with the neighbours that were loaded with them.
    late: Mutex<PageSet>,
}

impl Filling {
    /// Returns the filling of a layer in which the chunks `first` are present.
    pub(super) fn new<F: Source + fmt::Debug + Send + Sync + 'static>(
        pages: Pages<F>,
        layer: LayerBuilder,
        first: &[usize],
        progress: Arc<Progress>,
    ) -> Self {
        let pieces = pages.pieces();
        let chunks = Parts::new(pieces.len(), first.iter().copied(), ChunkBuffer::for_chunks);
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

    /// Returns the pages that are not in the layer yet.
    #[must_use]
    pub fn missing(&self) -> PageSet {
        let chunks = self.chunks.missing();
        let is_missing = |chunk: &usize| chunks.binary_search(chunk).is_ok();
        let missing = self.places.iter().filter(|(_, chunk)| is_missing(chunk));
        missing.map(|(range, _)| *range).collect()
    }

    /// Returns the stored range that contains a page, and its chunk, if the page is stored.
    fn place(&self, page: Page) -> Option<(PageRange, usize)> {
        let behind = self
            .places
            .partition_point(|(range, _)| range.start <= page);
        let place = self.places.get(behind.checked_sub(1)?).copied();
        place.filter(|(range, _)| range.contains(page))
    }

    /// Returns whether a page is stored, and not in the layer yet.
    #[must_use]
    pub fn is_missing(&self, page: Page) -> bool {
        let place = self.place(page);
        place.is_some_and(|(_, chunk)| self.chunks.is_missing(chunk))
    }

    /// Loads a page that a guest waits for, and returns whether it is stored. All other pages of
    /// the layer are present already.
    ///
    /// # Errors
    /// Returns the errors of [`Filling::fill_next`].
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

    /// Loads all of these pages that are stored: those that are needed next. Uses two threads if
    /// there are many.
    ///
    /// # Errors
    /// Returns the errors of [`Filling::fill_next`].
    pub fn fill_set(&self, pages: &PageSet) -> Result<(), ImageError> {
        let mut wanted = self.pages.chunks_with(pages);
        wanted.retain(|chunk| self.chunks.is_missing(*chunk));
        fill_concurrently(&wanted, |run| self.fill(run))
    }

    /// Loads some more pages, in the image's order, and returns whether there were any.
    ///
    /// # Errors
    /// Returns [`ImageError::Damaged`] if a chunk is not what was sealed, and the errors of the
    /// disk and the system. The layer can never be fully loaded then.
    pub fn fill_next(&self) -> Result<bool, ImageError> {
        let fill = |run, room: &mut ChunkBuffer| self.pages.fill(run, &self.layer, room);
        self.chunks.load_next(STEP.min(CHUNKS_AT_ONCE), fill)
    }

    /// Returns the number of pages that guests needed before they were present.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Returns the pages that were loaded because a guest needed one of them: from each chunk, the
    /// contiguous range around that page. Whether the other pages of the range were used is not
    /// known.
    #[must_use]
    pub fn late(&self) -> PageSet {
        self.lock_late().clone()
    }

    /// Seals the layer, all of whose pages must be present: it cannot be written any more.
    ///
    /// # Errors
    /// Returns [`ImageError::CutOff`] if pages are missing, and [`ImageError::Layer`] if sealing
    /// fails.
    pub fn finish(&self) -> Result<(), ImageError> {
        if !self.chunks.missing().is_empty() {
            return Err(ImageError::CutOff);
        }
        self.layer.seal().map_err(ImageError::Layer)?;
        self.progress.end(true);
        Ok(())
    }

    /// Records that no more pages will be loaded: nothing is to be forked from the layer. Has no
    /// effect on a fully loaded layer.
    pub fn give_up(&self) {
        self.progress.end(false);
    }

    /// Loads these chunks, or waits until other threads have loaded them. Missing chunks are read
    /// at once.
    fn fill(&self, chunks: Range<usize>) -> Result<(), ImageError> {
        let fill = |run, room: &mut ChunkBuffer| self.pages.fill(run, &self.layer, room);
        self.chunks.load(chunks, fill)
    }

    fn lock_late(&self) -> MutexGuard<'_, PageSet> {
        // The set changes by single assignments, so a panic leaves it valid.
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.give_up();
    }
}

//! The pages of an image: read in large pieces, decrypted, and written into a layer.

use std::ops::Range;
use std::sync::Arc;

use faasw_abi::pages::{PageRange, PageSet};

use super::crypt::{DataKey, TAG};
use super::error::{ImageError, Part};
use super::format::CHUNK;
use super::source::{Source, read};
use crate::layer::LayerBuilder;
use crate::reading::{AlignedBuffer, BufferPool, PART, PARTS_AT_ONCE, load_runs};

/// From this many bytes on, two threads alternate between waiting for the disk and decryption.
const SHARED: usize = 2 << 20;

const _: () = assert!(CHUNK == PART);

/// Pages in chunks, each sealed separately.
#[derive(Debug)]
pub(super) struct Pages<F> {
    source: F,
    key: DataKey,
    tags: Vec<[u8; TAG]>,
    /// The ranges of pages in each chunk.
    pieces: Vec<Vec<PageRange>>,
    /// Offset of the first chunk.
    at: u64,
}

impl<F: Source> Pages<F> {
    /// Returns the pages that begin at `at`, in chunks with these tags and ranges.
    pub fn new(
        source: F,
        key: DataKey,
        at: u64,
        tags: Vec<[u8; TAG]>,
        pieces: Vec<Vec<PageRange>>,
    ) -> Self {
        Self {
            source,
            key,
            tags,
            pieces,
            at,
        }
    }

    /// Returns the ranges of pages in each chunk.
    pub fn pieces(&self) -> &[Vec<PageRange>] {
        &self.pieces
    }

    /// Returns the offset of the first chunk.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Reads these chunks at once, and writes their pages into a layer.
    ///
    /// # Errors
    /// Returns [`ImageError::Damaged`] if a chunk is not what was sealed, and the errors of the
    /// disk and the system. Earlier chunks may be in the layer.
    pub fn fill(
        &self,
        chunks: Range<usize>,
        layer: &LayerBuilder,
        buffer: &mut AlignedBuffer,
    ) -> Result<(), ImageError> {
        self.open(chunks, buffer, |piece, chunk| {
            let mut rest = chunk;
            for range in piece {
                let (pages, behind) = rest
                    .split_at_checked(range.bytes() as usize)
                    .ok_or(ImageError::Senseless("a chunk is too short"))?;
                layer
                    .write(range.start.address().get(), pages)
                    .map_err(ImageError::Layer)?;
                rest = behind;
            }
            Ok(())
        })
    }

    /// Reads and verifies all chunks, and keeps nothing.
    ///
    /// # Errors
    /// Returns [`ImageError::Damaged`] if a chunk is not what was sealed, and the errors of the
    /// disk.
    pub fn verify(&self) -> Result<(), ImageError> {
        let mut buffer = AlignedBuffer::new(CHUNK * PARTS_AT_ONCE);
        let count = self.pieces.len();
        (0..count).step_by(PARTS_AT_ONCE).try_for_each(|first| {
            let chunks = first..count.min(first + PARTS_AT_ONCE);
            self.open(chunks, &mut buffer, |_, _| Ok(()))
        })
    }

    /// Reads these chunks at once, verifies each, and passes it to `take`.
    fn open(
        &self,
        chunks: Range<usize>,
        buffer: &mut AlignedBuffer,
        mut take: impl FnMut(&[PageRange], &[u8]) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        let pieces = self.pieces.get(chunks.clone()).unwrap_or_default();
        let tags = self.tags.get(chunks.clone()).unwrap_or_default();
        let bytes = |piece: &Vec<PageRange>| piece.iter().map(|range| range.bytes()).sum::<u64>();
        let length = pieces.iter().map(bytes).sum::<u64>();
        let length = usize::try_from(length).map_err(|_| ImageError::TooLarge)?;
        let part = buffer.first(length).ok_or(ImageError::TooLarge)?;
        // All chunks but the last have the full size.
        read(
            &self.source,
            &mut *part,
            self.at + (chunks.start * CHUNK) as u64,
        )?;
        let parts = part.chunks_mut(CHUNK).zip(pieces).zip(tags);
        for (number, ((chunk, piece), tag)) in (chunks.start as u64..).zip(parts) {
            if !self.key.open(number, b"", *tag, chunk) {
                return Err(ImageError::Damaged(Part::Chunk(number)));
            }
            take(piece, chunk)?;
        }
        Ok(())
    }

    /// Writes the pages of all chunks into a layer.
    ///
    /// # Errors
    /// Returns the errors of [`Pages::fill`].
    pub fn fill_all(&self, layer: &LayerBuilder) -> Result<(), ImageError> {
        let all: Vec<usize> = (0..self.pieces.len()).collect();
        let buffers = BufferPool::default();
        load_runs(
            &all,
            |_| readers(all.len()),
            |run| buffers.with(|buffer| self.fill(run, layer, buffer)),
        )
    }

    /// Returns how many bytes the chunks have that have any of these pages.
    pub fn bytes_with(&self, wanted: &PageSet) -> u64 {
        let has =
            |piece: &&Vec<PageRange>| piece.iter().any(|range| wanted.first_in(*range).is_some());
        (self.pieces.iter().filter(has).count() * CHUNK) as u64
    }
}

impl<F: Source + 'static> Pages<F> {
    /// Converts the source to one of any type.
    pub fn erased(self) -> Pages<Arc<dyn Source>> {
        Pages {
            source: Arc::new(self.source),
            key: self.key,
            tags: self.tags,
            pieces: self.pieces,
            at: self.at,
        }
    }
}

/// Returns how many threads read so many chunks.
pub(super) fn readers(chunks: usize) -> usize {
    if chunks * CHUNK < SHARED { 1 } else { 2 }
}

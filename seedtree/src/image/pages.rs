//! The pages of an image: read in large pieces, decrypted, and written into a layer.

use std::ops::Range;

use faasw_abi::pages::{PageRange, PageSet};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::crypt::{DataKey, TAG};
use super::error::{ImageError, Part};
use super::format::CHUNK;
use super::source::{Source, read};
use crate::layer::LayerBuilder;
use crate::reading::{self, BufferPool, runs};

/// Bytes that are read at once. A disk is no faster with more, and one part is decrypted while
/// another is read.
const READ: usize = 1 << 20;

/// Number of chunks that are read at once.
pub(super) const CHUNKS_AT_ONCE: usize = READ / CHUNK;

/// From this many bytes on, two threads alternate between waiting for the disk and decryption.
const SHARED: usize = 2 * READ;

/// A page with an alignment that a disk can write to without a copy.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Aligned([u8; 4096]);

/// A buffer that a disk can write to without a copy (open(2), `O_DIRECT`): both ends of every read
/// are multiples of a page, in the file and here.
pub(super) struct ChunkBuffer(Vec<Aligned>);

impl ChunkBuffer {
    /// Returns a buffer of at least `bytes` bytes, in whole pages.
    pub fn of(bytes: usize) -> Self {
        let pages = bytes.div_ceil(size_of::<Aligned>());
        Self(vec![Aligned([0; _]); pages])
    }

    /// Returns a buffer for the chunks that are read at once.
    pub fn for_chunks() -> Self {
        Self::of(READ)
    }

    /// Returns the whole buffer.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.0.as_mut_slice().as_mut_bytes()
    }

    /// Returns the first bytes of the buffer.
    pub fn first(&mut self, bytes: usize) -> Result<&mut [u8], ImageError> {
        self.bytes().get_mut(..bytes).ok_or(ImageError::TooLarge)
    }
}

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
        room: &mut ChunkBuffer,
    ) -> Result<(), ImageError> {
        self.open(chunks, room, |piece, chunk| {
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
        let mut room = ChunkBuffer::for_chunks();
        let count = self.pieces.len();
        (0..count).step_by(CHUNKS_AT_ONCE).try_for_each(|first| {
            let chunks = first..count.min(first + CHUNKS_AT_ONCE);
            self.open(chunks, &mut room, |_, _| Ok(()))
        })
    }

    /// Reads these chunks at once, verifies each, and passes it to `take`.
    fn open(
        &self,
        chunks: Range<usize>,
        room: &mut ChunkBuffer,
        mut take: impl FnMut(&[PageRange], &[u8]) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        let pieces = self.pieces.get(chunks.clone()).unwrap_or_default();
        let tags = self.tags.get(chunks.clone()).unwrap_or_default();
        let bytes = |piece: &Vec<PageRange>| piece.iter().map(|range| range.bytes()).sum::<u64>();
        let length = pieces.iter().map(bytes).sum::<u64>();
        let length = usize::try_from(length).map_err(|_| ImageError::TooLarge)?;
        let part = room.first(length)?;
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

    /// Writes the pages of all these chunks, which are in order, into a layer.
    ///
    /// # Errors
    /// Returns the errors of [`Pages::fill`].
    pub fn fill_all(&self, chunks: &[usize], layer: &LayerBuilder) -> Result<(), ImageError>
    where
        F: Sync,
    {
        let rooms = BufferPool::new(ChunkBuffer::for_chunks);
        fill_concurrently(chunks, |run| rooms.with(|room| self.fill(run, layer, room)))
    }
}

/// Fills each run of these chunks, which are in order. Uses two threads if there are many.
///
/// # Errors
/// Returns the errors of [`reading::read_concurrently`].
pub(super) fn fill_concurrently(
    chunks: &[usize],
    fill: impl Fn(Range<usize>) -> Result<(), ImageError> + Sync,
) -> Result<(), ImageError> {
    let readers = if chunks.len() * CHUNK < SHARED { 1 } else { 2 };
    let runs = runs(chunks, CHUNKS_AT_ONCE);
    reading::read_concurrently(&runs, readers, |run| fill(run.clone()))
}

/// Returns the chunks that have any of these pages, in order.
pub(super) fn chunks_with(pieces: &[Vec<PageRange>], wanted: &PageSet) -> Vec<usize> {
    let has = |piece: &[PageRange]| piece.iter().any(|range| wanted.first_in(*range).is_some());
    let numbered = pieces.iter().enumerate();
    let with = numbered.filter(|(_, piece)| has(piece));
    with.map(|(number, _)| number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_buffers_are_aligned_for_direct_io() {
        let mut room = ChunkBuffer::of(5000);
        assert_eq!(room.bytes().as_ptr().addr() % 4096, 0);
        assert_eq!(room.bytes().len(), 8192);
        assert_eq!(room.first(4096).unwrap().len(), 4096);
        assert!(room.first(8193).is_err());
    }
}

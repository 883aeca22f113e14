//! A layer that is filled from its image while instances of it already run.

use std::ops::Range;
use std::sync::Arc;

use faasw_abi::pages::{Page, PageRange};

use super::error::ImageError;
use super::pages::{Pages, readers};
use super::source::Source;
use crate::layer::LayerBuilder;
use crate::reading::{AlignedBuffer, DemandFill, PartSource};

/// A layer that has some of its pages, and the source of the others.
pub type LayerFill = DemandFill<LayerSource>;

/// The chunks of an image, and the layer that they are read into.
#[derive(Debug)]
pub struct LayerSource {
    pages: Pages<Arc<dyn Source>>,
    pub(super) layer: LayerBuilder,
    /// Each stored range of pages, in order of address, with its chunk.
    stored: Vec<(PageRange, usize)>,
}

impl LayerSource {
    pub(super) fn new<F: Source + 'static>(pages: Pages<F>, layer: LayerBuilder) -> Self {
        let numbered = pages.pieces().iter().enumerate();
        let mut stored: Vec<(PageRange, usize)> = numbered
            .flat_map(|(number, piece)| piece.iter().map(move |range| (*range, number)))
            .collect();
        stored.sort_by_key(|(range, _)| range.start);
        Self {
            pages: pages.erased(),
            layer,
            stored,
        }
    }
}

impl PartSource for LayerSource {
    type Error = ImageError;

    const INCOMPLETE: ImageError = ImageError::CutOff;

    fn count(&self) -> usize {
        self.pages.pieces().len()
    }

    fn part_of(&self, page: Page) -> Option<(usize, PageRange)> {
        let behind = self
            .stored
            .partition_point(|(range, _)| range.start <= page);
        let (range, chunk) = self.stored.get(behind.checked_sub(1)?)?;
        range.contains(page).then_some((*chunk, *range))
    }

    fn pages_of(&self, chunk: usize) -> impl Iterator<Item = PageRange> {
        let piece = self.pages.pieces().get(chunk);
        piece.into_iter().flatten().copied()
    }

    fn readers(chunks: usize, _runs: usize) -> usize {
        readers(chunks)
    }

    fn load(&self, chunks: Range<usize>, buffer: &mut AlignedBuffer) -> Result<(), ImageError> {
        self.pages.fill(chunks, &self.layer, buffer)
    }

    fn seal(&self) -> Result<(), ImageError> {
        self.layer.seal().map_err(ImageError::Layer)
    }
}

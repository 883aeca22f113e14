//! Reading an image: a snapshot as it was, over the parent that it was made over.

use std::sync::Arc;

use faasw_abi::memory_map;
use faasw_abi::pages::{PageRange, PageSet};
use zerocopy::FromBytes;

use super::crypt::ImageKey;
use super::error::{ImageError, Part};
use super::format::{CHUNK, PREFIX};
use super::header::{Header, Prefix, Purpose};
use super::layer_source::{LayerFill, LayerSource};
use super::pages::Pages;
use super::source::{Source, read};
use super::{HEADER_PART, pieces};
use crate::content::Content;
use crate::freeze::{SnapshotMetadata, windows_over};
use crate::key::Owner;
use crate::layer::{Layer, LayerBuilder};
use crate::limits::WINDOWS_MAX;
use crate::reading::{AlignedBuffer, DemandFill};
use crate::snapshot::{Snapshot, Sorted};

/// An image whose header was read and verified.
#[derive(Debug)]
pub struct Image<F> {
    pub(super) header: Header,
    pub(super) pages: Pages<F>,
}

impl<F: Source> Image<F> {
    /// Reads the header.
    ///
    /// # Errors
    /// Returns the [`ImageError`] that names the fault if the file is no image, was sealed with
    /// another key, is damaged or inconsistent. Returns [`ImageError::Io`] if the disk fails.
    pub fn open(source: F, key: &ImageKey) -> Result<Self, ImageError> {
        let mut buffer = AlignedBuffer::new(PREFIX);
        read(&source, buffer.all(), 0)?;
        let (prefix, _) = Prefix::read_from_prefix(buffer.all()).map_err(|_| ImageError::CutOff)?;
        prefix.check()?;
        let key = key.unwrap(prefix.bound_to_key(), prefix.key)?;
        let length = prefix.header_bytes as usize;
        // The chunks after the header begin at a page boundary, too.
        let mut buffer = AlignedBuffer::new(length);
        read(&source, buffer.all(), PREFIX as u64)?;
        let (header, between) = buffer
            .all()
            .split_at_mut_checked(length)
            .ok_or(ImageError::CutOff)?;
        if between.iter().any(|byte| *byte != 0) {
            return Err(ImageError::Damaged(Part::Header));
        }
        let bound = prefix.bound_to_header();
        if !key.open(HEADER_PART, &bound, prefix.header_tag, header) {
            return Err(ImageError::Damaged(Part::Header));
        }
        let header = Header::decode(header)?;
        let pieces = pieces(&header.stored).collect();
        let at = Header::chunks_at(length);
        Ok(Self {
            pages: Pages::new(source, key, at, header.tags.clone(), pieces),
            header,
        })
    }

    /// Returns the digest of the snapshot's memory.
    #[must_use]
    pub fn content(&self) -> Content {
        self.header.content
    }

    /// Returns the digest of the parent's memory.
    #[must_use]
    pub fn parent(&self) -> Option<Content> {
        self.header.parent
    }

    /// Returns the purpose that the image was made for.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        self.header.purpose
    }

    /// Returns the vCPU's state, as the maker of the image encoded it.
    #[must_use]
    pub fn state(&self) -> &[u8] {
        &self.header.state
    }

    /// Returns the guest's RAM, in bytes.
    #[must_use]
    pub fn ram_bytes(&self) -> u64 {
        self.header.ram_bytes
    }

    /// Returns the pages that an instance maps of the layer.
    #[must_use]
    pub fn own(&self) -> &PageSet {
        &self.header.own
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the pages of the compiled code that requests use, as far as they were known.
    #[must_use]
    pub fn used_code(&self) -> &PageSet {
        &self.header.sets.code
    }

    /// Returns the pages outside the image that requests use, as far as they were known, and the
    /// pages that the image takes from its parent.
    #[must_use]
    pub fn used_of_parent(&self) -> PageSet {
        let sets = &self.header.sets;
        let used = sets.written.union(&sets.read).without(&self.header.own);
        used.union(&self.header.inherited)
    }

    /// Returns the pages in the image, in their order.
    #[must_use]
    pub fn order(&self) -> &[PageRange] {
        &self.header.stored
    }

    /// Returns the bytes of the pages in the image.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.header.stored_bytes()
    }

    /// Returns the bytes of the pages that are not needed before the first guest runs.
    #[must_use]
    pub fn later_bytes(&self) -> u64 {
        let first = self.pages.bytes_with(&self.header.needed_first());
        self.stored_bytes().saturating_sub(first)
    }

    /// Reads all pages into a new layer of this name, which is not sealed yet. Pages that are equal
    /// to the parent's are copied from there.
    ///
    /// # Errors
    /// Returns [`ImageError::Damaged`] if a chunk is not what was sealed, [`ImageError::Parent`]
    /// for a wrong parent, and the errors of the disk and the system.
    pub fn read_layer<S>(
        &self,
        name: &str,
        parent: Option<&Snapshot<S>>,
    ) -> Result<LayerBuilder, ImageError> {
        let layer = LayerBuilder::new(name, self.header.ram_bytes).map_err(ImageError::Layer)?;
        self.pages.fill_all(&layer)?;
        copy_inherited(&self.header, parent, &layer)?;
        Ok(layer)
    }

    /// Returns the snapshot that this is an image of, with the layer that was
    /// [read](Self::read_layer), over the same parent and with this owner.
    ///
    /// # Errors
    /// Returns [`ImageError::Parent`] if the image was made over another parent,
    /// [`ImageError::Senseless`] if the snapshot could never be forked, and the errors of the
    /// system.
    pub fn restore<S>(
        self,
        layer: LayerBuilder,
        parent: Option<Arc<Snapshot<S>>>,
        state: S,
        owner: Owner,
    ) -> Result<Snapshot<S>, ImageError> {
        let own = self.header.own.clone();
        let layer = layer.freeze_at(own).map_err(ImageError::Layer)?;
        restored(self.header, layer, parent, state, owner)
    }

    /// Restores the snapshot with a layer of this name that has only the pages that are needed
    /// first: those that requests use, those that forks copy, and the page tables. Also returns the
    /// [`LayerFill`] that loads the other pages: instances that touch one before it is present have
    /// to wait for it.
    ///
    /// # Errors
    /// Returns the errors of [`Image::read_layer`] and [`Image::restore`].
    pub fn restore_first<S>(
        self,
        name: &str,
        parent: Option<Arc<Snapshot<S>>>,
        state: S,
        owner: Owner,
    ) -> Result<(Snapshot<S>, LayerFill), ImageError>
    where
        F: 'static,
    {
        let header = self.header;
        let layer = LayerBuilder::new(name, header.ram_bytes).map_err(ImageError::Layer)?;
        let fill = DemandFill::new(LayerSource::new(self.pages, layer));
        fill.fill_set(&header.needed_first())?;
        let layer = &fill.source().layer;
        copy_inherited(&header, parent.as_deref(), layer)?;
        let bytes = header.stored_bytes() + header.inherited.bytes();
        let layer = layer.partial_layer(header.own.clone(), bytes, fill.progress().clone());
        let layer = layer.map_err(ImageError::Layer)?;
        let snapshot = restored(header, layer, parent, state, owner)?;
        Ok((snapshot, fill))
    }
}

fn restored<S>(
    header: Header,
    layer: Layer,
    parent: Option<Arc<Snapshot<S>>>,
    state: S,
    owner: Owner,
) -> Result<Snapshot<S>, ImageError> {
    let content = parent.as_ref().map(|parent| parent.content());
    if content != header.parent.map(Some) {
        return Err(ImageError::Parent);
    }
    let windows = windows_over(parent.as_deref(), &header.own);
    if windows.len() > WINDOWS_MAX {
        return Err(ImageError::Senseless("it has too many windows"));
    }
    let ram = PageRange::around(0, header.ram_bytes);
    if windows.iter().any(|window| !ram.holds(window.range)) {
        return Err(ImageError::Senseless("it has less memory than its parent"));
    }
    let snapshot = Snapshot::restored(
        parent,
        layer,
        windows,
        state,
        SnapshotMetadata {
            monotonic_nanoseconds: header.monotonic_nanoseconds,
            difference: header.difference,
            sorted: Sorted {
                stored: header.stored.iter().copied().collect(),
                inherited: header.inherited,
            },
            content: header.content,
        },
    );
    let snapshot = snapshot.map_err(ImageError::Layer)?.owned_by(owner);
    snapshot.working_set().restore(header.sets, header.changed);
    Ok(snapshot)
}

/// Copies the pages that are equal to the parent's, none of which may be empty.
fn copy_inherited<S>(
    header: &Header,
    parent: Option<&Snapshot<S>>,
    layer: &LayerBuilder,
) -> Result<(), ImageError> {
    let Some(parent) = parent else {
        return Ok(());
    };
    if parent.content() != header.parent {
        return Err(ImageError::Parent);
    }
    let inherited = &header.inherited;
    let senseless = || ImageError::Senseless("it inherits pages that its parent does not have");
    let theirs: PageSet = parent.windows().iter().map(|window| window.range).collect();
    if !inherited.without(&theirs).is_empty() {
        return Err(senseless());
    }
    let view = parent.view();
    let most = (CHUNK as u64 / memory_map::PAGE) as u32;
    let mut buffer = vec![0; CHUNK];
    for range in inherited.iter() {
        let mut rest: PageRange = range;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(most);
            let part = buffer.get_mut(..piece.bytes() as usize).unwrap_or_default();
            let address = piece.start.address();
            view.read(address, part).map_err(ImageError::Layer)?;
            // A copied hole would waste memory, so no valid image requests that.
            let mut pages = part.chunks(memory_map::PAGE as usize);
            if pages.any(|page| page.iter().all(|byte| *byte == 0)) {
                return Err(senseless());
            }
            layer
                .write(address.get(), part)
                .map_err(ImageError::Layer)?;
            rest = behind;
        }
    }
    Ok(())
}

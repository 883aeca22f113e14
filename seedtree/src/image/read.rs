//! Reading an image: a snapshot as it was, over the parent that it was made over.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use faasw_abi::memory_map;
use faasw_abi::pages::{PageRange, PageSet};
use zerocopy::{FromZeros, IntoBytes};

use super::crypt::{DataKey, ImageKey};
use super::error::{ImageError, Part};
use super::header::{CHUNK, Content, Header, PREFIX, Prefix, Purpose};
use super::{HEADER_PART, pieces};
use crate::key::Owner;
use crate::layer::LayerBuilder;
use crate::limits::WINDOWS_MAX;
use crate::overlay::laid_over;
use crate::snapshot::Snapshot;

/// Bytes that are read at once.
const READ: usize = 1 << 20;

/// Where an image is read from.
pub trait Source {
    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` where there is less; the disk's.
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for File {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, out, offset)
    }
}

/// An image whose header was read, and is what was sealed.
#[derive(Debug)]
pub struct Image<F> {
    pub(super) source: F,
    pub(super) key: DataKey,
    pub(super) header: Header,
    pub(super) chunks_at: u64,
}

pub(super) fn read(source: &impl Source, out: &mut [u8], offset: u64) -> Result<(), ImageError> {
    match source.read_exact_at(out, offset) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ImageError::CutOff),
        read => Ok(read?),
    }
}

impl<F: Source> Image<F> {
    /// Reads the header.
    ///
    /// # Errors
    /// When it is no image, was sealed with another key, is damaged or makes no sense; the
    /// disk's.
    pub fn open(source: F, key: &ImageKey) -> Result<Self, ImageError> {
        let mut prefix = Prefix::new_zeroed();
        read(&source, prefix.as_mut_bytes(), 0)?;
        prefix.check()?;
        let key = key.unwrap(prefix.bound_to_key(), prefix.key)?;
        let mut header = vec![0; prefix.header_bytes as usize];
        read(&source, &mut header, PREFIX as u64)?;
        let bound = prefix.bound_to_header();
        if !key.open(HEADER_PART, &bound, prefix.header_tag, &mut header) {
            return Err(ImageError::Damaged(Part::Header));
        }
        Ok(Self {
            source,
            key,
            chunks_at: Header::chunks_at(header.len()),
            header: Header::decode(&header)?,
        })
    }

    /// What its snapshot's memory is.
    #[must_use]
    pub fn content(&self) -> Content {
        self.header.content
    }

    /// What its parent's is.
    #[must_use]
    pub fn parent(&self) -> Option<Content> {
        self.header.parent
    }

    /// What it is good for.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        self.header.purpose
    }

    /// The vCPU's state, as whoever made it told it.
    #[must_use]
    pub fn state(&self) -> &[u8] {
        &self.header.state
    }

    /// RAM of the guest, in bytes.
    #[must_use]
    pub fn ram_bytes(&self) -> u64 {
        self.header.ram_bytes
    }

    /// What an instance maps of its layer.
    #[must_use]
    pub fn own(&self) -> &PageSet {
        &self.header.own
    }

    #[cfg(test)]
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// The pages that it has, in their order.
    #[must_use]
    pub fn order(&self) -> &[PageRange] {
        &self.header.stored
    }

    /// Bytes of the pages that it has.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.header.stored_bytes()
    }

    /// Reads all of its pages into a layer of this name that nobody has sealed yet; those that
    /// are its parent's come from there.
    ///
    /// # Errors
    /// When a chunk is not what was sealed; the disk's and the system's.
    pub fn read_layer<S>(
        &self,
        name: &str,
        parent: Option<&Snapshot<S>>,
    ) -> Result<LayerBuilder, ImageError> {
        let layer = LayerBuilder::new(name, self.header.ram_bytes).map_err(ImageError::Layer)?;
        self.read_stored(&layer)?;
        if let Some(parent) = parent {
            copy_inherited(&self.header.inherited, parent, &layer)?;
        }
        Ok(layer)
    }

    fn read_stored(&self, layer: &LayerBuilder) -> Result<(), ImageError> {
        let stored = usize::try_from(self.stored_bytes()).map_err(|_| ImageError::TooLarge)?;
        let mut buffer = vec![0; READ.min(stored)];
        let mut at = 0;
        let mut chunks = (0..).zip(self.header.tags.iter().zip(pieces(&self.header.stored)));
        while at < stored {
            let length = READ.min(stored - at);
            let part = buffer.get_mut(..length).unwrap_or_default();
            read(&self.source, part, self.chunks_at + at as u64)?;
            for chunk in part.chunks_mut(CHUNK) {
                let Some((number, (tag, piece))) = chunks.next() else {
                    return Err(ImageError::Senseless("how many chunks it has"));
                };
                if !self.key.open(number, b"", *tag, chunk) {
                    return Err(ImageError::Damaged(Part::Chunk(number)));
                }
                let mut rest = &*chunk;
                for range in piece {
                    let Some((pages, behind)) = rest.split_at_checked(range.bytes() as usize)
                    else {
                        return Err(ImageError::Senseless("how long a chunk is"));
                    };
                    layer
                        .write(range.start.address().get(), pages)
                        .map_err(ImageError::Layer)?;
                    rest = behind;
                }
            }
            at += length;
        }
        Ok(())
    }

    /// The snapshot that it is an image of: of the layer that was [read](Self::read_layer), over
    /// the same parent. It is this owner's.
    ///
    /// # Errors
    /// [`ImageError::Parent`] when it was made over another one; when it could never be forked;
    /// the system's.
    pub fn restore<S>(
        self,
        layer: LayerBuilder,
        parent: Option<Arc<Snapshot<S>>>,
        state: S,
        owner: Owner,
    ) -> Result<Snapshot<S>, ImageError> {
        let content = parent.as_ref().map(|parent| parent.content());
        if content != self.header.parent.map(Some) {
            return Err(ImageError::Parent);
        }
        let own = self.header.own;
        let windows = match &parent {
            None => laid_over(&[], &own, 0),
            Some(parent) => laid_over(parent.windows(), &own, parent.depth() + 1),
        };
        if windows.len() > WINDOWS_MAX {
            return Err(ImageError::Senseless("in how many pieces it is"));
        }
        let layer = layer.freeze_at(own).map_err(ImageError::Layer)?;
        let snapshot = Snapshot::restored(
            parent,
            layer,
            windows,
            state,
            self.header.monotonic_nanoseconds,
            self.header.difference,
            self.header.content,
        );
        let snapshot = snapshot.map_err(ImageError::Layer)?.owned_by(owner);
        snapshot
            .working_set()
            .restore(self.header.sets, self.header.changed);
        Ok(snapshot)
    }
}

/// Copies pages of a parent.
fn copy_inherited<S>(
    inherited: &PageSet,
    parent: &Snapshot<S>,
    layer: &LayerBuilder,
) -> Result<(), ImageError> {
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
            layer
                .write(address.get(), part)
                .map_err(ImageError::Layer)?;
            rest = behind;
        }
    }
    Ok(())
}

//! Making an image of a snapshot.

use faasw_abi::memory_map;
use faasw_abi::pages::{PageRange, PageSet};
use sha2::{Digest as _, Sha256};
use zerocopy::IntoBytes;

use super::crypt::{ImageKey, TAG, Wrapped};
use super::error::ImageError;
use super::format::{CHUNK, FORMAT, MAGIC, PREFIX};
use super::header::{Header, Prefix, Purpose, needed_first};
use super::sink::{Sink, write_all_at};
use super::{HEADER_PART, pieces};
use crate::content::Content;
use crate::snapshot::{Snapshot, Sorted};

const PAGE: usize = memory_map::PAGE as usize;

/// The arrangement of pages in an image. Nodes use [`Arrangement::BEST`]; the others exist to
/// measure their cost. Each can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrangement {
    /// Whether pages that requests use come first. Otherwise all are in the order of their
    /// addresses.
    pub is_by_use: bool,
    /// Whether pages of zeroes, and pages that are equal to the parent's, are left out.
    pub leaves_out: bool,
}

impl Arrangement {
    /// The arrangement that is read fastest.
    pub const BEST: Self = Self {
        is_by_use: true,
        leaves_out: true,
    };
}

impl<S> Snapshot<S> {
    /// Writes the snapshot's image into an empty file, with the encoded state of its vCPU and its
    /// purpose. Returns the digest of its content, to be set once the file is in its final place
    /// ([`Snapshot::set_content`]).
    ///
    /// The pages that requests write come first, then those that they read, then others that a
    /// first instance needs, and the rest (Spice §4.1 stores the working set in one block, too).
    /// Pages of zeroes, and pages that are equal to the parent's, are left out.
    ///
    /// # Errors
    /// Returns [`ImageError::Parent`] if the parent has no image, [`ImageError::Io`] if the disk
    /// fails, [`ImageError::Layer`] if the memory cannot be read, [`ImageError::TooLarge`] if the
    /// header would be too large, and [`ImageError::Random`] if the system has no randomness.
    pub fn write_image(
        &self,
        state: &[u8],
        purpose: Purpose,
        key: &ImageKey,
        file: &(impl Sink + ?Sized),
    ) -> Result<Content, ImageError> {
        self.write_image_as(Arrangement::BEST, state, purpose, key, file)
    }

    /// Writes the image with its pages in another arrangement.
    ///
    /// # Errors
    /// Returns the errors of [`Snapshot::write_image`].
    pub fn write_image_as(
        &self,
        arrangement: Arrangement,
        state: &[u8],
        purpose: Purpose,
        key: &ImageKey,
        file: &(impl Sink + ?Sized),
    ) -> Result<Content, ImageError> {
        let parent = match self.parent() {
            Some(parent) => Some(parent.content().ok_or(ImageError::Parent)?),
            None => None,
        };
        let Sorted { stored, inherited } = if arrangement.leaves_out {
            self.sort()?
        } else {
            Sorted {
                stored: self.layer().own().clone(),
                inherited: PageSet::new(),
            }
        };
        let known = self.working_set().recorded();
        let sets = &known.sets;
        let written = stored.intersection(&sets.written);
        let read = stored.without(&written).intersection(&sets.read);
        let rest = stored.without(&written).without(&read);
        let filled = &self.difference().filled;
        let first = rest.intersection(&needed_first(self.layer().own(), sets, filled));
        let later = rest.without(&first);
        let order = if arrangement.is_by_use {
            vec![&written, &read, &first, &later]
        } else {
            vec![&stored]
        };
        let mut header = Header {
            content: Content([0; 32]),
            parent,
            purpose,
            ram_bytes: self.layer().bytes(),
            monotonic_nanoseconds: self.monotonic_nanoseconds(),
            state: state.to_vec(),
            own: self.layer().own().clone(),
            stored: order.iter().flat_map(|set| set.iter()).collect(),
            inherited,
            difference: self.difference().clone(),
            sets: crate::working_set::PageSets {
                written: sets.written.clone(),
                read: sets.read.clone(),
                code: sets.code.clone(),
                generation: 0,
            },
            changed: known.changed,
            tags: Vec::new(),
        };
        let chunks = header.stored_bytes().div_ceil(CHUNK as u64);
        let chunks = usize::try_from(chunks).map_err(|_| ImageError::TooLarge)?;
        header.tags = vec![[0; TAG]; chunks];
        let header_bytes = header.encode()?.len();
        let mut prefix = Prefix {
            magic: MAGIC,
            format: FORMAT,
            header_bytes: u32::try_from(header_bytes).map_err(|_| ImageError::TooLarge)?,
            key: Wrapped::NONE,
            header_tag: [0; _],
            zeroes: [0; _],
        };
        let (data_key, wrapped) = key.wrap(prefix.bound_to_key())?;
        prefix.key = wrapped;

        // The digest of the content covers the header, then the bytes of the pages.
        let mut content = Sha256::new_with_prefix(header.encode()?);
        let mut at = Header::chunks_at(header_bytes);
        let mut chunk = vec![0; CHUNK];
        for (number, piece) in (0..).zip(pieces(&header.stored)) {
            let length = self.read_piece(&piece, &mut chunk)?;
            let part = chunk.get_mut(..length).unwrap_or_default();
            if self.content().is_none() {
                content.update(&*part);
            }
            let tag = data_key.seal(number, b"", part)?;
            write_all_at(file, part, at)?;
            at += length as u64;
            if let Some(place) = header.tags.get_mut(number as usize) {
                *place = tag;
            }
        }
        header.content = match self.content() {
            Some(content) => content,
            None => Content(content.finalize().into()),
        };
        let mut sealed = header.encode()?;
        prefix.header_tag = data_key.seal(HEADER_PART, &prefix.bound_to_header(), &mut sealed)?;
        write_all_at(file, prefix.as_bytes(), 0)?;
        write_all_at(file, &sealed, PREFIX as u64)?;
        // Without chunks the file must still end at a page boundary.
        file.set_len(at)?;
        Ok(header.content)
    }

    /// Classifies the snapshot's own pages by whether an image must contain them.
    fn sort(&self) -> Result<Sorted, ImageError> {
        // The layer cannot change, so the classification of its image stays valid.
        if let Some(sorted) = &self.sorted {
            return Ok(sorted.clone());
        }
        let (own, parent) = (self.view(), self.parent().map(|parent| parent.view()));
        let (mut stored, mut inherited) = (PageSet::new(), PageSet::new());
        let (mut now, mut before) = ([0; PAGE], [0; PAGE]);
        for page in self.layer().own().iter().flat_map(|range| range.pages()) {
            own.read(page.address(), &mut now)
                .map_err(ImageError::Layer)?;
            if now == [0; PAGE] {
                continue;
            }
            if let Some(parent) = &parent {
                parent
                    .read(page.address(), &mut before)
                    .map_err(ImageError::Layer)?;
            }
            if parent.is_some() && now == before {
                inherited.push(PageRange::one(page))
            } else {
                stored.push(PageRange::one(page))
            }
        }
        Ok(Sorted { stored, inherited })
    }

    /// Reads ranges of pages into consecutive bytes, and returns their number.
    fn read_piece(&self, piece: &[PageRange], out: &mut [u8]) -> Result<usize, ImageError> {
        let view = self.view();
        let mut at = 0;
        for range in piece {
            let end = at + range.bytes() as usize;
            let part = out.get_mut(at..end).ok_or(ImageError::TooLarge)?;
            view.read(range.start.address(), part)
                .map_err(ImageError::Layer)?;
            at = end;
        }
        Ok(at)
    }
}

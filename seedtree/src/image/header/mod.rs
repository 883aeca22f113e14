//! The description in an image: a readable prefix and a sealed header.
//!
//! ```text
//! prefix, 4096 bytes:  magic, format, length of the header; nonce, key and tag of the image's
//!                      key; tag of the header; zeroes
//! header:              Fixed; state of the vCPU; ranges of pages, list after list; tags of
//!                      the chunks
//! ```
//!
//! All numbers are little-endian.

mod pinned;

use faasw_abi::memory_map::{CODE_MAX, PAGE, RAM_MAX, TEXT};
use faasw_abi::pages::{PageRange, PageSet};
use sha2::{Digest as _, Sha256};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::crypt::{TAG, Wrapped};
use super::error::ImageError;
use super::format::{CHUNK, FORMAT, HEADER_MAX, MAGIC, PREFIX};
use crate::content::Content;
use crate::difference::Difference;
use crate::limits::{FILLED_MAX, MAPPED_MAX, OWN_MAX, ROOT_MAX, SET_MAX, SET_PAGES_MAX};
use crate::working_set::PageSets;

/// Maximum bytes of a vCPU's state.
const STATE_MAX: u32 = 64 << 10;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Prefix {
    pub magic: [u8; 8],
    pub format: u32,
    pub header_bytes: u32,
    pub key: Wrapped,
    pub header_tag: [u8; TAG],
    pub zeroes: [u8; PREFIX - 92],
}

impl Prefix {
    /// Checks that this is the prefix of an image in the current format.
    ///
    /// # Errors
    /// Returns [`ImageError::Foreign`], [`ImageError::Format`] or [`ImageError::Senseless`] if it
    /// is not.
    pub fn check(&self) -> Result<(), ImageError> {
        if self.magic != MAGIC {
            return Err(ImageError::Foreign);
        }
        if self.format != FORMAT {
            return Err(ImageError::Format(self.format));
        }
        if (1..=HEADER_MAX).contains(&(self.header_bytes as usize)) && self.zeroes == [0; _] {
            Ok(())
        } else {
            Err(ImageError::Senseless("its prefix is invalid"))
        }
    }

    /// Returns the bytes that the image's key is bound to.
    pub fn bound_to_key(&self) -> &[u8] {
        self.as_bytes().get(..16).unwrap_or_default()
    }

    /// Returns the bytes that the header is bound to: the prefix without the header's own tag.
    pub fn bound_to_header(&self) -> Vec<u8> {
        let mut prefix = *self;
        prefix.header_tag = [0; TAG];
        prefix.as_bytes().to_vec()
    }
}

/// The fixed-size start of a header, with the lengths of what follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Fixed {
    content: [u8; 32],
    parent: [u8; 32],
    purpose: [u8; 32],
    ram_bytes: u64,
    monotonic_nanoseconds: u64,
    changed: u64,
    compared: u64,
    has_parent: u32,
    forgets_tables: u32,
    state_bytes: u32,
    own: u32,
    stored: u32,
    inherited: u32,
    filled: u32,
    mapped: u32,
    written: u32,
    read: u32,
    chunks: u32,
    code: u32,
}

/// A digest of everything that the use of a snapshot depends on: what made it and what runs it, as
/// far as its memory depends on that. A snapshot with another purpose is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose([u8; 32]);

impl Purpose {
    /// Returns the purpose that these parts determine, in this order. The boundaries between parts
    /// are significant.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new_with_prefix(b"faasw image 1");
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

/// The complete description of a snapshot in its image.
#[derive(Debug)]
pub(super) struct Header {
    pub content: Content,
    pub parent: Option<Content>,
    pub purpose: Purpose,
    pub ram_bytes: u64,
    pub monotonic_nanoseconds: u64,
    /// State of the vCPU.
    pub state: Vec<u8>,
    /// Pages that an instance maps of the layer.
    pub own: PageSet,
    /// Pages in the image, in its order.
    pub stored: Vec<PageRange>,
    /// Own pages that are equal to the parent's. All others are zeroes.
    pub inherited: PageSet,
    /// The difference, as computed when the snapshot was made. Its private pages are not part of
    /// it, because they derive from the parent.
    pub difference: Difference,
    /// Pages that instances had used when the image was made, if they were known.
    pub sets: PageSets,
    /// Number of the written pages that had changed.
    pub changed: u64,
    /// Tag of each chunk.
    pub tags: Vec<[u8; TAG]>,
}

impl Header {
    /// Encodes the header.
    ///
    /// # Errors
    /// Returns [`ImageError::TooLarge`] if it exceeds the maximum size.
    pub fn encode(&self) -> Result<Vec<u8>, ImageError> {
        let length = |list: &[PageRange]| u32::try_from(list.len()).unwrap_or(u32::MAX);
        let fixed = Fixed {
            content: self.content.0,
            parent: self.parent.map_or([0; 32], |parent| parent.0),
            purpose: self.purpose.0,
            ram_bytes: self.ram_bytes,
            monotonic_nanoseconds: self.monotonic_nanoseconds,
            changed: self.changed,
            compared: self.difference.compared,
            has_parent: self.parent.is_some().into(),
            forgets_tables: self.difference.forgets_tables.into(),
            state_bytes: u32::try_from(self.state.len()).unwrap_or(u32::MAX),
            own: length(self.own.ranges()),
            stored: length(&self.stored),
            inherited: length(self.inherited.ranges()),
            filled: length(self.difference.filled.ranges()),
            mapped: length(self.difference.mapped.ranges()),
            written: length(self.sets.written.ranges()),
            read: length(self.sets.read.ranges()),
            chunks: u32::try_from(self.tags.len()).unwrap_or(u32::MAX),
            code: length(self.sets.code.ranges()),
        };
        let mut bytes = fixed.as_bytes().to_vec();
        bytes.extend(&self.state);
        for list in [
            self.own.ranges(),
            &self.stored,
            self.inherited.ranges(),
            self.difference.filled.ranges(),
            self.difference.mapped.ranges(),
            self.sets.written.ranges(),
            self.sets.read.ranges(),
            self.sets.code.ranges(),
        ] {
            bytes.extend(list.as_bytes());
        }
        bytes.extend(self.tags.as_flattened());
        if bytes.len() <= HEADER_MAX {
            Ok(bytes)
        } else {
            Err(ImageError::TooLarge)
        }
    }

    /// Decodes and checks a header.
    ///
    /// # Errors
    /// Returns [`ImageError::Senseless`] if the bytes are inconsistent.
    pub fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        let (fixed, rest) = Fixed::read_from_prefix(bytes)
            .map_err(|_| ImageError::Senseless("its header is too short"))?;
        let mut rest = Rest(rest);
        if fixed.state_bytes > STATE_MAX {
            return Err(ImageError::Senseless("its vCPU state is invalid"));
        }
        if fixed.forgets_tables > 1 {
            return Err(ImageError::Senseless("its flag for page tables is invalid"));
        }
        let state = rest.take(fixed.state_bytes, 1)?.to_vec();
        let mut list = |count| rest.ranges(count);
        let own = list(fixed.own)?;
        let stored = list(fixed.stored)?;
        let [inherited, filled, mapped] = [
            list(fixed.inherited)?,
            list(fixed.filled)?,
            list(fixed.mapped)?,
        ];
        let sets = [list(fixed.written)?, list(fixed.read)?];
        let code = list(fixed.code)?;
        let (tags, _) = rest.take(fixed.chunks, TAG as u32)?.as_chunks();
        let tags = tags.to_vec();
        if !rest.0.is_empty() {
            return Err(ImageError::Senseless("bytes follow its header"));
        }
        let reported = ReportedSetChecker {
            ram_bytes: fixed.ram_bytes,
        };
        let own = reported.set(&own, "the list of its own pages is invalid")?;
        let [written, read] = sets.map(|ranges| checked_set(&ranges, fixed.ram_bytes));
        let header = Self {
            content: Content(fixed.content),
            parent: match (fixed.has_parent, fixed.parent) {
                (0, parent) if parent == [0; 32] => None,
                (1, parent) => Some(Content(parent)),
                _ => return Err(ImageError::Senseless("its parent is invalid")),
            },
            purpose: Purpose(fixed.purpose),
            ram_bytes: fixed.ram_bytes,
            monotonic_nanoseconds: fixed.monotonic_nanoseconds,
            state,
            inherited: reported.set(&inherited, "the list of inherited pages is invalid")?,
            difference: Difference {
                filled: reported.set(&filled, "the list of copied pages is invalid")?,
                mapped: reported.set(&mapped, "the list of mapped pages is invalid")?,
                forgets_tables: fixed.forgets_tables != 0,
                private: PageSet::new(),
                compared: fixed.compared,
            },
            sets: PageSets {
                written: written?,
                read: read?,
                code: checked_set(&code, CODE_MAX)?,
                generation: 0,
            },
            changed: fixed.changed,
            own,
            stored,
            tags,
        };
        header.check()?;
        Ok(header)
    }

    /// Checks that the parts of the header are consistent. Each set is already known to be in order
    /// and within memory.
    fn check(&self) -> Result<(), ImageError> {
        let senseless = |what| Err(ImageError::Senseless(what));
        if self.ram_bytes == 0 || self.ram_bytes > RAM_MAX || !self.ram_bytes.is_multiple_of(PAGE) {
            return senseless("its memory size is invalid");
        }
        let count: u64 = self.stored.iter().map(|range| range.count()).sum();
        let stored: PageSet = self.stored.iter().copied().collect();
        if stored.count() != count || self.stored.iter().any(|range| range.is_empty()) {
            return senseless("it stores a page twice, or none");
        }
        let is_own = |set: &PageSet| set.without(&self.own).is_empty();
        if !is_own(&stored) || !is_own(&self.inherited) {
            return senseless("it stores pages that are not its own");
        }
        if !stored.intersection(&self.inherited).is_empty() {
            return senseless("it stores an inherited page");
        }
        if self.parent.is_none() && !self.inherited.is_empty() {
            return senseless("it inherits pages without a parent");
        }
        let chunks = stored.bytes().div_ceil(CHUNK as u64);
        if chunks != self.tags.len() as u64 {
            return senseless("its number of chunks is wrong");
        }
        let Difference { filled, mapped, .. } = &self.difference;
        if !is_own(filled) || !is_own(mapped) {
            return senseless("it differs in pages that are not its own");
        }
        if filled.ranges().len() > FILLED_MAX
            || mapped.ranges().len() > MAPPED_MAX
            || self.own.ranges().len() > ROOT_MAX.max(OWN_MAX)
        {
            return senseless("it has too many ranges");
        }
        let sets = [&self.sets.written, &self.sets.read];
        let is_large = |set: &&PageSet| set.ranges().len() > SET_MAX || set.count() > SET_PAGES_MAX;
        let has_much_code = self.sets.code.ranges().len() > SET_MAX;
        if sets.iter().any(is_large) || has_much_code {
            senseless("its working set is invalid")
        } else {
            Ok(())
        }
    }

    /// Returns the pages that have to be present before the first instance runs: those that
    /// requests use, those that a fork copies, and those that the CPU itself reads.
    pub fn needed_first(&self) -> PageSet {
        let Difference { filled, .. } = &self.difference;
        needed_first(&self.own, &self.sets, filled)
    }

    /// Returns the offset of the first chunk after a header of this length.
    pub fn chunks_at(header_bytes: usize) -> u64 {
        (PREFIX as u64 + header_bytes as u64).next_multiple_of(PREFIX as u64)
    }

    /// Returns the bytes of all stored pages.
    pub fn stored_bytes(&self) -> u64 {
        self.stored.iter().map(|range| range.bytes()).sum()
    }
}

/// Returns the part of `own` that has to be present first, for a snapshot whose requests use `sets`
/// and whose forks copy `filled`.
pub(super) fn needed_first(own: &PageSet, sets: &PageSets, filled: &PageSet) -> PageSet {
    let tables = own.intersection(&PageRange::of_bytes(0, TEXT).into());
    let used = sets.written.union(&sets.read);
    used.intersection(own).union(filled).union(&tables)
}

struct ReportedSetChecker {
    ram_bytes: u64,
}

impl ReportedSetChecker {
    fn set(&self, ranges: &[PageRange], what: &'static str) -> Result<PageSet, ImageError> {
        checked_set(ranges, self.ram_bytes).map_err(|_| ImageError::Senseless(what))
    }
}

/// Checks a reported set of pages, which must lie within `bytes` bytes of RAM or code.
fn checked_set(ranges: &[PageRange], bytes: u64) -> Result<PageSet, ImageError> {
    let all = PageRange::around(0, bytes.min(RAM_MAX));
    PageSet::from_reported(ranges, all).ok_or(ImageError::Senseless("its working set is invalid"))
}

/// The part of a header that was not read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take(&mut self, count: u32, size: u32) -> Result<&[u8], ImageError> {
        let length = usize::try_from(u64::from(count) * u64::from(size)).ok();
        let taken = length.and_then(|length| self.0.split_at_checked(length));
        let (taken, rest) = taken.ok_or(ImageError::Senseless("its header is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn ranges(&mut self, count: u32) -> Result<Vec<PageRange>, ImageError> {
        let bytes = self.take(count, size_of::<PageRange>() as u32)?;
        let read = bytes
            .chunks_exact(size_of::<PageRange>())
            .map(PageRange::read_from_bytes);
        read.collect::<Result<_, _>>()
            .map_err(|_| ImageError::Senseless("a list of its pages is invalid"))
    }
}

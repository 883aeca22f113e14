//! Opening a parcel, piece by piece.

use std::cmp::Ordering;

use zerocopy::FromBytes;

use super::super::HEADER_PART;
use super::super::crypt::{DataKey, ImageKey, TAG};
use super::{FORMAT, MAGIC, NOTE_MAX, PARTS, PIECE, PREFIX, ParcelError, Prefix};

/// A parcel whose prefix was read with the right key. Its note comes next.
#[derive(Debug)]
pub struct Opening {
    prefix: Prefix,
    data: DataKey,
}

/// A parcel whose note was opened. Its parts come next, in pieces.
#[derive(Debug)]
pub struct Contents {
    data: DataKey,
    parts: [u64; PARTS],
    /// Remaining bytes of each part.
    left: [u64; PARTS],
    /// Number of the next piece.
    next: u64,
    bytes: u64,
}

impl Opening {
    /// Bytes of the prefix, which the caller reads first; fewer if the parcel has fewer.
    pub const BEGIN: usize = PREFIX;

    /// Opens a parcel that begins with these bytes.
    ///
    /// # Errors
    /// Returns [`ParcelError::Foreign`], [`ParcelError::CutOff`], [`ParcelError::Format`],
    /// [`ParcelError::Key`] or [`ParcelError::TooLarge`] if they are not the prefix of a parcel
    /// that was sealed with this key.
    pub fn new(key: &ImageKey, begin: &[u8]) -> Result<Self, ParcelError> {
        if !begin.starts_with(&MAGIC) {
            return Err(ParcelError::Foreign);
        }
        let (prefix, _) = Prefix::read_from_prefix(begin).map_err(|_| ParcelError::CutOff)?;
        if prefix.format != FORMAT {
            return Err(ParcelError::Format(prefix.format));
        }
        let data = key
            .unwrap(prefix.bound_to_key(), prefix.key)
            .map_err(|_| ParcelError::Key)?;
        if prefix.note_bytes as usize > NOTE_MAX {
            return Err(ParcelError::TooLarge);
        }
        Ok(Self { prefix, data })
    }

    /// Returns the bytes of the note.
    #[must_use]
    pub fn note_bytes(&self) -> usize {
        self.prefix.note_bytes as usize
    }

    /// Opens the note, which has [`Opening::note_bytes`].
    ///
    /// # Errors
    /// Returns [`ParcelError::Damaged`] if it is not what was sealed, and [`ParcelError::TooLarge`]
    /// if the lengths in the prefix are impossible.
    pub fn open_note(self, mut note: Vec<u8>) -> Result<(Vec<u8>, Contents), ParcelError> {
        let Self { prefix, data } = self;
        let bound = prefix.bound_to_note();
        if !data.open(HEADER_PART, &bound, prefix.note_tag, &mut note) {
            return Err(ParcelError::Damaged);
        }
        // The lengths are now known to be what was sealed, but a liar with the key may have sealed
        // them.
        let bytes = prefix.whole_bytes().ok_or(ParcelError::TooLarge)?;
        let contents = Contents {
            data,
            parts: prefix.parts,
            left: prefix.parts,
            next: 0,
            bytes,
        };
        Ok((note, contents))
    }
}

impl Contents {
    /// Returns the bytes of each part, as the sealer states them.
    #[must_use]
    pub fn parts(&self) -> [u64; PARTS] {
        self.parts
    }

    /// Checks that a file of this many bytes may be this parcel.
    ///
    /// # Errors
    /// Returns [`ParcelError::CutOff`] if it is too short, and [`ParcelError::TooLong`] if it is
    /// too long.
    pub fn check_length(&self, bytes: u64) -> Result<(), ParcelError> {
        match bytes.cmp(&self.bytes) {
            Ordering::Less => Err(ParcelError::CutOff),
            Ordering::Greater => Err(ParcelError::TooLong),
            Ordering::Equal => Ok(()),
        }
    }

    /// Returns the part of the next piece, and the piece's sealed length, which is at most one MiB
    /// and a tag. Returns `None` after the last piece.
    #[must_use]
    pub fn next_piece(&self) -> Option<(usize, usize)> {
        let mut left = self.left.iter().copied().enumerate();
        let (part, left) = left.find(|(_, left)| *left > 0)?;
        let bytes = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        Some((part, bytes + TAG))
    }

    /// Opens the next piece, whose length is that of [`Contents::next_piece`].
    ///
    /// # Errors
    /// Returns [`ParcelError::Damaged`] if it is not what was sealed, [`ParcelError::CutOff`] if
    /// its length is wrong, and [`ParcelError::TooLong`] if there is no further piece.
    pub fn open(&mut self, mut piece: Vec<u8>) -> Result<Vec<u8>, ParcelError> {
        let (part, bytes) = self.next_piece().ok_or(ParcelError::TooLong)?;
        if piece.len() != bytes {
            return Err(ParcelError::CutOff);
        }
        let tag = *piece.last_chunk::<TAG>().ok_or(ParcelError::CutOff)?;
        piece.truncate(bytes - TAG);
        if !self.data.open(self.next, b"", tag, &mut piece) {
            return Err(ParcelError::Damaged);
        }
        if let Some(left) = self.left.get_mut(part) {
            *left = left.saturating_sub(piece.len() as u64);
        }
        self.next += 1;
        Ok(piece)
    }
}

/// Opens a complete parcel, and passes its pieces to `take` one by one, with the number of their
/// part; the note has the number [`PARTS`]. For fuzz targets and tests only.
///
/// # Errors
/// Returns the [`ParcelError`] that names the fault.
#[cfg(any(test, feature = "fuzzing"))]
pub(in super::super) fn open_all(
    key: &ImageKey,
    mut parcel: &[u8],
    mut take: impl FnMut(usize, &[u8]),
) -> Result<(), ParcelError> {
    let opening = match first(&mut parcel, PREFIX) {
        Some(begin) => Opening::new(key, begin)?,
        None => Opening::new(key, parcel)?,
    };
    let note = first(&mut parcel, opening.note_bytes()).ok_or(ParcelError::CutOff)?;
    let (note, mut contents) = opening.open_note(note.to_vec())?;
    take(PARTS, &note);
    while let Some((part, bytes)) = contents.next_piece() {
        let piece = first(&mut parcel, bytes).ok_or(ParcelError::CutOff)?;
        take(part, &contents.open(piece.to_vec())?);
    }
    if parcel.is_empty() {
        Ok(())
    } else {
        Err(ParcelError::TooLong)
    }
}

/// Removes the first `count` bytes and returns them; returns `None` if there are fewer.
#[cfg(any(test, feature = "fuzzing"))]
fn first<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(first)
}

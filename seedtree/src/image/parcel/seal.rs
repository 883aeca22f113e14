//! Making a parcel, piece by piece.

use std::fmt;
use std::io::{self, Read};

use zerocopy::IntoBytes;

use super::super::HEADER_PART;
use super::super::crypt::{DataKey, ImageKey, TAG};
use super::{NOTE_MAX, PARTS, PIECE, ParcelError, Prefix, of_sealing};

/// A part of a parcel: its number of bytes, and the source that they are read from.
pub type Part = (u64, Box<dyn Read + Send + Sync>);

/// A parcel that is being sealed and sent.
pub struct Sealing {
    data: DataKey,
    /// The first piece: the prefix and the note.
    begin: Vec<u8>,
    /// Remaining bytes and source of each part.
    parts: [Part; PARTS],
    /// Number of the next piece.
    next: u64,
    bytes: u64,
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { next, bytes, .. } = self;
        write!(f, "Sealing({next} of {bytes} bytes)")
    }
}

impl Sealing {
    /// Begins to seal a note and two parts. The parts are not read yet.
    ///
    /// # Errors
    /// Returns [`ParcelError::TooLarge`] if the parcel exceeds the maximum size, and an error if
    /// the system has no randomness.
    pub fn new(key: &ImageKey, note: &[u8], parts: [Part; PARTS]) -> Result<Self, ParcelError> {
        if note.len() > NOTE_MAX {
            return Err(ParcelError::TooLarge);
        }
        let mut prefix = Prefix::new(note, [parts[0].0, parts[1].0])?;
        let bytes = prefix.whole_bytes().ok_or(ParcelError::TooLarge)?;
        let (data, begin) = begin(key, &mut prefix, note)?;
        Ok(Self {
            data,
            begin,
            parts,
            next: 0,
            bytes,
        })
    }

    /// Returns the bytes of all pieces together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads and seals the next piece, and returns it; returns `None` after the last one.
    ///
    /// # Errors
    /// Returns an error if a part has fewer bytes than announced, or cannot be read.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, ParcelError> {
        if !self.begin.is_empty() {
            return Ok(Some(std::mem::take(&mut self.begin)));
        }
        let Some((left, part)) = self.parts.iter_mut().find(|(left, _)| *left > 0) else {
            return Ok(None);
        };
        let piece = seal_piece(&self.data, self.next, *left, part)?;
        *left = left.saturating_sub(PIECE as u64);
        self.next += 1;
        Ok(Some(piece))
    }
}

/// Returns the key of the parcel, and the prefix with the sealed note.
fn begin(
    key: &ImageKey,
    prefix: &mut Prefix,
    note: &[u8],
) -> Result<(DataKey, Vec<u8>), ParcelError> {
    let (data, wrapped) = key.wrap(prefix.bound_to_key()).map_err(of_sealing)?;
    prefix.key = wrapped;
    let mut sealed = note.to_vec();
    let bound = prefix.bound_to_note();
    prefix.note_tag = data
        .seal(HEADER_PART, &bound, &mut sealed)
        .map_err(of_sealing)?;
    let mut begin = prefix.as_bytes().to_vec();
    begin.extend(sealed);
    Ok((data, begin))
}

/// Reads and seals the piece with this number, of a part with `left` remaining bytes, and returns
/// it with its tag.
fn seal_piece(
    data: &DataKey,
    number: u64,
    left: u64,
    part: &mut dyn Read,
) -> Result<Vec<u8>, ParcelError> {
    let length = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
    let mut piece = Vec::with_capacity(length + TAG);
    if part.take(length as u64).read_to_end(&mut piece)? != length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    let tag = data.seal(number, b"", &mut piece).map_err(of_sealing)?;
    piece.extend(tag);
    Ok(piece)
}

/// Returns a parcel with arbitrary lengths, sealed with the right key: the note and the following
/// content, cut into pieces by these lengths. For fuzz targets and tests only.
///
/// # Errors
/// Returns [`ParcelError::TooLarge`] if it is too large, and the errors of the system.
#[cfg(any(test, feature = "fuzzing"))]
pub(in super::super) fn seal_as_told(
    key: &ImageKey,
    note: &[u8],
    parts: [u64; PARTS],
    mut content: &[u8],
) -> Result<Vec<u8>, ParcelError> {
    let mut prefix = Prefix::new(note, parts)?;
    let (data, mut parcel) = begin(key, &mut prefix, note)?;
    let mut numbers = 0..;
    for told in parts {
        let mut there = told.min(content.len() as u64);
        while there > 0 {
            let number = numbers.next().ok_or(ParcelError::TooLarge)?;
            parcel.extend(seal_piece(&data, number, there, &mut content)?);
            there = there.saturating_sub(PIECE as u64);
        }
    }
    parcel.extend(content);
    Ok(parcel)
}

//! An image and what belongs to it, sealed in one file for another node that has the same key.
//!
//! ```text
//! 0      magic "faasw\0ex", format (u32), bytes of the note (u32)
//! 16     nonce (12), the parcel's key (32) and its tag (16), sealed by the folder's key
//! 76     tag of the note (16), zeroes (4)
//! 96     bytes of the first part and of the second (u64 each)
//! 112    note, sealed
//! ...    the first part, then the second, each in pieces of 1 MiB, sealed, and behind each
//!        piece its tag
//! ```
//!
//! All numbers are little-endian. The key seals each piece once, by its number, and the note,
//! to which the beginning is bound: so nothing can be left out, added or moved.
//!
//! Neither way more than a piece of it is in memory: [`Sealing`] gives it piece by piece to
//! whoever sends it, and [`Opening`] takes it so from whoever receives it, and gives nothing away
//! whose tag it has not checked. Neither waits for anybody.

mod open;
mod seal;
#[cfg(test)]
mod tests;

use std::io;

use thiserror::Error;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use self::open::{Contents, Opening};
pub use self::seal::{Part, Sealing};

#[cfg(any(test, feature = "fuzzing"))]
pub(super) use self::open::open_all;
#[cfg(feature = "fuzzing")]
pub(super) use self::seal::seal_as_told;

use super::crypt::{TAG, Wrapped};
use super::error::ImageError;

const MAGIC: [u8; 8] = *b"faasw\0ex";
/// Raised whenever the bytes of a parcel come to mean something else.
const FORMAT: u32 = 1;
/// Bytes that are sealed together.
const PIECE: usize = 1 << 20;
/// Bytes of a note at most.
const NOTE_MAX: usize = 4 << 20;
/// How many parts there are beside the note.
const PARTS: usize = 2;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Prefix {
    magic: [u8; 8],
    format: u32,
    note_bytes: u32,
    key: Wrapped,
    note_tag: [u8; TAG],
    unused: u32,
    parts: [u64; PARTS],
}

const PREFIX: usize = 112;
const _: () = assert!(size_of::<Prefix>() == PREFIX);

impl Prefix {
    /// One of a parcel that has such a note and parts of so many bytes; neither is sealed yet.
    fn new(note: &[u8], parts: [u64; PARTS]) -> Result<Self, ParcelError> {
        Ok(Self {
            magic: MAGIC,
            format: FORMAT,
            note_bytes: u32::try_from(note.len()).map_err(|_| ParcelError::TooLarge)?,
            key: Wrapped::NONE,
            note_tag: [0; _],
            unused: 0,
            parts,
        })
    }

    /// What the parcel's key is bound to.
    fn bound_to_key(&self) -> &[u8] {
        self.as_bytes().get(..16).unwrap_or_default()
    }

    /// What the note is bound to: all but its own tag.
    fn bound_to_note(&self) -> Vec<u8> {
        let mut prefix = *self;
        prefix.note_tag = [0; TAG];
        prefix.as_bytes().to_vec()
    }

    /// Bytes of a parcel that begins so; nothing where that is more than there can be.
    fn whole_bytes(&self) -> Option<u64> {
        let sealed = |bytes: u64| {
            let tags = bytes.div_ceil(PIECE as u64).checked_mul(TAG as u64)?;
            bytes.checked_add(tags)
        };
        let [first, second] = self.parts;
        (PREFIX as u64 + u64::from(self.note_bytes))
            .checked_add(sealed(first)?)?
            .checked_add(sealed(second)?)
    }
}

/// Why a parcel is not made or opened.
#[derive(Debug, Error)]
pub enum ParcelError {
    /// A part of it cannot be read.
    #[error("a part of it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is none.
    #[error("it is no export of faasw")]
    Foreign,
    /// Another faasw has made it.
    #[error("it is an export of format {0}, and this faasw reads format {FORMAT}")]
    Format(u32),
    /// It ends before its end.
    #[error("it is cut off")]
    CutOff,
    /// It does not end at its end.
    #[error("there is something behind its end")]
    TooLong,
    /// It was sealed with another key, or its beginning is damaged.
    #[error("it was sealed with another image key, or its beginning is damaged")]
    Key,
    /// Some of it is not what was sealed.
    #[error("it is damaged")]
    Damaged,
    /// It has more than a parcel can have.
    #[error("it is larger than an export can be")]
    TooLarge,
    /// The system has no randomness.
    #[error("the system has no randomness")]
    Random,
}

fn of_sealing(error: ImageError) -> ParcelError {
    match error {
        ImageError::Random => ParcelError::Random,
        _ => ParcelError::TooLarge,
    }
}

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
//! All numbers are little-endian. The key seals each piece once, by its number. It also seals the
//! note, to which the prefix is bound. So nothing can be left out, added or moved.
//!
//! At most one piece is in memory, in either direction. [`Sealing`] returns the parcel piece by
//! piece to the sender. [`Opening`] receives it in the same way, and returns nothing whose tag was
//! not checked. Neither of them waits for the other node.

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
/// Version of the format. Raise it whenever the meaning of a parcel's bytes changes.
const FORMAT: u32 = 1;
/// Bytes that are sealed together.
const PIECE: usize = 1 << 20;
/// Maximum bytes of a note.
const NOTE_MAX: usize = 4 << 20;
/// Number of parts besides the note.
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
    /// Returns the prefix of a parcel with this note and parts of these lengths, before either is
    /// sealed.
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

    /// Returns the bytes that the parcel's key is bound to.
    fn bound_to_key(&self) -> &[u8] {
        self.as_bytes().get(..16).unwrap_or_default()
    }

    /// Returns the bytes that the note is bound to: the prefix without the note's own tag.
    fn bound_to_note(&self) -> Vec<u8> {
        let mut prefix = *self;
        prefix.note_tag = [0; TAG];
        prefix.as_bytes().to_vec()
    }

    /// Returns the bytes of a parcel with this prefix; `None` if they exceed the maximum.
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

/// The reason why a parcel cannot be made or opened.
#[derive(Debug, Error)]
pub enum ParcelError {
    /// A part cannot be read.
    #[error("a part of it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The data is no parcel.
    #[error("it is not an export of faasw")]
    Foreign,
    /// An incompatible version of faasw made the parcel.
    #[error("it is an export of format {0}, and this faasw reads format {FORMAT}")]
    Format(u32),
    /// The parcel ends too early.
    #[error("it is cut off")]
    CutOff,
    /// Bytes follow the end of the parcel.
    #[error("bytes follow its end")]
    TooLong,
    /// The parcel was sealed with another key, or its beginning is damaged.
    #[error("it was sealed with another image key, or its beginning is damaged")]
    Key,
    /// A piece is not what was sealed.
    #[error("it is damaged")]
    Damaged,
    /// The parcel exceeds the maximum size.
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

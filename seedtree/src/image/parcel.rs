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

use std::io::{self, Read};

use thiserror::Error;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER_PART;
use super::crypt::{DataKey, ImageKey, TAG, Wrapped};
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

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
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
    /// There is more to be sealed than a parcel can have.
    #[error("it would be too large")]
    TooLarge,
    /// The system has no randomness.
    #[error("the system has no randomness")]
    Random,
}

/// A parcel that was opened: all of it is what was sealed, by somebody who has the key.
#[derive(Debug, PartialEq, Eq)]
pub struct Parcel {
    /// What its parts are, in the words of whoever made it.
    pub note: Vec<u8>,
    /// Its parts.
    pub parts: [Vec<u8>; PARTS],
}

/// Seals a note and two parts, of so many bytes each.
///
/// # Errors
/// When a part has fewer bytes than that, or cannot be read; when it is too large.
pub fn seal_parcel(
    key: &ImageKey,
    note: &[u8],
    parts: [(u64, &mut dyn Read); PARTS],
) -> Result<Vec<u8>, ParcelError> {
    if note.len() > NOTE_MAX {
        return Err(ParcelError::TooLarge);
    }
    let mut prefix = Prefix {
        magic: MAGIC,
        format: FORMAT,
        note_bytes: u32::try_from(note.len()).map_err(|_| ParcelError::TooLarge)?,
        key: Wrapped::NONE,
        note_tag: [0; TAG],
        unused: 0,
        parts: [parts[0].0, parts[1].0],
    };
    let whole = prefix
        .whole_bytes()
        .and_then(|all| usize::try_from(all).ok());
    let mut parcel = Vec::with_capacity(whole.ok_or(ParcelError::TooLarge)?);
    let (data, wrapped) = key.wrap(prefix.bound_to_key()).map_err(of_sealing)?;
    prefix.key = wrapped;
    let mut sealed = note.to_vec();
    let bound = prefix.bound_to_note();
    prefix.note_tag = data
        .seal(HEADER_PART, &bound, &mut sealed)
        .map_err(of_sealing)?;
    parcel.extend(prefix.as_bytes());
    parcel.extend(sealed);
    let mut numbers = 0..;
    for (bytes, part) in parts {
        seal_part(&data, &mut numbers, bytes, part, &mut parcel)?;
    }
    Ok(parcel)
}

fn seal_part(
    data: &DataKey,
    numbers: &mut impl Iterator<Item = u64>,
    bytes: u64,
    part: &mut dyn Read,
    parcel: &mut Vec<u8>,
) -> Result<(), ParcelError> {
    let mut left = bytes;
    while left > 0 {
        let length = left.min(PIECE as u64);
        let start = parcel.len();
        if (&mut *part).take(length).read_to_end(parcel)? as u64 != length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let number = numbers.next().ok_or(ParcelError::TooLarge)?;
        let piece = parcel.get_mut(start..).unwrap_or_default();
        let tag = data.seal(number, b"", piece).map_err(of_sealing)?;
        parcel.extend(tag);
        left -= length;
    }
    Ok(())
}

fn of_sealing(error: ImageError) -> ParcelError {
    match error {
        ImageError::Random => ParcelError::Random,
        _ => ParcelError::TooLarge,
    }
}

/// A parcel whose lengths say anything, sealed as whoever has the key seals one: the note, and what
/// follows it, cut into pieces where these lengths cut it. For a fuzz target alone.
///
/// # Errors
/// When it is too large; the system's.
#[cfg(feature = "fuzzing")]
pub(super) fn seal_as_told(
    key: &ImageKey,
    note: &[u8],
    parts: [u64; PARTS],
    mut content: &[u8],
) -> Result<Vec<u8>, ParcelError> {
    let mut parcel = seal_parcel(key, note, [(0, &mut io::empty()), (0, &mut io::empty())])?;
    let (mut prefix, _) = Prefix::read_from_prefix(&parcel).map_err(|_| ParcelError::Foreign)?;
    let data = key.unwrap(prefix.bound_to_key(), prefix.key);
    let data = data.map_err(of_sealing)?;
    prefix.parts = parts;
    let mut sealed = note.to_vec();
    let bound = prefix.bound_to_note();
    let tag = data.seal(HEADER_PART, &bound, &mut sealed);
    prefix.note_tag = tag.map_err(of_sealing)?;
    parcel.clear();
    parcel.extend(prefix.as_bytes());
    parcel.extend(sealed);
    let mut numbers = 0..;
    for told in parts {
        let there = told.min(content.len() as u64);
        seal_part(&data, &mut numbers, there, &mut content, &mut parcel)?;
    }
    parcel.extend(content);
    Ok(parcel)
}

/// Opens a parcel that was sealed with this key. Nothing of it is believed before it was checked.
/// It is opened where it lies: beside it no more is taken of memory than its note and its first part
/// have.
///
/// # Errors
/// What it is instead.
pub fn open_parcel(key: &ImageKey, mut parcel: Vec<u8>) -> Result<Parcel, ParcelError> {
    let foreign = || match parcel.starts_with(&MAGIC) {
        true => ParcelError::CutOff,
        false => ParcelError::Foreign,
    };
    let (prefix, rest) = Prefix::read_from_prefix(&parcel).map_err(|_| foreign())?;
    if prefix.magic != MAGIC {
        return Err(ParcelError::Foreign);
    }
    if prefix.format != FORMAT {
        return Err(ParcelError::Format(prefix.format));
    }
    let data = key
        .unwrap(prefix.bound_to_key(), prefix.key)
        .map_err(|_| ParcelError::Key)?;
    let note_bytes = prefix.note_bytes as usize;
    if note_bytes > NOTE_MAX {
        return Err(ParcelError::TooLarge);
    }
    let mut note = rest.get(..note_bytes).ok_or(ParcelError::CutOff)?.to_vec();
    let bound = prefix.bound_to_note();
    if !data.open(HEADER_PART, &bound, prefix.note_tag, &mut note) {
        return Err(ParcelError::Damaged);
    }
    // From here on its lengths are what was sealed, and may be a liar's who has the key.
    let whole = prefix.whole_bytes().ok_or(ParcelError::CutOff)?;
    match whole.cmp(&(parcel.len() as u64)) {
        std::cmp::Ordering::Less => return Err(ParcelError::TooLong),
        std::cmp::Ordering::Greater => return Err(ParcelError::CutOff),
        std::cmp::Ordering::Equal => {}
    }
    let mut opening = Opening {
        data: &data,
        next: 0,
        parcel: &mut parcel,
        read: PREFIX + note_bytes,
        written: 0,
    };
    let [first, second] = prefix.parts;
    let bytes = opening.part(first)?;
    let module = opening.parcel.get(..bytes).unwrap_or_default().to_vec();
    // The second one is the large one: it stays where the parcel was.
    opening.written = 0;
    let bytes = opening.part(second)?;
    parcel.truncate(bytes);
    Ok(Parcel {
        note,
        parts: [module, parcel],
    })
}

/// A parcel whose pieces are opened, and moved together over what was read before.
struct Opening<'a> {
    data: &'a DataKey,
    /// Number of the next piece.
    next: u64,
    parcel: &'a mut [u8],
    read: usize,
    written: usize,
}

impl Opening<'_> {
    /// Opens a part of so many bytes; says how many those are.
    fn part(&mut self, bytes: u64) -> Result<usize, ParcelError> {
        let bytes = usize::try_from(bytes).map_err(|_| ParcelError::CutOff)?;
        let mut left = bytes;
        while left > 0 {
            let length = left.min(PIECE);
            let rest = self.parcel.get_mut(self.read..).unwrap_or_default();
            let (piece, behind) = rest
                .split_at_mut_checked(length)
                .ok_or(ParcelError::CutOff)?;
            let tag = behind.first_chunk::<TAG>().ok_or(ParcelError::CutOff)?;
            if !self.data.open(self.next, b"", *tag, piece) {
                return Err(ParcelError::Damaged);
            }
            // Never beyond what was read: the beginning of the parcel and all tags are left out.
            self.parcel
                .copy_within(self.read..self.read + length, self.written);
            self.next += 1;
            self.read += length + TAG;
            self.written += length;
            left -= length;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ImageKey {
        ImageKey::new(&[5; ImageKey::BYTES])
    }

    fn sealed(note: &[u8], parts: [&[u8]; 2]) -> Vec<u8> {
        let [mut first, mut second] = parts;
        let parts: [(u64, &mut dyn Read); 2] = [
            (first.len() as u64, &mut first),
            (second.len() as u64, &mut second),
        ];
        seal_parcel(&key(), note, parts).unwrap()
    }

    #[test]
    fn what_was_sealed_is_opened() {
        let long: Vec<u8> = (0..PIECE + 5).map(|at| at as u8).collect();
        let whole = &long[..PIECE];
        let cases: [(&[u8], [&[u8]; 2]); 4] = [
            (b"note", [b"module", &long]),
            (b"", [b"", b""]),
            (b"note", [whole, b""]),
            (&long, [&long, whole]),
        ];
        for (note, parts) in cases {
            let parcel = sealed(note, parts);
            let opened = open_parcel(&key(), parcel).unwrap();
            assert!(opened.note == note && opened.parts == parts);
        }
        assert!(
            !sealed(b"secret note", [b"", b""])
                .windows(6)
                .any(|part| part == b"secret")
        );
    }

    #[test]
    fn a_stranger_is_told_apart() {
        let parcel = sealed(b"note", [b"module", b"image"]);
        let another = ImageKey::new(&[6; ImageKey::BYTES]);
        let of = |parcel: &[u8]| open_parcel(&key(), parcel.to_vec()).unwrap_err();
        let error = open_parcel(&another, parcel.clone()).unwrap_err();
        assert!(matches!(error, ParcelError::Key), "{error}");
        assert!(matches!(of(b"\0asm"), ParcelError::Foreign));
        assert!(matches!(of(b""), ParcelError::Foreign));
        assert!(matches!(of(&[0; 4096]), ParcelError::Foreign));
        assert!(matches!(of(&parcel[..50]), ParcelError::CutOff));
        let mut newer = parcel.clone();
        newer[8] = 9;
        assert!(matches!(of(&newer), ParcelError::Format(9)));
        let mut longer = parcel.clone();
        longer.push(0);
        assert!(matches!(of(&longer), ParcelError::TooLong));
    }

    #[test]
    fn no_byte_may_change_and_none_be_missing() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let part: Vec<u8> = (0..PIECE + 100).map(|_| random.u8(..)).collect();
        let parcel = sealed(b"what it is", [&part, &part[..200]]);
        let begin = 0..PREFIX + 10;
        let places: Vec<usize> = begin
            .chain((0..60).map(|_| random.usize(..parcel.len())))
            .collect();
        for at in places {
            let mut changed = parcel.clone();
            changed[at] ^= 1 << random.u8(..8);
            assert!(open_parcel(&key(), changed).is_err(), "{at}");
        }
        for _ in 0..60 {
            let length = random.usize(MAGIC.len()..parcel.len());
            let error = open_parcel(&key(), parcel[..length].to_vec()).unwrap_err();
            assert!(matches!(error, ParcelError::CutOff), "{length}: {error}");
        }
    }

    #[test]
    fn pieces_keep_their_places() {
        let (one, other) = (vec![1; PIECE], vec![2; PIECE]);
        let parcel = sealed(b"", [&one, &other]);
        let second = PREFIX + PIECE + TAG;
        let swapped = [
            &parcel[..PREFIX],
            &parcel[second..],
            &parcel[PREFIX..second],
        ]
        .concat();
        let error = open_parcel(&key(), swapped).unwrap_err();
        assert!(matches!(error, ParcelError::Damaged), "{error}");
    }

    /// Lengths that only somebody who has the key can have sealed.
    #[test]
    fn a_length_that_cannot_be_costs_nothing() {
        for parts in [
            [u64::MAX, 1],
            [1, u64::MAX],
            [u64::MAX - 200, 0],
            [1 << 62, 1 << 62],
        ] {
            let mut prefix = Prefix {
                magic: MAGIC,
                format: FORMAT,
                note_bytes: 4,
                key: Wrapped::NONE,
                note_tag: [0; TAG],
                unused: 0,
                parts,
            };
            let (data, wrapped) = key().wrap(prefix.bound_to_key()).unwrap();
            prefix.key = wrapped;
            let mut note = *b"note";
            let bound = prefix.bound_to_note();
            prefix.note_tag = data.seal(HEADER_PART, &bound, &mut note).unwrap();
            let parcel = [prefix.as_bytes(), &note].concat();
            let error = open_parcel(&key(), parcel).unwrap_err();
            assert!(matches!(error, ParcelError::CutOff), "{error}");
        }
    }

    #[test]
    fn a_part_that_is_shorter_than_it_was_is_no_part() {
        let mut short: &[u8] = b"short";
        let parts: [(u64, &mut dyn Read); 2] = [(6, &mut short), (0, &mut io::empty())];
        let error = seal_parcel(&key(), b"", parts).unwrap_err();
        assert!(matches!(error, ParcelError::Io(_)), "{error}");
    }
}

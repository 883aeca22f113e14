//! Exports, as whoever writes the file makes them, and as somebody does who has the key, too.
//!
//! Input: how it is to be read; then a whole file, or a note's length, the note, the lengths of
//! both parts and what follows, which are sealed here: what is said gets past the seals. The second
//! part may be an image that is to be sealed first: the length of its header, the header, and
//! pages. What was sealed may be damaged or cut off afterwards.

use faasw_seedtree::image::{ImageKey, ParcelError, Sealing, fuzzing};

use super::image;
use crate::Target;
use crate::input::Input;

/// An export is copied to be sealed, opened, sealed again and opened once more here; an image in it
/// is sealed, and read as one.
pub const TARGET: Target = Target {
    name: "export",
    read,
    memory: 4 << 20,
    per_byte: 48,
    executions: 30_000,
};

/// Says that a note and content follow, which are to be sealed here.
pub const IS_SEALED_HERE: u8 = 1;
/// Says that the lengths of the parts are those that the content has.
pub const IS_HONEST: u8 = 2;
/// Says that a byte changes once it is sealed: where, and how, come first.
pub const IS_DAMAGED: u8 = 4;
/// Says that it is cut off once it is sealed: how much is left comes first.
pub const IS_CUT_OFF: u8 = 8;
/// Says that the second part is an image that is to be sealed.
pub const HAS_IMAGE: u8 = 16;

fn read(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let how = input.byte();
    if how & IS_SEALED_HERE == 0 {
        // Nobody but who has the key makes one, and nothing is given away of it.
        assert!(opened(input.rest()).is_err());
        return false;
    }
    let (place, change) = (u32::from_le_bytes(input.array()), input.byte());
    let note_bytes = usize::from(input.short());
    let note = input.take(note_bytes);
    let [mut first, mut second] = [input.number(), input.number()];
    let Some(content) = content(how, first, &mut input) else {
        return false;
    };
    if how & IS_HONEST != 0 {
        first = first.min(content.len() as u64);
        second = content.len() as u64 - first;
    }
    let Ok(mut file) = fuzzing::parcel(note, [first, second], &content, &image::KEY) else {
        return false;
    };
    let place = usize::try_from(place).unwrap_or(0) % file.len();
    if how & IS_CUT_OFF != 0 {
        file.truncate(place);
        let (given, is_whole) = given(&file);
        assert!(!is_whole && given.is_begin_of(note, &content), "{place}");
        return false;
    }
    if how & IS_DAMAGED != 0 {
        if let Some(byte) = file.get_mut(place) {
            *byte ^= change;
        }
        let (given, is_whole) = given(&file);
        assert!(given.is_begin_of(note, &content), "{place}");
        assert!(change == 0 || !is_whole, "{place}");
    }
    let Ok(parcel) = opened(&file) else {
        return false;
    };
    let sealed = first.checked_add(second);
    assert_eq!(sealed, Some(content.len() as u64));
    assert!(parcel.note == note && parcel.parts.concat() == content);
    is_sealed_again(&parcel, file.len());
    let [_, image] = &parcel.parts;
    let is_image = image::is_read(image, false);
    let Some(told) = faasw::fuzzing::export_note(note) else {
        return is_image;
    };
    // What it says is what it means.
    assert_eq!(faasw::fuzzing::export_note(&told), Some(told));
    true
}

/// What is to be sealed: what is left of the input, or so many bytes of it and an image.
fn content(how: u8, first: u64, input: &mut Input<'_>) -> Option<Vec<u8>> {
    if how & HAS_IMAGE == 0 {
        return Some(input.rest().to_vec());
    }
    let module = input.take(usize::try_from(first).unwrap_or(usize::MAX));
    let length = u32::from_le_bytes(input.array());
    let header = input.take(usize::try_from(length).unwrap_or(usize::MAX));
    let image = fuzzing::sealed(header, input.rest(), &image::KEY).ok()?;
    Some([module, &image].concat())
}

/// What was given away of an export.
#[derive(Default, PartialEq)]
struct Given {
    note: Vec<u8>,
    parts: [Vec<u8>; 2],
}

impl Given {
    /// Whether that is what was sealed, or the first of it.
    fn is_begin_of(&self, note: &[u8], content: &[u8]) -> bool {
        let parts = self.parts.concat();
        (self.note == note || (self.note.is_empty() && parts.is_empty()))
            && content.starts_with(&parts)
    }
}

/// What a node has of a file when it comes to its end, or to what is no export; whether it was one.
fn given(file: &[u8]) -> (Given, bool) {
    let mut given = Given::default();
    let opened = open(file, &mut given);
    (given, opened.is_ok())
}

fn opened(file: &[u8]) -> Result<Given, ParcelError> {
    let mut given = Given::default();
    open(file, &mut given)?;
    Ok(given)
}

fn open(file: &[u8], given: &mut Given) -> Result<(), ParcelError> {
    let key: &ImageKey = &image::KEY;
    fuzzing::opened_parcel(key, file, |part, bytes| match given.parts.get_mut(part) {
        Some(part) => part.extend(bytes),
        None => given.note.extend(bytes),
    })
}

/// It goes on to another node as it came.
fn is_sealed_again(given: &Given, length: usize) {
    let parts = given.parts.each_ref().map(|part| {
        let reader: Box<dyn std::io::Read + Send + Sync> =
            Box::new(std::io::Cursor::new(part.clone()));
        (part.len() as u64, reader)
    });
    let mut again = Vec::new();
    let sealing = Sealing::new(&image::KEY, &given.note, parts);
    let mut sealing = sealing.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(sealing.bytes(), length as u64);
    while let Ok(Some(piece)) = sealing.next_piece() {
        again.extend(piece);
    }
    assert_eq!(again.len(), length);
    assert!(opened(&again).is_ok_and(|opened| opened == *given));
}

//! Exports that an attacker writes without the key, and ones that an attacker with the key writes.
//!
//! Input: how it is to be read; then a whole file, or a note's length, the note, the lengths of
//! both parts and their content. Note and parts are sealed here, so that their content is parsed.
//! The second part may be an image that is to be sealed first: the length of its header, the
//! header, and pages. The sealed file may be damaged or cut off afterwards.

use faasw_seedtree::image::{ImageKey, ParcelError, Sealing, fuzzing};

use super::image;
use crate::Target;
use crate::input::Input;

/// An export is copied to be sealed, opened, sealed again and opened once more here. An image in it
/// is sealed, and read as an image.
pub const TARGET: Target = Target {
    name: "export",
    read,
    memory: 4 << 20,
    per_byte: 48,
    executions: 30_000,
};

/// Flag: a note and content follow, which are to be sealed here.
pub const IS_SEALED_HERE: u8 = 1;
/// Flag: the lengths of the parts are those of the content.
pub const IS_HONEST: u8 = 2;
/// Flag: a byte is changed after sealing. Its position and the change come first in the input.
pub const IS_DAMAGED: u8 = 4;
/// Flag: the file is cut off after sealing. The length that is left comes first in the input.
pub const IS_CUT_OFF: u8 = 8;
/// Flag: the second part is an image that is to be sealed.
pub const HAS_IMAGE: u8 = 16;

fn read(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let how = input.byte();
    if how & IS_SEALED_HERE == 0 {
        // Only a holder of the key can make an export, and a file without its seals does not open.
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
        let (released, is_whole) = released(&file);
        assert!(!is_whole && released.is_begin_of(note, &content), "{place}");
        return false;
    }
    if how & IS_DAMAGED != 0 {
        if let Some(byte) = file.get_mut(place) {
            *byte ^= change;
        }
        let (released, is_whole) = released(&file);
        assert!(released.is_begin_of(note, &content), "{place}");
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
    // The note is encoded again to the same meaning.
    assert_eq!(faasw::fuzzing::export_note(&told), Some(told));
    true
}

/// Returns the content to be sealed: the rest of the input, or `first` bytes of it and an image.
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

/// The content of an export that was released while it was opened.
#[derive(Default, PartialEq)]
struct ReleasedContent {
    note: Vec<u8>,
    parts: [Vec<u8>; 2],
}

impl ReleasedContent {
    /// Returns whether the content is what was sealed, or the begin of it.
    fn is_begin_of(&self, note: &[u8], content: &[u8]) -> bool {
        let parts = self.parts.concat();
        (self.note == note || (self.note.is_empty() && parts.is_empty()))
            && content.starts_with(&parts)
    }
}

/// Returns what a node has read of a file when it reaches the end or an error, and whether the file
/// was an export.
fn released(file: &[u8]) -> (ReleasedContent, bool) {
    let mut released = ReleasedContent::default();
    let opened = open(file, &mut released);
    (released, opened.is_ok())
}

fn opened(file: &[u8]) -> Result<ReleasedContent, ParcelError> {
    let mut released = ReleasedContent::default();
    open(file, &mut released)?;
    Ok(released)
}

fn open(file: &[u8], released: &mut ReleasedContent) -> Result<(), ParcelError> {
    let key: &ImageKey = &image::KEY;
    fuzzing::opened_parcel(key, file, |part, bytes| {
        match released.parts.get_mut(part) {
            Some(part) => part.extend(bytes),
            None => released.note.extend(bytes),
        }
    })
}

/// Checks that the export can be sealed again to the same length and content, for another node.
fn is_sealed_again(released: &ReleasedContent, length: usize) {
    let parts = released.parts.each_ref().map(|part| {
        let reader: Box<dyn std::io::Read + Send + Sync> =
            Box::new(std::io::Cursor::new(part.clone()));
        (part.len() as u64, reader)
    });
    let mut again = Vec::new();
    let sealing = Sealing::new(&image::KEY, &released.note, parts);
    let mut sealing = sealing.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(sealing.bytes(), length as u64);
    while let Ok(Some(piece)) = sealing.next_piece() {
        again.extend(piece);
    }
    assert_eq!(again.len(), length);
    assert!(opened(&again).is_ok_and(|opened| opened == *released));
}

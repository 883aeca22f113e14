//! Exports, as whoever writes the file makes them, and as somebody does who has the key, too.
//!
//! Input: how it is to be read; then a whole file, or a note's length, the note, the lengths of
//! both parts and what follows, which are sealed here: what is said gets past the seals. What was
//! sealed may be damaged or cut off afterwards.

use std::io::Read;
use std::sync::LazyLock;

use faasw_seedtree::image::{ImageKey, Parcel, fuzzing, open_parcel, seal_parcel};

use crate::Target;
use crate::input::Input;

/// An export is copied to be sealed, opened, sealed again and opened once more here.
pub const TARGET: Target = Target {
    name: "export",
    read,
    memory: 1 << 20,
    per_byte: 8,
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

static KEY: LazyLock<ImageKey> =
    LazyLock::new(|| ImageKey::new(b"the key of images that stay 4eve"));

fn read(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let how = input.byte();
    if how & IS_SEALED_HERE == 0 {
        // Nobody but who has the key makes one.
        assert!(open_parcel(&KEY, input.rest().to_vec()).is_err());
        return false;
    }
    let (place, change) = (u32::from_le_bytes(input.array()), input.byte());
    let note_bytes = usize::from(input.short());
    let note = input.take(note_bytes);
    let [mut first, mut second] = [input.number(), input.number()];
    let content = input.rest();
    if how & IS_HONEST != 0 {
        first = first.min(content.len() as u64);
        second = content.len() as u64 - first;
    }
    let Ok(mut file) = fuzzing::parcel(note, [first, second], content, &KEY) else {
        return false;
    };
    let place = usize::try_from(place).unwrap_or(0) % file.len();
    if how & IS_CUT_OFF != 0 {
        file.truncate(place);
        assert!(open_parcel(&KEY, file.clone()).is_err(), "{place}");
        return false;
    }
    if how & IS_DAMAGED != 0 {
        if let Some(byte) = file.get_mut(place) {
            *byte ^= change;
        }
        assert!(
            change == 0 || open_parcel(&KEY, file.clone()).is_err(),
            "{place}"
        );
    }
    let Ok(parcel) = open_parcel(&KEY, file.clone()) else {
        return false;
    };
    let sealed = first.checked_add(second);
    assert_eq!(sealed, Some(content.len() as u64));
    let [module, image] = &parcel.parts;
    assert!(parcel.note == note && [&module[..], image].concat() == content);
    is_sealed_again(&parcel, file.len());
    let Some(told) = faasw::fuzzing::export_note(note) else {
        return false;
    };
    // What it says is what it means.
    assert_eq!(faasw::fuzzing::export_note(&told), Some(told));
    true
}

/// It goes on to another node as it came.
fn is_sealed_again(parcel: &Parcel, length: usize) {
    let [mut module, mut image] = parcel.parts.each_ref().map(Vec::as_slice);
    let parts: [(u64, &mut dyn Read); 2] = [
        (module.len() as u64, &mut module),
        (image.len() as u64, &mut image),
    ];
    let again = seal_parcel(&KEY, &parcel.note, parts).unwrap_or_default();
    assert_eq!(again.len(), length);
    assert!(open_parcel(&KEY, again).is_ok_and(|opened| opened == *parcel));
}

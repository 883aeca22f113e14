//! The byte layout of format 2, which existing files have: to change it is to change the format.

use std::mem::offset_of;

use faasw_abi::memory_map::PAGE;
use faasw_abi::pages::PageRange;

use super::*;

/// Stops the build when the meaning of an image would change.
macro_rules! pinned {
    ($($is:expr => $was:expr),* $(,)?) => {
        $(const _: () = assert!(
            $is == $was,
            concat!(
                stringify!($is),
                " is not what it is in the images of this format: raise FORMAT, pin what it is \
                 now, and add golden images (seedtree/src/image/tests/golden.rs)"
            )
        );)*
    };
}

pinned! {
    FORMAT => 2,
    MAGIC.len() => 8,
    PREFIX => 4096,
    CHUNK => 65536,
    TAG => 16,
    PAGE => 4096,
    super::super::HEADER_PART => u64::MAX,

    size_of::<Prefix>() => PREFIX,
    offset_of!(Prefix, magic) => 0,
    offset_of!(Prefix, format) => 8,
    offset_of!(Prefix, header_bytes) => 12,
    offset_of!(Prefix, key) => 16,
    offset_of!(Prefix, header_tag) => 76,
    offset_of!(Prefix, zeroes) => 92,

    size_of::<Wrapped>() => 60,
    offset_of!(Wrapped, nonce) => 0,
    offset_of!(Wrapped, key) => 12,
    offset_of!(Wrapped, tag) => 44,

    size_of::<Fixed>() => 176,
    offset_of!(Fixed, content) => 0,
    offset_of!(Fixed, parent) => 32,
    offset_of!(Fixed, purpose) => 64,
    offset_of!(Fixed, ram_bytes) => 96,
    offset_of!(Fixed, monotonic_nanoseconds) => 104,
    offset_of!(Fixed, changed) => 112,
    offset_of!(Fixed, compared) => 120,
    offset_of!(Fixed, has_parent) => 128,
    offset_of!(Fixed, forgets_tables) => 132,
    offset_of!(Fixed, state_bytes) => 136,
    offset_of!(Fixed, own) => 140,
    offset_of!(Fixed, stored) => 144,
    offset_of!(Fixed, inherited) => 148,
    offset_of!(Fixed, filled) => 152,
    offset_of!(Fixed, mapped) => 156,
    offset_of!(Fixed, written) => 160,
    offset_of!(Fixed, read) => 164,
    offset_of!(Fixed, chunks) => 168,
    offset_of!(Fixed, code) => 172,

    size_of::<PageRange>() => 8,
    offset_of!(PageRange, start) => 0,
    offset_of!(PageRange, end) => 4,
}

// Numbers have the same byte order in memory and in a file.
const _: () = assert!(cfg!(target_endian = "little"));

//! Func-images: snapshots in files (Catalyzer §3; docs/decisions/0023).
//!
//! [`Snapshot::write_image`] makes one, and [`Image`] reads it. A file is sealed by a key that is
//! not in it, and names its parent by [`Content`]. The reader checks everything before it trusts
//! it: each part's tag first, then its contents.
//!
//! [`Content`]: crate::Content
//! [`Snapshot::write_image`]: crate::Snapshot::write_image

mod anatomy;
mod crypt;
mod error;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod header;
mod layer_source;
mod pages;
mod parcel;
mod read;
mod sink;
mod source;
#[cfg(test)]
mod tests;
mod write;

pub use self::anatomy::{Anatomy, Use};
pub use self::crypt::ImageKey;
pub use self::error::{ImageError, Part};
pub use self::header::Purpose;
pub use self::layer_source::{LayerFill, LayerSource};
pub use self::parcel::{Contents, Opening, ParcelError, Part as ParcelPart, Sealing};
pub use self::read::Image;
pub use self::sink::Sink;
pub use self::source::Source;
pub use self::write::Arrangement;

use faasw_abi::memory_map::{PAGE, RAM_MAX};
use faasw_abi::pages::PageRange;

use self::format::{CHUNK, HEADER_MAX, PREFIX};

/// Maximum bytes of an image: all of a guest's memory, and the header.
pub const IMAGE_MAX: u64 = (PREFIX + HEADER_MAX) as u64 + RAM_MAX;

/// The part number of the header. Chunks have the numbers from 0 on.
const HEADER_PART: u64 = u64::MAX;

/// Divides pages in their order into the pieces that are sealed together.
fn pieces(stored: &[PageRange]) -> impl Iterator<Item = Vec<PageRange>> {
    let most = CHUNK as u64 / PAGE;
    let mut ranges = stored.iter().copied();
    let mut rest: Option<PageRange> = None;
    std::iter::from_fn(move || {
        let (mut piece, mut room) = (Vec::new(), most);
        while room > 0 {
            let Some(range) = rest.take().or_else(|| ranges.next()) else {
                break;
            };
            let (taken, behind) = range.split_at(room as u32);
            room -= taken.count();
            piece.push(taken);
            rest = Some(behind).filter(|behind| !behind.is_empty());
        }
        (!piece.is_empty()).then_some(piece)
    })
}

//! Support for fuzz targets, which must get past the seals: images with arbitrary contents, sealed
//! with the right key. Not for any other use.

use zerocopy::IntoBytes;

use super::HEADER_PART;
use super::crypt::{ImageKey, TAG, Wrapped};
use super::error::ImageError;
use super::format::{CHUNK, FORMAT, MAGIC, PREFIX};
use super::header::{Header, Prefix};
use super::parcel::{ParcelError, open_all, seal_as_told};
use super::read::Image;
use super::source::Source;

/// Returns a file with this header and these pages, without checking them. The tags of the pages'
/// chunks replace the last bytes of the header, where they belong.
///
/// # Errors
/// Returns [`ImageError::TooLarge`] if the header is too long for any image, and the errors of the
/// system.
pub fn sealed(header: &[u8], pages: &[u8], key: &ImageKey) -> Result<Vec<u8>, ImageError> {
    let mut prefix = Prefix {
        magic: MAGIC,
        format: FORMAT,
        header_bytes: u32::try_from(header.len()).map_err(|_| ImageError::TooLarge)?,
        key: Wrapped::NONE,
        header_tag: [0; _],
        zeroes: [0; _],
    };
    let (data_key, wrapped) = key.wrap(prefix.bound_to_key())?;
    prefix.key = wrapped;
    let (mut header, mut pages) = (header.to_vec(), pages.to_vec());
    let chunks = pages.len().div_ceil(CHUNK);
    let tags = header.len().saturating_sub(chunks * TAG);
    let mut places = header.get_mut(tags..).unwrap_or_default().chunks_mut(TAG);
    for (number, chunk) in (0..).zip(pages.chunks_mut(CHUNK)) {
        let tag = data_key.seal(number, b"", chunk)?;
        if let Some(place) = places.next() {
            place.copy_from_slice(tag.get(..place.len()).unwrap_or_default());
        }
    }
    let chunks_at = usize::try_from(Header::chunks_at(header.len()));
    let chunks_at = chunks_at.map_err(|_| ImageError::TooLarge)?;
    prefix.header_tag = data_key.seal(HEADER_PART, &prefix.bound_to_header(), &mut header)?;
    let mut file = prefix.as_bytes().to_vec();
    file.extend(header);
    file.resize(chunks_at.max(PREFIX), 0);
    file.extend(pages);
    Ok(file)
}

/// Returns a parcel with this note, these announced lengths of its parts, and this content, whether
/// or not they match.
///
/// # Errors
/// Returns [`ParcelError`] if it is too large, or the system has no randomness.
pub fn parcel(
    note: &[u8],
    parts: [u64; 2],
    content: &[u8],
    key: &ImageKey,
) -> Result<Vec<u8>, ParcelError> {
    seal_as_told(key, note, parts, content)
}

/// Opens a parcel as a node does, piece by piece. Passes checked pieces to `take`, the note as part
/// 2.
///
/// # Errors
/// Returns the [`ParcelError`] that names the fault.
pub fn opened_parcel(
    key: &ImageKey,
    parcel: &[u8],
    take: impl FnMut(usize, &[u8]),
) -> Result<(), ParcelError> {
    open_all(key, parcel, take)
}

/// Returns the encoded header of an image, before it is sealed, and its pages.
///
/// # Errors
/// Returns an [`ImageError`] if the file is no valid image, and the errors of the source and the
/// system.
pub fn opened(file: &impl Source, key: &ImageKey) -> Result<(Vec<u8>, Vec<u8>), ImageError> {
    let image = Image::open(file, key)?;
    let layer = image.read_layer::<()>("opened", None)?;
    let mut pages = Vec::new();
    for range in image.order() {
        let mut content = vec![0; range.bytes() as usize];
        let read = rustix::io::pread(&layer, &mut content, range.start.address().get());
        read.map_err(ImageError::Layer)?;
        pages.extend(content);
    }
    Ok((image.header().encode()?, pages))
}

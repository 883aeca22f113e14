//! What a fuzz target needs to get beyond the seals: images that say anything, sealed as whoever
//! has the key seals them. Not for anybody else.

use zerocopy::IntoBytes;

use super::HEADER_PART;
use super::crypt::{ImageKey, TAG, Wrapped};
use super::error::ImageError;
use super::header::{CHUNK, FORMAT, Header, MAGIC, PREFIX, Prefix};
use super::parcel::{ParcelError, open_all, seal_as_told};
use super::read::{Image, Source};

/// A file with this header and these pages, whatever they say. The tags of the pages' chunks
/// take the place of the header's last bytes, where they belong.
///
/// # Errors
/// When the header is too long for any image; the system's.
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

/// A parcel with this note, which says that its parts have these lengths, and with this content
/// behind it, whatever that comes to.
///
/// # Errors
/// When it is too large; the system's.
pub fn parcel(
    note: &[u8],
    parts: [u64; 2],
    content: &[u8],
    key: &ImageKey,
) -> Result<Vec<u8>, ParcelError> {
    seal_as_told(key, note, parts, content)
}

/// Opens a parcel as a node does, piece by piece: gives away what it has checked, the note as
/// part 2.
///
/// # Errors
/// What it is instead.
pub fn opened_parcel(
    key: &ImageKey,
    parcel: &[u8],
    take: impl FnMut(usize, &[u8]),
) -> Result<(), ParcelError> {
    open_all(key, parcel, take)
}

/// What an image says, as it stands in it before it is sealed, and its pages.
///
/// # Errors
/// When it is no image; the source's and the system's.
pub fn opened(
    file: &(impl Source + Sync),
    key: &ImageKey,
) -> Result<(Vec<u8>, Vec<u8>), ImageError> {
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

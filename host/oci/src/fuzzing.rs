//! What fuzz targets reach of this crate: what a registry or whoever made an artifact wrote. Not
//! for anybody else.

use std::io::{Cursor, Read as _};

use flate2::read::GzDecoder;
use http::{HeaderMap, HeaderValue, header::WWW_AUTHENTICATE};

use crate::{
    artifact::{
        FilesEntry, FilesLimits,
        layer::{module_of, read_files},
        manifest::Document,
    },
    authorization::{Challenge, TokenAnswer},
};

/// Whether a manifest is one of a module, or leads to one.
#[must_use]
pub fn manifest(bytes: &[u8]) -> bool {
    let Ok(document) = Document::read(bytes) else {
        return false;
    };
    let leads = document.of_wasi().is_ok_and(|digest| digest.is_some());
    let is_one = document.content().is_ok();
    // It is never both.
    assert!(!(leads && is_one));
    leads || is_one
}

/// Whether a registry asks for something that can be had.
#[must_use]
pub fn challenge(bytes: &[u8]) -> bool {
    let Ok(value) = HeaderValue::from_bytes(bytes) else {
        return false;
    };
    let mut headers = HeaderMap::new();
    headers.insert(WWW_AUTHENTICATE, value);
    Challenge::of(&headers).is_some()
}

/// Whether an answer has a token that can be shown.
#[must_use]
pub fn token(bytes: &[u8]) -> bool {
    let answer = serde_json::from_slice::<TokenAnswer>(bytes).ok();
    answer.and_then(TokenAnswer::header).is_some()
}

/// The length of the module in an image's layer, if it has one.
#[must_use]
pub fn module_in(layer: Vec<u8>, limit: u64) -> Option<usize> {
    let module = module_of(Cursor::new(layer), limit);
    module.ok().map(|module| module.len())
}

/// How many files, folders and links a layer of files has, and bytes in them; nothing where it is
/// refused.
#[must_use]
pub fn files_in(layer: Vec<u8>, limits: FilesLimits) -> Option<(usize, u64)> {
    let (mut count, mut bytes) = (0, 0);
    let read = read_files(Cursor::new(layer), limits, |entry: FilesEntry<'_>| {
        count += 1;
        if entry.kind == crate::artifact::FileKind::File {
            bytes += entry.content.len() as u64;
        }
    });
    read.ok().map(|()| (count, bytes))
}

/// What a layer is before it is packed: damage to that gets past a checksum.
#[must_use]
pub fn unpacked(layer: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = GzDecoder::new(layer).read_to_end(&mut bytes);
    read.map(|_| bytes).unwrap_or_default()
}

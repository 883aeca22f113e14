//! Entry points for fuzz targets: parsers of data from registries and authors of artifacts. Not for
//! any other use.

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

/// Returns whether a manifest describes a module or leads to another manifest.
#[must_use]
pub fn manifest(bytes: &[u8]) -> bool {
    let Ok(document) = Document::read(bytes) else {
        return false;
    };
    let leads = document.of_wasi().is_ok_and(|digest| digest.is_some());
    let is_one = document.content().is_ok();
    // A manifest never does both.
    assert!(!(leads && is_one));
    leads || is_one
}

/// Returns whether a registry's challenge can be satisfied.
#[must_use]
pub fn challenge(bytes: &[u8]) -> bool {
    let Ok(value) = HeaderValue::from_bytes(bytes) else {
        return false;
    };
    let mut headers = HeaderMap::new();
    headers.insert(WWW_AUTHENTICATE, value);
    Challenge::of(&headers).is_some()
}

/// Returns whether an answer has a valid token.
#[must_use]
pub fn token(bytes: &[u8]) -> bool {
    let answer = serde_json::from_slice::<TokenAnswer>(bytes).ok();
    answer.and_then(TokenAnswer::header).is_some()
}

/// Returns the size of the module in an image's layer, if it has one.
#[must_use]
pub fn module_in(layer: Vec<u8>, limit: u64) -> Option<usize> {
    let module = module_of(Cursor::new(layer), limit);
    module.ok().map(|module| module.len())
}

/// Returns the number of entries in a layer of files and the size of its files in bytes. Returns
/// `None` if the layer is rejected.
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

/// Decompresses a layer, so that mutations of the result are not rejected by a checksum.
#[must_use]
pub fn unpacked(layer: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = GzDecoder::new(layer).read_to_end(&mut bytes);
    read.map(|_| bytes).unwrap_or_default()
}

//! Detects changes of certificate files.

use super::Pair;
use crate::file_fingerprint::{FileFingerprint, StableChange};

/// The files of all pairs, as they were when they were last read.
#[derive(Debug)]
pub(super) struct Files(pub(super) StableChange<Vec<FileFingerprint>>);

impl Files {
    pub(super) fn new(pairs: &[Pair]) -> Self {
        Self(StableChange::new(stamps(pairs)))
    }
}

/// Returns the stamps of all files, or `None` if one is missing, as in the middle of a rename.
pub(super) fn stamps(pairs: &[Pair]) -> Option<Vec<FileFingerprint>> {
    let paths = pairs.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
    paths.map(|path| FileFingerprint::of(path).ok()).collect()
}

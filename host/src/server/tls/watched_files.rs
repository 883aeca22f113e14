//! Detects changes of certificate files.

use super::CertificatePaths;
use crate::file_fingerprint::{FileFingerprint, StableChange};

/// The files of all pairs, as they were when they were last read.
#[derive(Debug)]
pub(super) struct WatchedFiles(pub(super) StableChange<Vec<FileFingerprint>>);

impl WatchedFiles {
    pub(super) fn new(pairs: &[CertificatePaths]) -> Self {
        Self(StableChange::new(fingerprints(pairs)))
    }
}

/// Returns the stamps of all files, or `None` if one is missing, as in the middle of a rename.
pub(super) fn fingerprints(pairs: &[CertificatePaths]) -> Option<Vec<FileFingerprint>> {
    let paths = pairs.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
    paths.map(|path| FileFingerprint::of(path).ok()).collect()
}

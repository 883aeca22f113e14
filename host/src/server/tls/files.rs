//! Whether the files of certificates have changed.

use super::Pair;
use crate::stamp::{Settling, Stamp};

/// The files of all pairs, as they were when they were last read.
#[derive(Debug)]
pub(super) struct Files(pub(super) Settling<Vec<Stamp>>);

impl Files {
    pub(super) fn new(pairs: &[Pair]) -> Self {
        Self(Settling::new(stamps(pairs)))
    }
}

/// Nothing where one is missing: in the middle of a rename there is none for a moment.
pub(super) fn stamps(pairs: &[Pair]) -> Option<Vec<Stamp>> {
    let paths = pairs.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
    paths.map(|path| Stamp::of(path).ok()).collect()
}

//! Where certificates are.

use std::path::PathBuf;

/// Where a certificate chain and its key are, both as PEM.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

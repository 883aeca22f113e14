//! The files of a certificate.

use std::path::PathBuf;

/// The paths of a certificate chain and its key, both in PEM.
#[derive(Clone, Debug)]
pub(crate) struct CertificatePaths {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

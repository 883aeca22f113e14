//! Why certificates are not taken.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Why TLS cannot be served with the files that were given.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path:?} cannot be read: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// A file is larger than any chain of certificates.
    #[error("{path:?} is larger than the {limit} bytes that are taken")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Most bytes that are read.
        limit: u64,
    },
    /// A file has no certificate, or a damaged one.
    #[error("{path:?} has no certificate that can be read: {reason} (it should be PEM)")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file has no private key, or a damaged one.
    #[error(
        "{path:?} has no private key that can be used: {reason} (it should be PEM, of an RSA, \
         ECDSA or Ed25519 key without a passphrase)"
    )]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A key that is another certificate's.
    #[error("the key of {key:?} does not belong to the certificate of {certificate:?}")]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The node ended meanwhile.
    #[error("the node ended before its certificates were read")]
    Interrupted,
    /// The library refuses to work.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}

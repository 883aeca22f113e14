//! The reasons why certificates are rejected.

use std::{io, path::PathBuf};

use thiserror::Error;

/// The reason why TLS cannot be served with the configured files.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path:?} cannot be read: {error}")]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A file is larger than any certificate chain.
    #[error("{path:?} is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
        /// The maximum size in bytes.
        limit: u64,
    },
    /// A file contains no certificate, or a damaged one.
    #[error("{path:?} has no valid certificate: {reason} (PEM is required)")]
    Certificate {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file contains no private key, or an unusable one.
    #[error(
        "{path:?} has no usable private key: {reason} (PEM of an RSA, ECDSA or Ed25519 key without \
         a passphrase is required)"
    )]
    Key {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The key belongs to another certificate.
    #[error("the key in {key:?} does not match the certificate in {certificate:?}")]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The node ended before the certificates were read.
    #[error("the node ended before its certificates were read")]
    Interrupted,
    /// The TLS library reported an error.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}

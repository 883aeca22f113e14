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
    #[error("{path:?} is larger than the {limit} bytes that are taken")]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
        /// The maximum size in bytes.
        limit: u64,
    },
    /// A file contains no certificate, or a damaged one.
    #[error("{path:?} has no certificate that can be read: {reason} (it should be PEM)")]
    Certificate {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file contains no private key, or an unusable one.
    #[error(
        "{path:?} has no private key that can be used: {reason} (it should be PEM, of an RSA, \
         ECDSA or Ed25519 key without a passphrase)"
    )]
    Key {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The key belongs to another certificate.
    #[error("the key of {key:?} does not belong to the certificate of {certificate:?}")]
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

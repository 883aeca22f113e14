//! Certificates of authorities that an operator trusts.

use rustls::pki_types::{CertificateDer, pem, pem::PemObject as _};
use thiserror::Error;

/// Why certificates are not trusted.
#[derive(Debug, Error)]
pub enum TrustError {
    /// The file contains no certificate.
    #[error("it contains no PEM certificate")]
    None,
    /// A certificate cannot be read.
    #[error("a PEM certificate is invalid: {0}")]
    Pem(String),
    /// A certificate cannot be used as that of an authority.
    #[error("a certificate cannot be trusted: {0}")]
    Certificate(String),
}

/// Parses the certificates of a PEM file, of which there must be at least one. They are checked
/// now, rather than at the first connection.
pub(crate) fn authorities(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let mut all = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate =
            certificate.map_err(|error: pem::Error| TrustError::Pem(error.to_string()))?;
        let of_authority = webpki::anchor_from_trusted_cert(&certificate).map(drop);
        of_authority.map_err(|error| TrustError::Certificate(error.to_string()))?;
        all.push(certificate.into_owned());
    }
    if all.is_empty() {
        Err(TrustError::None)
    } else {
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_a_certificate_is_rejected() {
        for pem in [
            "",
            "nothing",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        ] {
            let trusted = authorities(pem.as_bytes());
            assert!(
                matches!(trusted, Err(TrustError::None)),
                "{pem}: {trusted:?}"
            );
        }
        let broken = authorities(b"-----BEGIN CERTIFICATE-----\nAAAA\n");
        assert!(matches!(broken, Err(TrustError::Pem(_))), "{broken:?}");
        let other = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let other = authorities(other);
        assert!(
            matches!(other, Err(TrustError::Certificate(_))),
            "{other:?}"
        );
    }
}

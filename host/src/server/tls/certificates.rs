//! The loaded certificates, and the choice of one for a name.

use std::{
    collections::HashMap,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    InconsistentKeys,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem, pem::PemObject},
    sign::CertifiedKey,
};
use webpki::EndEntityCert;

use super::TlsError;

/// Maximum size of a file in bytes. A chain has some kilobytes.
const LONGEST: u64 = 1 << 20;

/// The paths of a certificate chain and its key, both in PEM.
#[derive(Clone, Debug)]
pub(crate) struct CertificatePaths {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Certificates with their keys.
#[derive(Debug)]
pub(super) struct Certificates {
    /// The certificate for all names without a better one.
    first: Arc<CertifiedKey>,
    all: Vec<Arc<CertifiedKey>>,
    /// The certificates by name in lower case, wildcards as `*.example.com`.
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    /// Reads all pairs. There must be at least one.
    pub(super) fn read(
        pairs: &[CertificatePaths],
        provider: &CryptoProvider,
    ) -> Result<Self, TlsError> {
        let mut all = Vec::with_capacity(pairs.len());
        let mut by_name = HashMap::new();
        for pair in pairs {
            let certified = Arc::new(read_pair(pair, provider)?);
            for name in names(&certified) {
                // The first certificate with a name wins.
                by_name.entry(name).or_insert_with(|| certified.clone());
            }
            all.push(certified);
        }
        let first = all.first().cloned();
        Ok(Self {
            first: first.ok_or(rustls::Error::NoCertificatesPresented)?,
            all,
            by_name,
        })
    }

    /// Returns the certificate for a client that requests this name: one with exactly this name,
    /// otherwise a wildcard that covers it, otherwise the first.
    pub(super) fn for_name(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let found = name.and_then(|name| self.find(&name.to_ascii_lowercase()));
        found.unwrap_or(&self.first).clone()
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        // A trailing dot is not part of a name in TLS (RFC 6066, section 3), but may be in a URL.
        let name = name.strip_suffix('.').unwrap_or(name);
        self.by_name.get(name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.by_name.get(&format!("*.{parent}"))
        })
    }

    /// Whether a client that connects to this host, a name or an address, would accept one of the
    /// certificates.
    pub(super) fn cover_host(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        let Ok(host) = ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']'))
        else {
            return false;
        };
        self.all.iter().any(|certified| {
            let certificate = certified.end_entity_cert().ok();
            certificate
                .and_then(|certificate| EndEntityCert::try_from(certificate).ok())
                .is_some_and(|parsed| parsed.verify_is_valid_for_subject_name(&host).is_ok())
        })
    }
}

fn read_pair(pair: &CertificatePaths, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let (certificate, key) = (&pair.certificate, &pair.key);
    let bad_certificate = |reason: String| TlsError::Certificate {
        path: certificate.clone(),
        reason,
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&read(certificate)?)
        .collect::<Result<_, _>>()
        .map_err(|error| bad_certificate(reason(error)))?;
    let leaf = chain
        .first()
        .ok_or_else(|| bad_certificate(reason(pem::Error::NoItemsFound)))?;
    EndEntityCert::try_from(leaf).map_err(|error| bad_certificate(error.to_string()))?;
    let bad_key = |reason: String| TlsError::Key {
        path: key.clone(),
        reason,
    };
    let secret =
        PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| bad_key(reason(error)))?;
    CertifiedKey::from_der(chain, secret, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::Mismatch {
            certificate: certificate.clone(),
            key: key.clone(),
        },
        other => bad_key(other.to_string()),
    })
}

/// Returns a readable reason; the parser's own messages name bytes by number.
fn reason(error: pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => "there is none".into(),
        pem::Error::MissingSectionEnd { .. } => "its end is missing".into(),
        pem::Error::IllegalSectionStart { .. } => "a line that begins a section is broken".into(),
        other => other.to_string(),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |error| TlsError::Read {
        path: path.into(),
        error,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > LONGEST {
        return Err(TlsError::TooLarge {
            path: path.into(),
            limit: LONGEST,
        });
    }
    Ok(bytes)
}

/// Returns the names that a certificate is for.
fn names(certified: &CertifiedKey) -> Vec<String> {
    let certificate = certified.end_entity_cert().ok();
    let parsed = certificate.and_then(|certificate| EndEntityCert::try_from(certificate).ok());
    parsed.map_or_else(Vec::new, |parsed| {
        let names = parsed.valid_dns_names();
        names.map(str::to_ascii_lowercase).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertifiedKey as Made, generate_simple_self_signed};
    use rustls::crypto::ring;
    use std::fs;

    /// Writes a certificate for these names and its key to files.
    fn make(folder: &Path, file: &str, names: &[&str]) -> CertificatePaths {
        let names: Vec<String> = names.iter().copied().map(String::from).collect();
        let Made { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        let path = |end: &str| folder.join(format!("{file}.{end}"));
        let pair = CertificatePaths {
            certificate: path("pem"),
            key: path("key"),
        };
        fs::write(&pair.certificate, cert.pem()).unwrap();
        fs::write(&pair.key, signing_key.serialize_pem()).unwrap();
        pair
    }

    fn read_all(pairs: &[CertificatePaths]) -> Result<Certificates, TlsError> {
        Certificates::read(pairs, &ring::default_provider())
    }

    #[test]
    fn the_best_certificate_of_a_name_is_chosen() {
        let folder = tempfile::tempdir().unwrap();
        let pairs = [
            make(folder.path(), "0", &["one.test", "192.0.2.7"]),
            make(folder.path(), "1", &["*.Wild.test", "wild.test"]),
            make(folder.path(), "2", &["exact.wild.test", "one.test"]),
        ];
        let certificates = read_all(&pairs).unwrap();
        let chosen = |name: Option<&str>| {
            let of_name = certificates.for_name(name);
            let mut all = certificates.all.iter();
            all.position(|other| Arc::ptr_eq(other, &of_name)).unwrap()
        };
        for (name, expected) in [
            (None, 0),
            (Some("one.test"), 0),
            (Some("ONE.test."), 0),
            (Some("a.wild.test"), 1),
            (Some("wild.test"), 1),
            (Some("a.b.wild.test"), 0),
            (Some("exact.wild.test"), 2),
            (Some("other.test"), 0),
            (Some(""), 0),
            (Some("."), 0),
        ] {
            assert_eq!(chosen(name), expected, "{name:?}");
        }
        for (host, expected) in [
            ("one.test", true),
            ("One.Test.", true),
            ("a.wild.test", true),
            ("a.b.wild.test", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("[::1]", false),
            ("other.test", false),
            ("", false),
            ("a b", false),
        ] {
            assert_eq!(certificates.cover_host(host), expected, "{host:?}");
        }
    }

    #[test]
    fn a_certificate_error_names_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let good = make(folder.path(), "good", &["good.test"]);
        let other = make(folder.path(), "other", &["other.test"]);
        let file = |name: &str, content: &[u8]| -> PathBuf {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let key = fs::read(&good.key).unwrap();
        let broken = key.get(..key.len() - 30).unwrap();
        let not_der = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (certificate, key, named, words) in [
            (file("none", b""), good.key.clone(), "none", "there is none"),
            (
                good.key.clone(),
                good.key.clone(),
                "good.key",
                "no valid certificate",
            ),
            (
                file("der", not_der),
                good.key.clone(),
                "der",
                "no valid certificate",
            ),
            (
                folder.path().join("gone"),
                good.key.clone(),
                "gone",
                "cannot be read",
            ),
            (folder.path().into(), good.key.clone(), "", "cannot be read"),
            (
                good.certificate.clone(),
                file("half", broken),
                "half",
                "its end is missing",
            ),
            (
                good.certificate.clone(),
                good.certificate.clone(),
                "good.pem",
                "no usable private key",
            ),
            (
                good.certificate.clone(),
                other.key.clone(),
                "other.key",
                "does not match",
            ),
            (
                file("large", &vec![b'x'; 2 << 20]),
                good.key.clone(),
                "large",
                "larger",
            ),
        ] {
            let error = read_all(&[CertificatePaths { certificate, key }])
                .unwrap_err()
                .to_string();
            assert!(error.contains(named) && error.contains(words), "{error}");
        }
        assert!(read_all(&[]).is_err());
    }
}

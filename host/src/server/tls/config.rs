//! The certificates in use, and the choice of one for a handshake. They are read again when their
//! files change.

use std::{
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use tokio::time::{MissedTickBehavior, interval};

use super::{
    TlsError,
    certificates::{CertificatePaths, Certificates},
};
use crate::file_fingerprint::{FileFingerprint, StableChange};

/// Bytes that rustls buffers for a client that does not read: one whole record. A connection's
/// budget counts the bytes that enter TLS, not those that leave it.
pub(super) const BUFFER: usize = 16 << 10;

/// Interval of the checks for changes. A change is read after two checks, so that a program that
/// renews a certificate can write the key as well.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The TLS side of a listener.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(super) config: Arc<ServerConfig>,
    resolver: Arc<CertificateResolver>,
    /// The files of all pairs, as they were when they were last read.
    files: Mutex<StableChange<Vec<FileFingerprint>>>,
    pairs: Vec<CertificatePaths>,
}

/// Chooses the certificate of a handshake from the current certificates.
#[derive(Debug)]
struct CertificateResolver(RwLock<Arc<Certificates>>);

impl Tls {
    /// Reads the certificates. The first one is for clients that send no name, or a name that no
    /// certificate has.
    pub(crate) fn new(pairs: Vec<CertificatePaths>) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        // The files are stamped before they are read, so that the first check notices a change in
        // between.
        let files = StableChange::new(fingerprints(&pairs));
        let certificates = Certificates::read(&pairs, &provider)?;
        let resolver = Arc::new(CertificateResolver(RwLock::new(Arc::new(certificates))));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(resolver.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Clients keep their session tickets; the node keeps one key for all.
        config.ticketer = ring::Ticketer::new()?;
        Ok(Self {
            config: Arc::new(config),
            resolver,
            files: Mutex::new(files),
            pairs,
        })
    }

    /// Reads the certificates again. If that fails, the previous certificates stay in use.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let certificates = Certificates::read(&self.pairs, self.config.crypto_provider())?;
        *self
            .resolver
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(certificates);
        Ok(())
    }

    /// Checks the files periodically, and reads them again when they have changed, until dropped.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut checks = interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            let tls = self.clone();
            // The files may be on a disk that is slow or unavailable.
            let checked = tokio::task::spawn_blocking(move || tls.reload_if_changed()).await;
            match checked {
                Ok(None) => {}
                Ok(Some(Ok(()))) => tracing::info!("changed certificates reloaded"),
                Ok(Some(Err(error))) => tracing::error!(
                    %error, "changed certificates are invalid; the previous ones stay in use"
                ),
                // The runtime ends.
                Err(_) => return,
            }
        }
    }

    fn reload_if_changed(&self) -> Option<Result<(), TlsError>> {
        let now = fingerprints(&self.pairs)?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.look(now).then(|| self.reload())
    }

    /// Whether a certificate is for this host, so that a client can connect here.
    pub(crate) fn has_certificate_for(&self, host: &str) -> bool {
        self.resolver.now().cover_host(host)
    }
}

/// Returns the fingerprints of all files, or `None` if one is missing, as in a rename.
fn fingerprints(pairs: &[CertificatePaths]) -> Option<Vec<FileFingerprint>> {
    let paths = pairs.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
    paths.map(|path| FileFingerprint::of(path).ok()).collect()
}

impl CertificateResolver {
    fn now(&self) -> Arc<Certificates> {
        // The value changes by one assignment, so a panic leaves either the old or the new one.
        let now = self.0.read().unwrap_or_else(PoisonError::into_inner);
        now.clone()
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.now().for_name(hello.server_name()))
    }
}

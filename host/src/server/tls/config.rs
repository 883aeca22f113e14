//! The certificates in use, and the choice of one for a handshake.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::{CertificatePaths, TlsError, certificates::Certificates, watched_files::WatchedFiles};

/// Bytes that rustls buffers for a client that does not read: one whole record. A connection's
/// budget counts the bytes that enter TLS, not those that leave it.
pub(super) const BUFFER: usize = 16 << 10;

/// The TLS side of a listener.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(super) config: Arc<ServerConfig>,
    resolver: Arc<CertificateResolver>,
    pub(super) files: Mutex<WatchedFiles>,
    pub(super) pairs: Vec<CertificatePaths>,
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
        let files = WatchedFiles::new(&pairs);
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

    /// Whether a certificate is for this host, so that a client can connect here.
    pub(crate) fn has_certificate_for(&self, host: &str) -> bool {
        self.resolver.now().cover_host(host)
    }
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

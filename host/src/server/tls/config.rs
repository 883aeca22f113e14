//! Certificates in use, and how a handshake gets one of them.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::{Pair, TlsError, certificates::Certificates, files::Files};

/// Records that rustls keeps for a client that does not take them, in bytes: one whole
/// record. A connection's budget sees what goes into TLS, not what comes out.
pub(super) const BUFFER: usize = 16 << 10;

/// The TLS side of a listener.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(super) config: Arc<ServerConfig>,
    chooser: Arc<Chooser>,
    pub(super) files: Mutex<Files>,
    pub(super) pairs: Vec<Pair>,
}

/// Chooses the certificate of a handshake among those of now.
#[derive(Debug)]
struct Chooser(RwLock<Arc<Certificates>>);

impl Tls {
    /// Reads the certificates. The first one is for clients that ask for no name, or
    /// for one that no certificate has.
    pub(crate) fn new(pairs: Vec<Pair>) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        // Stamped first: should they change while they are read, the first looks notice.
        let files = Files::new(&pairs);
        let certificates = Certificates::read(&pairs, &provider)?;
        let chooser = Arc::new(Chooser(RwLock::new(Arc::new(certificates))));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(chooser.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Clients keep what it takes to come back; the node keeps one key for all.
        config.ticketer = ring::Ticketer::new()?;
        Ok(Self {
            config: Arc::new(config),
            chooser,
            files: Mutex::new(files),
            pairs,
        })
    }

    /// Reads the certificates again. Where that fails, those before stay.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let certificates = Certificates::read(&self.pairs, self.config.crypto_provider())?;
        *self
            .chooser
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(certificates);
        Ok(())
    }

    /// Whether a certificate is for this host, so that a client can come here.
    pub(crate) fn has_certificate_for(&self, host: &str) -> bool {
        self.chooser.now().are_for(host)
    }
}

impl Chooser {
    fn now(&self) -> Arc<Certificates> {
        // It changes by one assignment: a panic leaves the one or the other.
        let now = self.0.read().unwrap_or_else(PoisonError::into_inner);
        now.clone()
    }
}

impl ResolvesServerCert for Chooser {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.now().of_name(hello.server_name()))
    }
}

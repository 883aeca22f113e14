//! TLS to an upstream.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use faasw_abi::outgoing::{Failure, FailureCode};
use faasw_egress_policy::Host;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::failure;

/// The protocol name of HTTP/2 in ALPN (RFC 9113, 3.2).
const HTTP2: &[u8] = b"h2";

/// Returns whether the server has chosen HTTP/2. A server that chooses nothing speaks HTTP/1.1.
pub fn has_chosen_http2(stream: &TlsStream<TcpStream>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP2)
}

/// A TLS client for TLS 1.2 and 1.3, which trusts the usual roots and those of the operator.
pub struct Tls(TlsConnector);

impl Tls {
    /// Creates a client. `authorities` are certificates in DER that are trusted besides the usual
    /// roots.
    ///
    /// # Errors
    /// Returns an error if one of them is not a valid certificate.
    pub fn new(authorities: &[Bytes]) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        for authority in authorities {
            let certificate = CertificateDer::from(&authority[..]);
            roots
                .add(certificate.into_owned())
                .map_err(io::Error::other)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Performs the handshake with the server that has the name, or the address, of `host`.
    ///
    /// # Errors
    /// Returns the failure if the server's certificate is not valid for `host`, or the server does
    /// not speak TLS.
    pub async fn connect(
        &self,
        host: &Host,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let name = match host {
            Host::Name(name) => ServerName::try_from(name.as_str().to_owned()),
            Host::Address(address) => Ok(ServerName::from(*address)),
        };
        // No certificate can be valid for any other name.
        let name = name.map_err(|_| Failure::new(FailureCode::TlsCertificateError))?;
        let connected = self.0.connect(name, stream).await;
        connected.map_err(|error| failure::of_io(&error))
    }
}

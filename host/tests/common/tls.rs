//! Certificates and TLS clients.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    raw::{RawResponse, parse},
    time_limit,
};

pub const ALL: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

/// A certificate and its key in files.
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Files {
    pub fn new(folder: &Path, name: &str) -> Self {
        let path = |end: &str| folder.join(format!("{name}.{end}"));
        Self {
            certificate: path("pem"),
            key: path("key"),
        }
    }

    /// Writes a new certificate for these names, as a renewal does: the new files replace the old
    /// ones.
    pub fn write(&self, names: &[&str]) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().copied().map(String::from).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        replace(&self.certificate, &made.cert.pem());
        replace(&self.key, &made.signing_key.serialize_pem());
        made.cert.der().clone()
    }
}

pub fn replace(path: &Path, content: &str) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(new, path).unwrap();
}

/// The root certificates that a client trusts, and the versions and protocols that it offers.
pub struct Client {
    pub roots: Vec<CertificateDer<'static>>,
    pub versions: &'static [&'static SupportedProtocolVersion],
    pub protocols: &'static [&'static str],
}

impl Client {
    pub fn new(root: &CertificateDer<'static>) -> Self {
        Self {
            roots: vec![root.clone()],
            versions: ALL,
            protocols: &[],
        }
    }

    /// Performs the handshake with a server of this name.
    pub async fn connect(
        &self,
        address: SocketAddr,
        name: &str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        for root in &self.roots {
            roots.add(root.clone()).unwrap();
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = self
            .protocols
            .iter()
            .map(|protocol| protocol.as_bytes().to_vec())
            .collect();
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let shaking = TlsConnector::from(Arc::new(config)).connect(name, stream);
        timeout(time_limit(60), shaking).await.expect("a handshake")
    }

    /// Sends a GET request on a connection of its own to the server `name`.
    pub async fn get(&self, address: SocketAddr, name: &str, path: &str) -> RawResponse {
        let mut stream = self.connect(address, name).await.unwrap();
        get(&mut stream, name, path).await
    }
}

/// Sends a GET request and reads to the end of the connection.
pub async fn get(stream: &mut TlsStream<TcpStream>, host: &str, path: &str) -> RawResponse {
    let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    parse(&read_all(stream).await)
}

/// Reads until the other end closes the TLS session.
pub async fn read_all<S: tokio::io::AsyncRead + Unpin>(stream: &mut S) -> Vec<u8> {
    use tokio::io::AsyncReadExt as _;
    let mut bytes = Vec::new();
    let reading = timeout(time_limit(60), stream.read_to_end(&mut bytes)).await;
    reading.expect("an end in time").unwrap();
    bytes
}

//! The bytes that a hostile client sends.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{
    io::{
        AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf, split,
    },
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsConnector;

/// The node's name in requests and in its certificate.
pub const HOST: &str = "one.test";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// SETTINGS_INITIAL_WINDOW_SIZE
pub const INITIAL_WINDOW: u16 = 4;

/// Returns the `number`th of an attacker's many addresses; the neighbour uses none of them.
pub fn address(number: usize) -> Ipv4Addr {
    let [high, low] = u16::try_from(number + 1).unwrap().to_be_bytes();
    Ipv4Addr::new(127, 66, high, low)
}

/// The node under attack.
#[derive(Clone)]
pub struct Target {
    pub address: SocketAddr,
    /// The node's certificate, if it speaks TLS.
    pub certificate: Option<CertificateDer<'static>>,
}

/// A connection, with TLS or without.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub type Connection = Box<dyn Stream>;

impl Target {
    /// Connects from one of the attacker's addresses, with a small receive buffer. With TLS the
    /// handshake is complete and has negotiated `protocol`, if that is `Some`.
    pub async fn connect(&self, from: Ipv4Addr, protocol: Option<&str>) -> io::Result<Connection> {
        let stream = connect(self.address, from).await?;
        let Some(certificate) = &self.certificate else {
            return Ok(Box::new(stream));
        };
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols.extend(protocol.map(Vec::from));
        let name = ServerName::try_from(HOST).unwrap();
        let shaking = TlsConnector::from(Arc::new(config)).connect(name, stream);
        Ok(Box::new(shaking.await?))
    }
}

/// Connects without TLS.
pub async fn connect(target: SocketAddr, from: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    socket.bind((from, 0).into())?;
    let stream = socket.connect(target).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns an HPACK literal without indexing, whose name is entry `name` of the static table.
fn field(name: u8, value: &str) -> Vec<u8> {
    let mut bytes = vec![name, u8::try_from(value.len()).unwrap()];
    bytes.extend(value.as_bytes());
    bytes
}

/// Returns the fields of a request, without any about a body.
pub fn request(method: &str, path: &str) -> Vec<u8> {
    // 2: `:method`, 4: `:path`, 1: `:authority`; 0x86 is `:scheme: http`, which does not depend on
    // TLS.
    [field(2, method), vec![0x86], field(4, path), field(1, HOST)].concat()
}

pub fn get(stream: u32, path: &str) -> Vec<u8> {
    let flags = END_HEADERS | END_STREAM;
    frame(HEADERS, flags, stream, &request("GET", path))
}

/// Returns a request whose body follows later.
pub fn post(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &request("POST", path))
}

pub fn window_update(stream: u32, more: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

/// Returns the ID of a client's `number`th stream.
pub fn stream(number: u32) -> u32 {
    2 * number + 1
}

/// An HTTP/2 connection whose responses are discarded, or not even read.
pub struct Http2 {
    writing: WriteHalf<Connection>,
    /// The task or half of the connection for the node's responses.
    reading: Reading,
}

enum Reading {
    ThrownAway(JoinHandle<()>),
    Unread(#[expect(dead_code, reason = "it keeps the connection")] ReadHalf<Connection>),
}

impl Http2 {
    /// Opens a connection with these settings.
    pub async fn open(
        target: &Target,
        from: Ipv4Addr,
        settings: &[(u16, u32)],
        reads: bool,
    ) -> io::Result<Self> {
        let (mut reader, mut writing) = split(target.connect(from, Some("h2")).await?);
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let settings: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        bytes.extend(frame(SETTINGS, 0, 0, &settings));
        writing.write_all(&bytes).await?;
        let reading = if reads {
            Reading::ThrownAway(tokio::spawn(async move {
                let mut piece = [0; 16 << 10];
                while matches!(reader.read(&mut piece).await, Ok(count) if count > 0) {}
            }))
        } else {
            Reading::Unread(reader)
        };
        Ok(Self { writing, reading })
    }

    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writing.write_all(bytes).await
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        if let Reading::ThrownAway(reading) = &self.reading {
            reading.abort();
        }
    }
}

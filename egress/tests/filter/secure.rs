//! An HTTP/2 server over TLS.

use std::sync::Arc;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Request, Response};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Returns the configuration of a server of that name, and the certificate of its authority.
pub fn config(name: &str) -> (Arc<ServerConfig>, Bytes) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap().der().clone();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    (Arc::new(config), Bytes::copy_from_slice(authority.der()))
}

/// Starts an echo server, and returns its port. Must be called within a runtime of tokio.
pub async fn echoing(config: Arc<ServerConfig>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(TlsAcceptor::from(config.clone()), stream));
        }
    });
    port
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream) -> Option<()> {
    let stream = acceptor.accept(stream).await.ok()?;
    let mut connection = h2::server::handshake(stream).await.ok()?;
    while let Some(Ok((request, answering))) = connection.accept().await {
        tokio::spawn(echo(request, answering));
    }
    None
}

async fn echo(request: Request<RecvStream>, mut answering: SendResponse<Bytes>) -> Option<()> {
    let mut body = request.into_body();
    let mut echoed = answering.send_response(Response::new(()), false).ok()?;
    while let Some(Ok(mut data)) = body.data().await {
        body.flow_control().release_capacity(data.len()).ok()?;
        while !data.is_empty() {
            echoed.reserve_capacity(data.len());
            let room = match echoed.capacity() {
                0 => std::future::poll_fn(|context| echoed.poll_capacity(context))
                    .await?
                    .ok()?,
                room => room,
            };
            let piece = data.split_to(room.min(data.len()));
            echoed.send_data(piece, false).ok()?;
        }
    }
    echoed.send_data(Bytes::new(), true).ok()
}

//! HTTP/2 servers that use the same library as the worker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::tls::{Authority, identity};

/// A server's connection.
pub type Served = Connection<TlsStream<TcpStream>, Bytes>;

/// A request, and the handle for its response.
pub type IncomingRequest = (Request<RecvStream>, SendResponse<Bytes>);

/// A server of `upstream.example` that counts its connections.
pub struct Server {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

/// The TLS configuration of a server of `upstream.example` that chooses HTTP/2.
pub fn config(authority: &Authority) -> Arc<ServerConfig> {
    let identity = identity(Some(authority), &["upstream.example"], false);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.0], identity.1)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

impl Server {
    /// Starts a server that runs `each` for every connection.
    pub fn new<F>(
        authority: &Authority,
        builder: &Builder,
        each: impl Fn(Served, usize) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let acceptor = TlsAcceptor::from(config(authority));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (counted, each, builder) = (connections.clone(), Arc::new(each), builder.clone());
        tokio::spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let (acceptor, each, builder) = (acceptor.clone(), each.clone(), builder.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    if let Ok(connection) = builder.handshake(stream).await {
                        each(connection, number).await;
                    }
                });
            }
        });
        Self {
            address,
            connections,
        }
    }

    /// Starts a server that runs `each` for every request, concurrently.
    pub fn answering<F>(
        authority: &Authority,
        builder: &Builder,
        each: impl Fn(IncomingRequest) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::new(authority, builder, move |mut connection, _| {
            let each = each.clone();
            async move {
                while let Some(Ok(asked)) = connection.accept().await {
                    tokio::spawn(each(asked));
                }
            }
        })
    }

    pub fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Answers with a complete body.
pub fn answer(mut answering: SendResponse<Bytes>, body: impl Into<Bytes>) {
    // The client may be gone.
    if let Ok(mut stream) = answering.send_response(Response::new(()), false) {
        let _ = stream.send_data(body.into(), true);
    }
}

/// Sends data as there is room for it. Returns false if the client no longer reads.
pub async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes) -> bool {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = match stream.capacity() {
            0 => std::future::poll_fn(|context| stream.poll_capacity(context)).await,
            room => Some(Ok(room)),
        };
        let Some(Ok(room)) = room else {
            return false;
        };
        if stream
            .send_data(data.split_to(room.min(data.len())), false)
            .is_err()
        {
            return false;
        }
    }
    true
}

/// Receives a body and its trailers. If the body ends early, returns the part that arrived.
pub async fn receive(body: &mut RecvStream) -> (Vec<u8>, Result<Option<HeaderMap>, h2::Error>) {
    let mut received = Vec::new();
    while let Some(data) = body.data().await {
        match data {
            Ok(data) => {
                body.flow_control().release_capacity(data.len()).unwrap();
                received.extend_from_slice(&data);
            }
            Err(error) => return (received, Err(error)),
        }
    }
    (received, body.trailers().await)
}

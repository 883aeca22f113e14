//! A listener whose connections start with a TLS handshake.

use std::{io, sync::Arc};

use tokio::net::{TcpListener, TcpStream};

use super::{Tls, stream::TlsStream};
use crate::server::listener::{Accepted, Listener};

/// Accepts connections without waiting for their handshakes.
pub(in crate::server) struct TlsListener {
    pub(in crate::server) listener: TcpListener,
    pub(in crate::server) tls: Arc<Tls>,
}

impl Listener for TlsListener {
    type Connection = TlsStream<TcpStream>;

    async fn accept(&self) -> io::Result<Accepted<Self::Connection>> {
        let Accepted {
            connection,
            address,
            descriptor,
        } = Listener::accept(&self.listener).await?;
        Ok(Accepted {
            connection: TlsStream::new(connection, &self.tls),
            address,
            descriptor,
        })
    }
}

//! A listener whose connections begin with a handshake.

use std::{io, net::IpAddr, sync::Arc};

use tokio::net::{TcpListener, TcpStream};

use super::{Tls, stream::TlsStream};
use crate::server::listener::Listener;

/// Accepts connections; who accepts them does not wait for their handshakes.
pub(in crate::server) struct TlsListener {
    pub(in crate::server) listener: TcpListener,
    pub(in crate::server) tls: Arc<Tls>,
}

impl Listener for TlsListener {
    type Connection = TlsStream<TcpStream>;

    async fn accept(&self) -> io::Result<(Self::Connection, Option<IpAddr>)> {
        let (connection, peer) = Listener::accept(&self.listener).await?;
        Ok((TlsStream::new(connection, &self.tls), peer))
    }
}

//! A proxy on a socket that is already open.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::IntoRawFd as _,
    sync::Arc,
};

use async_trait::async_trait;
use pingora::{
    proxy::{HttpProxy, http_proxy_service},
    server::{ListenFds, ShutdownWatch, configuration::ServerConf},
    services::{Service, listening},
};

use crate::Edge;

/// A pingora service that serves a proxy on a socket of its caller.
///
/// By default, pingora opens its sockets in the background. An address in use then ends only a
/// task, and the caller cannot learn which port 0 became. pingora does take over sockets of a
/// previous process, by address. The caller's socket is added to those.
pub struct EdgeService {
    proxy: listening::Service<HttpProxy<Edge>>,
    address: SocketAddr,
    socket: Option<TcpListener>,
}

impl EdgeService {
    /// Makes the service. Clients can connect immediately, and are served once the server runs.
    ///
    /// # Errors
    /// Returns an error if the socket's address cannot be read, or if it cannot be made
    /// non-blocking.
    pub fn new(
        configuration: &Arc<ServerConf>,
        edge: Edge,
        socket: TcpListener,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let mut proxy = http_proxy_service(configuration, edge);
        proxy.add_tcp(&address.to_string());
        Ok(Self {
            proxy,
            address,
            socket: Some(socket),
        })
    }
}

#[async_trait]
impl Service for EdgeService {
    async fn start_service(
        &mut self,
        sockets: Option<ListenFds>,
        shutdown: ShutdownWatch,
        listeners_per_socket: usize,
    ) {
        if let (Some(sockets), Some(socket)) = (&sockets, self.socket.take()) {
            let descriptor = socket.into_raw_fd();
            sockets.lock().add(self.address.to_string(), descriptor);
        }
        self.proxy
            .start_service(sockets, shutdown, listeners_per_socket)
            .await;
    }

    fn name(&self) -> &str {
        "edge-proxy"
    }
}
